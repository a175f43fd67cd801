//===- Updates.cpp - Updates in the order of their gradients --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Overlap.h"
#include "zpp/Analysis/Collectives.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

bool zpp::isFreelyPlaced(Operation *op) {
  return op->getName().getDialectNamespace() == "stablehlo" &&
         (op->getNumRegions() == 0 || isNamed(op, guest::kReduce)) &&
         !isNamed(op, guest::kCustomCall) && !isCollective(op) &&
         !mayCommunicate(op);
}

namespace {
/// Sorts the ops after `first`, the last heavy op.
class UpdateSorter {
public:
  UpdateSorter(Block &block, Operation *first) : block(block) {
    for (Operation *op = first->getNextNode(); op != &block.back();
         op = op->getNextNode())
      tail.push_back(op);
  }

  void run() {
    numberScatters();
    if (numScatters < 2)
      return;
    findKeys();
    delayUnneeded();
    SmallVector<std::pair<int64_t, size_t>> order;
    for (auto [position, op] : llvm::enumerate(tail))
      order.emplace_back(keys.lookup(op), position);
    llvm::sort(order);
    for (auto [key, position] : order)
      tail[position]->moveBefore(&block.back());
  }

private:
  /// Numbers the waits of scatters, from 1, in the order in which their
  /// gradients are there.
  void numberScatters() {
    llvm::DenseMap<Operation *, int64_t> positions;
    for (Operation &op : block)
      positions[&op] = static_cast<int64_t>(positions.size());
    std::vector<std::pair<int64_t, WaitOp>> scatters;
    for (auto start : block.getOps<StartOp>()) {
      if (!hasRole(start, Role::Gradient))
        continue;
      int64_t ready = -1;
      for (Value input : start.getInputs()) {
        Operation *source = input.getDefiningOp();
        while (source && movesData(source))
          source = source->getOperand(0).getDefiningOp();
        if (auto it = positions.find(source); it != positions.end())
          ready = std::max(ready, it->second);
      }
      scatters.emplace_back(ready, start.getWait());
    }
    llvm::sort(scatters, llvm::less_first());
    for (const auto &[ready, wait] : scatters)
      keys[wait] = ++numScatters;
  }

  /// Finds for each op the number of the last scatter that it needs; 0 for
  /// none. What an update sends is waited for after all updates. Ops that are
  /// not free keep their order.
  void findKeys() {
    llvm::DenseSet<Operation *> isTail(llvm::from_range, tail);
    int64_t latest = 0;
    for (Operation &op : block) {
      int64_t key = keys.lookup(&op);
      op.walk([&](Operation *nested) {
        for (Value operand : nested->getOperands())
          if (Operation *source = operand.getDefiningOp())
            key = std::max(key, keys.lookup(source));
      });
      if (auto wait = dyn_cast<WaitOp>(op);
          wait && key > 0 && !hasRole(wait.getStart(), Role::Gradient))
        key = numScatters + 1;
      if (isTail.contains(&op) && !isa<StartOp, WaitOp>(op) &&
          !isFreelyPlaced(&op))
        key = latest = std::max(latest, key);
      keys[&op] = key;
    }
  }

  /// Gives ops that need no scatter the place of their first reader.
  void delayUnneeded() {
    for (Operation *op : llvm::reverse(tail)) {
      if (keys.lookup(op) > 0 || !isFreelyPlaced(op) || op->use_empty())
        continue;
      int64_t first = numScatters + 1;
      for (Operation *user : op->getUsers())
        first =
            std::min(first, keys.lookup(block.findAncestorOpInBlock(*user)));
      keys[op] = first;
    }
  }

  Block &block;
  SmallVector<Operation *> tail;
  int64_t numScatters = 0;
  llvm::DenseMap<Operation *, int64_t> keys;
};
} // namespace

/// Moves what depends on scatters after `last`, the last heavy op, unless
/// something before that needs it. The partitioner prints an update where its
/// gradient is computed: the compute would wait for the scatter there. Layers
/// of stacks are stored when they are there, so that they need no memory of
/// their own.
static void delayUpdates(Block &block, Operation *last) {
  llvm::DenseSet<Operation *> scattered, early{last};
  SmallVector<Operation *> updates;
  for (Operation &op : llvm::make_range(block.begin(), last->getIterator())) {
    early.insert(&op);
    auto wait = dyn_cast<WaitOp>(op);
    bool isUpdate = isFreelyPlaced(&op) &&
                    !isNamed(&op, guest::kDynamicUpdateSlice) &&
                    llvm::any_of(op.getOperands(), [&](Value operand) {
                      return scattered.contains(operand.getDefiningOp());
                    });
    if (isUpdate)
      updates.push_back(&op);
    if (isUpdate || (wait && hasRole(wait.getStart(), Role::Gradient)))
      scattered.insert(&op);
  }
  auto isRead = [&](Operation *op) {
    return llvm::any_of(op->getUsers(), [&](Operation *user) {
      return early.contains(block.findAncestorOpInBlock(*user));
    });
  };
  // The next hop of a sum can start under compute, too.
  Operation *next = last->getNextNode();
  for (Operation &op :
       llvm::reverse(llvm::make_range(next->getIterator(), block.end()))) {
    auto start = dyn_cast<StartOp>(op);
    if ((start && hasRole(start, Role::Gradient)) || isRead(&op))
      early.insert(&op);
  }
  for (Operation *op : llvm::reverse(updates)) {
    if (isRead(op))
      continue;
    op->moveBefore(next);
    early.erase(op);
    next = op;
  }
}

void zpp::sortUpdates(Block &block, HeavyOps &compute) {
  SmallVector<Operation *> heavy = compute.getIn(block);
  if (heavy.empty())
    return;
  delayUpdates(block, heavy.back());
  UpdateSorter(block, heavy.back()).run();
}
