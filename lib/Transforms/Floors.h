//===- Floors.h - The narrowest formats of collectives ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_FLOORS_H
#define ZPP_LIB_TRANSFORMS_FLOORS_H

#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {

/// `quant`, or the wider format that the floors of the collectives `ops` ask
/// for (zero-set-floors), in smaller blocks if they move stacks of small
/// parameters; null if one of them is to travel unquantized. Null
/// ops have none.
zero::QuantAttr widen(zero::QuantAttr quant,
                      llvm::ArrayRef<mlir::Operation *> ops);

/// Emits a remark of `pass` that the floor of `op` has it travel unquantized.
/// It may still be rewritten in other ways.
void remarkFloor(mlir::Operation *op, llvm::StringRef pass);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_FLOORS_H
