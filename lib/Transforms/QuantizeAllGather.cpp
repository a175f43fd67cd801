//===- QuantizeAllGather.cpp - Gather weights in quantized form (qwZ) -----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_QUANTIZEALLGATHERPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class QuantizeAllGatherPass
    : public zpp::impl::QuantizeAllGatherPassBase<QuantizeAllGatherPass> {
public:
  using QuantizeAllGatherPassBase::QuantizeAllGatherPassBase;

  void runOnOperation() override {
    FailureOr<QuantAttr> quant = parseFormat(getOperation(), format, block);
    if (failed(quant))
      return signalPassFailure();
    if (!*quant)
      return;
    SmallVector<AllGatherOp> gathers;
    getOperation().walk([&](AllGatherOp gather) { gathers.push_back(gather); });
    for (AllGatherOp gather : gathers)
      quantize(gather, *quant);
  }

private:
  void quantize(AllGatherOp gather, QuantAttr quant) {
    ShardType from = gather.getOperand().getType(), to = gather.getType();
    if (from.getQuant())
      return;
    int64_t plain = from.getElementsPerUnit() *
                    (from.getGlobal().getElementTypeBitWidth() / 8);
    int64_t wire = quant.getLayout(from.getElementsPerUnit()).chunkBytes;
    if (wire >= plain) {
      leaveAlone(gather, getArgument(),
                 "a slice of " + Twine(plain) + " bytes would take " +
                     Twine(wire) + " quantized");
      return;
    }
    OpBuilder builder(gather);
    Location loc = gather.getLoc();
    Value encoded = EncodeOp::create(builder, loc, from.withQuant(quant),
                                     gather.getOperand());
    auto moved = AllGatherOp::create(builder, loc, to.withQuant(quant), encoded,
                                     gather.getAlong());
    copyOrigin(gather, moved);
    Value decoded = DecodeOp::create(builder, loc, to, moved);
    gather.replaceAllUsesWith(decoded);
    gather.erase();
    remarkRewrite(moved, getArgument(),
                  "slices of " + Twine(plain) + " bytes travel in " +
                      Twine(wire));
  }
};
} // namespace
