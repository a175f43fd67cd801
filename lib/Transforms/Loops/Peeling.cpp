//===- Peeling.cpp - Iterations written outside of their loop -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/Peeling.h"

#include "LocalValues.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/LayerOps.h"

using namespace mlir;
using namespace zpp;

bool zpp::hasOneTypePerValue(WhileView loop) {
  return llvm::all_of(llvm::seq(loop.getNumCarried()), [&](unsigned index) {
    Type type = loop.getInit(index).getType();
    return loop.getCarried(index).getType() == type &&
           loop.getNext(index).getType() == type &&
           loop.getResult(index).getType() == type;
  });
}

Decision<LoopCounter> zpp::canPeel(WhileView loop, double usec, int64_t minUsec,
                                   ProvenanceAnalysis &provenances) {
  if (usec < static_cast<double>(minUsec))
    return LeftAlone("it takes " + std::to_string(static_cast<int64_t>(usec)) +
                     " usec, with min-usec = " + std::to_string(minUsec));
  std::optional<LoopCounter> counter = getLoopCounter(loop, provenances);
  if (!counter)
    return LeftAlone("it is not known how often the loop runs");
  if (counter->trips < 2)
    return LeftAlone("the loop has " + std::to_string(counter->trips) +
                     (counter->trips == 1 ? " iteration" : " iterations"));
  if (!hasOneTypePerValue(loop))
    return LeftAlone("what the loop carries changes its type");
  if (isInLoop(loop.getOperation()))
    return LeftAlone("the loop lies in another one");
  return *counter;
}

void zpp::remarkPeeling(const Decision<LoopCounter> &counter, WhileView loop,
                        StringRef pass, const char *peeled, const char *costs) {
  if (counter)
    remarkPassed(loop.getOperation(), pass, "peeled") << peeled;
  else
    remarkMissed(loop.getOperation(), pass, "not-peeled")
        << costs + (": " + counter.getReason());
}

/// Writes an iteration of `loop`, in which it carries `entering`, and returns
/// what it leaves to the next one.
static SmallVector<Value> writeIteration(OpBuilder &builder, WhileView loop,
                                         ValueRange entering) {
  IRMapping mapping;
  mapping.map(loop.getBody().getArguments(), entering);
  for (Operation &op : loop.getBody())
    if (&op != loop.getYield())
      builder.clone(op, mapping);
  return llvm::map_to_vector(loop.getYield()->getOperands(), [&](Value next) {
    return mapping.lookupOrDefault(next);
  });
}

/// Replaces `loop`, which has one iteration, by that.
static void writeOnce(WhileView loop) {
  OpBuilder builder(loop.getOperation());
  loop->replaceAllUsesWith(writeIteration(builder, loop, loop->getOperands()));
  loop->erase();
}

void zpp::peelFirst(WhileView loop, const LoopCounter &counter) {
  OpBuilder builder(loop.getOperation());
  SmallVector<Value> left = writeIteration(builder, loop, loop->getOperands());
  // Counters begin at constants.
  Value next = left[counter.index];
  left[counter.index] = createIndex(builder, loop->getLoc(),
                                    cast<RankedTensorType>(next.getType()),
                                    counter.begin + counter.step);
  loop->setOperands(left);
  eraseIfDead(next);
  if (counter.trips == 2)
    writeOnce(loop);
}

void zpp::peelLast(WhileView loop, const LoopCounter &counter) {
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
  SmallVector<Value> left = writeIteration(builder, loop, entering);
  for (OpOperand *use : uses)
    use->set(left[cast<OpResult>(use->get()).getResultNumber()]);
  Operation *compare = loop.getPredicates().front().getDefiningOp();
  builder.setInsertionPoint(compare);
  auto type = cast<RankedTensorType>(compare->getOperand(1).getType());
  compare->setOperand(
      1, createIndex(builder, compare->getLoc(), type,
                     counter.begin + (counter.trips - 1) * counter.step));
  if (counter.trips == 2)
    writeOnce(loop);
}
