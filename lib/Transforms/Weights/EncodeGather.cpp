//===- EncodeGather.cpp - Gathers of encoded values -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EncodeGather.h"

#include "zpp/Analysis/Origin.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

AllGatherOp zpp::encodeGather(AllGatherOp gather, QuantAttr quant,
                              StringRef kept) {
  ShardType from = gather.getOperand().getType(), to = gather.getType();
  OpBuilder builder(gather);
  Location loc = gather.getLoc();
  Value encoded = EncodeOp::create(builder, loc, from.withQuant(quant),
                                   gather.getOperand(), /*held=*/Value());
  auto moved = AllGatherOp::create(builder, loc, to.withQuant(quant), encoded,
                                   gather.getAlong());
  copyOrigin(gather, moved);
  if (Attribute attribute = gather->getAttr(kept))
    moved->setAttr(kept, attribute);
  Value decoded = DecodeOp::create(builder, loc, to, moved, /*held=*/Value());
  gather.replaceAllUsesWith(decoded);
  gather.erase();
  return moved;
}
