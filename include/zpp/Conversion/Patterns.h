//===- Patterns.h - The conversions as patterns -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For compilers that convert zero ops together with ops of their own. The
// passes of Passes.h are made of these patterns.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_CONVERSION_PATTERNS_H
#define ZPP_CONVERSION_PATTERNS_H

#include "mlir/IR/BuiltinOps.h"

namespace mlir {
class RewritePatternSet;
class TypeConverter;
} // namespace mlir

namespace zpp {

/// Converts a partitioned tensor to what a device holds of it, and leaves other
/// types as they are.
void populateZeroToStablehloTypeConversions(mlir::TypeConverter &converter);

/// Decomposed zero ops on tensors, and the tensor ops between them, to
/// StableHLO, whose dialect, or guest, must be loaded. A plain
/// `reduce_scatter`, a sum of whole tensors that was never split, needs no
/// decomposition. The `tensor.empty` that were destinations have no uses
/// afterwards.
///
/// With `sharedInto` equal arithmetic is shared in private functions of that
/// module, which must outlive the patterns.
void populateZeroToStablehloPatterns(const mlir::TypeConverter &converter,
                                     mlir::RewritePatternSet &patterns,
                                     mlir::ModuleOp sharedInto = {});

/// `zero.start` and `zero.wait` to custom calls of libzpp_xla with the id
/// `bundle`. The calls are in the order that the ties give them, so that
/// `addOrderTokens` comes first.
void populateZeroToXlaFfiPatterns(mlir::RewritePatternSet &patterns,
                                  llvm::StringRef bundle = "");

/// Ties a token, a tensor<1xi8>, through all starts and waits of a block in
/// program order, and through loops around them, as their last tie: every rank
/// then makes them in this order. The program must be a schedule
/// (`zero::verifySchedule`).
void addOrderTokens(mlir::Operation *root);

/// Decomposed zero ops on buffers, and copies of static shape, to calls of
/// libzpp_rt. Their functions must have the rank, an `!llvm.ptr`, as the first
/// argument; other ops are left alone. Descriptors and declarations are added
/// to `module`, which must outlive the patterns.
void populateZeroToRuntimePatterns(mlir::RewritePatternSet &patterns,
                                   mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_CONVERSION_PATTERNS_H
