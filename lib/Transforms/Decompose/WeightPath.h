//===- WeightPath.h - From a stack of weights to a gather -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loop over layers (`lax.scan`) reads one weight after the other out of a
// stack of them. What it does to one weight before it gathers it can be done to
// all of them at once, in front of the loop.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_DECOMPOSE_WEIGHTPATH_H
#define ZPP_LIB_TRANSFORMS_DECOMPOSE_WEIGHTPATH_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/Provenance.h"

#include <optional>

namespace zpp {

/// The ops between a value outside of loops and a gather inside of them.
struct WeightPath {
  struct Step {
    mlir::Operation *op;
    /// By operand of an element-wise op: what it is everywhere, or null for the
    /// one that is on the path.
    llvm::SmallVector<mlir::TypedAttr> splats;
  };

  /// One weight, or a stack of weights.
  mlir::Value source;
  /// In order from the source on, without barriers: element-wise ops on one
  /// tensor, casts of shape, slices, and dynamic slices that choose one layer.
  llvm::SmallVector<Step> steps;

  /// The ops that choose a layer, the outermost loop's first.
  llvm::SmallVector<mlir::Operation *> getLayerSlices() const;
  /// True if both do the same to their sources; they may choose different
  /// layers.
  bool doesTheSame(const WeightPath &other) const;
};

/// The path to `value` from outside of `ancestor`, or from an argument of its
/// region where it is a manual computation. `gather` reads `value` and lies
/// within `ancestor`. nullopt where something else than loops is around the
/// gather, or an op on the path cannot be done to all layers at once.
std::optional<WeightPath> getWeightPath(mlir::Value value,
                                        mlir::Operation *gather,
                                        mlir::Operation *ancestor,
                                        ProvenanceAnalysis &provenances);

/// Weights of all layers, [layers..., weight...].
struct LayerStack {
  mlir::Value value;
  /// The layers of each loop, the outermost first; empty for one weight.
  llvm::SmallVector<int64_t> layers;
};

/// Does what `path` does to one layer to all of them, at the insertion point.
LayerStack createStack(mlir::OpBuilder &builder, const WeightPath &path);

/// The layer of `stack` that `path` chooses, at the insertion point.
mlir::Value createLayerSlice(mlir::OpBuilder &builder, mlir::Location loc,
                             const LayerStack &stack, const WeightPath &path);

/// A reshape, where the shape is another one.
mlir::Value createReshape(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value value, llvm::ArrayRef<int64_t> shape);
/// Moves dim `from` to position `to`.
mlir::Value createMoveDim(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value value, int64_t from, int64_t to);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_DECOMPOSE_WEIGHTPATH_H
