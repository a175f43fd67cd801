//===- FeedErrorsBack.cpp - What a hop rounds is sent in the next step ----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CarriedState.h"
#include "LocalValues.h"
#include "mlir/IR/Remarks.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Passes.h"
#include "zpp/Transforms/State.h"
#include "llvm/ADT/MapVector.h"

#include <limits>

namespace zpp {
#define GEN_PASS_DEF_FEEDERRORSBACKPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class FeedErrorsBackPass
    : public zpp::impl::FeedErrorsBackPassBase<FeedErrorsBackPass> {
public:
  using FeedErrorsBackPassBase::FeedErrorsBackPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return requireStablehlo(context);
  }

  void runOnOperation() override {
    if (hops != "all" && hops != "last") {
      emitError(getOperation().getLoc(),
                "expected hops as last or all, but got '")
          << hops.getValue() << "'";
      return signalPassFailure();
    }
    llvm::MapVector<Operation *, SmallVector<QuantizeOp>> groups;
    getOperation().walk([&](QuantizeOp quantize) {
      AllToAllOp exchange = getExchange(quantize);
      if (!exchange || (hops == "last" && hasQuantizedHopBehind(exchange)))
        return;
      if (getCarryingFunction(quantize))
        groups[quantize->getParentOp()].push_back(quantize);
      else
        remark::missed(
            exchange.getLoc(),
            remark::RemarkOpts::name("no-feedback").category(getArgument()))
            << "what it rounds is not fed back: it is not scattered in a "
               "manual "
               "computation of the step itself, where each piece has a place "
               "of its own from step to step";
    });
    for (auto &[manual, group] : groups) {
      SmallVector<CarriedTensor> tensors;
      for (QuantizeOp quantize : group)
        tensors.push_back(feedBack(quantize));
      carryState(manual, tensors);
    }
  }

private:
  /// The all-to-all that sends what `quantize` makes, and is its only reader;
  /// otherwise null. Those that are no part of a sum have none.
  static AllToAllOp getExchange(QuantizeOp quantize) {
    if (quantize->getNumResults() == 0 || !quantize->hasOneUse())
      return {};
    return dyn_cast<AllToAllOp>(*quantize->user_begin());
  }

  /// Whether what `exchange` receives is summed and quantized for another hop,
  /// perhaps with what an earlier run of the pass adds.
  static bool hasQuantizedHopBehind(AllToAllOp exchange) {
    SmallVector<Operation *> readers(exchange->getUsers());
    while (!readers.empty()) {
      Operation *reader = readers.pop_back_val();
      if (isa<QuantizeOp>(reader))
        return true;
      if (isa<DequantizeOp, ReduceOp, PackSlicesOp>(reader) ||
          isNamed(reader, guest::kAdd))
        llvm::append_range(readers, reader->getUsers());
    }
    return false;
  }

  CarriedTensor feedBack(QuantizeOp quantize) {
    AllToAllOp exchange = getExchange(quantize);
    IRRewriter builder(quantize);
    Location loc = quantize.getLoc();
    // A whole tensor keeps its own order, and one kernel packs and quantizes
    // it. Stages pack the same tensor: each keeps what it has packed.
    Value input = quantize.getInput();
    SlicesAttr slices = quantize.getSlicesAttr();
    auto pack = input.getDefiningOp<PackSlicesOp>();
    if (pack && pack->hasOneUse() && !slices &&
        pack.getSlices().getStages() == 1) {
      input = pack.getInput();
      slices = pack.getSlices();
    } else {
      pack = {};
    }
    auto type = cast<RankedTensorType>(input.getType());
    Type f32 = builder.getF32Type(), bf16 = builder.getBF16Type();

    CarriedTensor error{{}, {}, kErrorKind};
    StablehloBuilder b(builder, loc);
    Value wanted = b.convert(input, f32);
    if (!start) {
      error.before = createBefore(quantize, type.clone(bf16));
      wanted = b.elementwise(
          "add", {wanted, b.convert(error.before.getResult(0), f32)});
    }
    quantize.getInputMutable().assign(wanted);
    if (slices)
      quantize.setSlicesAttr(slices);
    if (pack)
      eraseDeadChain(pack);

    builder.setInsertionPointAfter(quantize);
    Value sent = createLocal<DequantizeOp>(builder, loc, type.clone(f32),
                                           quantize->getResult(0),
                                           quantize.getQuantAttr(), slices);
    StablehloBuilder after(builder, loc);
    Value lost = after.elementwise("subtract", {wanted, sent});
    // What is not finite shows in this step's sum. It would never leave again.
    Value isFinite =
        after.compare("LT", after.elementwise("abs", {lost}),
                      after.splatF32(type.getShape(),
                                     std::numeric_limits<float>::infinity()));
    lost = after.select(isFinite, lost, after.splatF32(type.getShape(), 0));
    error.after = after.convert(after.roundToBF16(lost), bf16);
    remarkRewrite(exchange, getArgument(),
                  "what it rounds is added to what the next step sends");
    return error;
  }
};
} // namespace
