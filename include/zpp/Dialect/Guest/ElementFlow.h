//===- ElementFlow.h - What ops do with elements ----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_ELEMENTFLOW_H
#define ZPP_DIALECT_GUEST_ELEMENTFLOW_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace zpp {

/// True if `result` holds the elements of `operand`, each changed by itself at
/// most; false if its op mixes them. The op is no loop, call or branch. An
/// unknown op is assumed to work element by element where the shapes agree.
bool movesElements(mlir::OpOperand &operand, mlir::OpResult result);

/// True for operands whose small elements make large elements of the result:
/// divisors, and what roots and logarithms are taken of.
bool isDivisor(mlir::OpOperand &operand);

/// True for truth values, and for a constant of equal elements that are not
/// below zero.
bool isKnownNotNegative(mlir::Value value);

/// The operands of `op` that must have no negative element for its result to
/// have none: none for squares, absolute values and exponentials, all for sums,
/// products and quotients. Nullopt if elements can be negative in any case.
std::optional<llvm::SmallVector<unsigned>> getSignOperands(mlir::Operation *op);

/// True for operands that only select a part of another one: the indices of a
/// dynamic slice or of an update of one.
bool isPosition(mlir::OpOperand &operand);

/// True for ops without operands whose results depend on no input, such as
/// constants; false for random numbers.
bool isKnownSource(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_ELEMENTFLOW_H
