//===- FunctionsWith.cpp - Functions that reach an op ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/FunctionsWith.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

using namespace mlir;

llvm::DenseSet<Operation *>
zpp::getFunctionsWith(Operation *root,
                      llvm::function_ref<bool(Operation *)> isWanted) {
  SymbolTableCollection symbols;
  llvm::DenseMap<Operation *, SmallVector<Operation *>> callers;
  llvm::DenseSet<Operation *> found;
  SmallVector<Operation *> worklist;
  root->walk([&](func::FuncOp function) {
    function.walk([&](Operation *op) {
      if (isWanted(op) && found.insert(function).second)
        worklist.push_back(function);
      auto call = dyn_cast<func::CallOp>(op);
      if (!call)
        return;
      if (Operation *callee =
              symbols.lookupNearestSymbolFrom(call, call.getCalleeAttr()))
        callers[callee].push_back(function);
    });
  });
  while (!worklist.empty())
    for (Operation *caller : callers.lookup(worklist.pop_back_val()))
      if (found.insert(caller).second)
        worklist.push_back(caller);
  return found;
}
