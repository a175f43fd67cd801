//===- FactorSyntax.h - The syntax of a factor ------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_DIALECT_ZERO_IR_FACTORSYNTAX_H
#define ZPP_LIB_DIALECT_ZERO_IR_FACTORSYNTAX_H

#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp::zero {

/// The syntax of a factor, alone and in a partitioned tensor: 2 or "gpu"
mlir::ParseResult parseFactor(mlir::AsmParser &parser, FactorAttr &factor);
void printFactor(mlir::AsmPrinter &printer, FactorAttr factor);

} // namespace zpp::zero

#endif // ZPP_LIB_DIALECT_ZERO_IR_FACTORSYNTAX_H
