//===- OuterHops.cpp - The hops of a sum over slower tiers ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gradients/Accumulate/OuterHops.h"

#include "LocalValues.h"
#include "Weights/Secondary/Axes.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

std::optional<Mesh> zpp::zero::findScatterMesh(Operation *op) {
  std::optional<Mesh> mesh;
  op->walk([&](ReduceScatterOp scatter) {
    mesh = scatter.getMeshAttr().getMesh();
    return WalkResult::interrupt();
  });
  return mesh;
}

std::optional<AccumulationGroup> AccumulationGroup::parse(StringRef text,
                                                          const Mesh &mesh) {
  if (int64_t axis = mesh.findAxis(text.str()); axis >= 0)
    return AccumulationGroup(mesh, axis);
  int64_t size;
  if (text.getAsInteger(10, size) || size < 1)
    return std::nullopt;
  int64_t slowest = mesh.getAxes().size();
  while (slowest > 0 && size % mesh.getAxes()[slowest - 1].size == 0 &&
         size > 1)
    size /= mesh.getAxes()[--slowest].size;
  if (size != 1)
    return std::nullopt;
  return AccumulationGroup(mesh, slowest);
}

bool zpp::zero::leavesGroup(ReduceScatterOp scatter,
                            const AccumulationGroup &group) {
  auto isOutside = [&](const AxisRef &axis) { return !group.contains(axis); };
  if (!llvm::any_of(scatter.getAxisRefs(), isOutside))
    return false;
  auto before = scatter.getOperand().getDefiningOp<ReduceScatterOp>();
  return !before || !llvm::any_of(before.getAxisRefs(), isOutside);
}

std::optional<OuterHops>
zpp::zero::getOuterHops(Value local, const AccumulationGroup &group) {
  auto toLocal = local.getDefiningOp<ToLocalOp>();
  if (!toLocal)
    return std::nullopt;
  OuterHops hops{{}, toLocal};
  Value value = toLocal.getShard();
  while (true) {
    Operation *op = value.getDefiningOp();
    // What this makes, it makes for one reader.
    if (!isa_and_present<ReduceScatterOp, AllGatherOp, EncodeOp, DecodeOp>(
            op) ||
        !value.hasOneUse() || op->getNumOperands() != 1)
      return std::nullopt;
    hops.ops.push_back(op);
    value = op->getOperand(0);
    auto scatter = dyn_cast<ReduceScatterOp>(op);
    if (!scatter || !leavesGroup(scatter, group))
      continue;
    // One hop over the whole group has no partial sum.
    bool isWithin =
        llvm::any_of(scatter.getAxisRefs(),
                     [&](const AxisRef &axis) { return group.contains(axis); });
    if (isWithin || !value.hasOneUse() ||
        !isa_and_present<ReduceScatterOp, FromLocalOp>(value.getDefiningOp()))
      return std::nullopt;
    std::reverse(hops.ops.begin(), hops.ops.end());
    return hops;
  }
}

Value OuterHops::getPartial(OpBuilder &builder) const {
  return getLocal(builder, getFirst().getLoc(), getFirst().getOperand());
}

double OuterHops::getUsec(int64_t layers, const LinkModel &model) const {
  double usec = 0;
  for (Operation *op : ops) {
    auto scatter = dyn_cast<ReduceScatterOp>(op);
    auto gather = dyn_cast<AllGatherOp>(op);
    if (!scatter && !gather)
      continue;
    ShardType part =
        scatter ? scatter.getType() : gather.getOperand().getType();
    int64_t bytes = getBytes(part.getLocalType());
    if (scatter && scatter.getWireAttr())
      bytes = scatter.getWireAttr()
                  .getLayout(part.getLocalType().getNumElements())
                  .chunkBytes;
    usec += model.getCollectiveUsec(
        part.getMesh().getMesh(),
        scatter ? CollectiveKind::ReduceScatter : CollectiveKind::AllGather,
        cast<CollectiveOpInterface>(op).getAxisRefs(),
        multiplySaturating(bytes, layers));
  }
  return usec;
}

int64_t OuterHops::getMoreBytes() const {
  int64_t partial = getPartialType().getLocalType().getNumElements();
  RankedTensorType gradient = getTensorType(result->getResult(0));
  return std::max<int64_t>(
      0, multiplySaturating(partial - gradient.getNumElements(), 4));
}

bool OuterHops::doTheSame(const OuterHops &other) const {
  return llvm::equal(ops, other.ops, [](Operation *a, Operation *b) {
    return a->getName() == b->getName() &&
           a->getOperandTypes() == b->getOperandTypes() &&
           a->getResultTypes() == b->getResultTypes() &&
           a->getPropertiesAsAttribute() == b->getPropertiesAsAttribute();
  });
}

bool OuterHops::isLeftAlone() const {
  return ops.size() == 1 && ops.front()->hasAttr(kReasonAttr);
}

/// The type of `layers` tensors of `type` in a dim of their own, the first.
static ShardType addLayerDim(ShardType type, int64_t layers) {
  SmallVector<int64_t> shape(type.getGlobal().getShape());
  shape.insert(shape.begin(), layers);
  return ShardType::get(type.getContext(), type.getGlobal().clone(shape),
                        type.getDim() + 1, type.getFactors(), type.getMesh(),
                        type.getQuant());
}

Value OuterHops::build(OpBuilder &builder, Value partial, int64_t layers,
                       bool inF32) const {
  Location loc = getFirst().getLoc();
  // One collective of the target has no layers among the factors of its dim.
  bool hasLayerDim = layers > 0 && isLeftAlone();
  bool hasLayerFactor = layers > 0 && !hasLayerDim;
  auto stack = [&](ShardType type) {
    if (hasLayerDim)
      return addLayerDim(type, layers);
    return hasLayerFactor ? getStackedType(type, layers) : type;
  };
  ShardType type = getPartialType();
  auto shape = [](Value value) {
    return SmallVector<int64_t>(getTensorType(value).getShape());
  };
  if (hasLayerFactor) {
    // The layer is the most significant factor of the dim.
    partial = createMoveDim(builder, loc, partial, 0, type.getDim());
    SmallVector<int64_t> merged = shape(partial);
    merged[type.getDim() + 1] *= layers;
    merged.erase(merged.begin() + type.getDim());
    partial = createReshape(builder, loc, partial, merged);
  }
  Value value = FromLocalOp::create(builder, loc, stack(type), partial);
  for (Operation *op : ops) {
    IRMapping mapping;
    mapping.map(op->getOperand(0), value);
    Operation *hop = builder.clone(*op, mapping);
    auto to = stack(cast<ShardType>(op->getResult(0).getType()));
    auto scatter = dyn_cast<ReduceScatterOp>(op);
    if (inF32 && op == ops.back() && scatter && scatter.getWire())
      to = to.withElementType(builder.getF32Type());
    hop->getResult(0).setType(to);
    // It scatters another dim than the op that was imported.
    if (hasLayerDim)
      hop->removeAttr(kSourceAttr);
    value = hop->getResult(0);
  }
  auto to = cast<ShardType>(value.getType());
  Value local = ToLocalOp::create(builder, loc, to.getLocalType(), value);
  if (!hasLayerFactor)
    return local;
  SmallVector<int64_t> split = shape(local);
  split[to.getDim()] /= layers;
  split.insert(split.begin() + to.getDim(), layers);
  return createMoveDim(builder, loc, createReshape(builder, loc, local, split),
                       to.getDim(), 0);
}
