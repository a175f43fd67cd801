//===- ConvertZeroToXlaFfi.cpp - Starts and waits as custom calls ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// XLA only respects data dependences and runs independent calls in any order. A
// token, a tensor of one byte that every call passes on, keeps the calls in the
// same order on all ranks. Ties, tokens and the outputs that a wait passes on
// alias their operands, so nothing is copied and XLA keeps the buffers alive.
//
//===----------------------------------------------------------------------===//

#include "TransferNames.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Transforms/DialectConversion.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Conversion/Patterns.h"
#include "zpp/Dialect/Guest/Branches.h"
#include "zpp/Dialect/Guest/CustomCall.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {
#define GEN_PASS_DEF_CONVERTZEROTOXLAFFIPASS
#include "zpp/Conversion/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

namespace {
/// Passes one token through all starts and waits of a program.
///
/// Inside of a manual computation, and where there is none, it has the byte of
/// a device. Outside of several ones it has those of all devices, and leaves
/// one computation to enter the next: the first gathers of a backward pass may
/// follow from nothing in the forward pass.
class TokenThreading {
public:
  explicit TokenThreading(Operation *root) {
    auto module = dyn_cast<ModuleOp>(root);
    if (!module)
      module = root->getParentOfType<ModuleOp>();
    devices = getNumDevices(module).value_or(0);
    root->walk([&](StartOp start) {
      for (Operation *op = start; op; op = op->getParentOp()) {
        holders.insert(op);
        // Into and out of other ops no token can pass.
        Operation *parent = op->getParentOp();
        if (parent && holders.insert(parent).second && !canPass(parent))
          blocks.push_back(op->getBlock());
      }
    });
  }

  void run() {
    for (Block *block : blocks)
      run(*block, Value(), /*isUsed=*/false);
  }

private:
  /// True for loops, branches and manual computations.
  bool canPass(Operation *op) {
    return isWhile(op) || isBranching(op) || manuals.contains(op);
  }

  /// True for a `case` or an `if` of which each region ends in results.
  static bool isBranching(Operation *op) {
    if (!isNamed(op, guest::kCase) && !isNamed(op, guest::kIf))
      return false;
    return BranchesView::get(op)->getBodies().size() == op->getNumRegions();
  }

  /// Whether a token of all devices can enter and leave `op`.
  bool isLinkable(Operation *op) {
    if (devices == 0 || !manuals.contains(op) || !manuals.namesMesh(op))
      return false;
    for (Operation *parent = op->getParentOp(); parent;
         parent = parent->getParentOp())
      if (manuals.contains(parent))
        return false;
    std::string own = getSharedNothingSharding(op);
    if (sharding.empty())
      sharding = own;
    return own == sharding;
  }

  /// Whether all that `block` holds lies in such computations.
  bool isOutside(Block &block) {
    bool holdsAny = false;
    for (Operation &op : block) {
      if (isa<StartOp, WaitOp>(op))
        return false;
      if (!holders.contains(&op))
        continue;
      if (isBranching(&op)) {
        for (Block *body : BranchesView::get(&op)->getBodies())
          if (holdsCalls(*body) && !isOutside(*body))
            return false;
      } else if (isWhile(&op) ? !isOutside(WhileView(&op).getBody())
                              : !isLinkable(&op)) {
        return false;
      }
      holdsAny = true;
    }
    return holdsAny;
  }

  bool holdsCalls(Block &block) {
    return llvm::any_of(block, [&](Operation &op) {
      return isa<StartOp, WaitOp>(op) || holders.contains(&op);
    });
  }

  Value createToken(Operation *before, bool ofAllDevices) {
    OpBuilder builder(before);
    auto type = RankedTensorType::get({ofAllDevices ? devices : 1},
                                      builder.getI8Type());
    return createConstant(
        builder, before->getLoc(),
        DenseElementsAttr::get(type, builder.getI8IntegerAttr(0)));
  }

