//===- PlanStack.cpp - Stacks of layers in front of loops -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Plan.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// A stack of all layers in front of the loops with the gathers of `group`,
/// which lie in one manual computation.
std::optional<HoistStack>
SecondaryPlanner::hoistWithinComputation(ArrayRef<AllGatherOp> group) {
  AllGatherOp forward = group.front();
  Operation *around = forward->getParentOp();
  while (around && !gathers.getManuals().contains(around))
    around = around->getParentOp();
  if (!around || around == forward->getParentOp())
    return std::nullopt;
  SmallVector<Operation *> ancestors =
      getAncestors(group, ManualView(around).getBody());
  if (llvm::is_contained(ancestors, nullptr))
    return std::nullopt;
  Decision<HoistStack> stack = hoistStack(group, ancestors);
  return stack ? std::optional(std::move(*stack)) : std::nullopt;
}

/// `ancestor` or, if that is a manual computation, the op in its body that
/// `gather` lies in.
Operation *SecondaryPlanner::getAnchor(AllGatherOp gather,
                                       Operation *ancestor) {
  if (!gathers.getManuals().contains(ancestor))
    return ancestor;
  Block &body = ManualView(ancestor).getBody();
  return body.findAncestorOpInBlock(*gather.getOperation());
}

Decision<HoistStack> SecondaryPlanner::hoistOn(
    ArrayRef<AllGatherOp> group,
    llvm::function_ref<std::optional<WeightPath>(size_t)> getPath) {
  HoistStack stack;
  for (size_t number : llvm::seq(group.size())) {
    std::optional<WeightPath> path = getPath(number);
    if (!path)
      return LeftAlone("the regions around the gathers of its weight are not "
                       "loops over one stack of weights");
    stack.paths.push_back(std::move(*path));
    const WeightPath &first = stack.paths.front(), &last = stack.paths.back();
    if (!gathers.getProvenances().areEqual(last.source, first.source) ||
        !last.doesTheSame(first))
      return LeftAlone("the loops around the gathers of its weight read "
                       "different stacks of weights, or cast them differently");
  }
  AllGatherOp forward = group.front();
  if (!getStackedType(forward.getOperand().getType(),
                      stack.paths.front().getNumLayers()))
    return LeftAlone("the stack of its weights has more elements than a tensor "
                     "can have");
  return stack;
}

/// The stack that all gathers of `group` read. The gathers lie in `ancestors`,
/// which are ops of one block or manual computations.
Decision<HoistStack>
SecondaryPlanner::hoistStack(ArrayRef<AllGatherOp> group,
                             ArrayRef<Operation *> ancestors) {
  Decision<HoistStack> stack = hoistOn(group, [&](size_t number) {
    AllGatherOp gather = group[number];
    return getWeightPath(getSource(gather).getLocal(), gather,
                         ancestors[number], gathers.getProvenances());
  });
  if (stack)
    stack->anchor = getAnchor(group.front(), ancestors.front());
  return stack;
}

/// The same where each gather takes one layer in a way of its own.
std::optional<HoistStack>
SecondaryPlanner::hoistLayers(ArrayRef<AllGatherOp> group,
                              ArrayRef<Operation *> ancestors) {
  Decision<HoistStack> stack = hoistOn(group, [&](size_t number) {
    return gathers.getLayerPath(group[number]);
  });
  if (!stack ||
      !gathers.areGatheredAgain(group, stack->paths.front().getNumLayers()))
    return std::nullopt;
  stack->anchor = getAnchor(group.front(), ancestors.front());
  return std::move(*stack);
}

//===----------------------------------------------------------------------===//
// Weights that loops leave as they are
//===----------------------------------------------------------------------===//

// A loop over micro-batches does not change the weights. What is gathered of
// them over the slower tiers in front of it is valid in all of its iterations.

/// True if `index`, in `loop` or in a loop there, may differ between iterations
/// of `loop`.
static bool differsBetweenIterations(Value index, WhileView loop) {
  llvm::SetVector<Value> pending;
  pending.insert(index);
  for (size_t i = 0; i < pending.size(); ++i) {
    Value next = pending[i];
    if (!loop.contains(next))
      continue;
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      WhileView owner = WhileView::get(argument.getOwner()->getParentOp());
      unsigned number = argument.getArgNumber();
      if (!owner)
        return true;
      if (owner.isInvariant(number)) {
        pending.insert(owner.getInit(number));
        continue;
      }
      if (owner.getOperation() == loop.getOperation())
        return true;
      pending.insert(owner.getInit(number));
      pending.insert(owner.getNext(number));
      continue;
    }
    Operation *op = next.getDefiningOp();
    if (op->getNumRegions() > 0)
      return true;
    pending.insert(op->operand_begin(), op->operand_end());
  }
  return false;
}

/// True if all iterations of `loop` gather the same along `path`.
static bool isSameInIterations(const WeightPath &path, WhileView loop) {
  return llvm::none_of(path.getIndices(), [&](Value index) {
    return differsBetweenIterations(index, loop);
  });
}

