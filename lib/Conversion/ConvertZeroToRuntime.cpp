//===- ConvertZeroToRuntime.cpp - Decomposed ops as calls of libzpp_rt ----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeCalls.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/DialectConversion.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Conversion/Patterns.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Runtime/zpp_rt.h"
#include "zpp/Support/Decision.h"
#include "zpp/Transforms/Buffers/BufferLayout.h"
#include "zpp/Transforms/Buffers/RankFunctions.h"

namespace zpp {
#define GEN_PASS_DEF_CONVERTZEROTORUNTIMEPASS
#include "zpp/Conversion/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// "expected buffers, but got 'tensor<4xf32>'", of things that print.
template <typename... Parts> static LeftAlone because(const Parts &...parts) {
  std::string reason;
  llvm::raw_string_ostream os(reason);
  (os << ... << parts);
  return LeftAlone(reason);
}

/// Whether `op`, of the zero dialect, can be converted.
static Decision<> canConvert(Operation *op) {
  auto decomposed = dyn_cast<DecomposedOpInterface>(op);
  if (StringRef pass = getMissingPass(op); !pass.empty())
    return because("run ", pass, " first");
  if (!decomposed)
    return because("run convert-zero-to-xla-ffi first");
  if (!decomposed.isOnBuffers())
    return because("expected buffers, but got tensors of type '",
                   decomposed.getInitType(), "'; run one-shot-bufferize first");
  if (!op->getParentOfType<func::FuncOp>())
    return because("expected a function around it, but got '",
                   op->getParentOp()->getName(), "'");
  for (OpOperand &operand : op->getOpOperands()) {
    auto type = cast<MemRefType>(operand.get().getType());
    std::string expected;
    if (!getChunkStride(operand, &expected))
      return because("expected ", expected, ", but got '", type, "'");
    if (!isMovable(type.getElementType()))
      return because("expected elements of 1, 2, 4 or 8 bytes, but got '",
                     type.getElementType(), "'");
  }
  return Yes();
}

static LogicalResult verifyCallable(Operation *op) {
  Decision<> decision = canConvert(op);
  if (decision)
    return success();
  return op->emitError("failed to legalize '")
         << op->getName() << "': " << decision.getReason();
}

/// Returns the copy as the runtime can do it, if it can.
static std::optional<StridedCopy> getRuntimeCopy(memref::CopyOp copy) {
  auto target = dyn_cast<MemRefType>(copy.getTarget().getType());
  auto source = dyn_cast<MemRefType>(copy.getSource().getType());
  if (!target || !source || !target.hasStaticShape() ||
      !source.hasStaticShape() || !isMovable(target.getElementType()))
    return std::nullopt;
  return StridedCopy::get(target, source);
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

/// Returns the rank that the function around `op` takes, or null.
static Value getRank(Operation *op) {
  auto function = op->getParentOfType<func::FuncOp>();
  if (!function || function.getNumArguments() == 0 ||
      !isa<LLVM::LLVMPointerType>(function.getArgumentTypes().front()))
    return {};
  return function.getArgument(0);
}

namespace {
/// The constants and tables that the patterns add to the module.
struct Globals {
  explicit Globals(ModuleOp module, RuntimeNames names = {})
      : constants(module), names(std::move(names)) {}

  RuntimeConstants constants;
  RuntimeNames names;
};

struct CallRuntime
    : public OpInterfaceConversionPattern<DecomposedOpInterface> {
  CallRuntime(MLIRContext *context, std::shared_ptr<Globals> globals)
      : OpInterfaceConversionPattern(context), globals(std::move(globals)) {}

  LogicalResult
  matchAndRewrite(DecomposedOpInterface op, ArrayRef<Value>,
                  ConversionPatternRewriter &rewriter) const override {
    Value rank = getRank(op);
    if (!rank)
      return rewriter.notifyMatchFailure(op, "its function takes no rank");
    if (Decision<> decision = canConvert(op); !decision)
      return rewriter.notifyMatchFailure(op, decision.getReason());
    lowerOp(rewriter, op, rank, globals->constants, globals->names);
    rewriter.eraseOp(op);
    return success();
  }

  std::shared_ptr<Globals> globals;
};

struct LowerCopy : public OpConversionPattern<memref::CopyOp> {
  LowerCopy(MLIRContext *context, std::shared_ptr<Globals> globals)
      : OpConversionPattern(context), globals(std::move(globals)) {}

  LogicalResult
  matchAndRewrite(memref::CopyOp op, OpAdaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Value rank = getRank(op);
    if (!rank)
      return rewriter.notifyMatchFailure(op, "its function takes no rank");
    std::optional<StridedCopy> copy = getRuntimeCopy(op);
    if (!copy)
      return rewriter.notifyMatchFailure(op, "it is dynamic");
    lowerCopy(rewriter, op, *copy, rank, globals->constants, globals->names);
    rewriter.eraseOp(op);
    return success();
  }

  std::shared_ptr<Globals> globals;
};
} // namespace

static void populatePatterns(RewritePatternSet &patterns,
                             const std::shared_ptr<Globals> &globals) {
  patterns.add<CallRuntime, LowerCopy>(patterns.getContext(), globals);
}

void zpp::populateZeroToRuntimePatterns(RewritePatternSet &patterns,
                                        ModuleOp module) {
  populatePatterns(patterns, std::make_shared<Globals>(module));
}

//===----------------------------------------------------------------------===//
// The rank
//===----------------------------------------------------------------------===//

/// Verifies that every use of `functions` is a call in a function.
static LogicalResult
verifyUses(ModuleOp module, const llvm::SetVector<func::FuncOp> &functions) {
  WalkResult result = module.walk([&](Operation *op) {
    if (auto constant = dyn_cast<func::ConstantOp>(op))
      for (func::FuncOp function : functions)
        if (constant.getValue() == function.getSymName()) {
          op->emitError("expected only calls of '")
              << function.getSymName()
              << "', which gets the rank as an argument, but got a reference";
          return WalkResult::interrupt();
        }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

//===----------------------------------------------------------------------===//
// The workspace
//===----------------------------------------------------------------------===//

/// If other functions call `function`, they call a private copy that keeps the
/// workspace as an argument: asking the runtime twice would give the same
/// memory.
static func::FuncOp splitIfCalled(func::FuncOp function, SymbolTable &symbols) {
  auto module = function->getParentOfType<ModuleOp>();
  SmallVector<func::CallOp> calls;
  module.walk([&](func::CallOp call) {
    if (call.getCallee() == function.getSymName())
      calls.push_back(call);
  });
  if (calls.empty())
    return function;
  OpBuilder builder(function);
  auto entry = cast<func::FuncOp>(builder.cloneWithoutRegions(*function));
  function.setPrivate();
  function.setSymName((function.getSymName() + "_on_workspace").str());
  function->moveAfter(entry);
  symbols.insert(function);
  for (func::CallOp call : calls)
    call.setCallee(function.getSymName());
  Block *block = entry.addEntryBlock();
  builder.setInsertionPointToStart(block);
  auto call = func::CallOp::create(builder, function.getLoc(), function,
                                   block->getArguments());
  func::ReturnOp::create(builder, function.getLoc(), call.getResults());
  return entry;
}

/// Replaces the last argument with memory of the rank. If the rank cannot
/// provide it, which is an error of the rank, a function without results
/// returns.
static LogicalResult allocateWorkspace(func::FuncOp function,
                                       RuntimeConstants &constants) {
  BlockArgument workspace = getWorkspace(function);
  auto type = cast<MemRefType>(workspace.getType());
  Location loc = function.getLoc();
  Block *entry = &function.getBody().front();
  Block *body = entry->splitBlock(entry->begin());
  auto builder = OpBuilder::atBlockEnd(entry);
  auto pointer = LLVM::LLVMPointerType::get(function.getContext());
  auto getConstant = [&](IntegerAttr value) -> Value {
    return LLVM::ConstantOp::create(builder, loc, value);
  };
  Value slot =
      LLVM::AllocaOp::create(builder, loc, pointer, pointer,
                             getConstant(builder.getI64IntegerAttr(1)));
  auto call = createCall(
      builder, loc, "zpp_rt_workspace",
      {function.getArgument(0),
       getConstant(builder.getI64IntegerAttr(type.getNumElements())), slot},
      constants);
  Value data = LLVM::LoadOp::create(builder, loc, pointer, slot);
  workspace.replaceAllUsesWith(createBuffer(builder, loc, type, data));
  if (function.getNumResults() == 0) {
    Value isOk = LLVM::ICmpOp::create(
        builder, loc, LLVM::ICmpPredicate::eq, call.getResult(),
        getConstant(builder.getI32IntegerAttr(ZPP_RT_OK)));
    Block *exit = function.addBlock();
    cf::CondBranchOp::create(builder, loc, isOk, body, exit);
    builder.setInsertionPointToStart(exit);
    func::ReturnOp::create(builder, loc);
  } else {
    cf::BranchOp::create(builder, loc, body);
  }
  return function.eraseArgument(function.getNumArguments() - 1);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Whether a buffer and its views are only copied. The runtime can also copy
/// from host memory.
static bool isOnlyCopied(Value buffer) {
  return llvm::all_of(buffer.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto copy = dyn_cast<memref::CopyOp>(user))
      return use.get() == copy.getSource();
    return isa<ViewLikeOpInterface>(user) && isOnlyCopied(user->getResult(0));
  });
}

/// Verifies that only zero ops and copies access buffers.
static LogicalResult verifyDeviceMemory(Operation *op, SymbolTable &symbols) {
  auto emitError = [&]() {
    return op->emitError("failed to legalize '")
           << op->getName() << "' where buffers may be in device memory: ";
  };
  auto isBuffer = [](Type type) { return isa<BaseMemRefType>(type); };
  if (llvm::none_of(op->getOperandTypes(), isBuffer) &&
      llvm::none_of(op->getResultTypes(), isBuffer))
    return success();
  if (auto call = dyn_cast<func::CallOp>(op)) {
    auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
    if (callee && !callee.isExternal())
      return success();
    return emitError() << "expected a callee with a body, but got '"
                       << call.getCallee() << "'";
  }
  if (isa<memref::AllocOp, memref::AllocaOp>(op))
    return emitError() << "expected memory planned by zero-plan-workspace, but "
                          "got an allocation";
  if (isa<memref::GetGlobalOp>(op)) {
    if (isOnlyCopied(op->getResult(0)))
      return success();
    return emitError() << "expected a constant that is copied, but got another "
                          "use";
  }
  if (auto copy = dyn_cast<memref::CopyOp>(op)) {
    if (getRuntimeCopy(copy))
      return success();
    return op->emitError("failed to legalize '")
           << op->getName()
           << "': expected buffers of static shape and strides within 2^63 "
              "bytes, with elements of 1, 2, 4 or 8 bytes, but got "
           << copy.getSource().getType() << " and "
           << copy.getTarget().getType();
  }
  // The effects of an op with regions are those of the ops in it.
  bool isAround = op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() &&
                  !isa<MemoryEffectOpInterface>(op);
  if (op->hasTrait<OpTrait::IsTerminator>() || isAround ||
      isMemoryEffectFree(op))
    return success();
  return emitError() << "it reads or writes them on the host";
}

namespace {
class ConvertZeroToRuntimePass
    : public zpp::impl::ConvertZeroToRuntimePassBase<ConvertZeroToRuntimePass> {
public:
  using ConvertZeroToRuntimePassBase::ConvertZeroToRuntimePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    llvm::SetVector<func::FuncOp> functions =
        getRankFunctions(module, deviceMemory);
    // Check everything, and emit all errors, before changing anything.
    bool isConvertible = true;
    module.walk([&](Operation *op) {
      if (auto instance = dyn_cast<InstanceOp>(op)) {
        isConvertible &= succeeded(verifyInstance(instance, symbols));
        return;
      }
      if (isa_and_present<ZeroDialect>(op->getDialect())) {
        isConvertible &= succeeded(verifyCallable(op));
        return;
      }
      auto function = op->getParentOfType<func::FuncOp>();
      if (deviceMemory && function && functions.contains(function))
        isConvertible &= succeeded(verifyDeviceMemory(op, symbols));
    });
    if (!isConvertible || failed(verifyUses(module, functions)))
      return signalPassFailure();

    SmallVector<func::FuncOp> entries;
    if (allocateWorkspaces)
      for (func::FuncOp function : functions.takeVector()) {
        if (function.isPublic() && getWorkspace(function)) {
          func::FuncOp entry = splitIfCalled(function, symbols);
          entries.push_back(entry);
          functions.insert(entry);
        }
        functions.insert(function);
      }
    if (failed(addRanks(module, functions)))
      return signalPassFailure();
    FailureOr<RuntimeNames> names = RuntimeNames::create(module);
    if (failed(names))
      return signalPassFailure();

    ConversionTarget target(getContext());
    target.addIllegalDialect<ZeroDialect>();
    target.addLegalOp<InstanceOp>();
    target.addDynamicallyLegalOp<memref::CopyOp>([&](memref::CopyOp copy) {
      // Other copies become loops on the host.
      return !functions.contains(copy->getParentOfType<func::FuncOp>()) ||
             !getRuntimeCopy(copy);
    });
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    RewritePatternSet patterns(&getContext());
    auto globals = std::make_shared<Globals>(module, std::move(*names));
    populatePatterns(patterns, globals);
    if (failed(applyPartialConversion(module, target, std::move(patterns))))
      return signalPassFailure();
    for (func::FuncOp function : entries)
      if (failed(allocateWorkspace(function, globals->constants)))
        return signalPassFailure();
    globals->names.createTables(globals->constants);
  }

private:
  /// Instances are of functions that only the caller of the module calls, and
  /// that zero-pack-arguments packs.
  LogicalResult verifyInstance(InstanceOp instance, SymbolTable &symbols) {
    auto function = symbols.lookup<func::FuncOp>(instance.getFunction());
    if (deviceMemory && function && function.isPublic() &&
        !function.isExternal())
      return success();
    return instance.emitError("failed to legalize '")
           << instance->getName()
           << "': expected a public function on device memory, but got '"
           << instance.getFunction()
           << (deviceMemory ? "'" : "' without the option device-memory");
  }

  /// Gives `functions` the rank as their first argument, and their calls too.
  static LogicalResult
  addRanks(ModuleOp module, const llvm::SetVector<func::FuncOp> &functions) {
    auto pointer = LLVM::LLVMPointerType::get(module.getContext());
    for (func::FuncOp function : functions)
      if (failed(function.insertArgument(0, pointer, {}, function.getLoc())))
        return failure();
    module.walk([&](func::CallOp call) {
      auto callee = module.lookupSymbol<func::FuncOp>(call.getCallee());
      if (functions.contains(callee))
        call->insertOperands(
            0, call->getParentOfType<func::FuncOp>().getArgument(0));
    });
    return success();
  }
};
} // namespace
