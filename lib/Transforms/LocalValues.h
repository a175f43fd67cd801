//===- LocalValues.h - Local tensors behind partitioned ones ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOCALVALUES_H
#define ZPP_LIB_TRANSFORMS_LOCALVALUES_H

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {

/// Returns the local tensor of `shard`: the operand of its `from_local`, or the
/// result of a new `to_local`.
mlir::Value getLocal(mlir::OpBuilder &builder, mlir::Location loc,
                     mlir::Value shard);

/// Replaces the result of `op` by the partitioned tensor whose local part is
/// `local`, and erases `op`.
void replaceWithLocal(mlir::OpBuilder &builder, mlir::Operation *op,
                      mlir::Value local);

/// An uninitialized tensor, the destination of a local op.
mlir::Value createEmpty(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::RankedTensorType type);

/// Creates an op with an input and a new destination, and returns its only
/// result.
template <typename OpT, typename... Args>
mlir::Value createLocal(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::RankedTensorType type, mlir::Value input,
                        Args &&...args) {
  mlir::Value init = createEmpty(builder, loc, type);
  return OpT::create(builder, loc, mlir::TypeRange{type}, input, init,
                     std::forward<Args>(args)...)
      ->getResult(0);
}

/// Erases `op` and then the ops whose only reader it was, as long as they have
/// no side effect: local zero ops, tensor.empty, and StableHLO's arithmetic,
/// slices and all-reduces.
void eraseDeadChain(mlir::Operation *op);

/// Erases the ops that define unused ones of `values`, and the ops that only
/// these kept alive.
void eraseIfDead(llvm::ArrayRef<mlir::Value> values);

/// Appends the origin of `op`, a collective in whose place nothing is sent, to
/// the `zpp.origin` of its module. The report would not know of it otherwise.
void recordRemoved(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOCALVALUES_H
