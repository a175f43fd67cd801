//===- Bits.h - Values that are read as something else ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_BITS_H
#define ZPP_LIB_ANALYSIS_ROLES_BITS_H

#include "zpp/Analysis/Roles/ValueGraph.h"
#include "llvm/ADT/DenseMap.h"

#include <string>

namespace zpp {

/// Floating-point values of which a step reads the bits, or that it has made of
/// bits: packed integers that are stored as bf16, for instance. A rounded bf16
/// is close to the number, but other bits.
class Bits {
public:
  explicit Bits(const ValueGraph &graph);

  /// Why a collective from `operand` to `result` moves bits, such as "the step
  /// reads it as i8"; empty if it moves numbers.
  std::string explain(mlir::Value operand, mlir::Value result) const;

private:
  /// The type as which elements of a value are read, and that they are made of.
  llvm::DenseMap<mlir::Value, mlir::Type> readAs, madeOf;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_BITS_H
