//===- RankFunctions.cpp - Functions that take the rank -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Buffers/RankFunctions.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "zpp/Analysis/FunctionsWith.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace zpp;

llvm::SetVector<func::FuncOp> zpp::getRankFunctions(ModuleOp module, bool all) {
  llvm::DenseSet<Operation *> needsRank =
      getFunctionsWith(module, [&](Operation *op) {
        return all ? !isa<func::FuncOp>(op)
                   : isa_and_present<zero::ZeroDialect>(op->getDialect());
      });
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

bool zpp::isDenseBuffer(Type type) {
  auto buffer = dyn_cast<MemRefType>(type);
  return buffer && buffer.hasStaticShape() && buffer.getLayout().isIdentity() &&
         !buffer.getMemorySpace();
}

Value zpp::createBuffer(OpBuilder &builder, Location loc, MemRefType type,
                        Value pointer) {
  LLVMTypeConverter converter(builder.getContext());
  Value descriptor =
      MemRefDescriptor::fromStaticShape(builder, loc, converter, type, pointer);
  return UnrealizedConversionCastOp::create(builder, loc, type, descriptor)
      .getResult(0);
}
