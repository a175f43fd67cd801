//===- OverlapKeep.cpp - What XLA is not left to order --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Overlap.h"

#include <deque>
#include <set>

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// True if `value` is the result of a collective, and is not tied through a
/// call.
static bool isReceived(Value value) {
  Operation *op = value.getDefiningOp();
  return isCollective(op) ||
         (isa<ZeroDialect>(op->getDialect()) && !isTied(value));
}

/// True if `op`, or an op in it, reads one of `values`.
static bool reads(Operation *op, const llvm::DenseSet<Value> &values) {
  return containsOp(op, [&](Operation *nested) {
    return llvm::any_of(nested->getOperands(), [&](Value operand) {
      return values.contains(operand);
    });
  });
}

namespace {
class Keeper {
public:
  Keeper(Ties &ties, int64_t budget)
      : ties(ties), block(ties.getBlock()), budget(budget),
        heavy(llvm::from_range, ties.getHeavyOps()) {}

  void run() {
    findCollectives();
    for (Operation *collective : ordered)
      for (Value operand : collective->getOperands()) {
        while (Operation *source = operand.getDefiningOp()) {
          if (source->getBlock() != &block || !isShape(source))
            break;
          operand = source->getOperand(0);
        }
        if (ties.isComputed(operand) && !isReceived(operand))
          tieAfter(operand, getNextWait(operand.getDefiningOp()));
      }
    for (Operation *op : ties.getHeavyOps())
      if (op->getNumResults() == 1 && !op->use_empty() &&
          ties.isComputed(op->getResult(0)) &&
          llvm::all_of(op->getUsers(), [&](Operation *user) {
            return isa<StartOp, WaitOp>(user) || isCollective(user) ||
                   heavy.contains(user);
          }))
        tieAfter(op->getResult(0), getNextWait(op));
    limitInFlight();
  }

private:
  /// Finds the waits, and those of XLA's collectives whose results are not
  /// needed by the compute up to the last wait. A collective that the compute
  /// needs, such as one of an activation, must not be delayed.
  void findCollectives() {
    SmallVector<Operation *> ops;
    size_t numUntilLastWait = 0;
    for (Operation &op : block) {
      ops.push_back(&op);
      if (isa<WaitOp>(op)) {
        waits.push_back(&op);
        numUntilLastWait = ops.size();
      } else if (isCollective(&op)) {
        ordered.push_back(&op);
      }
    }
    // Visits readers before the ops that they read.
    llvm::DenseSet<Operation *> compute, needed;
    for (Operation *op :
         llvm::reverse(ArrayRef(ops).take_front(numUntilLastWait))) {
      if (llvm::any_of(op->getUsers(), [&](Operation *user) {
            Operation *reader = block.findAncestorOpInBlock(*user);
            return compute.contains(reader) || needed.contains(reader);
          }))
        needed.insert(op);
      if (isa<StartOp, WaitOp>(op) || heavy.contains(op))
        compute.insert(op);
    }
    llvm::erase_if(ordered, [&](Operation *op) { return needed.contains(op); });
    collectives.insert_range(ordered);
  }

  /// The number of the first wait after `op`, which is not a wait itself.
  size_t getNextWait(Operation *op) const {
    return ties.getOrder().countBefore(waits, op);
  }

  /// Ties, if more bytes than `budget` would be in flight after a wait, the
  /// results of the oldest collectives through it.
  void limitInFlight() {
    std::deque<std::pair<Operation *, uint64_t>> queue;
    uint64_t inFlight = 0;
    size_t wait = 0;
    for (Operation *op = &block.front(); op; op = op->getNextNode()) {
      if (collectives.contains(op) && op->getNumResults() == 1) {
        SmallVector<Type> types(op->getOperandTypes());
        llvm::append_range(types, op->getResultTypes());
        uint64_t bytes = getBytes(types);
        queue.push_back({op, bytes});
        inFlight = llvm::SaturatingAdd(inFlight, bytes);
        continue;
      }
      if (!isa<WaitOp>(op))
        continue;
      for (; !queue.empty() && inFlight > static_cast<uint64_t>(budget);
           queue.pop_front()) {
        auto [oldest, bytes] = queue.front();
        inFlight -= bytes;
        Value result = oldest->getResult(0);
        if (auto type = dyn_cast<RankedTensorType>(result.getType());
            type && type.hasStaticShape())
          tieAfter(result, wait);
      }
      op = waits[wait++];
    }
  }

  /// Ties `value` through wait `number` if all its readers are after the wait
  /// or can be moved there: shape changes, collectives, and casts of their
  /// results.
  void tieAfter(Value value, size_t number) {
    Operation *source = value.getDefiningOp();
    if (number == waits.size() || waits[number] == source)
      return;
    Operation *wait = waits[number];
    const OpOrder &order = ties.getOrder();
    // A collective that reads the result of another one has moved with that.
    if (order.isBefore(wait, source))
      return;
    auto isBefore = [&](Operation *a, Operation *b) {
      return order.isBefore(a, b);
    };
    // The readers up to the wait that have been found so far.
    std::set<Operation *, decltype(isBefore)> readers(isBefore);
    auto addReaders = [&](ValueRange values) {
      for (Value read : values)
        for (Operation *user : read.getUsers())
          if (Operation *reader = block.findAncestorOpInBlock(*user);
              !order.isBefore(wait, reader))
            readers.insert(reader);
    };
    // The ops that have to move, in order.
    SmallVector<Operation *> moved;
    llvm::DenseSet<Value> shapes{value}, received;
    if (collectives.contains(source))
      std::swap(shapes, received);
    for (addReaders(value); !readers.empty();) {
      Operation *op = *readers.begin();
      readers.erase(readers.begin());
      if (op == wait)
        return;
      bool readsShape = reads(op, shapes);
      bool isResult = collectives.contains(op) || !readsShape;
      if (!collectives.contains(op) && !isShape(op) &&
          (readsShape || !movesData(op)))
        return;
      moved.push_back(op);
      (isResult ? received : shapes).insert_range(op->getResults());
      addReaders(op->getResults());
    }
    ties.moveAfter(moved, wait);
    waits[number] = ties.tie(wait, value);
  }

  Ties &ties;
  Block &block;
  int64_t budget;
  llvm::DenseSet<Operation *> heavy;
  SmallVector<Operation *> waits;
  /// XLA's collectives that may come later; in the order of the block.
  SmallVector<Operation *> ordered;
  llvm::DenseSet<Operation *> collectives;
};
} // namespace

void zpp::keepInPlace(Ties &ties, int64_t budget) {
  Keeper(ties, budget).run();
}
