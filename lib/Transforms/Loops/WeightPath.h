//===- WeightPath.h - From a stack of weights to a gather -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loop over layers (`lax.scan`) reads one weight after the other from a
// stack. The ops that it applies to a weight before it gathers it can be
// applied to the whole stack before the loop.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOOPS_WEIGHTPATH_H
#define ZPP_LIB_TRANSFORMS_LOOPS_WEIGHTPATH_H

#include "Loops/LayerStacks.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/Provenance.h"

#include <optional>

namespace zpp {

/// The ops between a value outside of loops and a gather inside of them.
struct WeightPath {
  struct Step {
    mlir::Operation *op;
    /// For each operand of an element-wise op, the value of all its elements,
    /// or null for the operand that is on the path.
    llvm::SmallVector<mlir::TypedAttr> splats;
  };

  /// One weight, or a stack of weights.
  mlir::Value source;
  /// The ops in order from the source, without barriers: element-wise ops on
  /// one tensor, casts of shape, slices, and dynamic slices that choose a
  /// layer.
  llvm::SmallVector<Step> steps;

  /// Returns the ops that choose a layer, the outermost loop's first.
  llvm::SmallVector<mlir::Operation *> getLayerSlices() const;
  /// How many layers they choose from, or the largest number.
  int64_t getNumLayers() const;
  /// True if both apply the same ops to their sources. They may choose
  /// different layers.
  bool doesTheSame(const WeightPath &other) const;
};

/// Returns the path to `value` from outside of `ancestor`, or, if `ancestor` is
/// a manual computation or a function, from an argument of its region. `gather`
/// reads `value` and lies within `ancestor`. nullopt if the gather is in a
/// region other than a loop, or if an op on the path cannot be applied to all
/// layers at once.
std::optional<WeightPath> getWeightPath(mlir::Value value,
                                        mlir::Operation *gather,
                                        mlir::Operation *ancestor,
                                        ProvenanceAnalysis &provenances);

/// The same from an argument of `block`, around the gather, or from outside of
/// it.
std::optional<WeightPath> getWeightPathIn(mlir::Block &block, mlir::Value value,
                                          mlir::Operation *gather,
                                          ProvenanceAnalysis &provenances);

/// A path that chooses one layer of [layers, weight...] and then works on that
/// alone: its slices, of a part of the layers for instance, are an index.
struct LayerPath {
  /// factor * (index, which the op that takes it limits to less than `count`)
  struct Term {
    mlir::Value index;
    int64_t factor, count;
  };

  /// The transformation of the layer.
  WeightPath path;
  /// The sum of these is the layer.
  int64_t offset = 0;
  llvm::SmallVector<Term> terms;
};

/// nullopt where `path` does something else.
std::optional<LayerPath> getLayerPath(const WeightPath &path);

/// Applies the ops of `path` to all layers at once, at the insertion point.
LayerStack createStack(mlir::OpBuilder &builder, const WeightPath &path);

LayerStack createStack(mlir::OpBuilder &builder, const LayerPath &path);

/// Extracts the layer of `stack` that `path` chooses, at the insertion point.
mlir::Value createLayerSlice(mlir::OpBuilder &builder, mlir::Location loc,
                             const LayerStack &stack, const WeightPath &path);
mlir::Value createLayerSlice(mlir::OpBuilder &builder, mlir::Location loc,
                             const LayerStack &stack, const LayerPath &path);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_WEIGHTPATH_H
