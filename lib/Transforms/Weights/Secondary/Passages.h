//===- Passages.h - Partitions that pass between computations ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kept partition may be read in another manual computation (`jax.grad` of a
// `shard_map`) than the one that it is made in: it becomes a result of the one
// and an operand of the other.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_PASSAGES_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_PASSAGES_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"

namespace zpp::zero {

/// A kept partition that leaves a manual computation, and its placeholders in
/// the computations that it enters, until these are rebuilt.
struct Passage {
  mlir::Operation *from;
  /// The value in the region of `from`.
  mlir::Value local;
  llvm::MapVector<mlir::Operation *, mlir::UnrealizedConversionCastOp> entries;

  /// Returns the value in `computation`: the value itself in the computation
  /// that it comes from, otherwise a placeholder for an argument.
  mlir::Value getValueIn(mlir::Operation *computation);
};

/// Rebuilds the manual computations that partitions leave and enter. A
/// partition is passed as a flat tensor, sharded over all axes, because each
/// device has its own.
void openPassages(mlir::ModuleOp module,
                  llvm::MutableArrayRef<Passage> passages);

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_PASSAGES_H
