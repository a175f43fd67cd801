//===- PackArguments.cpp - Functions that take a list of buffers ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Buffers/RankFunctions.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_PACKARGUMENTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

/// Returns the number of arguments before the buffers: the rank and, in a
/// function with instances, its table of names.
static unsigned getFirstBuffer(func::FuncOp function) {
  return function->hasAttr(kNamesAttr) ? 2 : 1;
}

/// Checks that `op`, a function or an instance of one, has a table of names.
static LogicalResult verifyNames(Operation *op, SymbolTable &symbols) {
  Attribute names = op->getAttr(kNamesAttr);
  auto symbol = dyn_cast_or_null<FlatSymbolRefAttr>(names);
  auto global = symbol ? symbols.lookup<LLVM::GlobalOp>(symbol.getAttr())
                       : LLVM::GlobalOp();
  if (global && global.getAddrSpace() == 0)
    return success();
  InFlightDiagnostic error = op->emitError("expected the attribute '")
                             << kNamesAttr
                             << "' to be a global of address space 0, but got ";
  return names ? error << names : error << "none";
}

static LogicalResult verifySignature(func::FuncOp function,
                                     const SymbolUserMap &users,
                                     SymbolTable &symbols) {
  FunctionType type = function.getFunctionType();
  if (type.getNumResults() != 0)
    return function.emitError("expected no results of the public function '")
           << function.getSymName() << "', but got " << type.getResult(0);
  if (type.getNumInputs() == 0 || !isa<LLVM::LLVMPointerType>(type.getInput(0)))
    return function.emitError("expected the rank as the first argument of the "
                              "public function '")
           << function.getSymName() << "'; run convert-zero-to-runtime first";
  bool hasNames = function->hasAttr(kNamesAttr);
  if (hasNames && (type.getNumInputs() == 1 ||
                   !isa<LLVM::LLVMPointerType>(type.getInput(1)))) {
    InFlightDiagnostic error =
        function.emitError("expected the table of names as the second argument "
                           "of the public function '")
        << function.getSymName() << "', but got ";
    return type.getNumInputs() == 1 ? error << "none"
                                    : error << type.getInput(1);
  }
  for (Type input : type.getInputs().drop_front(getFirstBuffer(function))) {
    auto buffer = dyn_cast<MemRefType>(input);
    if (!buffer || !buffer.hasStaticShape() || !buffer.getLayout().isIdentity())
      return function.emitError("expected dense buffers of static shape as "
                                "arguments of the public function '")
             << function.getSymName() << "', but got " << input;
  }
  if (hasNames && failed(verifyNames(function, symbols)))
    return failure();
  for (Operation *user : users.getUsers(function)) {
    if (!isa<zero::InstanceOp>(user))
      return user->emitError("expected no calls of the public function '")
             << function.getSymName() << "' in its own module";
    if (hasNames && failed(verifyNames(user, symbols)))
      return failure();
  }
  return success();
}

static void packArguments(func::FuncOp function) {
  Block &entry = function.getBody().front();
  auto builder = OpBuilder::atBlockBegin(&entry);
  Location loc = function.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(function.getContext());
  Value list = entry.addArgument(pointer, loc);
  unsigned first = getFirstBuffer(function);
  unsigned count = entry.getNumArguments() - first - 1;
  for (unsigned index = 0; index < count; ++index) {
    BlockArgument argument = entry.getArgument(index + first);
    if (argument.use_empty())
      continue;
    Value address = LLVM::GEPOp::create(
        builder, loc, pointer, pointer, list,
        ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index)});
    Value data = LLVM::LoadOp::create(builder, loc, pointer, address);
    argument.replaceAllUsesWith(
        createBuffer(builder, loc, cast<MemRefType>(argument.getType()), data));
  }
  entry.eraseArguments(first, count);
  function.setType(builder.getFunctionType(entry.getArgumentTypes(), {}));
  function.removeArgAttrsAttr();
}

/// Creates the function `name`, which calls `shared` with a table of names.
static void createEntry(Location loc, StringAttr name, FlatSymbolRefAttr table,
                        func::FuncOp shared, SymbolTable &symbols) {
  OpBuilder builder(shared);
  auto pointer = LLVM::LLVMPointerType::get(shared.getContext());
  auto entry = func::FuncOp::create(
      builder, loc, name, builder.getFunctionType({pointer, pointer}, {}));
  Block *block = entry.addEntryBlock();
  builder.setInsertionPointToStart(block);
  Value names =
      LLVM::AddressOfOp::create(builder, loc, pointer, table.getAttr());
  func::CallOp::create(
      builder, loc, shared,
      ValueRange{block->getArgument(0), names, block->getArgument(1)});
  func::ReturnOp::create(builder, loc);
  symbols.insert(entry);
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
    SymbolTable &symbols = tables.getSymbolTable(module);
    for (func::FuncOp function : functions)
      if (failed(verifySignature(function, users, symbols)))
        return signalPassFailure();
    for (func::FuncOp function : functions)
      packArguments(function);
    shareFunctions(functions, helpers);
    // Only the public functions are exported by the library.
    auto linkage =
        LLVM::LinkageAttr::get(&getContext(), LLVM::Linkage::Internal);
    for (func::FuncOp function : helpers)
      function->setAttr("llvm.linkage", linkage);
  }

private:
  /// Functions with instances become helpers, which their own entries and those
  /// of the instances call.
  void shareFunctions(ArrayRef<func::FuncOp> functions,
                      SmallVectorImpl<func::FuncOp> &helpers) {
    SymbolTable symbols(getOperation());
    auto takeTable = [](Operation *op) {
      return cast<FlatSymbolRefAttr>(op->removeAttr(kNamesAttr));
    };
    llvm::DenseMap<StringAttr, func::FuncOp> shared;
    for (func::FuncOp function : functions) {
      if (!function->hasAttr(kNamesAttr))
        continue;
      StringAttr name = function.getSymNameAttr();
      FlatSymbolRefAttr table = takeTable(function);
      symbols.remove(function);
      function.setSymName((name.getValue() + "_shared").str());
      symbols.insert(function);
      function.setPrivate();
      // A copy of it in each entry would take as long as having compiled each.
      function->setAttr(
          "passthrough",
          ArrayAttr::get(&getContext(),
                         StringAttr::get(&getContext(), "noinline")));
      createEntry(function.getLoc(), name, table, function, symbols);
      shared[name] = function;
      helpers.push_back(function);
    }
    for (auto instance :
         llvm::make_early_inc_range(getOperation().getOps<zero::InstanceOp>()))
      if (func::FuncOp function =
              shared.lookup(instance.getFunctionAttr().getAttr())) {
        Location loc = instance.getLoc();
        StringAttr name = instance.getSymNameAttr();
        FlatSymbolRefAttr table = takeTable(instance);
        symbols.erase(instance);
        createEntry(loc, name, table, function, symbols);
      }
  }
};
} // namespace
