//===- StablehloOps.h - Each decomposed op in StableHLO ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_CONVERSION_STABLEHLOOPS_H
#define ZPP_LIB_CONVERSION_STABLEHLOOPS_H

#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {

/// Copies the attributes that track a collective through the pipeline.
void copyMarks(mlir::Operation *from, mlir::Operation *to);

/// Returns the devices of each group of `op`.
WrittenGroups getGroups(zero::CollectiveOpInterface op);

/// Returns the values that a decomposed op reads, among its `operands`: all but
/// its destination.
llvm::SmallVector<mlir::Value> getInputs(mlir::ValueRange operands);

/// Lowers a decomposed op that reads `inputs`, and returns the result.
mlir::Value lowerDecomposed(StablehloBuilder &b, zero::DecomposedOpInterface op,
                            mlir::ValueRange inputs);

} // namespace zpp

#endif // ZPP_LIB_CONVERSION_STABLEHLOOPS_H
