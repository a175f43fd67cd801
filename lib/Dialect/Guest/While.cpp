//===- While.cpp - StableHLO's loops --------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/While.h"

#include "zpp/Dialect/Guest/Branches.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

bool zpp::isWhile(Operation *op) {
  unsigned count = op->getNumOperands();
  return isNamed(op, guest::kWhile) && op->getNumRegions() == 2 &&
         op->getNumResults() == count &&
         llvm::all_of(op->getRegions(),
                      [&](Region &region) {
                        return region.hasOneBlock() &&
                               !region.front().empty() &&
                               region.getNumArguments() == count;
                      }) &&
         op->getRegion(1).front().back().getNumOperands() == count;
}

bool zpp::isInLoop(Operation *op) {
  while ((op = op->getParentOp()))
    if (isNamed(op, guest::kWhile))
      return true;
  return false;
}

bool zpp::isLoopInvariant(Operation *loop, unsigned index) {
  WhileView view = WhileView::get(loop);
  return view && view.getNext(index) == view.getCarried(index) &&
         view.getCarried(index).getType() == view.getInit(index).getType();
}

WhileView zpp::extendLoop(Operation *loop, ValueRange init) {
  Operation *extended = extendOp(loop, init, init.getTypes());
  for (Region &region : extended->getRegions())
    for (Value value : init)
      region.addArgument(value.getType(), value.getLoc());
  return WhileView(extended);
}

WhileView zpp::dropCarried(WhileView loop, unsigned index) {
  OpBuilder builder(loop.getOperation());
  OperationState state(loop->getLoc(), loop->getName());
  SmallVector<Value> operands(loop->getOperands());
  operands.erase(operands.begin() + index);
  state.addOperands(operands);
  state.addTypes(ValueRange(operands).getTypes());
  state.propertiesAttr = loop->getPropertiesAsAttribute();
  state.addAttributes(loop->getDiscardableAttrDictionary().getValue());
  loop.getYield()->eraseOperand(index);
  for (Region &region : loop->getRegions()) {
    region.front().eraseArgument(index);
    state.addRegion()->takeBody(region);
  }
  Operation *smaller = builder.create(state);
  for (OpResult result : loop->getResults())
    if (unsigned number = result.getResultNumber(); number != index)
      result.replaceAllUsesWith(smaller->getResult(number - (number > index)));
  loop->erase();
  return WhileView(smaller);
}
