//===- PartitionerOutput.h - What XLA's partitioner leaves ------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_IMPORT_PARTITIONEROUTPUT_H
#define ZPP_LIB_TRANSFORMS_IMPORT_PARTITIONEROUTPUT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zpp {

/// Returns the op, other than conversions, that alone reads the result of `op`;
/// null if there is none.
mlir::Operation *getOnlyReader(mlir::Operation *op);

/// The op whose result `value` is, but for conversions; null for an argument.
mlir::Operation *getConverted(mlir::Value value);

/// Folds the transposes of reduce-scatters and all-reduces, one or several in a
/// row, into the product that is summed.
///
/// JAX writes the gradient of a weight `w` in `x @ w` as the transpose of a
/// product of two, `dy` and `x`. XLA's partitioner (X14) sums it over the
/// devices in between, so what arrives has the dims of `w` in another order. An
/// update that transposes cannot write weights and moments in place, but leaves
/// each of them to a copy. With the operands of the product exchanged, the sum
/// has the order of `w`, and blocks of a format lie along its rows, as without
/// a partitioner.
///
/// Only a transpose that is this exchange is folded, and only if nothing else
/// reads the product and the sums. Casts may lie between. Calls `report` with
/// the first sum of each.
void foldTransposesOfSums(mlir::ModuleOp module,
                          llvm::function_ref<void(mlir::Operation *)> report);

/// A scan without a checkpoint saves for its backward pass what it gathers: XLA
/// saves each device's part, in a stack. Where row i of such a stack is made of
/// slice i of other stacks, by casts and elementwise ops, a loop that gathers
/// the row cuts it from those stacks itself afterwards, as with a checkpoint.
/// So it is where the gradient of a loop over micro-batches casts the stack in
/// front of that loop.
///
/// `onRewrite` is told each slice that a loop makes again.
void recomputeSavedSlices(
    mlir::ModuleOp module,
    llvm::function_ref<void(mlir::Operation *slice)> onRewrite);

/// XLA prints the ops of a step in the order in which its results need them
/// (X14): products of weights' gradients, which only the update needs, come
/// after the whole backward pass, one after the other. No compute would be left
/// for their sums to hide under, and activations would be kept until then.
/// Moves each sum over devices, with the products and other ops that only this
/// sum needs, up to the first product, loop or call that comes after all that
/// it depends on.
///
/// Sums stay after ops that zpp does not know, and after other collectives
/// that they depend on.
void advanceSums(mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_PARTITIONEROUTPUT_H
