//===- PartitionWithinNode.cpp - Secondary weight partitions (hpZ, 3.2) ---===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Rewrite.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_PARTITIONWITHINNODEPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class PartitionWithinNodePass
    : public zpp::impl::PartitionWithinNodePassBase<PartitionWithinNodePass> {
public:
  using PartitionWithinNodePassBase::PartitionWithinNodePassBase;

  void runOnOperation() override {
    // Everything is decided before anything is changed. An error then leaves
    // the module as it was, and the order of ops, which dominance needs, is not
    // invalidated by insertions.
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return signalPassFailure();
    SecondaryPlanner planner(getOperation(), secondary, betweenSteps);
    FailureOr<std::vector<WeightDecision>> decisions =
        planner.decide(*machine, splitSmall);
    if (failed(decisions))
      return signalPassFailure();
    SecondaryRewriter(getOperation(), getArgument()).run(*decisions);
  }
};
} // namespace
