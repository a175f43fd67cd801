//===- Plan.h - How secondary partitions are kept ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Decides for each weight, without changing anything, whether a secondary
// partition of it is kept, and in which way.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_PLAN_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_PLAN_H

#include "Formats.h"
#include "Weights/FrozenWeights.h"
#include "Weights/Secondary/Axes.h"
#include "Weights/Secondary/Gathers.h"
#include "mlir/IR/Dominance.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Transforms/Words.h"

#include <variant>
#include <vector>

namespace zpp::zero {

/// The first gather runs before all others, in one block or in several manual
/// computations.
struct KeepInBlock {
  /// For each later gather, the barrier through which its operand passes and
  /// through which the kept value can pass too, or null.
  llvm::SmallVector<mlir::Operation *> crossed;
};

/// The gathers lie in loops over a stack of weights: the secondary partitions
/// of all layers are gathered in front of the loops.
struct HoistStack {
  /// The path of each gather: through loops, or to one layer, where gathers
  /// take layers of the stack in different ways.
  llvm::SmallVector<WeightPath> paths;
  /// The first op with a gather in the block around all loops. Hoisted ops are
  /// inserted before it.
  mlir::Operation *anchor = nullptr;
  /// How many times the gathers run where a loop leaves the weights as they
  /// are, and the number of layers. Otherwise 0.
  int64_t times = 0, layers = 0;
};

/// Each iteration of the first loop leaves what it keeps in a stack, which the
/// loops with the later gathers read.
struct KeepInLoop {
  CountedLoop loop;
  /// The iteration whose partition each later gather needs.
  llvm::SmallVector<mlir::Value> indices;
};

using WayToKeep = std::variant<KeepInBlock, HoistStack, KeepInLoop>;

/// The way, and the manual computation of each gather if they lie in several;
/// otherwise none.
struct PlaceToKeep {
  WayToKeep way;
  llvm::SmallVector<mlir::Operation *> computations = {};
};

/// The rewrite of the gathers of one weight.
struct SecondaryPlan {
  llvm::SmallVector<AllGatherOp> group;
  SecondaryAxes axes;
  /// Whether the partition is kept for the next step too.
  bool isBetweenSteps = false;
  PlaceToKeep place;
  /// Whether a loop computes the weight and gathers it in each iteration.
  bool isRepeated = false;

  /// Returns the number of layers whose partitions the first gather stands for.
  int64_t getNumLayers() const;
  bool isHoisted() const {
    return std::holds_alternative<HoistStack>(place.way);
  }
};

/// The decision on one weight.
struct WeightDecision {
  llvm::SmallVector<AllGatherOp> group;
  Decision<SecondaryPlan> plan;
  /// The plan of a weight that is left alone only because of the latency of the
  /// hops, which would cost nothing if they travelled with others.
  std::optional<SecondaryPlan> besideOthers = std::nullopt;
};

/// Decides about the weights of a module. Valid while it does not change.
class SecondaryPlanner {
public:
  /// `secondary`: see getSecondaryAxes.
  SecondaryPlanner(mlir::ModuleOp module, llvm::StringRef secondary,
                   KeptWeights betweenSteps);

  /// The decisions on all weights, or failure after an error. With
  /// `splitSmall`, also splits small gathers if a large one in the same place
  /// is split: they can travel with it (zero-coalesce-collectives).
  mlir::FailureOr<std::vector<WeightDecision>> decide(const Machine &machine,
                                                      bool splitSmall);

  /// Returns the loop that leaves the weight of `plan` as it is and in front of
  /// which its secondary partition is gathered; null if there is none.
  mlir::Operation *getLoopAfter(const SecondaryPlan &plan);
  /// True if the gathers of `plan` in `loop`, getLoopAfter(plan), could keep
  /// the secondary partition in the first iteration, if that were written in
  /// front of the loop.
  bool canKeepInIteration(const SecondaryPlan &plan, WhileView loop);

