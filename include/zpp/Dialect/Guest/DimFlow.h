//===- DimFlow.h - Where ops move the dims of their operands ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_DIMFLOW_H
#define ZPP_DIALECT_GUEST_DIMFLOW_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <array>
#include <optional>
#include <string>

namespace zpp {

/// Returns the dim of the result of `op` that dim `dim` of operand `operand`
/// becomes, with all of its elements in their order; nullopt if there is none:
/// if it is summed over, cut, joined with others, or looked up along.
std::optional<int64_t> getMovedDim(mlir::Operation *op, unsigned operand,
                                   int64_t dim);
/// Returns the dim of operand `operand` that dim `dim` of the result is,
/// likewise.
std::optional<int64_t> getSourceDim(mlir::Operation *op, unsigned operand,
                                    int64_t dim);

/// Returns the dim of the operand of `op` that is dim `dim` of its result, if
/// `op` is a cast, a transpose, or a reshape that only adds or drops dims of
/// size 1; nullopt for other ops.
std::optional<int64_t> getOperandDim(mlir::Operation *op, int64_t dim);
/// Returns the reverse: the dim of the result that is dim `dim` of the operand.
std::optional<int64_t> getResultDim(mlir::Operation *op, int64_t dim);

/// The dims of the operands of a `dot_general`: those of batching of the first
/// and of the second, then those that are summed over.
struct DotDims {
  std::array<llvm::SmallVector<int64_t>, 4> numbers;

  /// Reads the attribute `dot_dimension_numbers`, of which what is not
  /// understood is left out.
  static DotDims read(llvm::StringRef text);
  /// As StableHLO prints it: `dot<lhs_contracting_dimensions = [0], ...>`.
  std::string str() const;
};

/// The dims of the rows of a lookup or of a scatter.
struct LookupDims {
  /// Dims of the table that rows do not have, and those of the rows, looked up
  /// or scattered, that have the others.
  llvm::SmallVector<int64_t> dropped, window;
};

/// Reads the dims of a `gather` or a `scatter` from its attribute `name`.
LookupDims getLookupDims(mlir::Operation *op, llvm::StringRef name);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_DIMFLOW_H
