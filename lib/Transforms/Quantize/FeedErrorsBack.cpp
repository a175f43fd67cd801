//===- FeedErrorsBack.cpp - What a hop rounds is sent in the next step ----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CarriedState.h"
#include "LocalValues.h"
#include "mlir/IR/Remarks.h"
#include "zpp/Analysis/Loops/IterationPlaces.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/Decision.h"
#include "zpp/Transforms/Accumulated.h"
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
    llvm::MapVector<Operation *, SmallVector<Hop>> groups;
    ProvenanceAnalysis provenances;
    ManualComputations manuals;
    getOperation().walk([&](QuantizeOp quantize) {
      AllToAllOp exchange = getExchange(quantize);
      if (!exchange || (hops == "last" && hasQuantizedHopBehind(exchange)))
        return;
      Decision<Hop> hop = getHop(quantize, provenances, manuals);
      if (!hop)
        remark::missed(
            exchange.getLoc(),
            remark::RemarkOpts::name("no-feedback").category(getArgument()))
            << "what it rounds is not fed back: " + hop.getReason();
      else
        groups[hop->getOutermost()->getParentOp()].push_back(std::move(*hop));
    });
    for (auto &[manual, group] : groups) {
      SmallVector<CarriedTensor> tensors;
      SmallVector<unsigned> numbers;
      for (const Hop &hop : group) {
        tensors.push_back(feedBack(hop));
        numbers.push_back(
            cast<OpResult>(tensors.back().after).getResultNumber());
      }
      // Each hop has rebuilt the loops around it.
      for (auto [hop, tensor, number] : llvm::zip(group, tensors, numbers))
        if (!hop.loops.empty())
          tensor.after = hop.getOutermost()->getResult(number);
      carryState(manual, tensors);
    }
  }

private:
  /// A hop that quantizes, and what the loops around it do with the gradient,
  /// the innermost first.
  struct Hop {
    QuantizeOp quantize;
    SmallVector<IterationPlaces> loops = {};

    /// The loop, or the op itself, that is in the manual computation.
    Operation *getOutermost() const {
      Operation *op = quantize;
      for (size_t i = 0; i < loops.size(); ++i)
        op = op->getParentOp();
      return op;
    }
  };

  /// More than any device has. Times the devices, it is still a number.
  static constexpr int64_t kMostElements = int64_t(1) << 40;

  /// `quantize` and the loops around it, unless these cannot carry what it
  /// loses.
  static Decision<Hop> findLoops(QuantizeOp quantize,
                                 ProvenanceAnalysis &provenances) {
    Hop hop{quantize};
    Value received = getExchange(quantize)->getResult(0);
    int64_t elements = hop.quantize.getInputType().getNumElements();
    for (Operation *loop = hop.quantize->getParentOp(); isWhile(loop);
         loop = loop->getParentOp()) {
      hop.loops.push_back(getIterationPlaces(received, loop, provenances));
      if (hop.loops.back().kind == IterationPlaces::Unknown)
        return LeftAlone(hop.loops.back().reason);
      if (hop.loops.back().kind == IterationPlaces::Own &&
          (llvm::MulOverflow(elements, hop.loops.back().loop.trips, elements) ||
           elements > kMostElements))
        return LeftAlone("its loops would keep more than " +
                         std::to_string(kMostElements) + " elements");
    }
    return hop;
  }

  /// The hop that `quantize` is of, if what it loses can be carried to the next
  /// step.
  static Decision<Hop> getHop(QuantizeOp quantize,
                              ProvenanceAnalysis &provenances,
                              ManualComputations &manuals) {
    SlicesAttr slices = quantize.getSlicesAttr();
    if (slices && slices.getStages() != 1)
      return LeftAlone("it packs one stage of a tensor of several");
    Decision<Hop> hop = findLoops(quantize, provenances);
    if (!hop)
      return hop;
    if (!getCarryingFunction(hop->getOutermost(), manuals))
      return LeftAlone("it is not scattered in a manual computation of the "
                       "step itself, or in loops there, where each piece has a "
                       "place of its own from step to step");
    std::string reason =
        getMovingPlace(getExchange(quantize)->getResult(0),
                       hop->getOutermost()->getParentOp(), provenances);
    if (!reason.empty())
      return LeftAlone(reason);
    return hop;
  }

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
    if (exchange->hasAttr(kPartialAttr))
      return true;
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

  /// Has the loops around `hop` carry what is kept of it, of `type` where it is
  /// quantized. Where a loop writes the layers of a stack, it is a layer of
  /// another stack. Returns what to add, or null, and sets `error.before`.
  Value enterLoops(const Hop &hop, RankedTensorType type,
                   CarriedTensor &error) const {
    Operation *outermost = hop.getOutermost();
    SmallVector<int64_t> shape(type.getShape());
    bool isAdded = !start;
    for (const IterationPlaces &places : hop.loops) {
      if (places.kind == IterationPlaces::Own)
        shape.insert(shape.begin(), places.loop.trips);
      else
        // An iteration adds what the one before has kept.
        isAdded = true;
    }
    if (!isAdded && hop.loops.empty())
      return {};
    OpBuilder builder(outermost);
    Location loc = outermost->getLoc();
    Value held;
    if (start) {
      held = createZeros(builder, loc, type.clone(shape));
    } else {
      error.before = createBefore(outermost, type.clone(shape));
      held = error.before.getResult(0);
    }
    Operation *op = outermost;
    for (size_t i = hop.loops.size(); i-- > 0;) {
      held = extendLoop(op, held).getBody().getArguments().back();
      op = hop.quantize;
      for (size_t inner = 0; inner < i; ++inner)
        op = op->getParentOp();
      builder.setInsertionPoint(op);
      if (hop.loops[i].kind == IterationPlaces::Own && (isAdded || i > 0))
        held = createLayerSlice(builder, loc, held, hop.loops[i].loop.counter);
    }
    return isAdded ? held : Value();
  }

  /// Has the loops around `hop` hand on what is kept, `lost` where it is
  /// quantized. Returns what it is after them.
  static Value leaveLoops(const Hop &hop, Value lost) {
    for (const IterationPlaces &places : hop.loops) {
      Block &body = *lost.getDefiningOp()->getBlock();
      if (places.kind == IterationPlaces::Own) {
        OpBuilder builder(lost.getContext());
        builder.setInsertionPointAfterValue(lost);
        lost = createLayerUpdate(builder, lost.getLoc(),
                                 body.getArguments().back(), lost,
                                 places.loop.counter);
      }
      body.back().insertOperands(body.back().getNumOperands(), lost);
      lost = body.getParentOp()->getResults().back();
    }
    return lost;
  }

  CarriedTensor feedBack(const Hop &hop) {
    QuantizeOp quantize = hop.quantize;
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
    Value held = enterLoops(hop, type.clone(bf16), error);
    StablehloBuilder b(builder, loc);
    Value wanted = b.convert(input, f32);
    if (held)
      wanted = b.elementwise("add", {wanted, b.convert(held, f32)});
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
    lost = after.convert(after.roundToBF16(lost), bf16);
    error.after = leaveLoops(hop, lost);
    remarkRewrite(exchange, getArgument(),
                  "what it rounds is added to what the next step sends");
    return error;
  }
};
} // namespace
