//===- Chains.h - Decomposed ops that belong together -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_CHAINS_H
#define ZPP_LIB_TRANSFORMS_CHAINS_H

#include "mlir/IR/BuiltinOps.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {

/// Decomposed ops of one block that use each other's results, and the tensor
/// ops between them, in the order of the block.
using Chain = llvm::SmallVector<mlir::Operation *>;

/// Returns the chains of `block` that contain an exchange, ordered by their
/// first ops.
llvm::SmallVector<Chain> getChains(mlir::Block &block);

/// Returns the exchanges of `chain`.
llvm::SmallVector<zero::CollectiveOpInterface> getExchanges(const Chain &chain);

/// All blocks of the step in program order, without those of the host module.
llvm::SmallVector<mlir::Block *> getStepBlocks(mlir::ModuleOp module);

/// Returns the ops between the first and the last of `ops` that depend on one
/// of `ops` but are not among them, in order. `ops` must be in one block and in
/// order.
llvm::SmallVector<mlir::Operation *>
getDependents(llvm::ArrayRef<mlir::Operation *> ops);

/// Drops the operands of `barrier`, an optimization_barrier, whose results are
/// not read, and returns them.
llvm::SmallVector<mlir::Value> shrinkBarrier(mlir::Operation *barrier);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_CHAINS_H
