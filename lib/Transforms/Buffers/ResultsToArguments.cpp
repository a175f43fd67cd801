//===- ResultsToArguments.cpp - The caller provides results' memory -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This is like upstream's buffer-results-to-out-params. In addition, it needs
// no copy if a result is a reshape of the buffer that was allocated for it, and
// it handles a buffer that is returned twice.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "zpp/Transforms/Buffers/RankFunctions.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_RESULTSTOARGUMENTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

/// Returns the buffer that was allocated for a result, or null if that is not
/// known. `reshapes` are the ops between the two, the last one first.
static memref::AllocOp findAlloc(Value result,
                                 SmallVectorImpl<Operation *> &reshapes) {
  while (Operation *op = result.getDefiningOp()) {
    if (auto alloc = dyn_cast<memref::AllocOp>(op))
      return isDenseBuffer(alloc.getType()) ? alloc : memref::AllocOp();
    if (!isa<memref::CollapseShapeOp, memref::ExpandShapeOp>(op) ||
        !isDenseBuffer(op->getOperand(0).getType()))
      return {};
    reshapes.push_back(op);
    result = op->getOperand(0);
  }
  return {};
}

/// Replaces the buffer that was allocated for a result with `argument`, in the
/// shape of that buffer.
static void replaceAlloc(memref::AllocOp alloc, Value argument,
                         ArrayRef<Operation *> reshapes) {
  OpBuilder builder(alloc);
  for (Operation *op : reshapes) {
    auto type = cast<MemRefType>(op->getOperand(0).getType());
    if (auto collapse = dyn_cast<memref::CollapseShapeOp>(op))
      argument =
          memref::ExpandShapeOp::create(builder, op->getLoc(), type, argument,
                                        collapse.getReassociationIndices());
    else
      argument = memref::CollapseShapeOp::create(
          builder, op->getLoc(), type, argument,
          cast<memref::ExpandShapeOp>(op).getReassociationIndices());
  }
  alloc.replaceAllUsesWith(argument);
  alloc.erase();
}

/// Turns the results that are dense buffers into the last arguments.
static LogicalResult moveResults(func::FuncOp function) {
  SmallVector<func::ReturnOp> returns;
  function.walk([&](func::ReturnOp op) { returns.push_back(op); });
  llvm::BitVector moved(function.getNumResults());
  OpBuilder builder(function.getContext());
  auto attributes = builder.getDictionaryAttr(
      builder.getNamedAttr(kResultAttr, builder.getUnitAttr()));
  SmallVector<Type> types;
  for (auto [index, type] : llvm::enumerate(function.getResultTypes()))
    if (isDenseBuffer(type)) {
      moved.set(index);
      types.push_back(type);
    }
  // All at once: each change makes the type of the function anew.
  unsigned position = function.getNumArguments();
  if (failed(function.insertArguments(
          SmallVector<unsigned>(types.size(), position), types,
          SmallVector<DictionaryAttr>(types.size(), attributes),
          SmallVector<Location>(types.size(), function.getLoc()))))
    return failure();
  for (unsigned index : moved.set_bits()) {
    if (function.isExternal())
      break;
    Value argument = function.getArgument(position++);
    SmallVector<Operation *> reshapes;
    if (returns.size() == 1)
      if (auto alloc = findAlloc(returns[0].getOperand(index), reshapes)) {
        replaceAlloc(alloc, argument, reshapes);
        continue;
      }
    for (func::ReturnOp op : returns) {
      builder.setInsertionPoint(op);
      memref::CopyOp::create(builder, op.getLoc(), op.getOperand(index),
                             argument);
    }
  }
  for (func::ReturnOp op : returns)
    op->eraseOperands(moved);
  return function.eraseResults(moved);
}

/// Allocates what a call passes instead of getting it as results.
static void moveResults(func::CallOp call) {
  OpBuilder builder(call);
  SmallVector<Value> operands(call.getOperands());
  SmallVector<Type> kept;
  for (OpResult result : call.getResults()) {
    if (!isDenseBuffer(result.getType())) {
      kept.push_back(result.getType());
      continue;
    }
    operands.push_back(memref::AllocOp::create(
        builder, call.getLoc(), cast<MemRefType>(result.getType())));
    result.replaceAllUsesWith(operands.back());
  }
  auto moved = func::CallOp::create(builder, call.getLoc(), call.getCallee(),
                                    kept, operands);
  moved->setDiscardableAttrs(call->getDiscardableAttrDictionary());
  auto next = moved.result_begin();
  for (OpResult result : call.getResults())
    if (!isDenseBuffer(result.getType()))
      result.replaceAllUsesWith(*next++);
  call.erase();
}

namespace {
class ResultsToArgumentsPass
    : public zpp::impl::ResultsToArgumentsPassBase<ResultsToArgumentsPass> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<func::CallOp> calls;
    module.walk([&](func::CallOp call) {
      if (llvm::any_of(call.getResultTypes(), isDenseBuffer))
        calls.push_back(call);
    });
    // First, so that their memory can be that of a caller's result.
    for (func::CallOp call : calls)
      moveResults(call);
    for (auto function : module.getOps<func::FuncOp>())
      if (failed(moveResults(function)))
        return signalPassFailure();
  }
};
} // namespace
