//===- Place.cpp - Starts and waits where they are planned ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Overlap.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
/// Places ops, one after the other, from the beginning of the block to its end.
class Placer {
public:
  explicit Placer(const BlockTransfers &transfers) : transfers(transfers) {}

  SmallVector<PlacedCall> run(ArrayRef<OverlapPlan::Call> calls) {
    SmallVector<PlacedCall> placed;
    for (const OverlapPlan::Call &call : calls) {
      before = call.before;
      const Transfer &transfer = transfers[call.transfer];
      bool isStart = call.kind == OverlapPlan::Call::Start;
      StartOp start = transfer.start;
      WaitOp wait = transfer.wait;
      Operation *op = isStart ? start.getOperation() : wait.getOperation();
      if (isStart) {
        for (Operation *source : transfer.sources)
          // It may be available already, for other readers.
          if (!isAvailable(source))
            bring(source);
        for (Value input : start.getInputs())
          if (Operation *source = getMissing(input))
            bring(source);
      }
      place(op);
      if (!isStart)
        for (Operation *derived : transfer.derived)
          bring(derived);
      placed.push_back({op, call.kind, &transfer, transfers.getOp(before)});
    }
    apply();
    return placed;
  }

private:
  /// True if `op` is before the op at `before`.
  bool isAvailable(Operation *op) const {
    return isPlaced.contains(op) || transfers.getPosition(op) < before;
  }

  void place(Operation *op) {
    places.emplace_back(before, op);
    isPlaced.insert(op);
  }

  /// Returns the op of the block that `value`, a constant, comes from, if it is
  /// not available; else null.
  Operation *getMissing(Value value) const {
    Operation *source = value.getDefiningOp();
    return source && source->getBlock() == &transfers.getBlock() &&
                   !isAvailable(source) && transfers.isConstant(value)
               ? source
               : nullptr;
  }

  /// Places `op`, and before it those of its constant operands that are not
  /// available.
  void bring(Operation *op) {
    SmallVector<std::pair<Operation *, unsigned>> path{{op, 0}};
    while (!path.empty()) {
      auto &[reader, next] = path.back();
      if (next == reader->getNumOperands()) {
        place(reader);
        path.pop_back();
        continue;
      }
      if (Operation *source = getMissing(reader->getOperand(next++)))
        path.emplace_back(source, 0);
    }
  }

  /// Reorders the block.
  void apply() {
    Block &block = transfers.getBlock();
    const auto *next = places.begin();
    for (auto [position, op] : llvm::enumerate(transfers.getOps())) {
      for (; next != places.end() &&
             next->first == static_cast<int64_t>(position);
           ++next)
        next->second->moveBefore(&block, block.end());
      if (!isPlaced.contains(op))
        op->moveBefore(&block, block.end());
    }
  }

  const BlockTransfers &transfers;
  /// The position of the op that ops are placed before now. It only grows.
  int64_t before = 0;
  /// The ops that are placed, in their new order, each with the position of the
  /// op that it is before.
  SmallVector<std::pair<int64_t, Operation *>> places;
  llvm::DenseSet<Operation *> isPlaced;
};
} // namespace

SmallVector<PlacedCall> zpp::placeTransfers(const BlockTransfers &transfers,
                                            const OverlapPlan &plan) {
  return Placer(transfers).run(plan.calls);
}
