//===- Patterns.h - The conversions as patterns -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For compilers that convert zero ops together with ops of their own. The
// passes of Passes.h consist of these patterns.
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

/// Converts the type of a partitioned tensor to the local type, and leaves
/// other types as they are.
void populateZeroToStablehloTypeConversions(mlir::TypeConverter &converter);

/// Patterns that lower decomposed zero ops on tensors, and the tensor ops
/// between them, to StableHLO, whose dialect, or guest, must be loaded. A plain
/// `reduce_scatter`, a sum of whole tensors that was never split, need not be
/// decomposed. The `tensor.empty` that were destinations have no uses
/// afterwards.
///
/// With `sharedInto`, equal arithmetic is shared in private functions of that
/// module, which must outlive the patterns.
void populateZeroToStablehloPatterns(const mlir::TypeConverter &converter,
                                     mlir::RewritePatternSet &patterns,
                                     mlir::ModuleOp sharedInto = {});

/// Patterns that lower `zero.start` and `zero.wait` to custom calls of
/// libzpp_xla with the id `bundle`. Only ties determine the order of the calls,
/// so call `addOrderTokens` first.
void populateZeroToXlaFfiPatterns(mlir::RewritePatternSet &patterns,
                                  llvm::StringRef bundle = "");

/// Ties a token, a tensor<1xi8>, through all starts and waits in program order
/// as their last tie, and passes it through the loops, branches and manual
/// computations around them. Every rank then executes them in this order. The
/// program must be a schedule (`zero::verifySchedule`).
void addOrderTokens(mlir::Operation *root);

/// Patterns that lower decomposed zero ops on buffers, and copies of static
/// shape, to calls of libzpp_rt. Their functions must have the rank, an
/// `!llvm.ptr`, as the first argument. Other ops are left alone. Descriptors
/// and declarations are added to `module`, which must outlive the patterns.
void populateZeroToRuntimePatterns(mlir::RewritePatternSet &patterns,
                                   mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_CONVERSION_PATTERNS_H
