//===- Axes.h - The axes of a secondary partition ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A secondary partition is cut over the axes of a gather that lie inside the
// secondary group. Its gather goes over the other axes first.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_AXES_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_AXES_H

#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Decision.h"
#include "zpp/Support/LinkModel.h"

namespace zpp::zero {

/// The axes of a gather, inside and outside the secondary group.
struct SecondaryAxes {
  /// The primary partition. An axis is cut in two if the border of the group
  /// falls inside it.
  ShardType primary;
  mlir::ArrayAttr outer;
  mlir::ArrayAttr inner;
};

/// Divides the axes of `gather` by `secondary`: a tier of the mesh, a number of
/// devices, or, if empty, the fastest tier. `mayBeOneDevice` says whether a
/// tier of one device, which keeps the whole weight, is worth it; the number 1
/// asks for it. Emits an error if `secondary` does not fit the mesh.
mlir::FailureOr<Decision<SecondaryAxes>>
getSecondaryAxes(AllGatherOp gather, llvm::StringRef secondary,
                 bool mayBeOneDevice);

/// Returns the type of `layers` tensors of type `layer` as one, whose dim has
/// the layer as its most significant factor; null where there is none so large.
ShardType getStackedType(ShardType layer, int64_t layers);

/// The time of the gathers of a weight on the links of `model`, in
/// microseconds. Those like `gather` run `times` for each time that it is sent.
struct GatherTimes {
  /// Each over all axes.
  double whole;
  /// With a secondary partition.
  double partitioned;
  /// True if the links between groups are at least half as fast as those
  /// within.
  bool areLinksAlike;
};
GatherTimes getGatherTimes(AllGatherOp gather, double times,
                           const SecondaryAxes &axes, const LinkModel &model);

/// Returns the time of the hops of `gather`, of so many layers at once, along
/// the outer one of `axes`, in microseconds.
double getOuterUsec(AllGatherOp gather, int64_t layers,
                    const SecondaryAxes &axes, const LinkModel &model);

/// True if the bytes of a gather take less time than its latency.
bool isMostlyLatency(AllGatherOp gather, const LinkModel &model);

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_AXES_H
