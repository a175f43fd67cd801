//===- Recomputation.cpp - Values computed once more ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/Recomputation.h"

#include "Loops/LayerStacks.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/LayerOps.h"
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
         llvm::all_of(op->getResultTypes(), [](Type t) {
           auto type = dyn_cast<RankedTensorType>(t);
           return type && type.hasStaticShape() && type.getNumElements() == 1;
         });
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
    if (!op || op->getBlock() != &loop.getBody() || !isRepeatable(op))
      return false;
    pending.insert(op->operand_begin(), op->operand_end());
  }
  return true;
}

//===----------------------------------------------------------------------===//
// The first and the next iteration
//===----------------------------------------------------------------------===//

ShiftedValues::ShiftedValues(Operation *op, bool readsStacks)
    : loop(op), body(&loop.getBody()), readsStacks(readsStacks),
      first(recompute([this](OpBuilder &, BlockArgument argument) {
        return loop.getInit(argument.getArgNumber());
      })),
      current(recompute(
          [](OpBuilder &, BlockArgument argument) { return argument; })),
      next(recompute(
          [this](OpBuilder &builder, BlockArgument argument) -> Value {
            unsigned number = argument.getArgNumber();
            if (loop.isInvariant(number))
              return argument;
            // A stack is as this iteration leaves it.
            Value value = loop.getNext(number);
            return cast<ShapedType>(value.getType()).getRank() > 0
                       ? value
                       : current.get(builder, value);
          })),
      again(recompute(
          [](OpBuilder &, BlockArgument argument) { return argument; })) {}

Recomputation ShiftedValues::recompute(
    std::function<Value(OpBuilder &, BlockArgument)> getArgument) const {
  return Recomputation([block = body, getArgument = std::move(getArgument)](
                           OpBuilder &builder, Value value) -> Value {
    auto argument = dyn_cast<BlockArgument>(value);
    if (argument && argument.getOwner() == block)
      return getArgument(builder, argument);
    Operation *op = value.getDefiningOp();
    return op && op->getBlock() == block ? Value() : value;
  });
}

bool ShiftedValues::isPossible(Value value) {
  auto [it, isNew] = possible.try_emplace(value, false);
  if (!isNew)
    return it->second;
  bool result;
  if (auto argument = dyn_cast<BlockArgument>(value);
      argument && argument.getOwner() == body) {
    unsigned number = argument.getArgNumber();
    // A counter depends on itself.
    possible[value] = true;
    result = loop.isInvariant(number) ||
             (cast<ShapedType>(value.getType()).getRank() == 0 &&
              isPossible(loop.getNext(number)));
  } else {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != body)
      result = !body->getParent()->isAncestor(value.getParentRegion());
    else if (isBarrier(op))
      result = isPossible(getPassed(value));
    else if (getWrite(op))
      result = llvm::all_of(op->getOperands().drop_front(),
                            [&](Value v) { return isPossible(v); });
    else
      result = mayRepeat(op, Effort::Scalars) &&
               llvm::all_of(op->getOperands(),
                            [&](Value v) { return isPossible(v); });
  }
  return possible[value] = result;
}

Operation *ShiftedValues::getWrite(Operation *read) const {
  Value index = readsStacks ? getReadLayer(read) : Value();
  auto stack =
      index ? dyn_cast<BlockArgument>(read->getOperand(0)) : BlockArgument();
  if (!stack || stack.getOwner() != body)
    return nullptr;
  std::optional<LayerWrite> write = getLayerWrite(loop, stack.getArgNumber());
  return write && write->index == index ? write->update : nullptr;
}

SmallVector<Operation *> ShiftedValues::getWrites(Value value) const {
  llvm::SetVector<Operation *> ops;
  SmallVector<Operation *> writes;
  auto visit = [&](Value from) {
    Operation *op = from.getDefiningOp();
    if (op && op->getBlock() == body)
      ops.insert(op);
  };
  visit(value);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (Operation *write = getWrite(ops[i]))
      writes.push_back(write);
    llvm::for_each(ops[i]->getOperands(), visit);
  }
  return writes;
}

bool ShiftedValues::changes(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return argumentChanges(argument);
  if (!changing) {
    // Operands come before their readers, so one sweep finds all.
    changing.emplace();
    for (Operation &op : *body)
      if (llvm::any_of(op.getOperands(), [&](Value operand) {
            auto argument = dyn_cast<BlockArgument>(operand);
            return argument ? argumentChanges(argument)
                            : changing->contains(operand.getDefiningOp());
          }))
        changing->insert(&op);
  }
  return changing->contains(value.getDefiningOp());
}

bool ShiftedValues::argumentChanges(BlockArgument argument) const {
  return argument.getOwner() == body &&
         !loop.isInvariant(argument.getArgNumber());
}
