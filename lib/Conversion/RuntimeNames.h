//===- RuntimeNames.h - Names beside shared functions -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A function with instances (zero.instance) takes a table of the names of its
// operations after the rank, and each instance has a table of its own. A name
// is put into a copy of the constant descriptor, which the runtime reads during
// the call only.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_CONVERSION_RUNTIMENAMES_H
#define ZPP_LIB_CONVERSION_RUNTIMENAMES_H

#include "RuntimeConstants.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {

/// The tables of names of a module.
class RuntimeNames {
public:
  /// Without functions, every operation has the name of its own location.
  RuntimeNames() = default;
  /// Gives each function with instances its argument. All have the rank.
  static mlir::FailureOr<RuntimeNames> create(mlir::ModuleOp module);

  /// Whether the function around `op` has instances: names are in tables.
  bool isShared(mlir::Operation *op) const {
    return functions.contains(op->getParentOfType<mlir::func::FuncOp>());
  }
  /// The address of a copy of `descriptor`, of `bytes` bytes, with the name of
  /// `op` at `nameOffset`, until the next call.
  mlir::Value createNamed(mlir::OpBuilder &builder, mlir::Operation *op,
                          mlir::LLVM::GlobalOp descriptor, int64_t bytes,
                          int64_t nameOffset);

  /// Creates the tables, and marks functions and instances with their symbols.
  void createTables(RuntimeConstants &constants);

private:
  struct Function {
    llvm::SmallVector<zero::InstanceOp> instances;
    /// The memory of the copies.
    mlir::Value slot;
    /// The places of locations in the tables.
    llvm::MapVector<mlir::Location, int32_t> places;
  };

  llvm::MapVector<mlir::Operation *, Function> functions;
};

/// Returns the name of an operation at `loc`, or null if that does not tell.
mlir::LLVM::GlobalOp getName(mlir::Location loc, RuntimeConstants &constants);

} // namespace zpp

#endif // ZPP_LIB_CONVERSION_RUNTIMENAMES_H
