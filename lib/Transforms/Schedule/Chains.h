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

/// Decomposed ops of one block, and tensor ops between them, that use each
/// other's results, in their order.
using Chain = llvm::SmallVector<mlir::Operation *>;

/// The chains of `block` that have an exchange, in the order of their first
/// ops.
llvm::SmallVector<Chain> getChains(mlir::Block &block);

/// The exchanges of `chain`.
llvm::SmallVector<zero::CollectiveOpInterface> getExchanges(const Chain &chain);

/// All blocks of the step in program order, those of the module of outlined
/// functions left out.
llvm::SmallVector<mlir::Block *> getStepBlocks(mlir::ModuleOp module);

/// The ops between the first and the last of `ops`, which are of one block and
/// in order, that need a result of one of them and are none of them; in order.
llvm::SmallVector<mlir::Operation *>
getDependents(llvm::ArrayRef<mlir::Operation *> ops);

/// Drops the operands of `barrier`, an optimization_barrier, that nothing reads
/// behind it, and returns them.
llvm::SmallVector<mlir::Value> shrinkBarrier(mlir::Operation *barrier);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_CHAINS_H
