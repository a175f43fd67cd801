//===- FrozenWeights.cpp - Weights that a step does not change ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FrozenWeights.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Analysis/Repeats.h"
#include "zpp/Dialect/Guest/Branches.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Transforms/Attributes.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

static Value getPassedOn(Value value, ManualComputations &manuals);

/// Returns the operand of `manual`, a manual computation, that result `number`
/// is, with the same sharding; or null.
static Value getPassedThrough(Operation *manual, unsigned number,
                              ManualComputations &manuals) {
  Block &body = ManualView(manual).getBody();
  Value inside = body.getTerminator()->getOperand(number);
  while (true) {
    auto argument = dyn_cast<BlockArgument>(inside);
    if (argument && argument.getOwner() == &body)
      break;
    inside = getPassedOn(inside, manuals);
    if (!inside)
      return {};
  }
  unsigned operand = cast<BlockArgument>(inside).getArgNumber();
  return manuals.getOperandShardings(manual)[operand] ==
                 manuals.getResultShardings(manual)[number]
             ? manual->getOperand(operand)
             : Value();
}

/// True if all elements of `value` are zero, whatever a condition says: what
/// `optax.set_to_zero` leaves of an update, also in `apply_if_finite`. `calls`
/// are those of the functions that `value` is in; `steps` bounds the search.
static bool isZero(Value value, unsigned &steps,
                   SmallVector<func::CallOp> calls = {}) {
  if (isZeros(value))
    return true;
  if (steps == 0)
    return false;
  --steps;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *parent = argument.getOwner()->getParentOp();
    if (calls.empty() || getCallee(calls.back()) != parent)
      return false;
    Value operand = calls.pop_back_val().getOperand(argument.getArgNumber());
    return isZero(operand, steps, calls);
  }
  Operation *op = value.getDefiningOp();
  auto areZero = [&](OperandRange operands) {
    return llvm::all_of(
        operands, [&](Value operand) { return isZero(operand, steps, calls); });
  };
  if (isNamed(op, guest::kConvert) || isNamed(op, guest::kReshape) ||
      isNamed(op, guest::kNegate) || isNamed(op, guest::kBroadcastInDim))
    return areZero(op->getOperands());
  if (isNamed(op, guest::kSelect) && op->getNumOperands() == 3)
    return areZero(op->getOperands().drop_front());
  unsigned number = cast<OpResult>(value).getResultNumber();
  if (std::optional<BranchesView> branches = BranchesView::get(op))
    return !isNamed(op, guest::kSdyManualComputation) &&
           !branches->getBodies().empty() &&
           llvm::all_of(branches->getBodies(), [&](Block *body) {
             return number < body->back().getNumOperands() &&
                    isZero(body->back().getOperand(number), steps, calls);
           });
  auto call = dyn_cast<func::CallOp>(op);
  func::FuncOp callee = call ? getCallee(call) : func::FuncOp();
  if (!callee)
    return false;
  calls.push_back(call);
  return isZero(callee.getBody().front().back().getOperand(number), steps,
                calls);
}

/// Returns the operand that the result of `op` equals since nothing is added to
/// it, or since it is cast to a wider type only while that is done; or null.
static Value getUnmoved(Operation *op, ManualComputations &manuals) {
  if (isNamed(op, guest::kAdd) || isNamed(op, guest::kSubtract)) {
    unsigned steps = 64;
    if (isZero(op->getOperand(1), steps))
      return op->getOperand(0);
    return isNamed(op, guest::kAdd) && isZero(op->getOperand(0), steps)
               ? op->getOperand(1)
               : Value();
  }
  if (!isNamed(op, guest::kConvert))
    return {};
  Value inside = op->getOperand(0);
  while (Value next = getPassedOn(inside, manuals))
    inside = next;
  Operation *cast = inside.getDefiningOp();
  auto from = dyn_cast<FloatType>(getElementTypeOrSelf(op->getResult(0)));
  auto to = dyn_cast<FloatType>(getElementTypeOrSelf(inside));
  // What can be cast there and back: f16 and bf16 in f32.
  return cast && isNamed(cast, guest::kConvert) && from && to && to.isF32() &&
                 (from.isF16() || from.isBF16()) &&
                 cast->getOperand(0).getType() == op->getResult(0).getType()
             ? cast->getOperand(0)
             : Value();
}

/// Returns the value that `value` is equal to because an op or a region passes
/// it on, or null.
static Value getPassedOn(Value value, ManualComputations &manuals) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *parent = argument.getOwner()->getParentOp();
    unsigned number = argument.getArgNumber();
    if (manuals.contains(parent) ||
        (isWhile(parent) && isLoopInvariant(parent, number)))
      return parent->getOperand(number);
    return {};
  }
  Operation *op = value.getDefiningOp();
  unsigned number = cast<OpResult>(value).getResultNumber();
  if (manuals.contains(op))
    return getPassedThrough(op, number, manuals);
  if (isBarrier(op) || (isWhile(op) && isLoopInvariant(op, number)))
    return op->getOperand(number);
  if (isNamed(op, guest::kSdyShardingConstraint) && op->getNumOperands() == 1)
    return op->getOperand(0);
  return getUnmoved(op, manuals);
}

/// Finds the origin of `value` as it is.
static Value follow(Value value, ManualComputations &manuals) {
  while (Value next = getPassedOn(value, manuals))
    value = next;
  return value;
}

FrozenWeights::FrozenWeights(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>()) {
    if (!function.isPublic() || function.isExternal())
      continue;
    Block &body = function.getBody().front();
    for (auto [number, value] :
         llvm::enumerate(body.getTerminator()->getOperands())) {
      auto argument = dyn_cast<BlockArgument>(follow(value, manuals));
      if (argument && argument.getOwner() == &body &&
          argument.getType() == value.getType())
        results.try_emplace(argument, number);
    }
    if (auto taken = module->getAttrOfType<DenseI64ArrayAttr>(kTakenAttr))
      for (int64_t number : taken.asArrayRef())
        if (number < body.getNumArguments())
          results.try_emplace(body.getArgument(number), -1);
  }
}

SmallVector<FrozenWeights::Source> FrozenWeights::getSources(Value value,
                                                             bool anySlice) {
  SmallVector<Source> sources;
  llvm::SetVector<Value> pending;
  pending.insert(follow(value, manuals));
  for (size_t i = 0; i < pending.size(); ++i) {
    Value next = pending[i];
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      auto found = results.find(argument);
      if (found == results.end())
        return {};
      sources.push_back(
          {static_cast<int64_t>(argument.getArgNumber()), found->second});
      continue;
    }
    Operation *op = next.getDefiningOp();
    if (!computesTheSame(op))
      return {};
    bool isSlice = anySlice && isNamed(op, guest::kDynamicSlice);
    for (Value operand :
         op->getOperands().take_front(isSlice ? 1 : op->getNumOperands()))
      pending.insert(follow(operand, manuals));
  }
  return sources;
}
