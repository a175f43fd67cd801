//===- Keep.cpp - What XLA is not left to order ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "Overlap.h"
#include "mlir/IR/Builders.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"

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

  /// Returns the number of the first wait after `op`, which is not a wait
  /// itself.
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
        if (hasStaticShape(result.getType()))
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

/// True if the op of `use` begins a stack of layers with a broadcast of zero: a
/// store of a layer or a loop, which overwrites it.
static bool beginsAsZeros(OpOperand &use) {
  Operation *op = use.getOwner();
  if (!isZeros(use.get()) ||
      !isNamed(use.get().getDefiningOp(), guest::kBroadcastInDim) ||
      getBytes(use.get().getType()) < kLeastTied)
    return false;
  if (WhileView loop = WhileView::get(op))
    return !loop.isInvariant(use.getOperandNumber());
  return getWrittenLayer(op) && use.getOperandNumber() == 0;
}

/// Returns the value that `op` follows from and that is computed last in its
/// block; null if all come from elsewhere or are constant. What XLA fuses (X6)
/// into its readers has no memory of its own, and what a start brings is not
/// there yet. A collective of XLA leaves a partitioned tensor, which no barrier
/// takes: the local tensor that it is cast to is the value then.
static Value getComputedLast(Operation *op, const BlockTransfers &transfers) {
  Value last;
  do {
    last = {};
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (source && source->getBlock() == &transfers.getBlock() &&
          (!isa<StartOp>(source) || isTied(operand)) &&
          !transfers.isConstant(operand) &&
          (!last || last.getDefiningOp()->isBeforeInBlock(source)))
        last = operand;
    }
    op = last ? last.getDefiningOp() : nullptr;
  } while (op && !isa<ToLocalOp>(op) && (isElementwise(op) || movesData(op)));
  return last;
}

/// Returns the stores from `first` on that follow each other in one stack,
/// which nothing else reads in between.
static SmallVector<Operation *> getStores(Operation *first) {
  SmallVector<Operation *> stores{first};
  while (stores.back()->getResult(0).hasOneUse()) {
    OpOperand &use = *stores.back()->getResult(0).use_begin();
    Operation *next = use.getOwner();
    if (use.getOperandNumber() != 0 || !getWrittenLayer(next) ||
        next->getBlock() != first->getBlock())
      break;
    stores.push_back(next);
  }
  return stores;
}

/// True if one op reads what `a` and `b` leave, and nothing else does.
static bool areReadTogether(Operation *a, Operation *b) {
  return a->hasOneUse() && b->hasOneUse() &&
         *a->user_begin() == *b->user_begin();
}

/// Has the stacks of all `uses`, which are of one op, begin as zeros of their
/// own, after `last`. XLA would find that barriers of one zero each are equal
/// (X2).
static void beginAfter(ArrayRef<OpOperand *> uses, Value last) {
  Operation *owner = uses.front()->getOwner();
  OpBuilder builder(owner);
  SmallVector<Value> operands;
  for (OpOperand *use : uses)
    operands.push_back(use->get().getDefiningOp()->getOperand(0));
  operands.push_back(last);
  Operation *barrier = createBarrier(builder, owner->getLoc(), operands);
  for (auto [use, zero] :
       llvm::zip_equal(uses, barrier->getResults().drop_back())) {
    Operation *zeros = use->get().getDefiningOp();
    Operation *own = builder.clone(*zeros);
    own->setOperand(0, zero);
    use->set(own->getResult(0));
    eraseIfDead(Value(zeros->getResult(0)));
  }
}

void zpp::delayZeros(const BlockTransfers &transfers) {
  // Those of one op together: a loop begins several stacks.
  SmallVector<SmallVector<OpOperand *>> beginnings;
  for (Operation &op : transfers.getBlock()) {
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : op.getOpOperands())
      if (beginsAsZeros(use))
        uses.push_back(&use);
    if (!uses.empty())
      beginnings.push_back(std::move(uses));
  }
  Operation *stored = nullptr;
  for (ArrayRef<OpOperand *> uses : beginnings) {
    Operation *owner = uses.front()->getOwner();
    Value last;
    if (!isWhile(owner)) {
      SmallVector<Operation *> stores = getStores(owner);
      Operation *before = std::exchange(stored, stores.back());
      if (before && areReadTogether(before, stored)) {
        last = before->getResult(0);
        // All are found before one moves: a move numbers the block again.
        auto isAfter = [&](Operation *op) {
          return before->isBeforeInBlock(op);
        };
        stores.erase(llvm::find_if(stores, isAfter), stores.end());
        for (Operation *store : llvm::reverse(stores))
          store->moveAfter(before);
      }
    }
    if (!last)
      last = getComputedLast(owner, transfers);
    if (last)
      beginAfter(uses, last);
  }
}
