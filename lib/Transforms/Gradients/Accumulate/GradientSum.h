//===- GradientSum.h - Sums of gradients ------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_GRADIENTSUM_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_GRADIENTSUM_H

#include "Gradients/Accumulate/GradientTerm.h"
#include "zpp/Dialect/Guest/While.h"

namespace zpp::zero {

/// True for a sum of two values of one type.
bool isAddition(mlir::Operation *op);

/// A sum in one block: what it adds up.
struct GradientSum {
  /// Terms that can be sent as one, in the order of the sum.
  llvm::SmallVector<llvm::SmallVector<GradientTerm>> terms;
  llvm::SmallVector<mlir::Value> others;
  /// Whether the carried value that was asked for is in it, once.
  bool hasCarried = false;
  llvm::SmallVector<mlir::Operation *> additions;

  /// Returns the terms that can be sent with those of `like`; null if there are
  /// none.
  const llvm::SmallVector<GradientTerm> *find(const GradientTerm &like) const;
  /// Erases the additions, which nothing reads any more, the last one first.
  void eraseAdditions() const;
};

/// Returns the sum that `root` is, of `carried`, terms and other values.
GradientSum findSum(TermFinder &finder, mlir::Value root, mlir::Value carried);

/// Returns the addition that leaves carried value `number` to the next
/// iteration of `loop`; null if there is none, or if the value is read more
/// than once.
mlir::Operation *findCarriedAddition(WhileView loop, unsigned number);

/// Returns the sum that each iteration of `loop` adds to carried value
/// `number`; nullopt if it has no terms, or if anything else reads it.
std::optional<GradientSum> findCarriedSum(TermFinder &finder, WhileView loop,
                                          unsigned number);

/// True if `value` is an argument, or defined before `op` in its block.
bool isDefinedBefore(mlir::Value value, mlir::Operation *op);

/// True if `step` multiplies by no number, or by one that is a constant or
/// known before `loop`.
bool canScaleIn(mlir::Operation *loop, mlir::Operation *step);

/// True if the last of `terms`, which `block` adds up, is the stack of a loop
/// before which all others are known: each iteration can send a layer of the
/// sum.
bool canSendInLoop(llvm::ArrayRef<GradientTerm> terms, mlir::Block &block);

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_GRADIENTSUM_H
