//===- DecomposeAllGather.cpp - Gathers as exchanges of chunks ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "UnitSlices.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_DECOMPOSEALLGATHERPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class DecomposeAllGatherPass
    : public zpp::impl::DecomposeAllGatherPassBase<DecomposeAllGatherPass> {
public:
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<AllGatherOp, EncodeOp, DecodeOp>(op))
        ops.push_back(op);
    });
    // In program order, so that each op finds its operand as a local value.
    for (Operation *op : ops) {
      OpBuilder builder(op);
      Value local = getLocal(builder, op->getLoc(), op->getOperand(0));
      if (auto gather = dyn_cast<AllGatherOp>(op))
        local = decompose(builder, gather, local);
      else if (auto encode = dyn_cast<EncodeOp>(op))
        local = decompose(builder, encode, local);
      else
        local = decompose(builder, cast<DecodeOp>(op), local);
      replaceWithLocal(builder, op, local);
    }
  }

private:
  /// Units of `type`, one chunk each.
  SlicesAttr getUnits(ShardType type) {
    SmallVector<int64_t> sizes = type.getWholeSizes();
    return SlicesAttr::get(&getContext(), type.getDim(), sizes,
                           llvm::to_vector(llvm::seq<int64_t>(0, sizes.size())),
                           0, 1);
  }

  Value decompose(OpBuilder &builder, EncodeOp encode, Value local) {
    ShardType type = encode.getOperand().getType();
    auto localType = cast<RankedTensorType>(local.getType());
    SlicesAttr units = getUnits(type);
    if (Value held = encode.getHeld())
      return createLocal<QuantizeDifferenceOp>(
          builder, encode.getLoc(), encode.getType().getLocalType(), local,
          getLocal(builder, encode.getLoc(), held), encode.getType().getQuant(),
          units);
    auto packed = RankedTensorType::get(
        units.getChunkShape(localType.getShape()), localType.getElementType());
    Value chunks = createLocal<PackSlicesOp>(builder, encode.getLoc(), packed,
                                             local, units);
    return createLocal<QuantizeOp>(builder, encode.getLoc(),
                                   encode.getType().getLocalType(), chunks,
                                   encode.getType().getQuant(), SlicesAttr());
  }

  Value decompose(OpBuilder &builder, DecodeOp decode, Value local) {
    ShardType type = decode.getType();
    RankedTensorType localType = type.getLocalType();
    SlicesAttr units = getUnits(type);
    if (Value held = decode.getHeld())
      return createLocal<DequantizeAddOp>(
          builder, decode.getLoc(), localType, local,
          getLocal(builder, decode.getLoc(), held),
          decode.getOperand().getType().getQuant(), units);
    auto packed = RankedTensorType::get(
        units.getChunkShape(localType.getShape()), localType.getElementType());
    Value chunks = createLocal<DequantizeOp>(
        builder, decode.getLoc(), packed, local,
        decode.getOperand().getType().getQuant(), SlicesAttr());
    return createLocal<UnpackSlicesOp>(builder, decode.getLoc(), localType,
                                       chunks, units);
  }

  Value decompose(OpBuilder &builder, AllGatherOp gather, Value local) {
    Location loc = gather.getLoc();
    ShardType from = gather.getOperand().getType(), to = gather.getType();
    auto localType = cast<RankedTensorType>(local.getType());
    SmallVector<int64_t> stackedShape{gather.getGroupSize()};
    llvm::append_range(stackedShape, localType.getShape());
    auto stacked =
        RankedTensorType::get(stackedShape, localType.getElementType());
    auto exchange = AllGatherChunksOp::create(
        builder, loc, TypeRange{stacked}, local,
        createEmpty(builder, loc, stacked), gather.getAlong(), from.getMesh());
    copyOrigin(gather, exchange);
    copySource(gather, exchange);
    if (Attribute keep = gather->getAttr(kKeepAttr))
      exchange->setAttr(kKeepAttr, keep);

    // The received chunks are ordered by device first, the result by its
    // factors.
    SmallVector<int64_t> chunk =
        getWholePositions(to, *from.findFactors(gather.getAlong()));
    int64_t dim = to.getQuant() ? 0 : to.getDim();
    auto slices =
        SlicesAttr::get(&getContext(), dim, to.getWholeSizes(), chunk, 0, 1);
    return createLocal<UnpackSlicesOp>(builder, loc, to.getLocalType(),
                                       exchange->getResult(0), slices);
  }
};
} // namespace
