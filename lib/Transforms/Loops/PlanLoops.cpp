//===- PlanLoops.cpp - Decide what becomes of loops -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is written outside of a loop hides what is sent before or after it. So
// the time of that decides: of weights by the plan of secondary partitions, of
// gradients by their hops.
//
//===----------------------------------------------------------------------===//

#include "Gradients/Accumulate/GradientSum.h"
#include "Gradients/HopsAfterLoops.h"
#include "Loops/LoopPlan.h"
#include "Weights/Secondary/Plan.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Transforms/Attributes.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {
#define GEN_PASS_DEF_PLANLOOPSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// True if the only reader of `result` adds another gradient to it.
static bool isAddedTo(OpResult result, TermFinder &finder) {
  Operation *add = result.hasOneUse() ? *result.user_begin() : nullptr;
  return isAddition(add) &&
         llvm::any_of(add->getOperands(), [&](Value operand) {
           return operand != result && finder.find(operand);
         });
}

/// Returns the time of the hops that the step itself writes after a loop; 0 if
/// most of it comes late. Latencies do not count: small tensors travel
/// together.
static double getUsec(ArrayRef<HopsAfterLoop> all, const LinkModel &model) {
  double early = 0, late = 0;
  for (const auto &[hops, isLate] : all)
    (isLate ? late : early) +=
        hops.getUsec(/*layers=*/1, model) - hops.getUsec(/*layers=*/0, model);
  return early > late ? early : 0;
}

/// Returns the time of the outer hops of what `loop` adds up, unless another
/// gradient is added after it.
static double getUsec(WhileView loop, TermFinder &finder,
                      const LinkModel &model) {
  double usec = 0;
  for (unsigned number : llvm::seq(loop.getNumCarried())) {
    std::optional<GradientSum> sum = findCarriedSum(finder, loop, number);
    if (!sum || isAddedTo(loop.getResult(number), finder))
      continue;
    for (const auto &terms : sum->terms)
      usec += terms.front().hops.getUsec(
          llvm::product_of(terms.front().getLayers()), model);
  }
  return usec;
}

/// Returns how many iterations are left in `loop` if one more is written
/// outside of it: where that can be, at least one is left, and the hops of
/// `usec` microseconds that the iteration would hide take at least `minUsec`.
static Decision<int64_t> canPeel(WhileView loop, double usec, int64_t minUsec,
                                 ProvenanceAnalysis &provenances) {
  if (usec < static_cast<double>(minUsec))
    return LeftAlone("it takes " + std::to_string(static_cast<int64_t>(usec)) +
                     " usec, with min-usec = " + std::to_string(minUsec));
  std::optional<LoopCounter> counter = getLoopCounter(loop, provenances);
  if (!counter)
    return LeftAlone("it is not known how often the loop runs");
  LoopPlan plan = LoopPlan::get(loop);
  int64_t left = counter->trips - plan.first - plan.last - 1;
  if (left < 1)
    return LeftAlone("the loop has " + std::to_string(counter->trips) +
                     (counter->trips == 1 ? " iteration" : " iterations") +
                     (plan.first > 0 ? ", of which the first one is written in "
                                       "front of it"
                                     : ""));
  if (!hasOneTypePerValue(loop))
    return LeftAlone("what the loop carries changes its type");
  if (isInLoop(loop.getOperation()))
    return LeftAlone("the loop lies in another one");
  return left;
}

namespace {
class PlanLoopsPass : public zpp::impl::PlanLoopsPassBase<PlanLoopsPass> {
public:
  using PlanLoopsPassBase::PlanLoopsPassBase;

  void runOnOperation() override {
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return signalPassFailure();
    if (gradients)
      return planLast(*machine);
    planStaying();
    if (secondary != "none" && failed(planFirst(*machine)))
      return signalPassFailure();
  }

private:
  //===--------------------------------------------------------------------===//
  // What stays in the loop
  //===--------------------------------------------------------------------===//

  void planStaying() {
    ProvenanceAnalysis provenances;
    getOperation()->walk([&](Operation *op) {
      op->removeDiscardableAttr(kLoopAttr);
      WhileView loop = WhileView::get(op);
      if (!loop || !containsOp(op, communicates))
        return;
      Decision<int64_t> layers = planLayers(loop, provenances);
      if (layers) {
        remarkPassed(op, getArgument(), "layers")
            << "its " + std::to_string(*layers) +
                   " layers are to follow each other without a loop";
      } else if (llvm::any_of(loop.getBody(), [](Operation &inner) {
                   return communicates(&inner);
                 })) {
        remarkMissed(op, getArgument(), "not-layers")
            << "stays a loop: " + layers.getReason();
      }
    });
  }

