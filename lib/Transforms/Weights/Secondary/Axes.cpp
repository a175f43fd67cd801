//===- Axes.cpp - The axes of a secondary partition -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Axes.h"

#include "mlir/IR/BuiltinOps.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Support/CollectiveCost.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// True if `refs` are of one axis, and the mesh has faster tiers, all of one
/// device.
static bool isSlowestOfTiers(const Mesh &mesh, ArrayRef<AxisRef> refs) {
  ArrayRef<MeshAxis> faster =
      ArrayRef(mesh.getAxes()).drop_front(mesh.findAxis(refs.front().name) + 1);
  return !faster.empty() && refs.front().name == refs.back().name &&
         llvm::all_of(faster,
                      [](const MeshAxis &axis) { return axis.size == 1; });
}

FailureOr<Decision<SecondaryAxes>>
zpp::zero::getSecondaryAxes(AllGatherOp gather, StringRef secondary,
                            bool mayBeOneDevice) {
  using Result = Decision<SecondaryAxes>;
  ShardType type = gather.getOperand().getType();
  Mesh mesh = type.getMesh().getMesh();
  std::vector<AxisRef> refs = gather.getAxisRefs();
  // Sort from the slowest to the fastest link, regardless of the order of the
  // factors.
  llvm::sort(refs, [&](const AxisRef &a, const AxisRef &b) {
    return std::make_pair(mesh.findAxis(a.name), a.preSize) <
           std::make_pair(mesh.findAxis(b.name), b.preSize);
  });
  int64_t size = 1;
  if (secondary.empty()) {
    // Nodes of one device each hold all of a weight from step to step.
    bool isOneDevice = mayBeOneDevice && isSlowestOfTiers(mesh, refs);
    for (const AxisRef &ref : refs)
      if (!isOneDevice && ref.name == refs.back().name)
        size *= ref.size;
  } else if (int64_t axis = mesh.findAxis(secondary); axis >= 0) {
    for (const AxisRef &ref : refs)
      if (mesh.findAxis(ref.name) >= axis)
        size *= ref.size;
  } else if (secondary.getAsInteger(10, size) || size < 1) {
    return emitError(gather->getParentOfType<ModuleOp>().getLoc(),
                     "expected a tier of the mesh ")
           << mesh.str() << " or a group size as the secondary partition, "
           << "but got '" << secondary << "'";
  } else {
    // Who writes 1 means it; a tier of one device is one by accident.
    mayBeOneDevice |= size == 1;
  }
  std::vector<AxisRef> outer, inner;
  int64_t devices = zpp::numDevices(refs);
  // A weight that is shared by fewer devices may have a smaller group.
  if (size % devices == 0 && mesh.numDevices() % size == 0)
    inner = refs;
  else if (!splitRefs(refs, size, outer, inner))
    return gather.emitError("expected a secondary group size that divides "
                            "the ")
           << devices << " devices of a weight's group on " << mesh.str()
           << ", but got " << size;
  if (inner.empty() && !mayBeOneDevice)
    return Result(LeftAlone("its secondary group is one device; "
                            "secondary=1 keeps whole weights on each"));
  if (outer.empty())
    return Result(LeftAlone(
        "its group lies within the secondary group of " + std::to_string(size) +
        "; secondary=N with N below " + std::to_string(devices) + " keeps it"));
  SmallVector<FactorAttr> factors;
  for (FactorAttr factor : type.getFactors()) {
    std::optional<AxisRef> whole =
        factor.isWhole() ? std::nullopt : factor.getAxis().resolve(mesh);
    SmallVector<AxisRef> pieces;
    for (const std::vector<AxisRef> *part : {&outer, &inner})
      for (const AxisRef &ref : *part)
        if (whole && ref.name == whole->name && ref.preSize >= whole->preSize &&
            ref.preSize * ref.size <= whole->preSize * whole->size)
          pieces.push_back(ref);
    if (pieces.empty())
      factors.push_back(factor);
    for (const AxisRef &ref : pieces)
      factors.push_back(FactorAttr::getPartitioned(
          AxisRefAttr::get(gather.getContext(), mesh, ref)));
  }
  return Result(SecondaryAxes{type.withFactors(factors),
                              getAxesAttr(gather.getContext(), mesh, outer),
                              getAxesAttr(gather.getContext(), mesh, inner)});
}

