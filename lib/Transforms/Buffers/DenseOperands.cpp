//===- DenseOperands.cpp - Buffers that the runtime can use ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Buffers/BufferLayout.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_DENSEOPERANDSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

static void makeDense(OpOperand &operand) {
  Operation *op = operand.getOwner();
  Location loc = op->getLoc();
  Value strided = operand.get();
  auto type = cast<MemRefType>(strided.getType());
  OpBuilder builder(op);
  Value dense = memref::AllocOp::create(
      builder, loc, MemRefType::get(type.getShape(), type.getElementType()));
  bool isInit = cast<DestinationStyleOpInterface>(op).isDpsInit(&operand);
  operand.set(dense);
  if (!isInit) {
    memref::CopyOp::create(builder, loc, strided, dense);
    return;
  }
  builder.setInsertionPointAfter(op);
  memref::CopyOp::create(builder, loc, dense, strided);
}

namespace {
class DenseOperandsPass
    : public zpp::impl::DenseOperandsPassBase<DenseOperandsPass> {
public:
  void runOnOperation() override {
    SmallVector<OpOperand *> operands;
    getOperation()->walk([&](zero::DecomposedOpInterface op) {
      if (!op.isOnBuffers())
        return;
      for (OpOperand &operand : op->getOpOperands())
        if (!getChunkStride(operand))
          operands.push_back(&operand);
    });
    for (OpOperand *operand : operands)
      makeDense(*operand);
  }
};
} // namespace
