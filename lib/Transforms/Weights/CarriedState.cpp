//===- CarriedState.cpp - What a step keeps from call to call -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CarriedState.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Attributes.h"

using namespace mlir;
using namespace zpp;

func::FuncOp zpp::getCarryingFunction(Operation *op,
                                      ManualComputations &manuals) {
  Operation *manual = op->getParentOp();
  auto function = manuals.contains(manual)
                      ? dyn_cast_or_null<func::FuncOp>(manual->getParentOp())
                      : func::FuncOp();
  return function && function.isPublic() && manuals.namesMesh(manual)
             ? function
             : func::FuncOp();
}

UnrealizedConversionCastOp zpp::createBefore(Operation *op,
                                             RankedTensorType type) {
  auto builder = OpBuilder::atBlockBegin(op->getBlock());
  return UnrealizedConversionCastOp::create(builder, op->getLoc(), type,
                                            ValueRange());
}

void zpp::carryState(Operation *manual, ArrayRef<CarriedTensor> tensors) {
  if (tensors.empty())
    return;
  auto function = cast<func::FuncOp>(manual->getParentOp());
  auto module = function->getParentOfType<ModuleOp>();
  int64_t devices = getNumDevices(module).value_or(1);
  DictionaryAttr attributes = getSharedNothingAttributes(manual);
  Block &body = ManualView(manual).getBody();
  IRRewriter builder(manual->getContext());
  builder.setInsertionPoint(body.getTerminator());
  auto reshape = [&](Value value, ArrayRef<int64_t> shape) {
    return StablehloBuilder(builder, value.getLoc()).reshape(value, shape);
  };
  SmallVector<Value> operands, results;
  SmallVector<Attribute> list;
  if (auto before = module->getAttrOfType<ArrayAttr>(kStateAttr))
    llvm::append_range(list, before);
  for (const CarriedTensor &tensor : tensors) {
    RankedTensorType type = getTensorType(tensor.after);
    int64_t elements = type.getNumElements();
    results.push_back(reshape(tensor.after, elements));
    auto global =
        RankedTensorType::get({elements * devices}, type.getElementType());
    SmallVector<NamedAttribute> entry(tensor.more);
    entry.push_back(
        builder.getNamedAttr("kind", builder.getStringAttr(tensor.kind)));
    entry.push_back(builder.getNamedAttr("type", TypeAttr::get(global)));
    list.push_back(builder.getDictionaryAttr(entry));
    if (tensor.before) {
      unsigned number = function.getNumArguments();
      (void)function.insertArgument(number, global, attributes,
                                    tensor.after.getLoc());
      operands.push_back(function.getArgument(number));
    }
  }
  size_t numOperands = manual->getNumOperands();
  size_t numResults = manual->getNumResults();
  ManualView extended =
      extendManualComputation(manual, operands, results, devices);
  Block &region = extended.getBody();
  builder.setInsertionPointToStart(&region);
  size_t taken = 0;
  for (const CarriedTensor &tensor : tensors)
    if (UnrealizedConversionCastOp before = tensor.before) {
      Value flat = region.getArgument(numOperands + taken++);
      before.getResult(0).replaceAllUsesWith(
          reshape(flat, getTensorType(before.getResult(0)).getShape()));
      before.erase();
    }
  Operation *end = function.getBody().front().getTerminator();
  for (Value result : extended->getResults().drop_front(numResults)) {
    unsigned number = function.getNumResults();
    (void)function.insertResult(number, result.getType(), attributes);
    end->insertOperands(end->getNumOperands(), result);
  }
  module->setAttr(kStateAttr, builder.getArrayAttr(list));
}
