//===- GradientProof.h - What shows that a sum is a gradient ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shape proves nothing: a covariance of activations has that of a square
// weight. Two things tell a gradient from a statistic (docs/rules.md):
//
//   its partner   The gradient of W contracts an operand that a product with W
//                 has contracted, or a recomputed or saved copy of it, and its
//                 other operand follows from that product's result: over
//                 floating-point values alone, not through a comparison, an
//                 index or a rounding. `x.T @ x`, `onehot.T @ z` and `g.T @ g`
//                 have no such partner. If W is added, or scales rows, its
//                 gradient is a reduction of what follows from that.
//   its name      JAX writes `transpose(jvp(...))` into the locations of what
//                 autodiff makes, also behind XLA's partitioner.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_GRADIENTPROOF_H
#define ZPP_ANALYSIS_ROLES_GRADIENTPROOF_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace zpp {

class ValueGraph;

/// Findings about one sum.
struct GradientProof {
  enum class Kind {
    /// No step of a proof holds; `why` says which one failed.
    None,
    /// It cannot be a gradient, whatever else is known; `why` says why.
    Statistic,
    /// It reduces what follows from a use of a weight of its size. Activations
    /// do so too, so a weight must be updated with it.
    Reduced,
    /// It contracts what a product with a weight has contracted with what
    /// follows from that product.
    Partner,
    /// Autodiff has made it, by its name.
    Name
  };
  Kind kind = Kind::None;
  std::string why;
  /// True if what it sums follows from something that autodiff has transposed.
  bool followsAutodiff = false;
  /// True if its partner is a product or a lookup, which tells weights from
  /// what is only added to activations or scales them, and no product with
  /// another weight could be it.
  bool isOfProduct = false;
  /// The gathers and inputs of the step of which the weight is made that the
  /// partner takes; empty without a partner. And those of them of which it
  /// holds elements: not a vector that only the norm of the weight follows
  /// from.
  llvm::SmallVector<mlir::Value> weights, direct;
};

/// A difference of sums, or of sums and inputs that are made of earlier ones.
struct GradientDifference {
  /// The numbers of the sums, also of those that update the inputs.
  llvm::SmallVector<size_t> sums;
  /// True if one of the two is an input.
  bool isToState;
  /// Results of the gathers that each of the two depends on, where both are of
  /// this step.
  std::array<llvm::SmallVector<mlir::Value>, 2> points;
  /// If both are rows of one sum, which are computed from rows of weights that
  /// are gathered together: the number of rows. 0 otherwise.
  int64_t rows = 0;
  /// True if both are single numbers, at different points or none.
  bool isOfNumbers = false;
};

/// A gathered value, and the dim along which devices have parts of it.
struct GatheredValue {
  mlir::Value whole;
  int64_t dim;
};

/// Proves what sums are. Valid while the module does not change.
class GradientProver {
public:
  /// `isData` is true for inputs of the step of which devices have different
  /// parts; `mayBeData` for those that are data if a device computes products
  /// with its own part, and parts of a weight otherwise.
  GradientProver(mlir::ModuleOp module,
                 llvm::function_ref<bool(mlir::BlockArgument)> isData,
                 llvm::function_ref<bool(mlir::BlockArgument)> mayBeData);
  ~GradientProver();

  /// Returns the graph of the step that proofs are found in.
  const ValueGraph &getGraph() const;

  /// True if any op of the module has a name that autodiff gave it.
  bool hasNames() const;

  GradientProof prove(mlir::Operation *sum);

  /// True if no element of `value` can be negative: a square, a count, a
  /// probability, or what sums, products and quotients make of such.
  bool isNeverNegative(mlir::Value value);

  /// Returns the differences of `sums`: elements of one are subtracted from
  /// those of another one, or of an input that is made of earlier ones, before
  /// either is added to another input of the step. Weights are told apart by
  /// the way to sums for which `isGradient` is true, and through the others,
  /// such as those of activations.
  llvm::SmallVector<GradientDifference>
  getDifferences(llvm::ArrayRef<mlir::Operation *> sums,
                 llvm::function_ref<bool(mlir::Operation *)> isGradient);

  /// Returns the inputs of the step that `value` depends on, if it is made of
  /// inputs alone that the step returns as they came; empty otherwise.
  llvm::SmallVector<mlir::BlockArgument> getReturnedSources(mlir::Value value);

  /// Returns the only input of the step that `value` depends on, or null.
  mlir::BlockArgument getOnlyInput(mlir::Value value);

  /// For each of `inputs`, which has the values that gather it: whether the
  /// step takes it as a layer takes its weight (docs/rules.md, R16), though
  /// there may be no gradient of it.
  std::vector<bool>
  areLayerWeights(llvm::ArrayRef<llvm::SmallVector<GatheredValue>> inputs);

private:
  class Search;
  std::unique_ptr<Search> search;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_GRADIENTPROOF_H
