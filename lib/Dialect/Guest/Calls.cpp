//===- Calls.cpp - Functions that a step calls ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/Calls.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;

func::FuncOp zpp::getCallee(Operation *op) {
  auto call = dyn_cast<func::CallOp>(op);
  if (!call)
    return {};
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
      call, call.getCalleeAttr());
  bool hasBody = callee && !callee.isExternal() &&
                 callee.getBody().hasOneBlock() &&
                 !callee.getBody().front().empty();
  return hasBody ? callee : func::FuncOp();
}

SmallVector<Value> zpp::cloneBody(OpBuilder &builder, Block &body,
                                  ValueRange entering) {
  IRMapping mapping;
  mapping.map(body.getArguments(), entering);
  for (Operation &op : llvm::drop_end(body))
    builder.clone(op, mapping);
  return llvm::map_to_vector(body.back().getOperands(), [&](Value value) {
    return mapping.lookupOrDefault(value);
  });
}

void zpp::inlineCall(func::CallOp call, func::FuncOp callee) {
  OpBuilder builder(call);
  call->replaceAllUsesWith(
      cloneBody(builder, callee.getBody().front(), call.getOperands()));
  call.erase();
}
