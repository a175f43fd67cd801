//===- SumOrder.cpp - Gradients are summed when they are there ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PartitionerOutput.h"

#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

/// True for a tensor summed over devices. Scalars, such as losses, stay.
static bool isTensorSum(Operation *op) {
  std::optional<CollectiveKind> kind = getGuestCollective(op);
  if (kind != CollectiveKind::AllReduce &&
      kind != CollectiveKind::ReduceScatter)
    return false;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  return type && type.getRank() > 0;
}

namespace {

/// The sums of a block. Takes linear time.
///
/// Places are counted in *landmarks*, the heavy ops that do not move: place `i`
/// is before landmark `i` and after all earlier ones.
class BlockSums {
public:
  BlockSums(Block &block, HeavyOps &heavy) : block(block), heavy(heavy) {}

  void advance() {
    findProducts();
    findPlaces();
    findTargets();
    // Ops with one target keep their order.
    for (auto [op, target] : targets)
      op->moveBefore(landmarks[target]);
  }

private:
  /// True if `op` may move up to what it depends on. It is not done again, so
  /// products and sums over devices may, too.
  static bool isMovable(Operation *op) {
    return isTensorSum(op) || isBarrier(op) || isDeterministic(op) ||
           isNamed(op, guest::kConvolution) || isNamed(op, guest::kReduce) ||
           isNamed(op, guest::kScatter);
  }

  /// Calls `visit` for each op of the block that `op`, or an op within it,
  /// reads a result of.
  void forEachSource(Operation *op,
                     llvm::function_ref<void(Operation *)> visit) {
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (Operation *source = operand.getDefiningOp();
            source && source->getBlock() == &block)
          visit(source);
    });
  }

  /// Finds the heavy ops whose results only sums need, apart from light ops.
  void findProducts() {
    // The sums, and the light ops that only they need.
    llvm::DenseSet<Operation *> between;
    for (Operation &op : llvm::reverse(block)) {
      if (isTensorSum(&op)) {
        between.insert(&op);
        continue;
      }
      if (op.use_empty() || !isMovable(&op) ||
          !llvm::all_of(op.getUsers(), [&](Operation *user) {
            return between.contains(block.findAncestorOpInBlock(*user));
          }))
        continue;
      if (heavy.isHeavy(&op))
        products.insert(&op);
      else
        between.insert(&op);
    }
  }

  /// Finds the place of each op, and the first place where what it depends on
  /// is known.
  void findPlaces() {
    for (Operation &op : block) {
      int64_t place = landmarks.size(), earliest = 0;
      if (isMovable(&op))
        forEachSource(&op, [&](Operation *source) {
          earliest = std::max(earliest, places.lookup(source).earliest);
        });
      else
        earliest = place;
      // What follows from a product that stays comes after it.
      if (heavy.isHeavy(&op) && !products.contains(&op)) {
        landmarks.push_back(&op);
        earliest = place + 1;
      }
      places[&op] = {place, earliest};
    }
  }

  /// Finds the sums that move, and what must move with them.
  void findTargets() {
    llvm::DenseMap<Operation *, int64_t> wanted;
    for (Operation &op : llvm::reverse(block)) {
      Place place = places.lookup(&op);
      auto [it, isNew] = wanted.try_emplace(&op, place.place);
      if (isTensorSum(&op))
        it->second = std::min(it->second, place.earliest);
      int64_t target = it->second;
      if (target >= place.place)
        continue;
      targets.push_back({&op, target});
      forEachSource(&op, [&](Operation *source) {
        auto [known, isNew] =
            wanted.try_emplace(source, places.lookup(source).place);
        known->second = std::min(known->second, target);
      });
    }
    std::reverse(targets.begin(), targets.end());
  }

  struct Place {
    int64_t place = 0, earliest = 0;
  };

  Block &block;
  HeavyOps &heavy;
  llvm::DenseSet<Operation *> products;
  SmallVector<Operation *> landmarks;
  llvm::DenseMap<Operation *, Place> places;
  /// The ops that move, in order, and the landmarks that they go before.
  SmallVector<std::pair<Operation *, int64_t>> targets;
};
} // namespace

void zpp::advanceSums(ModuleOp module) {
  HeavyOps heavy(module);
  llvm::SetVector<Block *> blocks;
  module.walk([&](Operation *op) {
    if (isTensorSum(op))
      blocks.insert(op->getBlock());
  });
  for (Block *block : blocks)
    BlockSums(*block, heavy).advance();
}
