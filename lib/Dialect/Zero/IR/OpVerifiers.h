//===- OpVerifiers.h - What the ops of the dialect share --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_DIALECT_ZERO_IR_OPVERIFIERS_H
#define ZPP_LIB_DIALECT_ZERO_IR_OPVERIFIERS_H

#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp::zero {

using Effects = llvm::SmallVectorImpl<
    mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>>;

/// A collective reads and writes the network.
void addNetworkEffects(Effects &effects);

/// A decomposed op on buffers reads its operands and overwrites its
/// destination. On tensors it has no effects but those of a collective.
void addLocalEffects(mlir::Operation *op, Effects &effects);

/// Verifies that the elements of `type`, that of `what`, can be quantized.
mlir::LogicalResult verifyFloat(mlir::Operation *op, llvm::StringRef what,
                                mlir::ShapedType type);

/// Verifies that a format of differences does not rotate.
mlir::LogicalResult verifyNoRotation(mlir::Operation *op, QuantAttr quant);

} // namespace zpp::zero

#endif // ZPP_LIB_DIALECT_ZERO_IR_OPVERIFIERS_H
