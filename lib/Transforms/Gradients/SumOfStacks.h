//===- SumOfStacks.h - Sums that a step sends of stacks ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step that adds up the gradients of a scan over layers adds stacks, and has
// written hops of the sum after it. An iteration of the last scan can add its
// layer to that of the earlier sum, and send it.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_SUMOFSTACKS_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_SUMOFSTACKS_H

#include "Loops/LayerStacks.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp::zero {

/// A stack [layers, shape...] that a loop over layers leaves: each iteration
/// writes another layer, and all of them are written.
struct StackOfLayers {
  WhileView loop;
  /// The number of the carried value.
  unsigned number;
  LayerWrite write;
  /// Casts and products with numbers after the loop, in order.
  llvm::SmallVector<mlir::Operation *> steps;

  int64_t getNumLayers() const;
};

/// Returns the stack that `value` is; nullopt if it is none, or if anything but
/// the one reader of `value` reads it.
std::optional<StackOfLayers> findStack(mlir::Value value,
                                       ProvenanceAnalysis &provenances);

/// A sum with what one block does with it: hops, and the casts, shape changes
/// and products with numbers around them.
class SumOfStacks {
public:
  /// Finds it around `hop`, the first one; nullopt if that is no scatter, or if
  /// other ops are in between.
  static std::optional<SumOfStacks> find(mlir::Operation *hop);

  /// Returns the sum that is sent.
  mlir::Value getSum() const { return sum; }

  /// True if each of the `layers` of the sum can be sent alone, in `loop`: all
  /// numbers are known before it, and what the hops leave of a layer on a
  /// device is what they leave of it in the stack.
  bool canSendInLoop(int64_t layers, mlir::Operation *loop) const;

  /// Has the iterations of `stack.loop` send the layers of `earlier` + `stack`,
  /// which the sum is. Returns the first hop.
  mlir::Operation *sendInLoop(const StackOfLayers &stack,
                              mlir::Value earlier) const;

private:
  mlir::Value sum;
  /// From the reader of the sum to the op that leaves a tensor with the same
  /// first of as many dims, in order.
  llvm::SmallVector<mlir::Operation *> ops;
};

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_SUMOFSTACKS_H
