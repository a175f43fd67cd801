//===- RankFunctions.h - Functions that take the rank -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_CONVERSION_RANKFUNCTIONS_H
#define ZPP_LIB_CONVERSION_RANKFUNCTIONS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "zpp/Conversion/RuntimePipeline.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {

/// The functions whose memory the runtime works on, in the order of the module:
/// those with zero ops and those that call such a function; with `all` every
/// function with a body.
llvm::SetVector<mlir::func::FuncOp> getRankFunctions(mlir::ModuleOp module,
                                                     bool all);

/// The workspace argument of a function, or null.
mlir::BlockArgument getWorkspace(mlir::func::FuncOp function);

/// A memref of static shape without strides in the memory at `pointer`.
mlir::Value createBuffer(mlir::OpBuilder &builder, mlir::Location loc,
                         mlir::MemRefType type, mlir::Value pointer);

} // namespace zpp

#endif // ZPP_LIB_CONVERSION_RANKFUNCTIONS_H
