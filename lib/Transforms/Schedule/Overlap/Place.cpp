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
class Placer {
public:
  explicit Placer(const BlockTransfers &transfers) : transfers(transfers) {
    for (auto [position, op] : llvm::enumerate(transfers.getOps()))
      places.push_back({static_cast<int64_t>(position), kInPlace, op});
  }

  SmallVector<PlacedCall> run(ArrayRef<OverlapPlan::Call> calls) {
    SmallVector<PlacedCall> placed;
    for (const OverlapPlan::Call &call : calls) {
      const Transfer &transfer = transfers[call.transfer];
      bool isStart = call.kind == OverlapPlan::Call::Start;
      StartOp start = transfer.start;
      WaitOp wait = transfer.wait;
      Operation *op = isStart ? start.getOperation() : wait.getOperation();
      if (isStart) {
        for (Operation *source : transfer.sources)
          // It may stand earlier already, for other readers.
          if (!isBefore(source, call.before))
            bring(source, call.before);
        for (Value input : start.getInputs())
          if (Operation *source = getMissing(input, call.before))
            bring(source, call.before);
      }
      move(op, call.before);
      if (!isStart)
        for (Operation *derived : transfer.derived)
          bring(derived, call.before);
      placed.push_back(
          {op, call.kind, &transfer, transfers.getOp(call.before)});
    }
    apply();
    return placed;
  }

private:
  /// The position of the op before which an op is placed, and a number that
  /// orders the ops placed there. The op at the position itself comes last.
  struct Place {
    int64_t before, number;
    Operation *op;
    bool operator<(const Place &other) const {
      return std::tie(before, number) < std::tie(other.before, other.number);
    }
  };
  static constexpr int64_t kInPlace = std::numeric_limits<int64_t>::max();

  Place &getPlace(Operation *op) { return places[transfers.getPosition(op)]; }

  bool isBefore(Operation *op, int64_t position) {
    Place &place = getPlace(op);
    return place.number == kInPlace ? place.before < position
                                    : place.before <= position;
  }

  void move(Operation *op, int64_t before) {
    getPlace(op) = {before, numMoved++, op};
  }

  /// Returns the op of the block that `value`, a constant, comes from, if it is
  /// not available at `before`; else null.
  Operation *getMissing(Value value, int64_t before) {
    Operation *source = value.getDefiningOp();
    return source && source->getBlock() == &transfers.getBlock() &&
                   !isBefore(source, before) && transfers.isConstant(value)
               ? source
               : nullptr;
  }

  /// Moves `op`, and before it those of its constant operands that are not
  /// available there.
  void bring(Operation *op, int64_t before) {
    SmallVector<std::pair<Operation *, unsigned>> path{{op, 0}};
    while (!path.empty()) {
      auto &[reader, next] = path.back();
      if (next == reader->getNumOperands()) {
        move(reader, before);
        path.pop_back();
        continue;
      }
      if (Operation *source = getMissing(reader->getOperand(next++), before))
        path.emplace_back(source, 0);
    }
  }

  /// Reorders the block.
  void apply() {
    llvm::sort(places);
    Block &block = transfers.getBlock();
    for (const Place &place : places)
      place.op->moveBefore(&block, block.end());
  }

  const BlockTransfers &transfers;
  /// The places of all ops of the block, by their original positions.
  std::vector<Place> places;
  int64_t numMoved = 0;
};
} // namespace

SmallVector<PlacedCall> zpp::placeTransfers(const BlockTransfers &transfers,
                                            const OverlapPlan &plan) {
  return Placer(transfers).run(plan.calls);
}
