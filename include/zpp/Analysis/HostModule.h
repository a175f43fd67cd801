//===- HostModule.h - Collectives that run beside the compute ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_HOSTMODULE_H
#define ZPP_ANALYSIS_HOSTMODULE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace zpp {

/// The module of outlined collectives, within the step's.
inline constexpr llvm::StringLiteral kHostModule = "zpp_host";
/// The custom calls that `zero.start` and `zero.wait` become.
inline constexpr llvm::StringLiteral kStartTarget = "zpp.start";
inline constexpr llvm::StringLiteral kWaitTarget = "zpp.wait";

/// True if `op` is the module of outlined collectives.
bool isHostModule(mlir::Operation *op);

/// Walks `root` in pre-order, without the module of outlined collectives.
mlir::WalkResult
walkStep(mlir::Operation *root,
         llvm::function_ref<mlir::WalkResult(mlir::Operation *)> callback);

/// Returns the callee of a `zero.start` or of the custom call that it becomes.
/// Null for other ops.
mlir::SymbolRefAttr getStartedCallee(mlir::Operation *op);

/// Returns the function that `op` runs beside the compute: its callee, or that
/// of which the callee is an instance. Null for other ops, and if the module
/// does not contain the function.
mlir::FunctionOpInterface getStartedFunction(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_ANALYSIS_HOSTMODULE_H
