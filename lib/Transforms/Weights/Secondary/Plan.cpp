//===- Plan.cpp - How secondary partitions are kept -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Plan.h"

#include "Loops/LoopPlan.h"
#include "Loops/Recomputation.h"
#include "mlir/IR/TypeUtilities.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

SecondaryPlanner::SecondaryPlanner(ModuleOp module, StringRef secondary,
                                   KeptWeights betweenSteps)
    : module(module), secondary(secondary), betweenSteps(betweenSteps),
      gathers(module) {
  if (betweenSteps != KeptWeights::None)
    frozen.emplace(module);
}

//===----------------------------------------------------------------------===//
// Decisions
//===----------------------------------------------------------------------===//

FailureOr<std::vector<WeightDecision>>
SecondaryPlanner::decide(const Machine &machine, bool splitSmall) {
  std::vector<WeightDecision> decisions;
  for (ArrayRef<AllGatherOp> group : gathers.getGroups()) {
    FailureOr<WeightDecision> decision = decide(group, machine);
    if (failed(decision))
      return failure();
    decisions.push_back(std::move(*decision));
  }
  if (splitSmall)
    splitBesideOthers(decisions);
  return decisions;
}

/// The part of the time of a weight's gathers that a secondary partition may
/// leave where links between groups are about as fast as those within. It takes
/// memory and another hop, and what it saves there is hidden anyway.
static constexpr double kMostLeft = 0.8;

FailureOr<WeightDecision> SecondaryPlanner::decide(ArrayRef<AllGatherOp> group,
                                                   const Machine &machine) {
  AllGatherOp forward = group.front();
  SmallVector<AllGatherOp> all(group);
  bool isBetweenSteps = betweenSteps == KeptWeights::All || isFrozen(forward);
  FailureOr<Decision<SecondaryAxes>> axes =
      getSecondaryAxes(forward, secondary, isBetweenSteps);
  if (failed(axes))
    return failure();
  if (!*axes)
    return WeightDecision{all, axes->getLeftAlone()};
  SecondaryPlan plan{all, **axes, isBetweenSteps, {}};
  Mesh mesh = forward.getMeshAttr().getMesh();
  std::optional<LinkModel> model = machine.findLinks(mesh);
  bool isSmall = isMostlyLatency(forward, machine.getLinks(mesh));
  auto leaveAlone = [&](LeftAlone why) {
    WeightDecision decision{all, std::move(why)};
    if (isSmall)
      decision.besideOthers = plan;
    return decision;
  };
  std::optional<HoistStack> once = hoistOnce(group);
  if (group.size() == 1 && !isBetweenSteps && !once) {
    if (gathers.readsOtherSlices(forward))
      return leaveAlone(LeftAlone(
          "it is gathered once: other loops gather other slices of its stack, "
          "for example because the number of layers is not a multiple of "
          "scan's unroll"));
    return leaveAlone(LeftAlone(
        forward->hasAttr(kForwardOnlyAttr)
            ? "it is gathered once"
            : "it is gathered once; zero-regather can gather it again in the "
              "backward pass"));
  }
  std::optional<LeftAlone> slower;
  if (model && (group.size() > 1 || once)) {
    GatherTimes times =
        getGatherTimes(forward,
                       once ? static_cast<double>(once->times) / once->layers
                            : countTimes(group),
                       plan.axes, *model);
    if (times.partitioned >=
        (times.areLinksAlike ? kMostLeft : 1) * times.whole)
      slower = LeftAlone::onLinks(times.whole, "with a secondary partition",
                                  times.partitioned,
                                  "on these links its gathers take ");
    if (slower && !isSmall)
      return leaveAlone(*slower);
  }
  Decision<PlaceToKeep> place = choosePlace(group, isBetweenSteps);
  if (!place)
    return WeightDecision{all, place.getLeftAlone()};
  plan.place = std::move(*place);
  plan.isRepeated = isRepeated(forward, plan.place.way);
  if (slower)
    return leaveAlone(*slower);
  return WeightDecision{all, std::move(plan)};
}