  /// Returns the place where the secondary partition of `group` is made and
  /// read.
  Decision<PlaceToKeep> choosePlace(llvm::ArrayRef<AllGatherOp> group,
                                    bool isBetweenSteps);

private:
  mlir::FailureOr<WeightDecision> decide(llvm::ArrayRef<AllGatherOp> group,
                                         const Machine &machine);
  void splitBesideOthers(llvm::MutableArrayRef<WeightDecision> decisions);

  bool isReadable(llvm::ArrayRef<AllGatherOp> group,
                  llvm::ArrayRef<mlir::Operation *> computations,
                  mlir::Operation *op);
  std::optional<KeepInBlock>
  keepInBlock(llvm::ArrayRef<AllGatherOp> group,
              llvm::ArrayRef<mlir::Operation *> computations);
  std::optional<HoistStack>
  hoistWithinComputation(llvm::ArrayRef<AllGatherOp> group);
  /// The stack that all of `group` read on the paths of `getPath`, which takes
  /// the number of one of them.
  Decision<HoistStack>
  hoistOn(llvm::ArrayRef<AllGatherOp> group,
          llvm::function_ref<std::optional<WeightPath>(size_t)> getPath);
  Decision<HoistStack> hoistStack(llvm::ArrayRef<AllGatherOp> group,
                                  llvm::ArrayRef<mlir::Operation *> ancestors);
  /// True if a loop around what is kept computes the weight, which is gathered
  /// in each iteration.
  bool isRepeated(AllGatherOp forward, const WayToKeep &way);
  /// The stack in front of the outermost loop that leaves the weight as it is,
  /// if all gathers lie in one.
  std::optional<HoistStack> hoistOnce(llvm::ArrayRef<AllGatherOp> group);
  /// The same in front of the first op with a gather in the innermost block
  /// around all of them, some of which may lie in no loop.
  std::optional<HoistStack> hoistFromBlock(llvm::ArrayRef<AllGatherOp> group);
  /// Counts in `stack` the gathers of `group` that each run of `block`, around
  /// all of them, does. True if these are more than layers: a stack of which
  /// loops use a part is not worth it.
  bool gathersLayersAgain(HoistStack &stack, llvm::ArrayRef<AllGatherOp> group,
                          mlir::Block &block);
  std::optional<HoistStack>
  hoistLayers(llvm::ArrayRef<AllGatherOp> group,
              llvm::ArrayRef<mlir::Operation *> ancestors);
  mlir::Operation *getAnchor(AllGatherOp gather, mlir::Operation *ancestor);
  std::optional<KeepInLoop>
  keepInLoop(llvm::ArrayRef<AllGatherOp> group,
             llvm::ArrayRef<mlir::Operation *> ancestors);
  std::optional<KeepInLoop> keepBetweenSteps(llvm::ArrayRef<AllGatherOp> group);
  bool isKnownBefore(const KeepInLoop &kept, AllGatherOp forward);
  /// True if the step does not change what `gather` gathers.
  bool isFrozen(AllGatherOp gather);
  double countTimes(llvm::ArrayRef<AllGatherOp> group);

  mlir::ModuleOp module;
  llvm::StringRef secondary;
  KeptWeights betweenSteps;
  WeightGathers gathers;
  std::optional<FrozenWeights> frozen;
  mlir::DominanceInfo dominance;
};

/// Returns the innermost block that all of `group` lie in, or null.
mlir::Block *getCommonBlock(llvm::ArrayRef<AllGatherOp> group);

/// Returns the ops of `block` that the gathers of `group` are, or lie in; null
/// for those that do not.
llvm::SmallVector<mlir::Operation *>
getAncestors(llvm::ArrayRef<AllGatherOp> group, mlir::Block &block);

/// Returns the barrier nearest to `gather` through which its operand, or a
/// value that the operand is computed from, passes; or null.
mlir::Operation *getBarrier(AllGatherOp gather);

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_PLAN_H
