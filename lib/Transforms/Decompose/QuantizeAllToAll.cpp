//===- QuantizeAllToAll.cpp - Quantized chunks in all-to-alls (qgZ) -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_QUANTIZEALLTOALLPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class QuantizeAllToAllPass
    : public zpp::impl::QuantizeAllToAllPassBase<QuantizeAllToAllPass> {
public:
  void runOnOperation() override {
    SmallVector<AllToAllOp> exchanges;
    getOperation().walk([&](AllToAllOp exchange) {
      if (exchange.getWire() && !exchange->getResults().empty())
        exchanges.push_back(exchange);
    });
    for (AllToAllOp exchange : exchanges)
      quantize(exchange);
  }

private:
  void quantize(AllToAllOp exchange) {
    OpBuilder builder(exchange);
    Location loc = exchange.getLoc();
    QuantAttr quant = exchange.getWireAttr();
    auto received = cast<RankedTensorType>(exchange->getResult(0).getType());
    int64_t chunks = received.getDimSize(0);
    int64_t elements = received.getNumElements() / chunks;
    auto wire = RankedTensorType::get(
        {chunks, quant.getLayout(elements).chunkBytes}, builder.getI8Type());
    Value sent =
        createLocal<QuantizeOp>(builder, loc, wire, exchange.getInput(), quant,
                                exchange.getSlicesAttr());
    auto moved = AllToAllOp::create(
        builder, loc, TypeRange{wire}, sent, createEmpty(builder, loc, wire),
        exchange.getAlong(), exchange.getMesh(), SlicesAttr(), QuantAttr());
    copyOrigin(exchange, moved);
    exchange->getResult(0).replaceAllUsesWith(createLocal<DequantizeOp>(
        builder, loc, received, moved->getResult(0), quant, SlicesAttr()));
    eraseDeadChain(exchange);
  }
};
} // namespace
