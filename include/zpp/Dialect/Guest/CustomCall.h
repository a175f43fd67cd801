//===- CustomCall.h - Custom calls whose operands are results ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_CUSTOMCALL_H
#define ZPP_DIALECT_GUEST_CUSTOMCALL_H

#include "mlir/IR/Builders.h"

namespace zpp {

/// Builds a `stablehlo.custom_call` of XLA's FFI on row-major tensors. Operands
/// and results are in the order of the calls.
class CustomCallBuilder {
public:
  CustomCallBuilder(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}

  void addOperands(mlir::ValueRange values) {
    llvm::append_range(operands, values);
  }
  void addResults(mlir::TypeRange types) { llvm::append_range(results, types); }
  /// Adds operands that are also results, in the same memory.
  void passOn(mlir::ValueRange values);
  /// Result `result` takes the memory of operand `operand`.
  void addAlias(size_t result, size_t operand) {
    aliases.emplace_back(result, operand);
  }
  size_t getNumResults() const { return results.size(); }

  mlir::Operation *create(llvm::StringRef target,
                          llvm::ArrayRef<mlir::NamedAttribute> config,
                          bool hasSideEffect);

private:
  mlir::Attribute getAliases() const;

  mlir::OpBuilder &builder;
  mlir::Location loc;
  llvm::SmallVector<mlir::Value> operands;
  llvm::SmallVector<mlir::Type> results;
  /// The numbers of results and of the operands that they alias.
  llvm::SmallVector<std::pair<size_t, size_t>> aliases;
};

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_CUSTOMCALL_H
