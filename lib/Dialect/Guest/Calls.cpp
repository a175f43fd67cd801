//===- Calls.cpp - Functions that a step calls ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/Calls.h"

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
