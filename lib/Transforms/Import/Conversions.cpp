//===- Conversions.cpp - Ops on both ends of casts ------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Conversions.h"

#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

Operation *zpp::getOnlyReader(Operation *op) {
  do {
    if (op->getNumResults() != 1 || !op->getResult(0).hasOneUse())
      return nullptr;
    op = *op->getResult(0).user_begin();
  } while (isNamed(op, guest::kConvert));
  return op;
}

Operation *zpp::getConverted(Value value) {
  Operation *op = value.getDefiningOp();
  while (op && isNamed(op, guest::kConvert) && op->getNumOperands() == 1)
    op = op->getOperand(0).getDefiningOp();
  return op;
}
