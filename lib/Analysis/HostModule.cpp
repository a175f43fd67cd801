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

SymbolRefAttr zpp::getStartedCallee(Operation *op) {
  if (auto start = dyn_cast<zero::StartOp>(op))
    return start.getCallee();
  if (getCallTarget(op) != kStartTarget)
    return {};
  auto config = op->getAttrOfType<DictionaryAttr>("backend_config");
  auto name = config ? config.getAs<StringAttr>("function") : StringAttr();
  if (!name)
    return {};
  return SymbolRefAttr::get(
      StringAttr::get(op->getContext(), kHostModule),
      FlatSymbolRefAttr::get(op->getContext(), name.getValue()));
}

FunctionOpInterface zpp::getStartedFunction(Operation *op) {
  SymbolRefAttr callee = getStartedCallee(op);
  if (!callee)
    return {};
  Operation *symbol = SymbolTable::lookupNearestSymbolFrom(op, callee);
  if (auto instance = dyn_cast_if_present<zero::InstanceOp>(symbol))
    symbol = SymbolTable::lookupSymbolIn(instance->getParentOp(),
                                         instance.getFunctionAttr());
  return dyn_cast_if_present<FunctionOpInterface>(symbol);
}
