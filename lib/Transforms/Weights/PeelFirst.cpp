//===- PeelFirst.cpp - The first micro-batch in front of its loop ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/Peeling.h"
#include "Weights/Secondary/Plan.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {
#define GEN_PASS_DEF_PEELFIRSTPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class PeelFirstPass : public zpp::impl::PeelFirstPassBase<PeelFirstPass> {
public:
  using PeelFirstPassBase::PeelFirstPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    loadStablehlo(context);
    return success();
  }

  void runOnOperation() override {
    FailureOr<llvm::MapVector<Operation *, Hops>> loops = findLoops();
    if (failed(loops))
      return signalPassFailure();
    ProvenanceAnalysis provenances;
    SmallVector<std::pair<WhileView, LoopCounter>> peeled;
    for (auto &[op, hops] : *loops) {
      WhileView loop(op);
      Decision<LoopCounter> counter = decide(loop, hops, provenances);
      remarkPeeling(
          counter, loop, getArgument(),
          "its first iteration is written in front of it, to gather weights "
          "under its compute",
          "weights are gathered in front of the loop, where nothing hides it");
      if (counter)
        peeled.emplace_back(loop, *counter);
    }
    for (const auto &[loop, counter] : peeled)
      peelFirst(loop, counter);
  }

private:
  /// The hops of weights in front of a loop: the time that its first iteration
  /// could hide, and whether there are others.
  struct Hops {
    double usec = 0;
    bool hasOthers = false;
  };

  /// The loops in front of which zero-partition-within-node would gather.
  FailureOr<llvm::MapVector<Operation *, Hops>> findLoops() {
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return failure();
    SecondaryPlanner planner(getOperation(), secondary, betweenSteps,
                             inIterations);
    FailureOr<std::vector<WeightDecision>> decisions =
        planner.decide(*machine, splitSmall);
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
                                decision.plan->axes, machine->getLinks(mesh));
    }
    return loops;
  }

  Decision<LoopCounter> decide(WhileView loop, const Hops &hops,
                               ProvenanceAnalysis &provenances) const {
    if (hops.usec == 0 && hops.hasOthers)
      return LeftAlone("an iteration could not keep what it gathers");
    return canPeel(loop, hops.usec, minUsec, provenances);
  }
};
} // namespace
