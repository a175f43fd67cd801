//===- Recomputation.cpp - Values computed once more ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/Recomputation.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

bool zpp::mayRepeat(Operation *op, Effort most) {
  if (op->getNumRegions() > 0 || isCollective(op) ||
      HeavyOps::isHeavyItself(op))
    return false;
  if (most == Effort::Tensors)
    return isDeterministic(op);
  if (op->getName().getDialectNamespace() != "stablehlo" ||
      isNamed(op, guest::kCustomCall))
    return false;
  return isDataMovement(op) || isNamed(op, guest::kConstant) ||
         isNamed(op, guest::kBroadcastInDim) ||
         llvm::all_of(op->getResultTypes(), hasOneElement);
}

/// Returns the operand that the barrier which defines `result` passes on.
static Value getPassed(Value result) {
  return result.getDefiningOp()->getOperand(
      cast<OpResult>(result).getResultNumber());
}

//===----------------------------------------------------------------------===//
// Clones
//===----------------------------------------------------------------------===//

Value Recomputation::get(OpBuilder &builder, Value value) {
  // An explicit stack, since a chain of ops may be longer than the program's.
  SmallVector<Value> pending{value};
  while (!pending.empty()) {
    Value top = pending.back();
    if (done.contains(top)) {
      pending.pop_back();
      continue;
    }
    if (Value there = known(builder, top)) {
      done[top] = there;
      continue;
    }
    Operation *op = top.getDefiningOp();
    auto isMissing = [&](Value operand) { return !done.contains(operand); };
    if (isBarrier(op)) {
      Value passed = getPassed(top);
      if (isMissing(passed))
        pending.push_back(passed);
      else
        done[top] = done.lookup(passed);
      continue;
    }
    // One operand after the other, so that clones keep the order of ops.
    auto missing = llvm::find_if(op->getOperands(), isMissing);
    if (missing != op->operand_end()) {
      pending.push_back(*missing);
      continue;
    }
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, done.lookup(operand));
    Operation *clone = builder.clone(*op, mapping);
    for (auto [from, to] :
         llvm::zip_equal(op->getResults(), clone->getResults()))
      done[from] = to;
  }
  return done.lookup(value);
}

//===----------------------------------------------------------------------===//
// Any iteration
//===----------------------------------------------------------------------===//

Value IterationValues::getKnown(const CountedLoop &loop, Value index,
                                Value value) {
  if (value == loop.counter)
    return index;
  if (!loop.loop.contains(value))
    return value;
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && argument.getOwner() == &loop.getBody() &&
      loop.loop.isInvariant(argument.getArgNumber()))
    return loop.loop.getInit(argument.getArgNumber());
  return {};
}

IterationValues::IterationValues(const CountedLoop &loop, Value index,
                                 std::function<bool(Operation *)> isRepeatable)
    : loop(loop), index(index), isRepeatable(std::move(isRepeatable)),
      values([loop, index](OpBuilder &builder, Value value) -> Value {
        Value known = getKnown(loop, index, value);
        if (!known || known.getType() == value.getType())
          return known;
        // Loops may count in different types.
        return createOp(builder, known.getLoc(), guest::kConvert, known,
                        value.getType());
      }) {}

bool IterationValues::canGet(Value value) const {
  llvm::SetVector<Value> pending;
  pending.insert(value);
  for (size_t i = 0; i < pending.size(); ++i) {
    if (getKnown(loop, index, pending[i]))
      continue;
    Operation *op = pending[i].getDefiningOp();
    if (!op || op->getBlock() != &loop.getBody())
      return false;
    if (isBarrier(op)) {
      pending.insert(getPassed(pending[i]));
      continue;
    }
    if (!isRepeatable(op))
      return false;
    pending.insert(op->operand_begin(), op->operand_end());
  }
  return true;
}
