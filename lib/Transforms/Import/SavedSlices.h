//===- SavedSlices.h - Slices of weights that loops save --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_IMPORT_SAVEDSLICES_H
#define ZPP_LIB_TRANSFORMS_IMPORT_SAVEDSLICES_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace zpp {

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

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_SAVEDSLICES_H
