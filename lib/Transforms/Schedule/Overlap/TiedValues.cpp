//===- TiedValues.cpp - Which values starts and waits tie -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Overlap.h"
#include "mlir/IR/TypeUtilities.h"
#include "zpp/Dialect/Guest/LayerOps.h"

#include <utility>

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

bool zpp::isTied(Value value) {
  if (auto start = value.getDefiningOp<StartOp>())
    return llvm::is_contained(start.getTied(), value);
  auto wait = value.getDefiningOp<WaitOp>();
  return wait && llvm::is_contained(wait.getTied(), value);
}

/// True for ops that XLA fuses into their readers (X6), also through changes of
/// shape: behind its simplifications, products read reshaped transposes.
static bool isFolded(Operation *op) {
  while (op && isNamed(op, guest::kReshape))
    op = op->getOperand(0).getDefiningOp();
  return op && (isNamed(op, guest::kTranspose) ||
                isNamed(op, guest::kBroadcastInDim));
}

bool zpp::isShape(Operation *op) {
  return movesData(op) && getElementTypeOrSelf(op->getOperand(0)) ==
                              getElementTypeOrSelf(op->getResult(0));
}

bool Ties::isTiedHere(Value value) const {
  Operation *source = value.getDefiningOp();
  return source && source->getBlock() == &getBlock() && isTied(value);
}

bool Ties::isComputed(Value value) const {
  return isTiedHere(value) || transfers.isComputed(value);
}

bool Ties::canTie(Value value, Operation *op) const {
  return (isTiedHere(value) || transfers.isTieable(value)) &&
         order.isBefore(value.getDefiningOp(), op);
}

/// True if `use` may read the value that is tied through `op`. A wait reads the
/// same inputs as its start.
bool Ties::canRetie(OpOperand &use, Operation *op) const {
  Operation *user = getBlock().findAncestorOpInBlock(*use.getOwner());
  auto wait = dyn_cast<WaitOp>(use.getOwner());
  if (wait && llvm::is_contained(wait.getInputs(), use.get()))
    user = wait.getStart();
  return order.isBefore(op, user);
}

/// True if all readers of `value` come after `op` and may read the tied value
/// instead. Then XLA need not copy it (X4).
bool Ties::isReadLaterOnly(Value value, Operation *op) const {
  return llvm::all_of(value.getUses(),
                      [&](OpOperand &use) { return canRetie(use, op); });
}

/// Returns what to tie through `op` for later readers of `value`. A reshape has
/// the memory of its operand. Where others read that, too, XLA would copy it
/// (X4) if the reshape were tied. So the operand is, if the reshape can come
/// after `op`.
Value Ties::getStorage(Value value, Operation *op) const {
  Value storage = value;
  while (isNamed(storage.getDefiningOp(), guest::kReshape)) {
    storage = storage.getDefiningOp()->getOperand(0);
    if (!canTie(storage, op))
      break;
    if (!storage.hasOneUse())
      return isReadLaterOnly(value, op) ? storage : value;
  }
  return value;
}

/// Returns the operand of `reader` to tie through `op`, or null. Preferred are
/// operands that are materialized as they are read, then those that only later
/// ops read, so that XLA need not copy them (X4); among equals, the one
/// computed last.
Value Ties::getTie(Operation *op, Operation *reader) const {
  Value best;
  std::pair<bool, bool> bestRank;
  for (Value operand : reader->getOperands()) {
    if (!canTie(operand, op))
      continue;
    Operation *source = operand.getDefiningOp();
    std::pair rank(!isFolded(source), isReadLaterOnly(operand, op));
    if (!best || rank > bestRank ||
        (rank == bestRank && order.isBefore(best.getDefiningOp(), source))) {
      best = operand;
      bestRank = rank;
    }
  }
  return best;
}

/// Returns the value that keeps a start before the heavy op that it is to run
/// beside.
Value Ties::getStartTie(Operation *start) const {
  ArrayRef<Operation *> heavy = getHeavyOps();
  size_t next = order.countBefore(heavy, start);
  return next < heavy.size() ? getTie(start, heavy[next]) : Value();
}

/// Returns the value that keeps a call after the heavy op that it is to come
/// after.
Value Ties::getWaitTie(Operation *wait, Operation *reader) const {
  size_t numBefore = order.countBefore(getHeavyOps(), wait);
  if (numBefore == 0)
    return {};
  Operation *last = getHeavyOps()[numBefore - 1];
  // The order of calls guarantees it already.
  if (latest && !order.isBefore(latest, last))
    return {};
  Value operand = getTie(wait, reader);
  if (operand && !order.isBefore(operand.getDefiningOp(), last) &&
      isReadLaterOnly(operand, wait))
    return operand;
  // Prefer a value that is computed after that op and not read yet, then a
  // result of that op. Casts and shape changes stay with their operands,
  // because XLA fuses them (X6).
  for (Operation *op = wait->getPrevNode(); op; op = op->getPrevNode()) {
    for (Value result : op->getResults())
      if (canTie(result, wait) && isReadLaterOnly(result, wait) &&
          llvm::none_of(result.getUsers(), isDataMovement))
        return result;
    if (op == last)
      break;
  }
  for (Value result : last->getResults())
    if (canTie(result, wait))
      return result;
  return {};
}
