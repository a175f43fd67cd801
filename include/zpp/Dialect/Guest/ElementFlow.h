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

/// The way of elements through an op that is no loop, call or branch. The op is
/// recognized once for all of its operands.
class ElementFlow {
public:
  explicit ElementFlow(mlir::Operation *op);

  /// True if the result holds the elements of the operand, each changed by
  /// itself at most; false if the op mixes them. An unknown op is assumed to
  /// work element by element where the shapes agree.
  bool movesElements(unsigned operand, unsigned result) const;

  /// True for operands whose small elements make large elements of the result:
  /// divisors, and what roots and logarithms are taken of.
  bool isDivisor(unsigned operand) const;

  /// True for operands that only select a part of another one: the indices of a
  /// dynamic slice or of an update of one.
  bool isPosition(unsigned operand) const { return operand >= firstPosition; }

  /// True for an op that orders its operands but does not mix them.
  bool isBarrier() const { return form == Form::Barrier; }

private:
  enum class Form : uint8_t {
    Barrier,
    Collective,
    UpdateSlice,
    Scatter,
    Move,
    Join,
    Mix,
    Other
  };
  Form recognize();

  mlir::Operation *op;
  unsigned firstPosition;
  Form form;
};

/// True for truth values, and for a constant of equal elements that are not
/// below zero.
bool isKnownNotNegative(mlir::Value value);

/// Returns the operands of `op` that must have no negative element for its
/// result to have none: none for squares, absolute values and exponentials, all
/// for sums, products and quotients. Nullopt if elements can be negative in any
/// case.
std::optional<llvm::SmallVector<unsigned>> getSignOperands(mlir::Operation *op);

/// True for ops without operands whose results depend on no input, such as
/// constants; false for random numbers.
bool isKnownSource(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_ELEMENTFLOW_H
