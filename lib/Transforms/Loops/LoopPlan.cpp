//===- LoopPlan.cpp - What becomes of the iterations of a loop ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/LoopPlan.h"

#include "Loops/LayerStacks.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"
#include "zpp/Transforms/Attributes.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// XLA compiles each layer, in about 0.8 s of a core.
static constexpr int64_t kMostLayers = 128;
/// A layer of a GPT has some 600 ops, forward and backward. A scan that is
/// unrolled in part has several layers in an iteration.
static constexpr int64_t kMostOps = 1 << 17;

//===----------------------------------------------------------------------===//
// The attribute
//===----------------------------------------------------------------------===//

static constexpr std::pair<StringLiteral, int64_t LoopPlan::*> kCounts[] = {
    {"first", &LoopPlan::first},
    {"last", &LoopPlan::last},
    {"layers", &LoopPlan::layers}};

LoopPlan LoopPlan::get(WhileView loop) {
  LoopPlan plan;
  auto attr = loop->getAttrOfType<DictionaryAttr>(kLoopAttr);
  if (!attr)
    return plan;
  for (auto [name, count] : kCounts)
    if (auto number = attr.getAs<IntegerAttr>(name))
      plan.*count = number.getValue().getLimitedValue(
          std::numeric_limits<int64_t>::max());
  return plan;
}

DictionaryAttr LoopPlan::getAttr(MLIRContext *context) const {
  Builder builder(context);
  SmallVector<NamedAttribute> entries;
  for (auto [name, count] : kCounts)
    if (this->*count > 0)
      entries.push_back(
          builder.getNamedAttr(name, builder.getI64IntegerAttr(this->*count)));
  return builder.getDictionaryAttr(entries);
}

void LoopPlan::set(WhileView loop) const {
  DictionaryAttr attr = getAttr(loop->getContext());
  if (attr.empty())
    loop->removeDiscardableAttr(kLoopAttr);
  else
    loop->setDiscardableAttr(kLoopAttr, attr);
}

bool zpp::hasOneTypePerValue(WhileView loop) {
  return llvm::all_of(llvm::seq(loop.getNumCarried()), [&](unsigned index) {
    Type type = loop.getInit(index).getType();
    return loop.getCarried(index).getType() == type &&
           loop.getNext(index).getType() == type &&
           loop.getResult(index).getType() == type;
  });
}

/// True if `op` is a loop that can be written as `attr` says.
static bool canWrite(Operation *op, Attribute attr,
                     ProvenanceAnalysis &provenances) {
  WhileView loop = WhileView::get(op);
  if (!loop)
    return false;
  LoopPlan plan = LoopPlan::get(loop);
  DictionaryAttr written = plan.getAttr(op->getContext());
  if (written.empty() || written != attr || plan.first > 1 || plan.last > 1)
    return false;
  std::optional<LoopCounter> counter = getLoopCounter(loop, provenances);
  if (!counter || !hasOneTypePerValue(loop))
    return false;
  int64_t left = counter->trips - plan.first - plan.last;
  return left >= 1 && (plan.layers == 0 || plan.layers == left);
}