ShardType zpp::zero::getStackedType(ShardType layer, int64_t layers) {
  if (layers < 1)
    return {};
  SmallVector<int64_t> shape(layer.getGlobal().getShape());
  shape[layer.getDim()] = multiplySaturating(shape[layer.getDim()], layers);
  SmallVector<FactorAttr> factors{
      FactorAttr::getWhole(layer.getContext(), layers)};
  llvm::append_range(factors, layer.getFactors());
  RankedTensorType global = layer.getGlobal().clone(shape);
  // Whether it is one is a question here, not an error.
  ScopedDiagnosticHandler ignore(layer.getContext(),
                                 [](Diagnostic &) { return success(); });
  auto emit = [&] {
    return mlir::emitError(UnknownLoc::get(layer.getContext()));
  };
  return ShardType::getChecked(emit, layer.getContext(), global, layer.getDim(),
                               ArrayRef(factors), layer.getMesh(),
                               layer.getQuant());
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// Returns the time to gather `bytes` from each device along some axes of the
/// mesh of `gather`, on the links of `model`.
static double getGatherUsec(AllGatherOp gather, ArrayAttr along, int64_t bytes,
                            const LinkModel &model) {
  return model.getCollectiveUsec(
      gather.getMeshAttr().getMesh(), CollectiveKind::AllGather,
      resolveAxes(along, gather.getMeshAttr()), bytes);
}

/// Returns the bytes that a device contributes to a gather.
static int64_t getOwnBytes(AllGatherOp gather) {
  return getBytes(gather.getOperand().getType().getLocalType());
}

/// Returns the time of a byte over the slowest of the tiers of `along`; 0 for
/// none.
static double getUsecPerByte(AllGatherOp gather, ArrayAttr along,
                             const LinkModel &model) {
  Mesh mesh = gather.getMeshAttr().getMesh();
  double slowest = 0;
  for (const AxisRef &ref : resolveAxes(along, gather.getMeshAttr()))
    slowest = std::max(slowest, model.getUsecPerByte(mesh.findAxis(ref.name)));
  return slowest;
}

GatherTimes zpp::zero::getGatherTimes(AllGatherOp forward, double times,
                                      const SecondaryAxes &axes,
                                      const LinkModel &model) {
  int64_t bytes = getOwnBytes(forward);
  auto getUsec = [&](ArrayAttr along, int64_t sent) {
    return getGatherUsec(forward, along, sent, model);
  };
  std::vector<AxisRef> outer = resolveAxes(axes.outer, forward.getMeshAttr());
  double inner = axes.inner.empty()
                     ? 0
                     : getUsec(axes.inner, bytes * zpp::numDevices(outer));
  return {times * getUsec(forward.getAlongAttr(), bytes),
          getUsec(axes.outer, bytes) + times * inner,
          getUsecPerByte(forward, axes.outer, model) <=
              2 * getUsecPerByte(forward, axes.inner, model)};
}

double zpp::zero::getOuterUsec(AllGatherOp gather, int64_t layers,
                               const SecondaryAxes &axes,
                               const LinkModel &model) {
  return getGatherUsec(gather, axes.outer,
                       multiplySaturating(getOwnBytes(gather), layers), model);
}

bool zpp::zero::isMostlyLatency(AllGatherOp gather, const LinkModel &model) {
  return model.isMostlyLatency(
      getSentBytes(gather.getMeshAttr().getMesh(), CollectiveKind::AllGather,
                   gather.getAxisRefs(), getOwnBytes(gather)));
}
