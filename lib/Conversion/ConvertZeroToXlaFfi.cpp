//===- ConvertZeroToXlaFfi.cpp - Starts and waits as custom calls ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// XLA knows no order but that of data, and runs independent calls in any. What
// keeps the calls of all ranks in one order is a token, a tensor of one byte
// that every call passes on. Ties, tokens and what is waited for alias, so that
// nothing is copied and XLA keeps the buffers alive.
//
//===----------------------------------------------------------------------===//

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {
#define GEN_PASS_DEF_CONVERTZEROTOXLAFFIPASS
#include "zpp/Conversion/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// Row-major, as the runtime expects it.
ArrayAttr getLayouts(Builder &builder, TypeRange types) {
  return builder.getArrayAttr(llvm::map_to_vector(types, [&](Type type) {
    SmallVector<int64_t> order = llvm::to_vector(llvm::reverse(
        llvm::seq<int64_t>(0, cast<RankedTensorType>(type).getRank())));
    return Attribute(builder.getIndexTensorAttr(order));
  }));
}

class ConvertZeroToXlaFfiPass
    : public zpp::impl::ConvertZeroToXlaFfiPassBase<ConvertZeroToXlaFfiPass> {
public:
  using ConvertZeroToXlaFfiPassBase::ConvertZeroToXlaFfiPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return requireStablehlo(context);
  }

  void runOnOperation() override {
    // Everything is checked before anything is changed.
    bool isConvertible = true;
    SmallVector<Block *> roots;
    getOperation()->walk([&](StartOp start) {
      isConvertible &= succeeded(verifyConvertible(start));
      for (Operation *op = start; op; op = op->getParentOp()) {
        holders.insert(op);
        // Only loops hand a token in and out.
        if (Operation *parent = op->getParentOp();
            parent && !isWhile(parent) && holders.insert(parent).second)
          roots.push_back(op->getBlock());
      }
    });
    if (!isConvertible)
      return signalPassFailure();
    for (Block *root : roots)
      convert(*root, Value());
  }

private:
  static LogicalResult verifyConvertible(StartOp start) {
    FunctionOpInterface function = getStartedFunction(start);
    auto host = function ? function->getParentOfType<ModuleOp>() : ModuleOp();
    if (!host || host.getSymName() != kHostModule)
      return start.emitError("failed to legalize 'zero.start': expected a "
                             "function of @")
             << kHostModule << ", but got " << start.getCallee();
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Order
  //===--------------------------------------------------------------------===//

  Value createToken(OpBuilder &builder, Location loc) {
    auto type = RankedTensorType::get({1}, builder.getI8Type());
    OperationState state(loc, "stablehlo.constant");
    state.addTypes(type);
    state.propertiesAttr = builder.getDictionaryAttr(builder.getNamedAttr(
        "value", DenseElementsAttr::get(type, builder.getI8IntegerAttr(0))));
    return builder.create(state)->getResult(0);
  }

  /// Converts what is in `block` and the loops in it. Returns the last token,
  /// given the first, if any.
  Value convert(Block &block, Value token) {
    for (Operation &op : llvm::make_early_inc_range(block)) {
      auto wait = dyn_cast<WaitOp>(op);
      if (!wait && !holders.contains(&op))
        continue;
      OpBuilder builder(&op);
      if (auto start = dyn_cast<StartOp>(op)) {
        if (!token)
          token = createToken(builder, op.getLoc());
        token = convert(builder, start, token);
      } else if (wait) {
        token = convert(builder, wait, token);
      } else if (isWhile(&op)) {
        if (!token)
          token = createToken(builder, op.getLoc());
        token = convertLoop(&op, token);
      }
    }
    return token;
  }

  /// A loop that carries the token.
  Value convertLoop(Operation *loop, Value token) {
    Operation *extended = extendLoop(loop, token);
    Block &body = extended->getRegion(1).front();
    Value last = convert(body, body.getArguments().back());
    Operation *terminator = body.getTerminator();
    terminator->insertOperands(terminator->getNumOperands(), last);
    return extended->getResults().back();
  }

  //===--------------------------------------------------------------------===//
  // Calls
  //===--------------------------------------------------------------------===//

  /// A custom call; `aliases` are results and the operands that they are.
  Operation *createCall(OpBuilder &builder, Location loc, StringRef target,
                        ArrayRef<NamedAttribute> config, ValueRange operands,
                        TypeRange types,
                        ArrayRef<std::pair<size_t, size_t>> aliases,
                        bool hasSideEffect) {
    assert(types.size() > 1 && "expected a token and more, a tuple");
    std::string text;
    llvm::raw_string_ostream os(text);
    os << "[";
    llvm::interleaveComma(aliases, os, [&](std::pair<size_t, size_t> alias) {
      os << "#stablehlo.output_operand_alias<output_tuple_indices = ["
         << alias.first << "], operand_index = " << alias.second
         << ", operand_tuple_indices = []>";
    });
    os << "]";
    OperationState state(loc, "stablehlo.custom_call");
    state.addOperands(operands);
    state.addTypes(types);
    auto named = [&](StringRef name, Attribute value) {
      return builder.getNamedAttr(name, value);
    };
    state.propertiesAttr = builder.getDictionaryAttr({
        named("api_version", builder.getI32IntegerAttr(4)),
        named("backend_config", builder.getDictionaryAttr(config)),
        named("call_target_name", builder.getStringAttr(target)),
        named("called_computations", builder.getArrayAttr({})),
        named("has_side_effect", builder.getBoolAttr(hasSideEffect)),
        named("operand_layouts", getLayouts(builder, operands.getTypes())),
        named("output_operand_aliases",
              parseAttribute(text, builder.getContext())),
        named("result_layouts", getLayouts(builder, types)),
    });
    return builder.create(state);
  }

  /// What a start and its wait know of the function.
  SmallVector<NamedAttribute> getConfig(Builder &builder, StartOp start,
                                        bool hasWorkspace) {
    auto integer = [&](int64_t value) {
      return builder.getI64IntegerAttr(value);
    };
    StringRef name = start.getCallee().getLeafReference();
    return {
        builder.getNamedAttr("bundle", builder.getStringAttr(bundle)),
        builder.getNamedAttr("function", builder.getStringAttr(name)),
        builder.getNamedAttr("inputs", integer(start.getInputs().size())),
        builder.getNamedAttr("outputs", integer(start.getOutputs().size())),
        builder.getNamedAttr("workspace", integer(hasWorkspace)),
    };
  }

  /// The workspace that the callee takes, or null.
  static RankedTensorType getWorkspace(StartOp start) {
    ArrayRef<Type> arguments = getStartedFunction(start).getArgumentTypes();
    size_t numBuffers = start.getInputs().size() + start.getOutputs().size();
    if (arguments.size() <= numBuffers)
      return {};
    auto type = cast<MemRefType>(arguments[numBuffers]);
    return RankedTensorType::get(type.getShape(), type.getElementType());
  }

  Value convert(OpBuilder &builder, StartOp start, Value token) {
    SmallVector<Value> operands(start.getInputs());
    SmallVector<Type> types(start.getOutputs().getTypes());
    RankedTensorType workspace = getWorkspace(start);
    if (workspace)
      types.push_back(workspace);
    size_t firstTie = types.size();
    SmallVector<std::pair<size_t, size_t>> aliases;
    auto passOn = [&](Value value) {
      aliases.emplace_back(types.size(), operands.size());
      operands.push_back(value);
      types.push_back(value.getType());
    };
    llvm::for_each(start.getTies(), passOn);
    passOn(token);
    SmallVector<NamedAttribute> config =
        getConfig(builder, start, workspace != nullptr);
    config.push_back(builder.getNamedAttr(
        "deferrable", builder.getBoolAttr(start.getDeferrable())));
    Operation *call =
        createCall(builder, start.getLoc(), kStartTarget, config, operands,
                   types, aliases, /*hasSideEffect=*/false);
    call->setDiscardableAttrs(start->getDiscardableAttrDictionary());
    if (ArrayAttr origins = start.getOriginsAttr())
      call->setAttr(kOriginsAttr, origins);
    ValueRange tied =
        call->getResults().slice(firstTie, start.getTied().size());
    for (auto [from, to] : llvm::zip_equal(start.getTied(), tied))
      from.replaceAllUsesWith(to);
    calls[start] = call;
    return call->getResults().back();
  }

  Value convert(OpBuilder &builder, WaitOp wait, Value token) {
    StartOp start = wait.getStart();
    ValueRange started = calls.lookup(start)->getResults();
    size_t numOutputs = start.getOutputs().size();
    bool hasWorkspace = getWorkspace(start) != nullptr;
    SmallVector<Value> operands(wait.getInputs());
    SmallVector<Type> types;
    SmallVector<std::pair<size_t, size_t>> aliases;
    auto passOn = [&](Value value) {
      aliases.emplace_back(types.size(), operands.size());
      operands.push_back(value);
      types.push_back(value.getType());
    };
    llvm::for_each(started.take_front(numOutputs), passOn);
    if (hasWorkspace)
      operands.push_back(started[numOutputs]);
    llvm::for_each(wait.getTies(), passOn);
    passOn(token);

    // What nothing reads XLA would drop, but the start may stay for its token.
    bool isRead = llvm::any_of(wait.getOutputs(),
                               [](Value value) { return !value.use_empty(); });
    Operation *call = createCall(builder, wait.getLoc(), kWaitTarget,
                                 getConfig(builder, start, hasWorkspace),
                                 operands, types, aliases, !isRead);
    call->setDiscardableAttrs(wait->getDiscardableAttrDictionary());
    for (auto [from, to] : llvm::zip(wait.getResults(), call->getResults()))
      from.replaceAllUsesWith(to);
    wait.erase();
    start.erase();
    return call->getResults().back();
  }

  llvm::DenseSet<Operation *> holders;
  llvm::DenseMap<Operation *, Operation *> calls;
};
} // namespace
