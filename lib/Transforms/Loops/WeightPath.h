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

  /// The number of one layer of [layers, weight...]: `offset` and the sum of
  /// the terms.
  struct Layer {
    /// factor * (index, which the op that takes it limits to less than `count`)
    struct Term {
      mlir::Value index;
      int64_t factor, count;
    };
    int64_t offset = 0;
    llvm::SmallVector<Term> terms = {};
  };

  /// One weight, or a stack of weights.
  mlir::Value source;
  /// The ops in order from the source, without barriers: element-wise ops on
  /// one tensor, casts of shape, slices, and dynamic slices that choose a
  /// layer.
  llvm::SmallVector<Step> steps;
  /// If set, this layer of the source is chosen before the steps, of which none
  /// chooses any.
  std::optional<Layer> layer = std::nullopt;

  /// Returns the indices by which layers are chosen, the outermost loop's
  /// first.
  llvm::SmallVector<mlir::Value> getIndices() const;
  /// How many layers they choose from, or the largest number.
  int64_t getNumLayers() const;
  /// True if both apply the same ops to their sources. They may choose
  /// different layers.
  bool doesTheSame(const WeightPath &other) const;
};

/// Returns the path to `value` from outside of `ancestor`, or, if `ancestor` is
/// a manual computation or a function or the path `endsInside`, from an
/// argument of its region, or from outside of this. `gather` reads `value` and
/// lies within `ancestor`. nullopt if the gather is in a region other than a
/// loop, or if an op on the path cannot be applied to all layers at once.
std::optional<WeightPath> getWeightPath(mlir::Value value,
                                        mlir::Operation *gather,
                                        mlir::Operation *ancestor,
                                        ProvenanceAnalysis &provenances,
                                        bool endsInside = false);

/// Returns `path` as one that chooses a layer before all else: its slices, of a
/// part of the layers for instance, become a number. nullopt where it does
/// something else.
std::optional<WeightPath> getLayerPath(const WeightPath &path);

/// Applies the ops of `path` to all layers at once, at the insertion point.
LayerStack createStack(mlir::OpBuilder &builder, const WeightPath &path);

/// Extracts the layer of `stack` that `path` chooses, at the insertion point.
mlir::Value createLayerSlice(mlir::OpBuilder &builder, mlir::Location loc,
                             const LayerStack &stack, const WeightPath &path);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_WEIGHTPATH_H
