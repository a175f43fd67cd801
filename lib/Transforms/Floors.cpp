//===- Floors.cpp - The narrowest formats of collectives ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Floors.h"

#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

QuantAttr zpp::widen(QuantAttr quant, ArrayRef<Operation *> ops) {
  if (!quant)
    return quant;
  Floor floor = Floor::Any;
  int64_t block = quant.getBlock();
  for (Operation *op : ops)
    if (op) {
      floor = std::max(floor, getFloor(op));
      if (int64_t largest = getLargestBlock(op))
        block = std::min(block, largest);
    }
  if (floor == Floor::None)
    return QuantAttr();
  return QuantAttr::get(quant.getContext(),
                        floor == Floor::I8 ? WireFormatKind::I8
                                           : quant.getFormat(),
                        block, quant.getRotate());
}

void zpp::remarkFloor(Operation *op, StringRef pass) {
  remarkMissed(op, pass, "floor")
      << (op->getName().getStringRef() +
          " is not quantized: " + getFloorReason(getOrigins(op)))
             .str();
}
