//===- ShardyBorders.cpp - Manual computations in HLO ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/ShardyBorders.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

static constexpr llvm::StringLiteral kFrontend = "mhlo.frontend_attributes";
static constexpr llvm::StringLiteral kMeshes = "xla.sdy.meshes";
static constexpr llvm::StringLiteral kSharding = "xla.sdy.sharding";

bool zpp::isShardyBorder(Operation *op) {
  return getCallTarget(op) == "xla.sdy.GlobalToLocalShape";
}

/// The attribute that `attributes`, those of XLA's front ends, have as the text
/// `name`, or null.
static Attribute readText(Attribute attributes, StringRef name) {
  auto all = dyn_cast_or_null<DictionaryAttr>(attributes);
  auto text = all ? all.getAs<StringAttr>(name) : StringAttr();
  if (!text)
    return {};
  // What it says is for us alone.
  ScopedDiagnosticHandler silence(text.getContext(),
                                  [](Diagnostic &) { return success(); });
  return parseAttribute(text, text.getContext());
}

/// Returns the values, in order, that are the parts of the result of `op`: of a
/// tuple, or the result itself. Empty if the tuple is used otherwise.
static SmallVector<Value> getParts(Operation *op) {
  auto tuple = op->getNumResults() == 1
                   ? dyn_cast<TupleType>(op->getResult(0).getType())
                   : TupleType();
  if (!tuple)
    return SmallVector<Value>(op->getResults());
  SmallVector<Value> parts(tuple.size());
  for (Operation *user : op->getUsers()) {
    auto index = user->getAttrOfType<IntegerAttr>("index");
    if (!isNamed(user, "stablehlo.get_tuple_element") || !index ||
        index.getInt() < 0 ||
        index.getInt() >= static_cast<int64_t>(parts.size()))
      return {};
    Value &part = parts[index.getInt()];
    if (part)
      part.replaceAllUsesWith(user->getResult(0));
    part = user->getResult(0);
  }
  return parts;
}

/// Returns the op that takes `values`, all of them and nothing else, in order;
/// null if there is none. Parts that nobody reads are null.
static Operation *getReader(ArrayRef<Value> values) {
  for (Value value : values)
    if (value && value.hasOneUse()) {
      Operation *reader = *value.user_begin();
      return llvm::equal(reader->getOperands(), values) ? reader : nullptr;
    }
  return nullptr;
}

/// Builds the manual computation of `begin`, if it is the border of one.
static void importBorder(Operation *begin) {
  SmallVector<Value> locals = getParts(begin);
  auto call = dyn_cast_or_null<func::CallOp>(getReader(locals));
  func::FuncOp callee = call ? getCallee(call) : func::FuncOp();
  Operation *end =
      callee ? getReader(SmallVector<Value>(call.getResults())) : nullptr;
  if (!end || getCallTarget(end) != "xla.sdy.LocalToGlobalShape")
    return;
  SmallVector<Value> globals = getParts(end);
  Attribute in = readText(begin->getAttr(kFrontend), "xla.sdy.in_shardings");
  Attribute axes = readText(begin->getAttr(kFrontend), "xla.sdy.manual_axes");
  Attribute out = readText(end->getAttr(kFrontend), "xla.sdy.out_shardings");
  if (globals.size() != call.getNumResults() || !in || !axes || !out)
    return;
  OpBuilder builder(call);
  OperationState state(call.getLoc(), guest::kSdyManualComputation);
  state.addOperands(begin->getOperands());
  auto tuple = dyn_cast<TupleType>(end->getResult(0).getType());
  state.addTypes(tuple ? tuple.getTypes() : TypeRange(end->getResultTypes()));
  state.propertiesAttr =
      builder.getDictionaryAttr({builder.getNamedAttr("in_shardings", in),
                                 builder.getNamedAttr("manual_axes", axes),
                                 builder.getNamedAttr("out_shardings", out)});
  IRMapping mapping;
  callee.getBody().cloneInto(state.addRegion(), mapping);
  Operation *manual = builder.create(state);
  Operation *yield = manual->getRegion(0).front().getTerminator();
  builder.setInsertionPoint(yield);
  OperationState last(yield->getLoc(), guest::kSdyReturn);
  last.addOperands(yield->getOperands());
  builder.create(last);
  yield->erase();
  for (auto [global, result] : llvm::zip_equal(globals, manual->getResults()))
    if (global)
      global.replaceAllUsesWith(result);
  // The elements of tuples first.
  for (Operation *op : {end, call.getOperation(), begin}) {
    for (Operation *part : llvm::make_early_inc_range(op->getUsers()))
      part->erase();
    op->erase();
  }
  if (SymbolTable::symbolKnownUseEmpty(callee, callee->getParentOp()))
    callee.erase();
}

/// Declares the meshes that the module has as text.
static void importMeshes(ModuleOp module) {
  auto all = module->getAttrOfType<DictionaryAttr>(kFrontend);
  auto meshes = dyn_cast_or_null<DictionaryAttr>(readText(all, kMeshes));
  if (!meshes)
    return;
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  for (NamedAttribute mesh : meshes)
    if (!module.lookupSymbol(mesh.getName())) {
      OperationState state(module.getLoc(), "sdy.mesh");
      state.propertiesAttr = builder.getDictionaryAttr(
          {builder.getNamedAttr("mesh", mesh.getValue()),
           builder.getNamedAttr("sym_name", mesh.getName())});
      builder.create(state);
    }
  NamedAttrList others(all);
  others.erase(kMeshes);
  if (others.empty())
    module->removeAttr(kFrontend);
  else
    module->setAttr(kFrontend, others.getDictionary(module.getContext()));
}

/// Gives arguments and results of `function` the shardings that they have as
/// text.
static void importShardings(func::FuncOp function) {
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (Attribute sharding =
            readText(function.getArgAttr(i, kFrontend), kSharding))
      function.setArgAttr(i, guest::kSdySharding, sharding);
  Operation *yield = function.getBody().front().getTerminator();
  for (OpOperand &operand : yield->getOpOperands()) {
    Operation *op = operand.get().getDefiningOp();
    if (op && getCallTarget(op) == "xla.sdy.FuncResultSharding" &&
        op->getNumOperands() == 1)
      operand.set(op->getOperand(0));
  }
}

void zpp::importShardyBorders(ModuleOp module) {
  SmallVector<Operation *> borders;
  module.walk([&](Operation *op) {
    if (isShardyBorder(op))
      borders.push_back(op);
  });
  if (borders.empty())
    return;
  importMeshes(module);
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isExternal())
      importShardings(function);
  llvm::for_each(borders, importBorder);
}
