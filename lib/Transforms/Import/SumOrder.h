//===- SumOrder.h - Gradients are summed when they are there ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_IMPORT_SUMORDER_H
#define ZPP_LIB_TRANSFORMS_IMPORT_SUMORDER_H

#include "mlir/IR/BuiltinOps.h"

namespace zpp {

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

#endif // ZPP_LIB_TRANSFORMS_IMPORT_SUMORDER_H
