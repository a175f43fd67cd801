//===- WriteLoops.cpp - Write loops as they are planned -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/WriteLoops.h"

#include "Gradients/HopsAfterLoops.h"
#include "LocalValues.h"
#include "Loops/LoopPlan.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Transforms/Attributes.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_WRITELOOPSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// Replaces `loop`, which has one iteration, by that.
static void writeOnce(WhileView loop) {
  OpBuilder builder(loop.getOperation());
  loop->replaceAllUsesWith(
      cloneBody(builder, loop.getBody(), loop->getOperands()));
  loop->erase();
}

/// Writes the first iteration of `loop` in front of it. What is done is the
/// same, in the same order. If only one other is left, that one is written
/// without a loop, too.
static void peelFirst(WhileView loop, const LoopCounter &counter) {
  OpBuilder builder(loop.getOperation());
  SmallVector<Value> left =
      cloneBody(builder, loop.getBody(), loop->getOperands());
  // Counters begin at constants.
  Value next = left[counter.index];
  left[counter.index] =
      createIndex(builder, loop->getLoc(), getTensorType(next),
                  counter.begin + counter.step);
  loop->setOperands(left);
  eraseIfDead(next);
  if (counter.trips == 2)
    writeOnce(loop);
}

/// Writes the last iteration after it, likewise. It reads what the loop leaves,
/// the number of the iteration too, so that nothing of it is computed before
/// the loop has ended.
static void peelLast(WhileView loop, const LoopCounter &counter) {
  OpBuilder builder(loop->getContext());
  builder.setInsertionPointAfter(loop.getOperation());
  // What no iteration changes is there already.
  SmallVector<Value> entering;
  for (unsigned index = 0; index < loop.getNumCarried(); ++index)
    entering.push_back(loop.isInvariant(index) ? loop.getInit(index)
                                               : loop.getResult(index));
  SmallVector<OpOperand *> uses;
  for (OpResult result : loop->getResults())
    for (OpOperand &use : result.getUses())
      uses.push_back(&use);
  SmallVector<Value> left = cloneBody(builder, loop.getBody(), entering);
  for (OpOperand *use : uses)
    use->set(left[cast<OpResult>(use->get()).getResultNumber()]);
  Operation *compare = loop.getPredicates().front().getDefiningOp();
  builder.setInsertionPoint(compare);
  RankedTensorType type = getTensorType(compare->getOperand(1));
  compare->setOperand(
      1, createIndex(builder, compare->getLoc(), type,
                     counter.begin + (counter.trips - 1) * counter.step));
  if (counter.trips == 2)
    writeOnce(loop);
}

namespace {
class WriteLoopsPass : public zpp::impl::WriteLoopsPassBase<WriteLoopsPass> {
public:
  using WriteLoopsPassBase::WriteLoopsPassBase;

  void runOnOperation() override {
    if (failed(verifyLoopPlans(getOperation())) ||
        (layers && failed(verifySchedule(getOperation()))))
      return signalPassFailure();
    writeFirst();
    writeLast();
    if (layers)
      writeAllLayers();
  }

private:
  /// Returns the loops with a plan for which `isMeant` holds.
  template <typename IsMeant> SmallVector<WhileView> find(IsMeant isMeant) {
    SmallVector<WhileView> found;
    getOperation()->walk([&](Operation *op) {
      WhileView loop = WhileView::get(op);
      if (loop && isMeant(LoopPlan::get(loop)))
        found.push_back(loop);
    });
    return found;
  }

  /// Notes that an iteration is written, and returns the counter of `loop`.
  static LoopCounter begin(WhileView loop, int64_t LoopPlan::*where) {
    LoopPlan plan = LoopPlan::get(loop);
    plan.*where = 0;
    plan.set(loop);
    ProvenanceAnalysis provenances;
    return *getLoopCounter(loop, provenances);
  }

  void writeFirst() {
    for (WhileView loop : find([](LoopPlan plan) { return plan.first > 0; }))
      peelFirst(loop, begin(loop, &LoopPlan::first));
  }

  void writeLast() {
    SmallVector<WhileView> loops =
        find([](LoopPlan plan) { return plan.last > 0; });
    // Found before anything moves.
    ProvenanceAnalysis provenances;
    std::vector<std::vector<HopsAfterLoop>> hops;
    for (WhileView loop : loops)
      hops.push_back(findHopsAfter(loop, provenances));
    for (auto [loop, after] : llvm::zip_equal(loops, hops)) {
      peelLast(loop, begin(loop, &LoopPlan::last));
      moveHopsUp(after);
    }
  }

  /// A loop without starts stays.
  void writeAllLayers() {
    SmallVector<WhileView> loops =
        find([](LoopPlan plan) { return plan.layers > 0; });
    for (WhileView loop : loops)
      loop->removeDiscardableAttr(kLoopAttr);
    llvm::erase_if(loops, [&](WhileView loop) {
      if (!loop.getBody().getOps<StartOp>().empty())
        return false;
      remarkMissed(loop.getOperation(), getArgument(), "not-layers")
          << "stays a loop: zpp runs no collective in it";
      return true;
    });
    writeLayers(getOperation(), loops);
  }
};
} // namespace
