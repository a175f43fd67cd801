//===- Calls.h - Functions that a step calls --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_CALLS_H
#define ZPP_DIALECT_GUEST_CALLS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zpp {

/// Returns the function that `op` calls, if its body is one block that is not
/// empty; null for others, and where `op` is no call.
mlir::func::FuncOp getCallee(mlir::Operation *op);

/// Clones the ops of `body` at the insertion point, with `entering` in place of
/// its arguments, and returns what its terminator reads.
llvm::SmallVector<mlir::Value> cloneBody(mlir::OpBuilder &builder,
                                         mlir::Block &body,
                                         mlir::ValueRange entering);

/// Replaces `call` by a copy of the body of `callee`, which is one block.
void inlineCall(mlir::func::CallOp call, mlir::func::FuncOp callee);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_CALLS_H