  /// Passes `token` through the starts and waits in `block`, in its loops, its
  /// branches and its manual computations. Returns the last token, or what was
  /// given if there are none. `isUsed`: the last one is.
  Value run(Block &block, Value token, bool isUsed) {
    SmallVector<Operation *> ops;
    for (Operation &op : block)
      if (isa<StartOp, WaitOp>(op) || (holders.contains(&op) && canPass(&op)))
        ops.push_back(&op);
    bool outside = isOutside(block);
    // One computation alone needs no other token than its own. In a loop it
    // does (X9): XLA would move calls out of it that read nothing of the
    // iteration.
    bool links =
        outside && (isUsed || ops.size() > 1 || !manuals.contains(ops.front()));
    for (Operation *op : ops) {
      bool isUsedLater = isUsed || op != ops.back();
      if (manuals.contains(op)) {
        if (links)
          token = runManual(op, token, isUsedLater);
        else
          run(ManualView(op).getBody(), Value(), /*isUsed=*/false);
        continue;
      }
      if (!token)
        token = createToken(op, outside);
      if (isWhile(op))
        token = runLoop(op, token);
      else if (isBranching(op))
        token = runBranches(op, token);
      else
        token = addTie(op, token)->getResults().back();
    }
    return token;
  }

  /// Lets each region of `op` read the token and return its last one.
  Value runBranches(Operation *op, Value token) {
    for (Block *body : BranchesView::get(op)->getBodies()) {
      Value last = run(*body, token, /*isUsed=*/true);
      body->back().insertOperands(body->back().getNumOperands(), last);
    }
    return extendOp(op, ValueRange(), token.getType())->getResults().back();
  }

  /// Makes `loop` carry the token.
  Value runLoop(Operation *loop, Value token) {
    WhileView extended = extendLoop(loop, token);
    Block &body = extended.getBody();
    extended.addNext(run(body, body.getArguments().back(), /*isUsed=*/true));
    return extended->getResults().back();
  }

  /// Lets the token, if there is one already, enter `manual`, and leave it if
  /// it `isUsed`.
  Value runManual(Operation *manual, Value token, bool isUsed) {
    ManualView view(manual);
    Value entered;
    if (token) {
      view = extendManualComputation(manual, token, ValueRange(), devices);
      entered = view.getBody().getArguments().back();
    }
    Value last = run(view.getBody(), entered, isUsed);
    if (!isUsed || !last)
      return token;
    view = extendManualComputation(view.getOperation(), ValueRange(), last,
                                   devices);
    return view->getResults().back();
  }

  ManualComputations manuals;
  /// 0 if it is not known.
  int64_t devices = 0;
  /// The sharding of a token of all devices; empty until a computation has one.
  std::string sharding;
  llvm::DenseSet<Operation *> holders;
  SmallVector<Block *> blocks;
};
} // namespace

void zpp::addOrderTokens(Operation *root) { TokenThreading(root).run(); }

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

/// Returns the function of the host module that `start` runs, or null.
static FunctionOpInterface getHostFunction(StartOp start) {
  FunctionOpInterface function = getStartedFunction(start);
  if (!function || !isHostModule(function->getParentOp()))
    return {};
  return function;
}

/// Returns the workspace that `function`, which `start` runs, takes, or null.
static RankedTensorType getWorkspace(StartOp start,
                                     FunctionOpInterface function) {
  ArrayRef<Type> arguments = function.getArgumentTypes();
  size_t numBuffers = start.getInputs().size() + start.getOutputs().size();
  if (arguments.size() <= numBuffers)
    return {};
  auto type = cast<MemRefType>(arguments[numBuffers]);
  return RankedTensorType::get(type.getShape(), type.getElementType());
}

