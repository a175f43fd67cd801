//===- RankFunctions.cpp - Functions that take the rank -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Buffers/RankFunctions.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace zpp;

llvm::SetVector<func::FuncOp> zpp::getRankFunctions(ModuleOp module, bool all) {
  llvm::DenseSet<Operation *> needsRank;
  module.walk([&](Operation *op) {
    auto function = op->getParentOfType<func::FuncOp>();
    if (function &&
        (all || isa_and_present<zero::ZeroDialect>(op->getDialect())))
      needsRank.insert(function);
  });
  SymbolTable symbols(module);
  bool hasChanged = true;
  while (hasChanged) {
    hasChanged = false;
    module.walk([&](func::CallOp call) {
      Operation *callee = symbols.lookup(call.getCallee());
      auto caller = call->getParentOfType<func::FuncOp>();
      if (caller && needsRank.contains(callee))
        hasChanged |= needsRank.insert(caller).second;
    });
  }
  llvm::SetVector<func::FuncOp> functions;
  for (auto function : module.getOps<func::FuncOp>())
    if (needsRank.contains(function))
      functions.insert(function);
  return functions;
}

BlockArgument zpp::getWorkspace(func::FuncOp function) {
  unsigned count = function.getNumArguments();
  if (count == 0 || function.isExternal() ||
      !function.getArgAttr(count - 1, kWorkspaceAttr))
    return {};
  auto type = dyn_cast<MemRefType>(function.getArgumentTypes().back());
  if (!type || !type.hasStaticShape() || type.getRank() != 1 ||
      !type.getElementType().isSignlessInteger(8) ||
      !type.getLayout().isIdentity())
    return {};
  return function.getArgument(count - 1);
}

Value zpp::createBuffer(OpBuilder &builder, Location loc, MemRefType type,
                        Value pointer) {
  LLVMTypeConverter converter(builder.getContext());
  Value descriptor =
      MemRefDescriptor::fromStaticShape(builder, loc, converter, type, pointer);
  return UnrealizedConversionCastOp::create(builder, loc, type, descriptor)
      .getResult(0);
}
