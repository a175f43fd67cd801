//===- FunctionsWith.h - Functions that reach an op -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_FUNCTIONSWITH_H
#define ZPP_ANALYSIS_FUNCTIONSWITH_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseSet.h"

namespace zpp {

/// Returns the functions below `root` that contain an op for which `isWanted`
/// is true, or that call such a function, directly or through others. Takes
/// time linear in the number of ops, also if functions are recursive.
llvm::DenseSet<mlir::Operation *>
getFunctionsWith(mlir::Operation *root,
                 llvm::function_ref<bool(mlir::Operation *)> isWanted);

} // namespace zpp

#endif // ZPP_ANALYSIS_FUNCTIONSWITH_H
