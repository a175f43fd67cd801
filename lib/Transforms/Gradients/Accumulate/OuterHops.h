//===- OuterHops.h - The hops of a sum over slower tiers --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A gradient's sum goes hop by hop, from the fastest tier outwards. What the
// hops within the accumulation group leave is a partial sum; those after it
// make the gradient of it. All of them are linear, but for what they round.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_OUTERHOPS_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_OUTERHOPS_H

#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Decision.h"
#include "zpp/Support/LinkModel.h"

#include <optional>

namespace zpp::zero {

/// Returns the mesh of the first scatter in `op`, a module; nullopt without
/// one.
std::optional<Mesh> findScatterMesh(mlir::Operation *op);

/// The group within which gradients are added up before they leave it: all
/// tiers from one on.
class AccumulationGroup {
public:
  /// `text` is a tier of `mesh` or the number of devices of its fastest tiers.
  /// nullopt if it is neither.
  static std::optional<AccumulationGroup> parse(llvm::StringRef text,
                                                const Mesh &mesh);

  /// True if `axis` lies within the group.
  bool contains(const AxisRef &axis) const {
    return mesh.findAxis(axis.name) >= slowest;
  }
  const Mesh &getMesh() const { return mesh; }

private:
  AccumulationGroup(Mesh mesh, int64_t slowest)
      : mesh(std::move(mesh)), slowest(slowest) {}

  Mesh mesh;
  /// The number of the slowest tier within the group.
  int64_t slowest;
};

/// The ops that make a gradient of a partial sum, in order: scatters and, where
/// the gradient is replicated, what gathers it.
struct OuterHops {
  llvm::SmallVector<mlir::Operation *> ops;
  ToLocalOp result;

  ReduceScatterOp getFirst() const {
    return mlir::cast<ReduceScatterOp>(ops.front());
  }
  ShardType getPartialType() const { return getFirst().getOperand().getType(); }
  /// Returns the local tensor of the partial sum, at the insertion point.
  mlir::Value getPartial(mlir::OpBuilder &builder) const;
  /// Returns the time of the hops of so many layers at once, on the links of
  /// `model`, in microseconds.
  double getUsec(int64_t layers, const LinkModel &model) const;
  /// Returns the bytes that an iteration adds up, in f32, less those of the
  /// gradient.
  int64_t getMoreBytes() const;
  /// True if they are one scatter that stays one collective.
  bool isLeftAlone() const;
  /// True if both do the same to tensors of the same types.
  bool doTheSame(const OuterHops &other) const;

  /// Does the same to `partial`, `layers` local tensors of the partial type:
  /// [layers, shape...], or one, [shape...], with 0. The result has the same
  /// first dim, and elements of f32 if `inF32` and the last hop can leave them.
  mlir::Value build(mlir::OpBuilder &builder, mlir::Value partial,
                    int64_t layers, bool inF32) const;
};

/// True if a hop of `scatter` leaves `group` and none before it does.
bool leavesGroup(ReduceScatterOp scatter, const AccumulationGroup &group);

/// Returns the hops that leave `group` of which `local` is the result; nullopt
/// if it is none, or if something else reads what is between them.
std::optional<OuterHops> getOuterHops(mlir::Value local,
                                      const AccumulationGroup &group);

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_OUTERHOPS_H
