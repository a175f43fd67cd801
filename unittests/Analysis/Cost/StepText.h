//===- StepText.h - The text of ops of a step -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_ANALYSIS_COST_STEPTEXT_H
#define ZPP_UNITTESTS_ANALYSIS_COST_STEPTEXT_H

#include "ParsedModule.h"

namespace zpp {

inline constexpr llvm::StringLiteral kMatrix = "tensor<1024x1024xbf16>";
/// Part of a matrix that one of four devices has.
inline constexpr llvm::StringLiteral kSlice = "tensor<256x1024xbf16>";

inline std::string makeOp(const std::string &name, const std::string &op,
                          const std::string &operands,
                          const std::string &rest) {
  return "%" + name + " = \"stablehlo." + op + "\"(" + operands +
         ") {tag = \"" + name + "\"" + rest + "\n";
}

/// A product of two matrices.
inline std::string makeProduct(const std::string &name,
                               const std::string &operands) {
  return makeOp(name, "dot_general", operands,
                ", dot_dimension_numbers = #stablehlo.dot<"
                "lhs_contracting_dimensions = [1], "
                "rhs_contracting_dimensions = [0]>} : (" +
                    kMatrix.str() + ", " + kMatrix.str() + ") -> " +
                    kMatrix.str());
}

} // namespace zpp

#endif // ZPP_UNITTESTS_ANALYSIS_COST_STEPTEXT_H
