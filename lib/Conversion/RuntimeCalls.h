//===- RuntimeCalls.h - Calls of libzpp_rt ----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_CONVERSION_RUNTIMECALLS_H
#define ZPP_LIB_CONVERSION_RUNTIMECALLS_H

#include "RuntimeConstants.h"
#include "RuntimeNames.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "zpp/Transforms/Buffers/BufferLayout.h"

namespace zpp {

/// A call of the function `name` of the runtime.
mlir::LLVM::CallOp createCall(mlir::OpBuilder &builder, mlir::Location loc,
                              llvm::StringRef name, mlir::ValueRange arguments,
                              RuntimeConstants &constants);

/// Calls the runtime for `op`, a decomposed op on buffers.
void lowerOp(mlir::OpBuilder &builder, mlir::Operation *op, mlir::Value rank,
             RuntimeConstants &constants, RuntimeNames &names);

/// Turns a copy into a call of the runtime, which can access the memory and
/// knows the order of operations.
void lowerCopy(mlir::OpBuilder &builder, mlir::memref::CopyOp op,
               const StridedCopy &copy, mlir::Value rank,
               RuntimeConstants &constants, RuntimeNames &names);

} // namespace zpp

#endif // ZPP_LIB_CONVERSION_RUNTIMECALLS_H
