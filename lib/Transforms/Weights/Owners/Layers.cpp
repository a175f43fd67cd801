//===- Layers.cpp - Work on each layer of a stack by itself ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Owners/OwnedWork.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

Decision<SplitProducts> zpp::findLayers(const OwnedWork &work) {
  AllGatherOp gather = work.gather;
  if (gather.getOperand().getType().getDim() == 0 ||
      work.getWholeType().getRank() < 3 ||
      work.getWholeType().getDimSize(0) < 2)
    return LeftAlone("nothing else of its shape is computed alike, which "
                     "other devices could have");
  Mesh mesh = gather.getMeshAttr().getMesh();
  SplitProducts layers{nullptr, work.whole, 0, mesh.getGroups(work.getAxes()),
                       {},      {}};
  PartitionTables tables(mesh.numDevices());
  SameValues sameValues;
  followShares(layers, tables, sameValues);
  // Ops that leave all of something, or a sum of layers.
  llvm::DenseSet<Operation *> mixing;
  for (auto &[value, share] : layers.shares)
    if (share.kind != Share::Kind::Slice) {
      Operation *op = value.getDefiningOp();
      mixing.insert(gather->getBlock()->findAncestorOpInBlock(
          op ? *op : *value.getParentBlock()->getParentOp()));
    }
  auto mixes = [](Operation *op) {
    return LeftAlone(op->getName().getStringRef().str() +
                     " does not compute each layer of the stack by itself");
  };
  for (Operation *op : work.ops)
    if (!layers.ops.contains(op) || mixing.contains(op))
      return mixes(op);
  // A block of a slice that is sent back has elements of one layer.
  if (layers.shares.lookup(work.result).dim != 0 || work.dim == 0)
    return mixes(work.result.getDefiningOp());
  return layers;
}

void zpp::setLayers(const SplitProducts &layers, Value stack) {
  int64_t count = cast<RankedTensorType>(stack.getType()).getDimSize(0);
  for (Operation *op : layers.ops)
    resizeSplats(op, layers, count);
  for (auto [value, share] : llvm::drop_begin(layers.shares))
    value.setType(resizeDim(value.getType(), share.dim, count));
  Value(layers.slice).replaceAllUsesWith(stack);
}
