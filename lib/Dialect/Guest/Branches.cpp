//===- Branches.cpp - Regions that end in an op's results -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/Branches.h"

#include "mlir/IR/Builders.h"
#include "zpp/Dialect/Guest/Names.h"

using namespace mlir;
using namespace zpp;

std::optional<BranchesView> BranchesView::get(Operation *op) {
  StringRef name = op->getName().getStringRef();
  if (name != guest::kSdyManualComputation && name != guest::kCase &&
      name != guest::kIf)
    return std::nullopt;
  BranchesView view(op);
  for (Region &region : op->getRegions())
    if (region.hasOneBlock() && !region.front().empty())
      view.bodies.push_back(&region.front());
  return view;
}

void BranchesView::forEachEntry(
    llvm::function_ref<void(Value, Value)> visit) const {
  // Regions of the others read what they need from outside.
  if (op->getName().getStringRef() != guest::kSdyManualComputation)
    return;
  for (Block *body : bodies)
    for (auto [operand, argument] :
         llvm::zip(op->getOperands(), body->getArguments()))
      visit(operand, argument);
}

void BranchesView::forEachExit(
    llvm::function_ref<void(Value, Value)> visit) const {
  for (Block *body : bodies)
    for (auto [yielded, result] :
         llvm::zip(body->back().getOperands(), op->getResults()))
      visit(yielded, result);
}

Operation *zpp::extendOp(Operation *op, ValueRange operands,
                         TypeRange results) {
  OpBuilder builder(op);
  OperationState state(op->getLoc(), op->getName());
  state.addOperands(op->getOperands());
  state.addOperands(operands);
  state.addTypes(op->getResultTypes());
  state.addTypes(results);
  state.propertiesAttr = op->getPropertiesAsAttribute();
  state.addAttributes(op->getDiscardableAttrDictionary().getValue());
  for (Region &region : op->getRegions())
    state.addRegion()->takeBody(region);
  Operation *extended = builder.create(state);
  op->replaceAllUsesWith(
      extended->getResults().take_front(op->getNumResults()));
  op->erase();
  return extended;
}