bool SecondaryPlanner::gathersLayersAgain(HoistStack &stack,
                                          ArrayRef<AllGatherOp> group,
                                          Block &block) {
  for (AllGatherOp gather : group) {
    int64_t trips = 1;
    for (Block *inner = gather->getBlock(); inner != &block;) {
      Operation *loop = inner->getParentOp();
      // Where the step computes the number, hoisting pays from the second on.
      std::optional<LoopCounter> counter =
          getLoopCounter(WhileView::get(loop), gathers.getProvenances());
      trips = multiplySaturating(trips, counter ? counter->trips : 2);
      inner = loop->getBlock();
    }
    stack.times = addSaturating(stack.times, trips);
  }
  stack.layers = stack.paths.front().getNumLayers();
  return stack.times > stack.layers;
}

bool SecondaryPlanner::isRepeated(AllGatherOp forward, const WayToKeep &way) {
  Operation *kept = forward;
  if (const auto *inLoop = std::get_if<KeepInLoop>(&way))
    kept = inLoop->loop.loop.getOperation();
  else if (!std::holds_alternative<KeepInBlock>(way))
    return false;
  // Steps of an optimizer hand the weight on.
  Value root = gathers.getProvenances().get(getSource(forward).getLocal()).root;
  return isInLoop(kept) && !isa<BlockArgument>(root);
}

std::optional<HoistStack>
SecondaryPlanner::hoistOnce(ArrayRef<AllGatherOp> group) {
  Block *common = getCommonBlock(group);
  if (!common)
    return std::nullopt;
  SmallVector<Operation *> loops;
  for (Operation *op = common->getParentOp(); isWhile(op);
       op = op->getParentOp())
    loops.push_back(op);
  for (Operation *loop : llvm::reverse(loops)) {
    std::optional<LoopCounter> counter =
        getLoopCounter(WhileView(loop), gathers.getProvenances());
    if (counter && counter->trips < 2)
      continue;
    SmallVector<Operation *> ancestors(group.size(), loop);
    Decision<HoistStack> stack = hoistStack(group, ancestors);
    if (!stack)
      continue;
    if (!llvm::all_of(stack->paths, [&](const WeightPath &path) {
          return isSameInIterations(path, WhileView(loop));
        }))
      continue;
    if (gathersLayersAgain(*stack, group, *loop->getBlock()))
      return std::move(*stack);
  }
  return std::nullopt;
}

std::optional<HoistStack>
SecondaryPlanner::hoistFromBlock(ArrayRef<AllGatherOp> group) {
  Block *common = getCommonBlock(group);
  Decision<HoistStack> stack = hoistOn(group, [&](size_t number) {
    AllGatherOp gather = group[number];
    return getWeightPath(getSource(gather).getLocal(), gather,
                         common->getParentOp(), gathers.getProvenances(),
                         /*endsInside=*/true);
  });
  if (!stack || !gathersLayersAgain(*stack, group, *common))
    return std::nullopt;
  stack->anchor = common->findAncestorOpInBlock(*group.front());
  return std::move(*stack);
}

int64_t SecondaryPlan::getNumLayers() const {
  const auto *stack = std::get_if<HoistStack>(&place.way);
  return stack ? std::max<int64_t>(stack->paths.front().getNumLayers(), 1) : 1;
}

Operation *SecondaryPlanner::getLoopAfter(const SecondaryPlan &plan) {
  const auto *stack = std::get_if<HoistStack>(&plan.place.way);
  if (!stack || !plan.place.computations.empty())
    return nullptr;
  WhileView loop = WhileView::get(stack->anchor);
  if (!loop)
    return nullptr;
  return llvm::all_of(stack->paths,
                      [&](const WeightPath &path) {
                        return isSameInIterations(path, loop);
                      })
             ? loop.getOperation()
             : nullptr;
}

bool SecondaryPlanner::canKeepInIteration(const SecondaryPlan &plan,
                                          WhileView loop) {
  SmallVector<AllGatherOp> within;
  SmallVector<Operation *> ancestors;
  for (AllGatherOp gather : plan.group)
    if (Operation *op = loop.getBody().findAncestorOpInBlock(*gather)) {
      within.push_back(gather);
      ancestors.push_back(op);
    }
  AllGatherOp forward = within.front();
  if (ancestors.front() == forward.getOperation())
    return keepInBlock(within, /*computations=*/{}).has_value();
  std::optional<KeepInLoop> inLoop = keepInLoop(within, ancestors);
  return !(plan.isBetweenSteps && isFrozen(forward)) && inLoop &&
         isKnownBefore(*inLoop, forward);
}

static int64_t countLoopsAround(Operation *op) {
  int64_t loops = 0;
  for (; op; op = op->getParentOp())
    loops += isWhile(op) ? 1 : 0;
  return loops;
}

/// How many gathers of `group` run for one of the first, in which others may
/// lie in more loops.
double SecondaryPlanner::countTimes(ArrayRef<AllGatherOp> group) {
  int64_t loops = countLoopsAround(group.front());
  if (llvm::all_of(group, [&](AllGatherOp gather) {
        return countLoopsAround(gather) == loops;
      }))
    return group.size();
  auto getTrips = [&](AllGatherOp gather) -> double {
    return getTripCount(gather, gathers.getProvenances()).value_or(1);
  };
  double all = 0;
  for (AllGatherOp gather : group)
    all += getTrips(gather);
  return all / std::max(getTrips(group.front()), 1.0);
}
