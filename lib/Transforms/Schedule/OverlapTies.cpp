//===- OverlapTies.cpp - What keeps starts and waits in their places ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "Overlap.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

bool zpp::isTied(Value value) {
  if (auto start = value.getDefiningOp<StartOp>())
    return llvm::is_contained(start.getTied(), value);
  auto wait = value.getDefiningOp<WaitOp>();
  return wait && llvm::is_contained(wait.getTied(), value);
}

/// True for what XLA makes one with the op that reads it.
static bool isFolded(Operation *op) {
  return isNamed(op, "stablehlo.transpose") ||
         isNamed(op, "stablehlo.broadcast_in_dim");
}

bool Ties::isComputed(Value value) const {
  Operation *source = value.getDefiningOp();
  if (source && isa<StartOp, WaitOp>(source))
    return source->getBlock() == &getBlock() && isTied(value);
  return transfers.isComputed(value);
}

bool Ties::canTie(Value value, Operation *op) const {
  return isComputed(value) && order.isBefore(value.getDefiningOp(), op);
}

/// True if `use`, in or below `user`, may read what `op` passes on. A wait has
/// the inputs of its start.
bool Ties::canRetie(OpOperand &use, Operation *user, Operation *op) const {
  auto wait = dyn_cast<WaitOp>(use.getOwner());
  if (wait && llvm::is_contained(wait.getInputs(), use.get()))
    user = wait.getStart();
  return order.isBefore(op, user);
}

/// True if all that reads `value` comes after `op` and may read what `op`
/// passes on instead: XLA need not copy it then.
bool Ties::isReadLaterOnly(Value value, Operation *op) const {
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = getBlock().findAncestorOpInBlock(*use.getOwner());
    return user != op && canRetie(use, user, op);
  });
}

/// The operand of `reader` to tie `op` to, or null: one that only later ops
/// read, so that XLA need not copy it, and that is computed as it is read; of
/// these the one computed last.
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

/// A start must not come later than the heavy op that it is to run beside.
Value Ties::getStartTie(Operation *start) const {
  ArrayRef<Operation *> heavy = getHeavyOps();
  size_t next = order.countBefore(heavy, start);
  return next < heavy.size() ? getTie(start, heavy[next]) : Value();
}

/// A wait must not come earlier than the heavy op that it is to come after.
Value Ties::getWaitTie(Operation *wait, Operation *reader) const {
  size_t numBefore = order.countBefore(getHeavyOps(), wait);
  if (numBefore == 0)
    return {};
  Operation *last = getHeavyOps()[numBefore - 1];
  // It comes after the starts and waits before it anyway.
  if (latest && !order.isBefore(latest, last))
    return {};
  Value operand = getTie(wait, reader);
  if (operand && !order.isBefore(operand.getDefiningOp(), last) &&
      isReadLaterOnly(operand, wait))
    return operand;
  // What is computed since and not read yet, else what is computed then. Casts
  // and shapes stay with what they are of: XLA makes them one.
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

void Ties::tieCalls(ArrayRef<PlacedCall> calls) {
  for (const PlacedCall &call : calls) {
    Operation *op = call.op;
    bool isStart = call.kind == OverlapPlan::Call::Start;
    // What makes room does so before the heavy op that follows.
    Value value;
    if (isStart || call.kind == OverlapPlan::Call::Room)
      value = getStartTie(op);
    // Where nothing of that op is there yet, calls before its wait keep a start
    // from coming late; it must not come early either.
    if (!value)
      value = getWaitTie(op, call.before);
    if (value)
      op = tie(op, value);
    // What the calls so far come after.
    if (isStart)
      for (Value input : cast<StartOp>(op).getInputs())
        note(input);
    if (value)
      note(value);
    if (isStart && call.transfer->isRepeated)
      castAgain(cast<StartOp>(op), *call.transfer);
  }
}

void Ties::note(Value value) {
  SmallVector<Value> worklist{value};
  llvm::SmallPtrSet<Operation *, 8> visited;
  while (!worklist.empty()) {
    value = worklist.pop_back_val();
    Operation *source = value.getDefiningOp();
    if (transfers.isMovedSource(source)) {
      if (visited.insert(source).second)
        llvm::append_range(worklist, source->getOperands());
      continue;
    }
    if (isComputed(value) && (!latest || order.isBefore(latest, source)))
      latest = source;
  }
}

/// Casts what `start` gathers when it starts: without the barrier XLA would
/// make one of this cast and that for the earlier gather, and keep the result
/// from one to the other.
void Ties::castAgain(StartOp start, const Transfer &transfer) {
  llvm::SmallSetVector<Operation *, 4> own;
  SmallVector<Operation *> casts;
  for (Operation *op : llvm::reverse(transfer.sources))
    if (llvm::all_of(op->getUsers(), [&](Operation *user) {
          return user == start || user == start.getWait() || own.contains(user);
        }))
      own.insert(op);
  SmallVector<Value> operands;
  for (Operation *op : llvm::reverse(own)) {
    order.moveBefore(op, start);
    if (!isNamed(op, "stablehlo.convert"))
      continue;
    // What a loop slices is of this iteration anyway.
    Operation *source = op->getOperand(0).getDefiningOp();
    if (source && source->getBlock() == start->getBlock())
      continue;
    casts.push_back(op);
    operands.push_back(op->getOperand(0));
  }
  if (casts.empty())
    return;
  MutableOperandRange ties = start.getTiesMutable();
  if (!ties.empty())
    operands.push_back(ties[ties.size() - 1].get());
  OpBuilder builder(casts.front());
  Operation *barrier = createBarrier(builder, start->getLoc(), operands);
  order.insertBefore(barrier, casts.front());
  for (auto [cast, result] : llvm::zip(casts, barrier->getResults()))
    cast->setOperand(0, result);
  if (!ties.empty())
    ties[ties.size() - 1].set(barrier->getResults().back());
}

Operation *Ties::tie(Operation *op, Value value) {
  Operation *old = op;
  op = addTie(op, value);
  order.replace(old, op);
  transfers.replaceCall(old, op);
  value.replaceUsesWithIf(op->getResults().back(), [&](OpOperand &use) {
    Operation *user = getBlock().findAncestorOpInBlock(*use.getOwner());
    return user != op && canRetie(use, user, op);
  });
  return op;
}