LogicalResult zpp::verifyLoopPlans(Operation *root) {
  ProvenanceAnalysis provenances;
  bool isRight = true;
  root->walk([&](Operation *op) {
    Attribute attr = op->getDiscardableAttr(kLoopAttr);
    if (!attr || canWrite(op, attr, provenances))
      return;
    isRight = false;
    // An error at the op would print all of it.
    emitError(op->getLoc(), "expected as ")
        << kLoopAttr << " a plan by which '" << op->getName()
        << "' can be written, but got " << attr;
  });
  return success(isRight);
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

llvm::SetVector<Value> zpp::getSources(ValueRange values, Block &body) {
  llvm::SetVector<Value> sources(values.begin(), values.end());
  for (size_t i = 0; i < sources.size(); ++i) {
    Operation *op = sources[i].getDefiningOp();
    if (!op || !body.getParent()->isAncestor(op->getParentRegion()))
      continue;
    if (isBarrier(op)) {
      unsigned number = cast<OpResult>(sources[i]).getResultNumber();
      sources.insert(op->getOperand(number));
      continue;
    }
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
  if (isa<CollectiveOpInterface>(op)) {
    // Gathers without an origin were not imported.
    SmallVector<Origin> origins = getOrigins(op);
    return Communication{origins.empty() ? isa<AllGatherOp>(op)
                                         : hasRole(origins, Role::Weight),
                         op->getOperands(), op->getResults()};
  }
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

/// True if `value` is numbers that the iteration before has computed, other
/// than layers of a stack.
static bool isFromBefore(Value value, WhileView loop) {
  auto carried = dyn_cast<BlockArgument>(value);
  return carried && carried.getOwner() == &loop.getBody() &&
         isa<FloatType>(getElementTypeOrSelf(carried)) &&
         !loop.isInvariant(carried.getArgNumber()) &&
         !getLayerWrite(loop, carried.getArgNumber());
}

/// True if `communication`, in an iteration of `loop`, is that of a layer: of
/// weights of its own, whatever the layer before has computed, or of a gradient
/// of its own, which follows from that of the layer after it. A gradient that
/// does not is that of a micro-batch, also where each is stored.
static bool isOfLayer(const Communication &communication, WhileView loop,
                      BlockArgument number) {
  llvm::SetVector<Value> sources =
      getSources(communication.sent, loop.getBody());
  bool followsFromBefore = llvm::any_of(
      sources, [&](Value source) { return isFromBefore(source, loop); });
  if (communication.isOfWeights)
    return !followsFromBefore && sources.contains(number);
  return followsFromBefore && isStacked(communication.received, loop);
}

bool zpp::communicates(Operation *op) {
  return getCommunication(op).has_value();
}

/// True if the iterations of `loop`, which have this `number`, are the layers
/// of a model.
static bool isOverLayers(WhileView loop, BlockArgument number) {
  bool hasLayer = false;
  bool hasOther = containsOp(loop.getOperation(), [&](Operation *op) {
    std::optional<Communication> communication = getCommunication(op);
    if (!communication)
      return false;
    if (op->getBlock() != &loop.getBody())
      return true;
    bool isLayer = isOfLayer(*communication, loop, number);
    hasLayer |= isLayer;
    return !isLayer && communication->isOfWeights;
  });
  return hasLayer && !hasOther;
}

/// Returns the number of ops of all `trips` iterations of `loop`.
static int64_t countOps(WhileView loop, int64_t trips) {
  int64_t ops = 0;
  loop.getBody().walk([&](Operation *) { ++ops; });
  return multiplySaturating(ops, trips);
}

static Decision<int64_t> findLayers(WhileView loop,
                                    ProvenanceAnalysis &provenances) {
  std::optional<LoopCounter> counter = getLoopCounter(loop, provenances);
  if (!counter)
    return LeftAlone("it is not known how often the loop runs");
  if (counter->trips < 1)
    return LeftAlone("it has no iteration");
  if (!hasOneTypePerValue(loop))
    return LeftAlone("what it carries changes its type");
  if (!isOverLayers(loop, loop.getCarried(counter->index)))
    return LeftAlone("its iterations are not the layers of a model");
  if (counter->trips > kMostLayers)
    return LeftAlone("it has " + std::to_string(counter->trips) +
                     " iterations, and XLA would compile each: " +
                     std::to_string(kMostLayers) + " are the most");
  if (int64_t ops = countOps(loop, counter->trips); ops > kMostOps)
    return LeftAlone("it has " + std::to_string(counter->trips) +
                     " iterations, of " + std::to_string(ops) +
                     " ops together, and XLA would compile all: " +
                     std::to_string(kMostOps) + " are the most");
  return counter->trips;
}

Decision<int64_t> zpp::planLayers(WhileView loop,
                                  ProvenanceAnalysis &provenances) {
  Decision<int64_t> layers = findLayers(loop, provenances);
  LoopPlan plan;
  plan.layers = layers ? *layers : 0;
  plan.set(loop);
  return layers;
}
