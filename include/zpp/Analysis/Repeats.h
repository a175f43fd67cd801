//===- Repeats.h - Ops that compute the same again --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_REPEATS_H
#define ZPP_ANALYSIS_REPEATS_H

#include "mlir/IR/Operation.h"

namespace zpp {

/// True if two such ops that have equal descriptions and equal operands have
/// equal results: deterministic ones; calls of functions of these; and those
/// that take the largest or smallest elements of a device or of all, in
/// whatever order. The scales of formats that a step has itself are made of
/// them.
bool computesTheSame(mlir::Operation *op);

/// Appends all that tells `op`, for which computesTheSame holds, from others,
/// but its operands.
void describeOp(mlir::Operation *op,
                llvm::SmallVectorImpl<const void *> &description);

} // namespace zpp

#endif // ZPP_ANALYSIS_REPEATS_H
