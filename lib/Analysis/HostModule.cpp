//===- HostModule.cpp - Collectives that run beside the compute -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/HostModule.h"

#include "mlir/IR/SymbolTable.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace zpp;

bool zpp::isHostModule(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  return module && module.getSymName() == kHostModule;
}

WalkResult zpp::walkStep(Operation *root,
                         llvm::function_ref<WalkResult(Operation *)> callback) {
  return root->walk<WalkOrder::PreOrder>([&](Operation *op) {
    return isHostModule(op) ? WalkResult::skip() : callback(op);
  });
}

FunctionOpInterface zpp::getStartedFunction(Operation *op) {
  SymbolRefAttr callee;
  if (auto start = dyn_cast<zero::StartOp>(op)) {
    callee = start.getCallee();
  } else if (getCallTarget(op) == kStartTarget) {
    auto config = op->getAttrOfType<DictionaryAttr>("backend_config");
    if (!config)
      return {};
    if (auto name = config.getAs<StringAttr>("function"))
      callee = SymbolRefAttr::get(
          StringAttr::get(op->getContext(), kHostModule),
          FlatSymbolRefAttr::get(op->getContext(), name.getValue()));
  }
  if (!callee)
    return {};
  return SymbolTable::lookupNearestSymbolFrom<FunctionOpInterface>(op, callee);
}
