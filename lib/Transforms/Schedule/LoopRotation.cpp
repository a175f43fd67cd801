//===- LoopRotation.cpp - Values of a body in another iteration -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoopRotation.h"

#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

bool zpp::isCheap(Operation *op) {
  if (op->getNumRegions() > 0 || isCollective(op) ||
      HeavyOps::isHeavyItself(op) ||
      op->getName().getDialectNamespace() != "stablehlo" ||
      isNamed(op, guest::kCustomCall))
    return false;
  return isDataMovement(op) || isNamed(op, guest::kConstant) ||
         isNamed(op, guest::kBroadcastInDim) ||
         llvm::all_of(op->getResultTypes(), [](Type t) {
           auto type = dyn_cast<RankedTensorType>(t);
           return type && type.hasStaticShape() && type.getNumElements() == 1;
         });
}

bool zpp::hasRole(StartOp start, Role role) {
  SmallVector<Origin> origins = getStartedOrigins(start);
  return !origins.empty() && llvm::all_of(origins, [&](const Origin &origin) {
    return origin.role == getRoleName(role);
  });
}

static Value getOperand(Value result) {
  return result.getDefiningOp()->getOperand(
      cast<OpResult>(result).getResultNumber());
}

bool Recomputation::isPossible(Value value) {
  auto [it, isNew] = known.try_emplace(value, false);
  if (!isNew)
    return it->second;
  bool result;
  if (auto argument = dyn_cast<BlockArgument>(value);
      argument && argument.getOwner() == body) {
    unsigned number = argument.getArgNumber();
    // A counter depends on itself.
    known[value] = true;
    result = isLoopInvariant(loop, number) ||
             (cast<ShapedType>(value.getType()).getRank() == 0 &&
              isPossible(body->back().getOperand(number)));
  } else {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != body)
      result = !body->getParent()->isAncestor(value.getParentRegion());
    else if (isBarrier(op))
      result = isPossible(getOperand(value));
    else
      result = isCheap(op) && llvm::all_of(op->getOperands(), [&](Value v) {
                 return isPossible(v);
               });
  }
  return known[value] = result;
}

bool Recomputation::changes(Value value) {
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

Value Recomputation::getFirst(OpBuilder &builder, Value value) {
  return recompute(builder, value, first, [&](BlockArgument argument) {
    return loop->getOperand(argument.getArgNumber());
  });
}

Value Recomputation::getNext(OpBuilder &builder, Value value) {
  return recompute(builder, value, next, [&](BlockArgument argument) {
    unsigned number = argument.getArgNumber();
    if (isLoopInvariant(loop, number))
      return Value(argument);
    return recompute(builder, body->back().getOperand(number), current,
                     [](BlockArgument same) { return Value(same); });
  });
}

Value Recomputation::getAgain(OpBuilder &builder, Value value) {
  return recompute(builder, value, again,
                   [](BlockArgument same) { return Value(same); });
}

bool Recomputation::argumentChanges(BlockArgument argument) const {
  return argument.getOwner() == body &&
         !isLoopInvariant(loop, argument.getArgNumber());
}

Value Recomputation::recompute(
    OpBuilder &builder, Value value, IRMapping &mapping,
    llvm::function_ref<Value(BlockArgument)> getArgument) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  Value result;
  auto argument = dyn_cast<BlockArgument>(value);
  Operation *op = value.getDefiningOp();
  if (argument && argument.getOwner() == body) {
    result = getArgument(argument);
  } else if (!op || op->getBlock() != body) {
    result = value;
  } else if (isBarrier(op)) {
    result = recompute(builder, getOperand(value), mapping, getArgument);
  } else {
    for (Value operand : op->getOperands())
      recompute(builder, operand, mapping, getArgument);
    // clone() also maps the results.
    builder.clone(*op, mapping);
    return mapping.lookup(value);
  }
  mapping.map(value, result);
  return result;
}
