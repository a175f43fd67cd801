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

// The description of zero-import-partitioned says why each of these is done,
// and to what XLA's partitioner (X14) makes.

/// Folds the transposes of reduce-scatters and all-reduces, one or several in a
/// row, into the product that is summed: by an exchange of its operands, if
/// that is what the transpose does, and if nothing else reads the product and
/// the sums. Casts may lie between. Calls `report` with the first sum of each.
void foldTransposesOfSums(mlir::ModuleOp module,
                          llvm::function_ref<void(mlir::Operation *)> report);

/// Has loops make rows again that other loops save for them in stacks, and that
/// they gather, also within a loop over micro-batches. `onRewrite` is told each
/// slice that a loop makes again.
void recomputeSavedSlices(
    mlir::ModuleOp module,
    llvm::function_ref<void(mlir::Operation *slice)> onRewrite);

/// Moves each sum over devices, with the products and other ops that only this
/// sum needs, up to the first product, loop or call that comes after all that
/// it depends on: behind the backward pass, nothing would hide it, and
/// activations would be kept until then. Sums stay after ops that zpp does not
/// know, and after other collectives that they depend on.
void advanceSums(mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_PARTITIONEROUTPUT_H
