//===- KeepInLoop.cpp - Partitions that a loop leaves to later loops ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Rewrite.h"

#include "LocalValues.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/LayerOps.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// The stack that loop `kept` begins with, of layers of the type of `layer`.
static Value createEmptyStack(OpBuilder &builder, const KeepInLoop &kept,
                              Value layer) {
  RankedTensorType type = getTensorType(layer);
  SmallVector<int64_t> shape{kept.loop.trips};
  llvm::append_range(shape, type.getShape());
  return createZeros(builder, kept.loop.loop->getLoc(), type.clone(shape));
}

void SecondaryRewriter::keepInLoop(Operation *loop,
                                   ArrayRef<const SecondaryPlan *> plans) {
  auto getWay = [](const SecondaryPlan *plan) -> const KeepInLoop & {
    return std::get<KeepInLoop>(plan->place.way);
  };
  OpBuilder builder(loop);
  SmallVector<Value> layers, stacks;
  SmallVector<ShardType> types;
  for (const SecondaryPlan *plan : plans) {
    AllGatherOp forward = plan->group.front();
    builder.setInsertionPoint(forward);
    AllGatherOp kept =
        gatherOuter(builder, forward, plan->axes.primary,
                    getSource(forward).getLocal(), plan->axes.outer);
    kept->setAttr(kKeepAttr,
                  builder.getI64IntegerAttr(getWay(plan).loop.trips));
    addGets(kept, kGetsSecondary);
    Value whole = gatherInner(builder, forward, kept, plan->axes.inner);
    layers.push_back(getLocal(builder, forward.getLoc(), kept));
    types.push_back(kept.getType());
    replaceGather(builder, forward, whole);
    remarkRewrite(kept, pass,
                  "the loop keeps its results for " +
                      Twine(plan->group.size() - 1) + " later gathers");
    builder.setInsertionPoint(loop);
    stacks.push_back(createEmptyStack(builder, getWay(plan), layers.back()));
  }
  size_t first = loop->getNumResults();
  Value counter = getWay(plans.front()).loop.counter;
  WhileView extended = extendLoop(loop, stacks);
  builder.setInsertionPoint(extended.getYield());
  SmallVector<Value> next;
  for (auto [number, layer] : llvm::enumerate(layers))
    next.push_back(createLayerUpdate(builder, layer.getLoc(),
                                     extended.getCarried(first + number), layer,
                                     counter));
  extended.addNext(next);
  for (auto [number, plan] : llvm::enumerate(plans)) {
    LayerStack stack{extended.getResult(first + number),
                     {getWay(plan).loop.trips}};
    for (auto [index, later] : llvm::enumerate(getWay(plan).indices)) {
      AllGatherOp gather = plan->group[1 + index];
      // What is made for it would be erased, and the loop with it.
      if (!isRead(gather))
        continue;
      builder.setInsertionPoint(gather);
      noteBarrier(gather);
      Value layer = createLayerSlice(builder, gather.getLoc(), stack, later);
      gatherLayer(builder, gather, layer, types[number], plan->axes.inner);
    }
  }
}
