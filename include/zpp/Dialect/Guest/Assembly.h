//===- Assembly.h - How ops of guests are written ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_ASSEMBLY_H
#define ZPP_DIALECT_GUEST_ASSEMBLY_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"

namespace mlir {
class OpAsmParser;
class OpAsmPrinter;
class Operation;
struct OperationState;
} // namespace mlir

namespace zpp {

/// Row of the table of guests' ops: what StableHLO's and Shardy's projects say
/// of an op in their .td files, as far as its text depends on it.
struct GuestOp {
  /// Name with the namespace: `stablehlo.iota`.
  llvm::StringLiteral name;

  /// Attributes that belong to the op, which the generic form writes as
  /// properties: `name: kind = default`, with commas between them. The kind
  /// says how the pretty form writes the attribute without its name, and is
  /// missing if it writes `name = attribute` in braces. An attribute that has
  /// the default is not written.
  ///
  ///     i64, i32, bool, string, symbol, ints   a builtin attribute, as it is
  ///     enum X        `Y` stands for `#dialect<X Y>`
  ///     enums X       `[Y, Z]` stands for `[#dialect<X Y>, #dialect<X Z>]`
  ///     case A|B|C    `B` stands for `1 : i32`
  ///     text X*       `<Y>`, in any brackets, stands for `#dialect.X<Y>`
  ///     form          a directive of the form writes it
  llvm::StringLiteral attributes;

  /// Text after the name in the pretty form; empty if an op has none.
  ///
  ///     %             one operand
  ///     %*            the other operands
  ///     $name         an attribute, according to its kind
  ///     {...}         only if there is the attribute or the operand inside
  ///     @directive    a function of Assembly/Directives.cpp or Types.cpp
  ///
  /// Everything else stands for itself.
  llvm::StringLiteral form;

  /// Names of results, for ops that have several ones: `values, indices`.
  llvm::StringLiteral results = "";
};

/// Returns the rows of `stablehlo`, `chlo` and `sdy`, those without a pretty
/// form too.
llvm::ArrayRef<GuestOp> getGuestOps();

/// Returns those of StableHLO that compute each element of their result from
/// the elements of their operands at the same place.
llvm::ArrayRef<GuestOp> getElementwiseOps();

/// Reads what follows the name of an op in its pretty form.
mlir::ParseResult readPretty(mlir::OpAsmParser &parser,
                             mlir::OperationState &state);

/// Writes what follows the name of `op` in its pretty form, and returns whether
/// it has one. Without a printer, it writes nothing.
bool writePretty(mlir::Operation *op, mlir::OpAsmPrinter *printer);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_ASSEMBLY_H
