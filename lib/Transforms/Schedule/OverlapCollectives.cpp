//===- OverlapCollectives.cpp - Start early, wait late (4.1.1) ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Overlap.h lists the phases.
//
//===----------------------------------------------------------------------===//

#include "Schedule/Overlap/Overlap.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_OVERLAPCOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class OverlapCollectivesPass
    : public zpp::impl::OverlapCollectivesPassBase<OverlapCollectivesPass> {
public:
  using OverlapCollectivesPassBase::OverlapCollectivesPassBase;

  void runOnOperation() override {
    if (prefetchBytes < 0 && prefetchBytes != kChooseBudget) {
      emitError(getOperation().getLoc(),
                "expected a number of bytes to prefetch, but got ")
          << prefetchBytes.getValue();
      return signalPassFailure();
    }
    if (failed(zero::verifySchedule(getOperation())))
      return signalPassFailure();
    llvm::SetVector<Block *> blocks;
    getOperation()->walk(
        [&](StartOp start) { blocks.insert(start->getBlock()); });
    HeavyOps compute(getOperation());
    int64_t most = std::max<int64_t>(prefetchBytes, 0);
    for (Block *block : blocks)
      most = std::max(most, schedule(*block, compute));
    if (!blocks.empty())
      getOperation()->setAttr(kPrefetchAttr,
                              Builder(&getContext()).getI64IntegerAttr(most));
  }

private:
  /// Returns the bytes that may be in flight.
  int64_t schedule(Block &block, HeavyOps &compute) {
    // A block with ties has been scheduled already.
    auto hasTies = [](auto call) { return !call.getTies().empty(); };
    if (llvm::any_of(block.getOps<StartOp>(), hasTies) ||
        llvm::any_of(block.getOps<WaitOp>(), hasTies))
      return 0;
    if (!isWhile(block.getParentOp()))
      sortUpdates(block, compute);
    BlockTransfers transfers(block, compute, getArgument());
    if (transfers.empty())
      return 0;
    OverlapProblem problem = transfers.getProblem(prefetchBytes);
    if (prefetchBytes == kChooseBudget)
      problem.budget = chooseBudget(problem, isWhile(block.getParentOp()));
    OverlapPlan plan = planOverlap(problem);
    for (const OverlapPlan::Placement &placement : plan.placements)
      remarkPlacement(transfers, placement, problem.budget);
    SmallVector<PlacedCall> calls = placeTransfers(transfers, plan);
    Ties ties(transfers);
    ties.tieCalls(calls);
    keepInPlace(ties, problem.budget);
    delayZeros(transfers);
    return problem.budget;
  }

  void remarkPlacement(const BlockTransfers &transfers,
                       const OverlapPlan::Placement &placement,
                       int64_t budget) {
    const Transfer &transfer = transfers[placement.transfer];
    std::string text =
        std::string(transfer.isGather ? "gather" : "scatter") +
        " starts before " + describeOp(transfers.getOp(placement.startBefore)) +
        ", waits before " + describeOp(transfers.getOp(placement.waitBefore)) +
        ", under " + std::to_string(placement.numHeavy) + " heavy ops; " +
        std::to_string(placement.bytesInFlight) + " bytes in flight";
    switch (placement.exposure) {
    case OverlapPlan::Exposure::None:
      remarkPassed(StartOp(transfer.start), getArgument(), "scheduled") << text;
      return;
    case OverlapPlan::Exposure::Budget:
      text += ": more in flight would exceed prefetch-bytes = " +
              std::to_string(budget);
      break;
    case OverlapPlan::Exposure::NoCompute:
      text += transfer.isGather
                  ? ": nothing heavy is computed between its input and its use"
                  : ": nothing heavy is computed after its gradient";
      break;
    }
    remarkMissed(StartOp(transfer.start), getArgument(), "exposed") << text;
  }
};
} // namespace
