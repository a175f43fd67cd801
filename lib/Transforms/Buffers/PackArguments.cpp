//===- PackArguments.cpp - Functions that take a list of buffers ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Buffers/RankFunctions.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_PACKARGUMENTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

static LogicalResult verifySignature(func::FuncOp function,
                                     const SymbolUserMap &users) {
  FunctionType type = function.getFunctionType();
  if (type.getNumResults() != 0)
    return function.emitError("expected no results of the public function '")
           << function.getSymName() << "', but got " << type.getResult(0);
  if (type.getNumInputs() == 0 || !isa<LLVM::LLVMPointerType>(type.getInput(0)))
    return function.emitError("expected the rank as the first argument of the "
                              "public function '")
           << function.getSymName() << "'; run convert-zero-to-runtime first";
  for (Type input : type.getInputs().drop_front()) {
    auto buffer = dyn_cast<MemRefType>(input);
    if (!buffer || !buffer.hasStaticShape() || !buffer.getLayout().isIdentity())
      return function.emitError("expected dense buffers of static shape as "
                                "arguments of the public function '")
             << function.getSymName() << "', but got " << input;
  }
  if (ArrayRef<Operation *> callers = users.getUsers(function);
      !callers.empty())
    return callers.front()->emitError(
               "expected no calls of the public function '")
           << function.getSymName() << "' in its own module";
  return success();
}

static void packArguments(func::FuncOp function) {
  Block &entry = function.getBody().front();
  auto builder = OpBuilder::atBlockBegin(&entry);
  Location loc = function.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(function.getContext());
  Value list = entry.addArgument(pointer, loc);
  unsigned count = entry.getNumArguments() - 2;
  for (unsigned index = 0; index < count; ++index) {
    BlockArgument argument = entry.getArgument(index + 1);
    if (argument.use_empty())
      continue;
    Value address = LLVM::GEPOp::create(
        builder, loc, pointer, pointer, list,
        ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index)});
    Value data = LLVM::LoadOp::create(builder, loc, pointer, address);
    argument.replaceAllUsesWith(
        createBuffer(builder, loc, cast<MemRefType>(argument.getType()), data));
  }
  entry.eraseArguments(1, count);
  function.setType(builder.getFunctionType({pointer, pointer}, {}));
  function.removeArgAttrsAttr();
}

namespace {
class PackArgumentsPass
    : public zpp::impl::PackArgumentsPassBase<PackArgumentsPass> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<func::FuncOp> functions, helpers;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        (function.isPublic() ? functions : helpers).push_back(function);
    SymbolTableCollection tables;
    SymbolUserMap users(tables, module);
    for (func::FuncOp function : functions)
      if (failed(verifySignature(function, users)))
        return signalPassFailure();
    for (func::FuncOp function : functions)
      packArguments(function);
    // Only the public functions are exported by the library.
    auto linkage =
        LLVM::LinkageAttr::get(&getContext(), LLVM::Linkage::Internal);
    for (func::FuncOp function : helpers)
      function->setAttr("llvm.linkage", linkage);
  }
};
} // namespace
