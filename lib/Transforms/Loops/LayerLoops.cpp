//===- LayerLoops.cpp - Loops over the layers of a model ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/LayerLoops.h"

#include "Loops/Deferral.h"
#include "Loops/LayerStacks.h"
#include "Loops/Peeling.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

llvm::SetVector<Value> zpp::getSources(ValueRange values, Block &body) {
  llvm::SetVector<Value> sources(values.begin(), values.end());
  for (size_t i = 0; i < sources.size(); ++i) {
    Operation *op = sources[i].getDefiningOp();
    if (!op || !body.getParent()->isAncestor(op->getParentRegion()))
      continue;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        sources.insert(operand);
    });
  }
  return sources;
}

namespace {
/// A collective of an iteration.
struct Communication {
  bool isOfWeights;
  ValueRange sent, received;
};
} // namespace

/// Describes what `op` communicates; nullopt if nothing, or if XLA does.
static std::optional<Communication> getCommunication(Operation *op) {
  if (auto start = dyn_cast<StartOp>(op))
    return Communication{hasRole(start, Role::Weight), start.getInputs(),
                         start.getOutputs()};
  if (isa<CollectiveOpInterface>(op) && isa<DecomposedOpInterface>(op))
    return Communication{hasRole(getOrigins(op), Role::Weight),
                         op->getOperands(), op->getResults()};
  return std::nullopt;
}

/// True if a stack that `loop` writes, a layer in each iteration, has some of
/// `received`.
static bool isStacked(ValueRange received, WhileView loop) {
  for (unsigned index = 0; index < loop.getNumCarried(); ++index) {
    std::optional<LayerWrite> write = getLayerWrite(loop, index);
    if (!write || !write->isOnlyUse)
      continue;
    llvm::SetVector<Value> sources = getSources(write->layer, loop.getBody());
    if (llvm::any_of(received,
                     [&](Value value) { return sources.contains(value); }))
      return true;
  }
  return false;
}

Decision<LoopCounter> zpp::getLayers(WhileView loop, int64_t maxTrips,
                                     ProvenanceAnalysis &provenances) {
  std::optional<LoopCounter> counter = getLoopCounter(loop, provenances);
  if (!counter)
    return LeftAlone("it is not known how often the loop runs");
  if (counter->trips < 1 || counter->trips > maxTrips)
    return LeftAlone(
        "it has " + std::to_string(counter->trips) +
        " iterations, with max-trips = " + std::to_string(maxTrips));
  if (!hasOneTypePerValue(loop))
    return LeftAlone("what it carries changes its type");
  Block &body = loop.getBody();
  BlockArgument number = loop.getCarried(counter->index);
  bool isOverLayers = false;
  WalkResult result = body.walk([&](Operation *op) {
    std::optional<Communication> communication = getCommunication(op);
    if (!communication)
      return WalkResult::advance();
    if (op->getBlock() != &body)
      return WalkResult::interrupt();
    if (!communication->isOfWeights) {
      isOverLayers = isOverLayers || isStacked(communication->received, loop);
      return WalkResult::advance();
    }
    isOverLayers = getSources(communication->sent, body).contains(number);
    return isOverLayers ? WalkResult::advance() : WalkResult::interrupt();
  });
  if (result.wasInterrupted() || !isOverLayers)
    return LeftAlone("its iterations are not the layers of a model");
  return *counter;
}
