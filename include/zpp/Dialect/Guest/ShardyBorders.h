//===- ShardyBorders.h - Manual computations in HLO -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_SHARDYBORDERS_H
#define ZPP_DIALECT_GUEST_SHARDYBORDERS_H

#include "mlir/IR/BuiltinOps.h"

namespace zpp {

/// True if `op` is a custom call with which HLO marks the beginning of a manual
/// computation of Shardy.
bool isShardyBorder(mlir::Operation *op);

/// HLO has a `sdy.manual_computation` as a call between two custom calls,
/// `xla.sdy.GlobalToLocalShape` and `xla.sdy.LocalToGlobalShape`. Makes them
/// that op again, and the meshes and shardings, which are text there, what they
/// have been. What is put together otherwise stays as it is.
void importShardyBorders(mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_SHARDYBORDERS_H
