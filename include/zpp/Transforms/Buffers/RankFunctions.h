//===- RankFunctions.h - Functions that take the rank -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_BUFFERS_RANKFUNCTIONS_H
#define ZPP_TRANSFORMS_BUFFERS_RANKFUNCTIONS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {

/// Marks the argument of a function that is its workspace, the last one.
inline constexpr llvm::StringLiteral kWorkspaceAttr = "zpp.workspace";

/// Names the table of names, a constant, of a function that takes one after the
/// rank, and of each `zero.instance` of it.
inline constexpr llvm::StringLiteral kNamesAttr = "zpp.names";

/// Upstream's mark of an argument that is a result.
inline constexpr llvm::StringLiteral kResultAttr = "bufferize.result";

/// Returns the functions that work on memory of the runtime, in the order of
/// the module: those with zero ops and those that call such a function. With
/// `all`, every function with a body.
llvm::SetVector<mlir::func::FuncOp> getRankFunctions(mlir::ModuleOp module,
                                                     bool all);

/// Returns the workspace argument of a function, a marked memref<Wxi8>, or
/// null.
mlir::BlockArgument getWorkspace(mlir::func::FuncOp function);

/// True for a memref of static shape without strides in the default memory.
bool isDenseBuffer(mlir::Type type);

/// A memref of static shape without strides in the memory at `pointer`.
mlir::Value createBuffer(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::MemRefType type, mlir::Value pointer);

} // namespace zpp

#endif // ZPP_TRANSFORMS_BUFFERS_RANKFUNCTIONS_H