bool SecondaryPlanner::isFrozen(AllGatherOp gather) {
  return frozen &&
         !frozen->getSources(getSource(gather).getLocal(), /*anySlice=*/true)
              .empty();
}

void SecondaryPlanner::splitBesideOthers(
    MutableArrayRef<WeightDecision> decisions) {
  Builder builder(module.getContext());
  HeavyOps compute(module);
  llvm::DenseMap<Block *, SmallVector<Operation *>> heavyOps;
  // A block, the number of heavy ops before it, and the other properties that
  // must agree.
  using Moment = std::tuple<Block *, int64_t, Attribute>;
  auto getMoment = [&](AllGatherOp gather, const SecondaryAxes &axes) {
    Block *block = gather->getBlock();
    auto [heavy, isNew] = heavyOps.try_emplace(block);
    if (isNew)
      heavy->second = compute.getIn(*block);
    std::optional<Origin> origin = getOrigin(gather);
    return Moment(
        block, countBefore(heavy->second, gather),
        builder.getArrayAttr({gather.getMeshAttr(), axes.outer, axes.inner,
                              builder.getStringAttr(
                                  origin ? getPhaseName(origin->phase) : "")}));
  };
  llvm::DenseMap<Moment, const SecondaryPlan *> others;
  for (const WeightDecision &decision : decisions) {
    // A gather that is not quantized is left to XLA, so nothing can join it.
    // Differences are quantized later.
    if (!decision.plan || (betweenSteps != KeptWeights::All &&
                           !decision.plan->axes.primary.getQuant()))
      continue;
    const SecondaryPlan &plan = *decision.plan;
    // In a block, only the first one has both hops.
    ArrayRef<AllGatherOp> group(plan.group);
    for (AllGatherOp gather : plan.isHoisted() ? group : group.take_front())
      others.try_emplace(getMoment(gather, plan.axes), &plan);
  }
  // Plans are changed at the end, so that `others` stay where they are.
  std::vector<std::pair<WeightDecision *, SecondaryPlan>> split;
  for (WeightDecision &decision : decisions) {
    if (decision.plan || !decision.besideOthers)
      continue;
    SecondaryPlan plan = *decision.besideOthers;
    AllGatherOp forward = plan.group.front();
    const SecondaryPlan *other = others.lookup(getMoment(forward, plan.axes));
    if (!other)
      continue;
    if (other->isHoisted() && plan.group.size() == 1) {
      Operation *anchor = std::get<HoistStack>(other->place.way).anchor;
      if (Decision<HoistStack> stack = hoistStack(
              plan.group, anchor->getBlock()->findAncestorOpInBlock(*forward)))
        plan.place.way = std::move(*stack);
    }
    if (plan.isHoisted() == other->isHoisted())
      split.push_back({&decision, std::move(plan)});
  }
  for (auto &[decision, plan] : split)
    decision->plan = std::move(plan);
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Block *zpp::zero::getCommonBlock(ArrayRef<AllGatherOp> group) {
  Block *common = AllGatherOp(group.front())->getBlock();
  auto isCommon = [&](AllGatherOp gather) {
    return common->findAncestorOpInBlock(*gather.getOperation()) != nullptr;
  };
  while (common && !llvm::all_of(group, isCommon)) {
    Operation *parent = common->getParentOp();
    common = parent ? parent->getBlock() : nullptr;
  }
  return common;
}

SmallVector<Operation *> zpp::zero::getAncestors(ArrayRef<AllGatherOp> group,
                                                 Block &block) {
  return llvm::map_to_vector(group, [&](AllGatherOp gather) {
    return block.findAncestorOpInBlock(*gather.getOperation());
  });
}

/// Whether a value can leave the first of `computations` and enter the others.
static Decision<> canPassOn(ArrayRef<Operation *> computations) {
  if (!llvm::all_of(computations, isManualComputation))
    return LeftAlone(
        "one of the gathers of its weight lies in a manual computation, "
        "another one does not");
  Operation *from = computations.front();
  std::string sharding = getSharedNothingSharding(from);
  if (sharding.empty())
    return LeftAlone("the shardings of its manual computation name no mesh");
  llvm::DenseMap<Value, llvm::StringSet<>> shardings;
  for (Operation *computation : computations) {
    if (getSharedNothingSharding(computation) != sharding)
      return LeftAlone(
          "the gathers of its weight lie in manual computations over "
          "different axes");
    for (auto [operand, sharding] : llvm::zip_equal(
             computation->getOperands(), getOperandShardings(computation)))
      shardings[operand].insert(sharding);
  }
  // A value that is the same outside must be the same inside.
  for (auto &[operand, different] : shardings)
    if (different.size() > 1)
      return LeftAlone(
          "the manual computations with its gathers shard an operand "
          "differently");
  return Yes();
}

Decision<PlaceToKeep> SecondaryPlanner::choosePlace(ArrayRef<AllGatherOp> group,
                                                    bool isBetweenSteps) {
  Block *common = getCommonBlock(group);
  if (!common)
    return LeftAlone("the gathers of its weight have no region in common");
  // What is to be kept for the next step must leave the loop: as a stack that
  // it writes, or gathered in front of it.
  if (isBetweenSteps) {
    if (std::optional<KeepInLoop> kept = keepBetweenSteps(group))
      return PlaceToKeep{std::move(*kept)};
    if (std::optional<HoistStack> stack = hoistWithinComputation(group))
      return PlaceToKeep{std::move(*stack)};
  }
  if (std::optional<HoistStack> stack = hoistOnce(group))
    return PlaceToKeep{std::move(*stack)};
  SmallVector<Operation *> ancestors = getAncestors(group, *common);
  SmallVector<Operation *> computations;
  if (llvm::any_of(ancestors, [&](Operation *op) {
        return gathers.getManuals().contains(op);
      })) {
    if (Decision<> passes = canPassOn(ancestors); !passes)
      return passes.getLeftAlone();
    computations = ancestors;
  }
  if (std::optional<KeepInBlock> kept = keepInBlock(group, computations))
    return PlaceToKeep{std::move(*kept), computations};
  std::optional<KeepInLoop> inLoop =
      computations.empty() ? keepInLoop(group, ancestors) : std::nullopt;
  if (!isBetweenSteps && inLoop && isKnownBefore(*inLoop, group.front()))
    return PlaceToKeep{std::move(*inLoop)};
  Decision<HoistStack> stack = hoistStack(group, ancestors);
  if (stack)
    return PlaceToKeep{std::move(*stack), computations};
  if (std::optional<HoistStack> layers = hoistLayers(group, ancestors))
    return PlaceToKeep{std::move(*layers), computations};
  if (inLoop)
    return PlaceToKeep{std::move(*inLoop)};
  if (computations.empty())
    if (std::optional<HoistStack> kept = hoistFromBlock(group))
      return PlaceToKeep{std::move(*kept)};
  return stack.getLeftAlone();
}

//===----------------------------------------------------------------------===//
// In one block
//===----------------------------------------------------------------------===//

/// True if the order of ops and regions allows `op` to read what the first
/// gather of `group` keeps.
bool SecondaryPlanner::isReadable(ArrayRef<AllGatherOp> group,
                                  ArrayRef<Operation *> computations,
                                  Operation *op) {
  AllGatherOp forward = group.front();
  if (dominance.properlyDominates(forward.getOperation(), op))
    return true;
  // Another manual computation gets it as an operand.
  return !computations.empty() &&
         forward->getParentOp() == computations.front() &&
         !computations.front()->isAncestor(op) &&
         llvm::any_of(computations, [&](Operation *computation) {
           return computation->isProperAncestor(op);
         });
}

/// The barriers to cross, if the first gather runs before all others and they
/// gather the same slice. In one iteration of a loop, slices at different
/// indices differ.
std::optional<KeepInBlock>
SecondaryPlanner::keepInBlock(ArrayRef<AllGatherOp> group,
                              ArrayRef<Operation *> computations) {
  Value first = getSource(group.front()).getLocal();
  KeepInBlock kept;
  for (AllGatherOp gather : group.drop_front()) {
    if (!isReadable(group, computations, gather) ||
        !gathers.getProvenances().areEqual(getSource(gather).getLocal(), first))
      return std::nullopt;
    Operation *barrier = getBarrier(gather);
    kept.crossed.push_back(barrier && isReadable(group, computations, barrier)
                               ? barrier
                               : nullptr);
  }
  return kept;
}

Operation *zpp::zero::getBarrier(AllGatherOp gather) {
  FromLocalOp source = getSource(gather);
  if (!source)
    return nullptr;
  llvm::SetVector<Operation *> pending;
  auto visit = [&](Value value) {
    if (Operation *op = value.getDefiningOp())
      pending.insert(op);
  };
  visit(source.getLocal());
  for (size_t i = 0; i < pending.size(); ++i) {
    Operation *op = pending[i];
    if (isBarrier(op))
      return op;
    if (isDeterministic(op))
      llvm::for_each(op->getOperands(), visit);
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// From loop to loop
//===----------------------------------------------------------------------===//

/// The way in which the loop with the first gather of `group` can leave what it
/// keeps to those with the later ones. They lie after it in one block, or in
/// loops there that leave the weights as they are.
std::optional<KeepInLoop>
SecondaryPlanner::keepInLoop(ArrayRef<AllGatherOp> group,
                             ArrayRef<Operation *> ancestors) {
  ProvenanceAnalysis &provenances = gathers.getProvenances();
  KeepInLoop kept;
  for (auto [number, gather, ancestor] : llvm::enumerate(group, ancestors)) {
    Operation *around = AllGatherOp(gather)->getParentOp();
    std::optional<CountedLoop> loop = getCountedLoop(around, provenances);
    if (!loop || AllGatherOp(gather)->getBlock() != &loop->getBody())
      return std::nullopt;
    if (around != ancestor) {
      std::optional<WeightPath> path =
          number > 0 ? getWeightPath(getSource(gather).getLocal(), gather,
                                     ancestor, provenances)
                     : std::nullopt;
      if (!path || path->getIndices().size() != 1)
        return std::nullopt;
    }
    Value index = getIterationIndex(getSource(gather).getLocal(), loop->loop,
                                    provenances);
    if (!index || !isa<IntegerType>(getElementTypeOrSelf(index)))
      return std::nullopt;
    if (number == 0) {
      if (index != loop->counter)
        return std::nullopt;
      kept.loop = *loop;
      continue;
    }
    auto indices = getIndices(index, *loop, provenances);
    if (!kept.loop.loop->isBeforeInBlock(ancestor) || !indices ||
        !indices->areBelow(kept.loop.trips))
      return std::nullopt;
    kept.indices.push_back(index);
  }
  return kept;
}

/// The same for weights that differ from step to step, where the loop stands in
/// the manual computation itself, which passes on what it leaves.
std::optional<KeepInLoop>
SecondaryPlanner::keepBetweenSteps(ArrayRef<AllGatherOp> group) {
  AllGatherOp forward = group.front();
  Block *around = getCommonBlock(group);
  if (forward->getBlock() == around ||
      !gathers.getManuals().contains(around->getParentOp()) ||
      isFrozen(forward))
    return std::nullopt;
  std::optional<KeepInLoop> kept =
      keepInLoop(group, getAncestors(group, *around));
  return kept && isKnownBefore(*kept, forward) ? kept : std::nullopt;
}

/// True if the loop becomes layers, and what `forward` gathers is there before
/// they begin.
bool SecondaryPlanner::isKnownBefore(const KeepInLoop &kept,
                                     AllGatherOp forward) {
  return LoopPlan::get(kept.loop.loop).layers > 0 &&
         IterationValues(kept.loop, kept.loop.counter, [](Operation *op) {
           return mayRepeat(op, Effort::Scalars);
         }).canGet(getSource(forward).getLocal());
}