/// Returns the inputs of `start` that an output may overwrite, and these
/// outputs: `function` adds to what is held, and neither reads it afterwards
/// nor writes the output before.
static SmallVector<std::pair<unsigned, unsigned>>
getInPlace(StartOp start, FunctionOpInterface function) {
  SmallVector<std::pair<unsigned, unsigned>> pairs;
  unsigned numInputs = start.getInputs().size();
  unsigned numOutputs = start.getOutputs().size();
  if (function.isExternal() ||
      function.getNumArguments() < numInputs + numOutputs)
    return pairs;
  Block &block = function.getFunctionBody().front();
  for (auto add : block.getOps<DequantizeAddOp>()) {
    auto held = dyn_cast<BlockArgument>(add.getHeld());
    auto init = dyn_cast<BlockArgument>(add.getInit());
    if (!held || !init || held.getArgNumber() >= numInputs ||
        init.getArgNumber() < numInputs ||
        init.getArgNumber() >= numInputs + numOutputs)
      continue;
    unsigned input = held.getArgNumber();
    unsigned output = init.getArgNumber() - numInputs;
    auto isBefore = [&](Operation *user) {
      return user->getBlock() == &block && user->isBeforeInBlock(add);
    };
    Type type = start.getInputs()[input].getType();
    if (type == start.getOutputs()[output].getType() && getBytes(type) > 0 &&
        llvm::all_of(
            held.getUsers(),
            [&](Operation *user) { return user == add || isBefore(user); }) &&
        llvm::none_of(init.getUsers(), isBefore))
      pairs.push_back({input, output});
  }
  return pairs;
}

namespace {
/// Returns the configuration of the calls of a start and its wait, which pass
/// `numInputs` and, if `hasWorkspace`, a workspace.
SmallVector<NamedAttribute> getConfig(Builder &builder, StringRef bundle,
                                      StartOp start, size_t numInputs,
                                      bool hasWorkspace) {
  auto integer = [&](int64_t value) {
    return builder.getI64IntegerAttr(value);
  };
  StringRef name = start.getCallee().getLeafReference();
  return {
      builder.getNamedAttr("bundle", builder.getStringAttr(bundle)),
      builder.getNamedAttr("function", builder.getStringAttr(name)),
      builder.getNamedAttr("inputs", integer(numInputs)),
      builder.getNamedAttr("outputs", integer(start.getOutputs().size())),
      builder.getNamedAttr("workspace", integer(hasWorkspace)),
  };
}

/// `loc` with the name under which profilers show `call` of `transfer`.
Location getNamedLoc(StringRef call, StringRef transfer, Location loc) {
  return NameLoc::get(StringAttr::get(loc.getContext(), call + " " + transfer),
                      loc);
}

/// zpp.start: outputs, workspace, ties.
struct LowerStart : public OpConversionPattern<StartOp> {
  LowerStart(MLIRContext *context, StringRef bundle)
      : OpConversionPattern(context), bundle(bundle) {}

  LogicalResult
  matchAndRewrite(StartOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    FunctionOpInterface function = getHostFunction(op);
    if (!function)
      return rewriter.notifyMatchFailure(op, "no function of the host module");
    CustomCallBuilder call(
        rewriter,
        getNamedLoc(kStartTarget, describeTransfer(op, function), op.getLoc()));
    call.addOperands(adaptor.getInputs());
    call.addResults(op.getOutputs().getTypes());
    SmallVector<int64_t> inPlace;
    for (auto [input, output] : getInPlace(op, function)) {
      call.addAlias(output, input);
      inPlace.append({input, output});
    }
    RankedTensorType workspace = getWorkspace(op, function);
    if (workspace)
      call.addResults(TypeRange(workspace));
    size_t firstTie = call.getNumResults();
    call.passOn(adaptor.getTies());
    SmallVector<NamedAttribute> config =
        getConfig(rewriter, bundle, op, op.getInputs().size(),
                  /*hasWorkspace=*/workspace != nullptr);
    config.push_back(rewriter.getNamedAttr(
        "deferrable", rewriter.getBoolAttr(op.getDeferrable())));
    if (!inPlace.empty())
      config.push_back(rewriter.getNamedAttr(
          "in_place", rewriter.getDenseI64ArrayAttr(inPlace)));
    Operation *created =
        call.create(kStartTarget, config, /*hasSideEffect=*/false);
    created->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    if (ArrayAttr origins = op.getOriginsAttr())
      created->setAttr(kOriginsAttr, origins);
    SmallVector<Value> results(
        created->getResults().take_front(op.getOutputs().size()));
    llvm::append_range(results, created->getResults().drop_front(firstTie));
    rewriter.replaceOp(op, results);
    return success();
  }

