//===- Schedule.h - What runs beside what -----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order of starts, compute and waits in a step. Ops of other dialects are
// recognized by name.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_SCHEDULE_H
#define ZPP_ANALYSIS_SCHEDULE_H

#include "zpp/Analysis/Origin.h"

namespace zpp {

/// Of a module: bytes that its schedule may have in flight.
inline constexpr llvm::StringLiteral kPrefetchAttr = "zpp.prefetch_bytes";

/// True for the compute that communication hides under: products, convolutions,
/// loops, calls of a library or of a function with such ops.
bool isHeavy(mlir::Operation *op);

/// The heavy ops of `block` in order; where there is none, the op on the most
/// data.
llvm::SmallVector<mlir::Operation *> getHeavyOps(mlir::Block &block);

/// True if `op` is a `zero.start`, or the custom call that one becomes.
bool isStart(mlir::Operation *op);
/// The wait of a start: what reads its outputs.
mlir::Operation *getWait(mlir::Operation *start);
/// The outputs of a start, and of its wait; ties and tokens are none.
mlir::ValueRange getOutputs(mlir::Operation *startOrWait);
/// The inputs of a start.
mlir::ValueRange getInputs(mlir::Operation *start);

/// The origins of all that `start` runs.
llvm::SmallVector<Origin> getStartedOrigins(mlir::Operation *start);

/// Bytes of tensors, partitioned ones (what a device holds), or buffers.
int64_t getBytes(mlir::TypeRange types);

/// "file.py:12:3", or empty where the location has no file.
std::string getFileLocation(mlir::Location loc);

} // namespace zpp

#endif // ZPP_ANALYSIS_SCHEDULE_H