  //===--------------------------------------------------------------------===//
  // What is written in front of the loop
  //===--------------------------------------------------------------------===//

  /// The hops of weights in front of a loop: the time that its first iteration
  /// could hide, and whether there are others.
  struct Hops {
    double usec = 0;
    bool hasOthers = false;
  };

  LogicalResult planFirst(const Machine &machine) {
    FailureOr<llvm::MapVector<Operation *, Hops>> loops =
        findHopsBefore(machine);
    if (failed(loops))
      return failure();
    ProvenanceAnalysis provenances;
    for (const auto &[op, hops] : *loops) {
      WhileView loop(op);
      Decision<int64_t> left =
          hops.usec == 0 && hops.hasOthers
              ? LeftAlone("an iteration could not keep what it gathers")
              : canPeel(loop, hops.usec, minUsec, provenances);
      decide(loop, &LoopPlan::first, left,
             "its first iteration is written in front of it, to gather weights "
             "under its compute",
             "weights are gathered in front of the loop, where nothing hides "
             "it");
    }
    return success();
  }

  /// Returns the loops in front of which zero-partition-within-node would
  /// gather.
  FailureOr<llvm::MapVector<Operation *, Hops>>
  findHopsBefore(const Machine &machine) {
    SecondaryPlanner planner(getOperation(), secondary, betweenSteps);
    FailureOr<std::vector<WeightDecision>> decisions =
        planner.decide(machine, splitSmall);
    if (failed(decisions))
      return failure();
    llvm::MapVector<Operation *, Hops> loops;
    for (const WeightDecision &decision : *decisions) {
      Operation *loop =
          decision.plan ? planner.getLoopAfter(*decision.plan) : nullptr;
      if (!loop)
        continue;
      Hops &hops = loops[loop];
      if (!planner.canKeepInIteration(*decision.plan, WhileView(loop))) {
        hops.hasOthers = true;
        continue;
      }
      AllGatherOp forward = decision.group.front();
      Mesh mesh = forward.getMeshAttr().getMesh();
      hops.usec += getOuterUsec(forward, decision.plan->getNumLayers(),
                                decision.plan->axes, machine.getLinks(mesh));
    }
    return loops;
  }

  //===--------------------------------------------------------------------===//
  // What is written after the loop
  //===--------------------------------------------------------------------===//

  void planLast(const Machine &machine) {
    std::optional<Mesh> mesh = findScatterMesh(getOperation());
    if (!mesh)
      return;
    LinkModel speeds = machine.getLinks(*mesh);
    std::optional<AccumulationGroup> parsed =
        AccumulationGroup::parse(group, *mesh);
    // zero-accumulate-gradients says what is wrong with it.
    if (!parsed && !group.empty())
      return;
    std::optional<TermFinder> finder;
    if (parsed)
      finder.emplace(*parsed);
    ProvenanceAnalysis provenances;
    getOperation()->walk([&](Operation *op) {
      WhileView loop = WhileView::get(op);
      // An iteration that is planned already stays so.
      if (!loop || LoopPlan::get(loop).last > 0)
        return;
      double usec = getUsec(findHopsAfter(loop, provenances), speeds) +
                    (finder ? getUsec(loop, *finder, speeds) : 0);
      if (usec > 0)
        decide(
            loop, &LoopPlan::last, canPeel(loop, usec, minUsec, provenances),
            "its last iteration is written after it, to send gradients under "
            "its compute",
            "gradients are sent after the loop, where nothing hides it");
    });
  }

  /// Notes whether an iteration of `loop` is written outside, which `left`
  /// others are left to, or what it `costs` that none is, and why.
  void decide(WhileView loop, int64_t LoopPlan::*where,
              const Decision<int64_t> &left, const char *peeled,
              const char *costs) {
    if (!left) {
      remarkMissed(loop.getOperation(), getArgument(), "not-peeled")
          << costs + (": " + left.getReason());
      return;
    }
    remarkPassed(loop.getOperation(), getArgument(), "peeled") << peeled;
    LoopPlan plan = LoopPlan::get(loop);
    plan.*where = 1;
    plan.layers = std::min(plan.layers, *left);
    plan.set(loop);
  }
};
} // namespace