  std::string bundle;
};

/// zpp.wait: outputs, ties.
struct LowerWait : public OpConversionPattern<WaitOp> {
  LowerWait(MLIRContext *context, StringRef bundle)
      : OpConversionPattern(context), bundle(bundle) {}

  LogicalResult
  matchAndRewrite(WaitOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    StartOp start = op.getStart();
    Operation *started = adaptor.getStarted().front().getDefiningOp();
    auto named = started ? dyn_cast<NameLoc>(started->getLoc()) : NameLoc();
    if (!start || !named || isa<StartOp>(started))
      return rewriter.notifyMatchFailure(op, "its start is not converted");
    StringRef transfer = named.getName().getValue();
    transfer.consume_front(kStartTarget);
    transfer.consume_front(" ");
    CustomCallBuilder call(rewriter,
                           getNamedLoc(kWaitTarget, transfer, op.getLoc()));
    FunctionOpInterface function = getHostFunction(start);
    // Inputs that the start has overwritten are outputs now.
    llvm::SmallDenseSet<unsigned> overwritten;
    for (auto [input, output] : getInPlace(start, function))
      overwritten.insert(input);
    for (auto [index, input] : llvm::enumerate(adaptor.getInputs()))
      if (!overwritten.contains(index))
        call.addOperands(input);
    size_t numInputs = start.getInputs().size() - overwritten.size();
    call.passOn(adaptor.getStarted());
    bool hasWorkspace = getWorkspace(start, function) != nullptr;
    if (hasWorkspace)
      call.addOperands(started->getResult(start.getOutputs().size()));
    call.passOn(adaptor.getTies());
    // XLA would drop (X9) a wait without readers, while its start may stay
    // because of the token.
    bool isRead = llvm::any_of(op.getOutputs(),
                               [](Value value) { return !value.use_empty(); });
    Operation *created =
        call.create(kWaitTarget,
                    getConfig(rewriter, bundle, start, numInputs, hasWorkspace),
                    /*hasSideEffect=*/!isRead);
    created->setDiscardableAttrs(op->getDiscardableAttrDictionary());
    rewriter.replaceOp(op, created);
    return success();
  }

  std::string bundle;
};
} // namespace

void zpp::populateZeroToXlaFfiPatterns(RewritePatternSet &patterns,
                                       StringRef bundle) {
  patterns.add<LowerStart, LowerWait>(patterns.getContext(), bundle);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class ConvertZeroToXlaFfiPass
    : public zpp::impl::ConvertZeroToXlaFfiPassBase<ConvertZeroToXlaFfiPass> {
public:
  using ConvertZeroToXlaFfiPassBase::ConvertZeroToXlaFfiPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return requireStablehlo(context);
  }

  void runOnOperation() override {
    if (failed(verifySchedule(getOperation())))
      return signalPassFailure();
    // Check everything, and emit all errors, before changing anything.
    bool isConvertible = true;
    getOperation()->walk([&](StartOp start) {
      if (getHostFunction(start))
        return;
      isConvertible = false;
      start.emitError("failed to legalize 'zero.start': expected a function "
                      "of @")
          << kHostModule << ", but got " << start.getCallee();
    });
    if (!isConvertible)
      return signalPassFailure();

    addOrderTokens(getOperation());
    ConversionTarget target(getContext());
    target.addIllegalOp<StartOp, WaitOp>();
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    RewritePatternSet patterns(&getContext());
    populateZeroToXlaFfiPatterns(patterns, bundle);
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
