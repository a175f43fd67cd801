//===- HoistStack.cpp - Partitions of all layers, gathered before loops ---===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Rewrite.h"

#include "LocalValues.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// Returns the barrier in front of `gather` that `value`, which stands before
/// `anchor` or at the begin of another region, can pass through, or null.
static Operation *getBarrierAfter(AllGatherOp gather, Value value,
                                  Operation *anchor) {
  Operation *barrier = getBarrier(gather);
  Block *block = value.getParentBlock();
  Operation *inBlock =
      barrier ? block->findAncestorOpInBlock(*barrier) : nullptr;
  bool isAfter = inBlock && (block != anchor->getBlock() ||
                             !inBlock->isBeforeInBlock(anchor));
  return isAfter ? barrier : nullptr;
}

/// Makes the layers of `stack` the most significant part of `dim`.
static Value joinLayers(OpBuilder &builder, Location loc,
                        const LayerStack &stack, int64_t dim) {
  if (stack.layers.empty())
    return stack.value;
  int64_t layers = llvm::product_of(stack.layers);
  SmallVector<int64_t> shape(
      getTensorType(stack.value).getShape().drop_front(stack.layers.size()));
  SmallVector<int64_t> flat{layers};
  llvm::append_range(flat, shape);
  shape[dim] *= layers;
  Value local = createReshape(builder, loc, stack.value, flat);
  return createReshape(builder, loc, createMoveDim(builder, loc, local, 0, dim),
                       shape);
}

/// Returns [layers..., layer] of `local`, whose `dim` begins with the layers.
static LayerStack splitLayers(OpBuilder &builder, Location loc, Value local,
                              ArrayRef<int64_t> layers, RankedTensorType layer,
                              int64_t dim) {
  if (layers.empty())
    return {local, {}};
  SmallVector<int64_t> shape(layer.getShape());
  shape.insert(shape.begin() + dim, llvm::product_of(layers));
  local = createMoveDim(builder, loc, createReshape(builder, loc, local, shape),
                        dim, 0);
  SmallVector<int64_t> unflat(layers);
  llvm::append_range(unflat, layer.getShape());
  return {createReshape(builder, loc, local, unflat),
          SmallVector<int64_t>(layers)};
}

/// Hoists the gather over the outer axes before the loops, for all layers at
/// once. A stack is one partitioned tensor whose dim has the layer as its most
/// significant factor, held whole, so that every layer has its own units and
/// wire chunks.
void SecondaryRewriter::hoistStack(const SecondaryPlan &plan,
                                   const HoistStack &stack) {
  ArrayRef<AllGatherOp> group = plan.group;
  AllGatherOp forward = group.front();
  OpBuilder builder(stack.anchor);
  Location loc = forward.getLoc();
  ShardType primary = plan.axes.primary;
  int64_t dim = primary.getDim();

  LayerStack weights = createStack(builder, stack.paths.front());
  ShardType stacked =
      weights.layers.empty()
          ? primary
          : getStackedType(primary, llvm::product_of(weights.layers));
  AllGatherOp kept =
      gatherOuter(builder, forward, stacked,
                  joinLayers(builder, loc, weights, dim), plan.axes.outer);
  kept->setAttr(kKeepAttr, builder.getUnitAttr());
  addGets(kept, kGetsSecondary);
  ShardType layerType = primary.withWhole(plan.axes.outer);
  // The part of one layer that a device keeps may be bytes.
  LayerStack secondary =
      splitLayers(builder, loc, getLocal(builder, loc, kept), weights.layers,
                  layerType.getLocalType(), layerType.getQuant() ? 0 : dim);
  remarkRewrite(kept, pass,
                "hoisted out of the loops, its result is kept for " +
                    Twine(group.size()) +
                    (group.size() == 1 ? " gather" : " gathers"));
  std::optional<Passage> passage;
  if (!plan.place.computations.empty())
    passage = Passage{plan.place.computations.front(), secondary.value, {}};
  llvm::SmallPtrSet<Block *, 4> seen;
  for (auto [index, later] : llvm::enumerate(group)) {
    AllGatherOp gather = later;
    // What is made for it would be erased, and the stack with it.
    if (!isRead(gather))
      continue;
    builder.setInsertionPoint(gather);
    LayerStack here = secondary;
    if (passage)
      here.value = passage->getValueIn(plan.place.computations[index]);
    // XLA would merge a second gather of the same layer with the first one
    // (X1).
    if (!seen.insert(gather->getBlock()).second && here.layers.empty()) {
      gatherWithin(gather, getBarrierAfter(gather, here.value, stack.anchor),
                   here.value, layerType, plan.axes.inner);
      continue;
    }
    noteBarrier(gather);
    Value layer =
        createLayerSlice(builder, gather.getLoc(), here, stack.paths[index]);
    gatherLayer(builder, gather, layer, layerType, plan.axes.inner);
  }
  if (passage)
    passages.push_back(std::move(*passage));
}
