//===- Conversions.h - Ops on both ends of casts ----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_IMPORT_CONVERSIONS_H
#define ZPP_LIB_TRANSFORMS_IMPORT_CONVERSIONS_H

#include "mlir/IR/Operation.h"

namespace zpp {

/// Returns the op, other than conversions, that alone reads the result of `op`;
/// null if there is none.
mlir::Operation *getOnlyReader(mlir::Operation *op);

/// The op whose result `value` is, but for conversions; null for an argument.
mlir::Operation *getConverted(mlir::Value value);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_IMPORT_CONVERSIONS_H
