//===- GradientTerm.h - What a sum adds up of gradients ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A term of a sum of gradients is the result of outer hops, after casts,
// reshapes, products with numbers that all devices know, and writes to the
// layers of a stack. Hops commute with all of these: they can be done once, on
// the sum of the partial sums.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_GRADIENTTERM_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_GRADIENTTERM_H

#include "Gradients/Accumulate/OuterHops.h"
#include "zpp/Analysis/SameValues.h"

namespace zpp::zero {

/// A term that is still to be sent.
struct GradientTerm {
  OuterHops hops;
  /// The ops from the hops' result to the term, in order.
  llvm::SmallVector<mlir::Operation *> steps;
  /// A sum of partial sums [layers..., shape...] in f32, with the first
  /// `numDone` steps, or null. Steps on the way to a gradient's place are left
  /// to `build`; what the partial sums need of others is their scale and layer.
  mlir::Value partial;
  size_t numDone = 0;
  /// The number of gradients that are added up in it; 0 if it is not known.
  int64_t count = 1;

  /// True if terms that are added can be sent as one.
  bool isLike(const GradientTerm &other) const;
  /// Returns the numbers of layers of the stacks that the steps write, the
  /// outermost first.
  llvm::SmallVector<int64_t> getLayers() const;
  /// Returns the bytes that the partial sums of all layers take beyond the
  /// gradients.
  int64_t getMoreBytes() const;
  /// The term, at the insertion point, of the sum of partial sums `partial`.
  mlir::Value build(mlir::OpBuilder &builder, mlir::Value partial) const;
};

/// Finds terms. It changes nothing.
class TermFinder {
public:
  explicit TermFinder(const AccumulationGroup &group)
      : group(group), devices(1) {
    llvm::append_range(devices.front(),
                       llvm::seq(group.getMesh().numDevices()));
  }

  /// Returns the term that `value` is, or nullopt. Nothing but its one reader
  /// reads it, nor what it is made of.
  std::optional<GradientTerm> find(mlir::Value value);

  /// Has `value` stand for `term` from now on.
  void setTerm(mlir::Value value, GradientTerm term) {
    terms.insert({value, std::move(term)});
  }

private:
  const AccumulationGroup &group;
  /// A group of all devices.
  ReplicaGroups devices;
  SameValues sameValues;
  llvm::DenseMap<mlir::Value, GradientTerm> terms;
};

/// Returns the position of the operand that `op` multiplies by a number, or
/// divides by one, or negates; nullopt for other ops.
std::optional<unsigned> getScaledOperand(mlir::Operation *op);

/// `partial`, which an earlier step has left, after `step`.
mlir::Value scale(mlir::OpBuilder &builder, mlir::Operation *step,
                  mlir::Value partial);

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_GRADIENTTERM_H
