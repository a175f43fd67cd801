//===- LayerOps.h - StableHLO ops of stacks of layers -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// StableHLO ops on stacks of layers, read, and built at the insertion point of
// any builder: shapes, layers cut out and written, indices of layers.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_LAYEROPS_H
#define ZPP_DIALECT_GUEST_LAYEROPS_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace zpp {

/// Returns the index of the layer that `op`, a `stablehlo.dynamic_slice`, cuts
/// out of a stack: one element of the first dim, all of the others. Null if
/// `op` does something else.
mlir::Value getReadLayer(mlir::Operation *op);
/// Returns the index of the layer that `op`, a
/// `stablehlo.dynamic_update_slice`, writes to a stack, or null.
mlir::Value getWrittenLayer(mlir::Operation *op);

/// Creates a reshape if the shape differs.
mlir::Value createReshape(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value value, llvm::ArrayRef<int64_t> shape);
/// Dim i of the result is dim permutation[i] of `value`.
mlir::Value createTranspose(mlir::OpBuilder &builder, mlir::Location loc,
                            mlir::Value value,
                            llvm::ArrayRef<int64_t> permutation);
/// Moves dim `from` to position `to`.
mlir::Value createMoveDim(mlir::OpBuilder &builder, mlir::Location loc,
                          mlir::Value value, int64_t from, int64_t to);

/// A tensor whose elements are all `value`: a scalar and a broadcast.
mlir::Value createSplat(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::TypedAttr value, llvm::ArrayRef<int64_t> shape);
mlir::Value createZeros(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::RankedTensorType type);

/// The elements of `stack` at `indices`, one for each of the first dims, which
/// the result does not have. Indices may have different integer types.
mlir::Value createLayerSlice(mlir::OpBuilder &builder, mlir::Location loc,
                             mlir::Value stack,
                             llvm::ArrayRef<mlir::Value> indices);
/// `stack` with `layer` written at `index` of its first dim.
mlir::Value createLayerUpdate(mlir::OpBuilder &builder, mlir::Location loc,
                              mlir::Value stack, mlir::Value layer,
                              mlir::Value index);

/// A scalar of an integer type.
mlir::Value createIndex(mlir::OpBuilder &builder, mlir::Location loc,
                        mlir::RankedTensorType type, int64_t value);
/// sum + min(max(index, 0), count - 1) * factor, of the type of `sum`
mlir::Value addClampedIndex(mlir::OpBuilder &builder, mlir::Location loc,
                            mlir::Value sum, mlir::Value index, int64_t count,
                            int64_t factor);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_LAYEROPS_H
