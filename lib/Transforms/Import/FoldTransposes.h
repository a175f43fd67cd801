//===- FoldTransposes.h - Gradients as their weights lie --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_IMPORT_FOLDTRANSPOSES_H
#define ZPP_LIB_TRANSFORMS_IMPORT_FOLDTRANSPOSES_H

#include "mlir/IR/BuiltinOps.h"

namespace zpp {

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

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_FOLDTRANSPOSES_H
