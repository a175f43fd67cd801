//===- Contracts.h - The forms that zero ops go through ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Properties of a whole program between two passes. A verifier looks at its own
// op only, so a program that was just parsed may break them. A pass that relies
// on a contract checks it first.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_ZERO_IR_CONTRACTS_H
#define ZPP_DIALECT_ZERO_IR_CONTRACTS_H

#include "mlir/IR/Operation.h"

namespace zpp::zero {

/// Returns the pass, or passes, that must run before `op` is decomposed, for
/// example "zero-decompose-all-gather". Empty if `op` is decomposed, belongs to
/// a schedule, or is of another dialect.
llvm::StringRef getMissingPass(mlir::Operation *op);

/// True if a partitioned tensor passes through `op`: as an operand, a result,
/// an argument of a block or in a signature.
bool holdsShard(mlir::Operation *op);

/// The contract of decomposed IR, for `root` and all ops in it:
///
/// - D1: the zero ops are decomposed ops, starts and waits; with `inPlace`,
///   they are decomposed ops only.
/// - D2: an `all_to_all` has neither `slices` nor `wire`.
/// - D3: no value is a partitioned tensor.
/// - D4: the contract of a schedule holds.
///
/// Emits an error at each op that breaks it.
llvm::LogicalResult verifyDecomposed(mlir::Operation *root,
                                     bool inPlace = false);

/// D1, D2 and D3 of `op` alone. Emits an error if it breaks them.
llvm::LogicalResult verifyDecomposedOp(mlir::Operation *op,
                                       bool inPlace = false);

/// The contract of a schedule, S1 to S5 of `zero.start` and `zero.wait`: each
/// start has its wait. Emits an error at each op that breaks it.
llvm::LogicalResult verifySchedule(mlir::Operation *root);

} // namespace zpp::zero

#endif // ZPP_DIALECT_ZERO_IR_CONTRACTS_H
