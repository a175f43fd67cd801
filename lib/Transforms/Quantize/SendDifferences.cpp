//===- SendDifferences.cpp - Weights as differences to what is held -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CarriedState.h"
#include "EncodeGather.h"
#include "FormatOptions.h"
#include "LocalValues.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {
#define GEN_PASS_DEF_SENDDIFFERENCESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class SendDifferencesPass
    : public zpp::impl::SendDifferencesPassBase<SendDifferencesPass> {
public:
  using SendDifferencesPassBase::SendDifferencesPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return requireStablehlo(context);
  }

  void runOnOperation() override {
    FailureOr<QuantAttr> quant = parseFormat(getOperation(), format, block);
    if (failed(quant))
      return signalPassFailure();
    if (!*quant) {
      emitError(getOperation().getLoc(),
                "expected a format i8 or i4 of differences, but got none");
      return signalPassFailure();
    }
    llvm::MapVector<Operation *, SmallVector<AllGatherOp>> gathers;
    SmallVector<std::pair<AllGatherOp, LeftAlone>> refused;
    ManualComputations manuals;
    getOperation().walk([&](AllGatherOp gather) {
      if (!gather->hasAttr(kKeepAttr) || gather.getType().getQuant())
        return;
      Decision<> decision = maySendDifference(gather, *quant, manuals);
      if (decision)
        gathers[gather->getParentOp()].push_back(gather);
      else
        refused.push_back({gather, decision.getLeftAlone()});
    });
    FailureOr<QuantAttr> whole = parseFormat(getOperation(), "i8", block);
    if (failed(whole))
      return signalPassFailure();
    for (auto &[gather, why] : refused) {
      leaveAlone(gather, getArgument(), why);
      sendWhole(gather, *whole);
    }
    // While nothing has changed.
    llvm::DenseMap<Operation *, SmallVector<NamedAttribute>> sources;
    for (auto &[manual, group] : gathers)
      for (AllGatherOp gather : group)
        sources[gather] = getSource(gather);
    for (auto &[manual, group] : gathers) {
      SmallVector<CarriedTensor> tensors;
      for (AllGatherOp gather : group)
        rewrite(gather, sources[gather], *quant, tensors);
      carryState(manual, tensors);
    }
  }

private:
  /// Whether differences of what `gather` moves may be sent, or whole values
  /// must be.
  static Decision<> maySendDifference(AllGatherOp gather, QuantAttr quant,
                                      ManualComputations &manuals) {
    ShardType from = gather.getOperand().getType();
    Type element = from.getGlobal().getElementType();
    if (!gather.getOperand().getDefiningOp<FromLocalOp>())
      return LeftAlone("its operand is no local tensor");
    if (!isQuantizable(element))
      return LeftAlone("its elements are no floating-point numbers to "
                       "subtract");
    int64_t plain = from.getElementsPerUnit() * getElementBits(element) / 8;
    int64_t wire = quant.getLayout(from.getElementsPerUnit()).chunkBytes;
    if (wire >= plain)
      return LeftAlone("a slice of " + std::to_string(plain) +
                       " bytes would take " + std::to_string(wire) +
                       " as a difference");
    if (!getCarryingFunction(gather, manuals))
      return LeftAlone(kCarryReason.str());
    return Yes();
  }

  /// Has `gather` move its values in int8, if that is shorter.
  static void sendWhole(AllGatherOp gather, QuantAttr quant) {
    ShardType from = gather.getOperand().getType();
    Type element = from.getGlobal().getElementType();
    if (!isQuantizable(element) ||
        quant.getLayout(from.getElementsPerUnit()).chunkBytes >=
            from.getElementsPerUnit() * getElementBits(element) / 8)
      return;
    encodeGather(gather, quant, kKeepAttr);
  }

  /// Entries of `zpp.state` that say which elements of a weight a device keeps:
  /// the weight's `shape`, the partitioned `dim`, and for each factor of it,
  /// the most significant first, its size and the difference of the ids of
  /// devices that are neighbours along it, 0 if it is held whole.
  static SmallVector<NamedAttribute> describe(ShardType shard) {
    Builder builder(shard.getContext());
    Mesh mesh = shard.getMesh().getMesh();
    SmallVector<int64_t> factors;
    for (auto [factor, size] :
         llvm::zip_equal(shard.getFactors(), shard.getFactorSizes()))
      factors.append(
          {size, factor.isWhole()
                     ? 0
                     : mesh.getStride(*factor.getAxis().resolve(mesh))});
    return {
        builder.getNamedAttr("dim", builder.getI64IntegerAttr(shard.getDim())),
        builder.getNamedAttr("factors", builder.getDenseI64ArrayAttr(factors)),
        builder.getNamedAttr("shape", builder.getDenseI64ArrayAttr(
                                          shard.getGlobal().getShape()))};
  }

  /// The argument of the step that `gather` gathers parts of, as an entry of
  /// `zpp.state`; none if it gathers something computed.
  SmallVector<NamedAttribute> getSource(AllGatherOp gather) {
    auto source = gather.getOperand().getDefiningOp<FromLocalOp>();
    Provenance provenance = provenances.get(source.getLocal());
    if (!provenance.isStepInput)
      return {};
    Builder builder(gather.getContext());
    int64_t number = cast<BlockArgument>(provenance.root).getArgNumber();
    return {builder.getNamedAttr("source", builder.getI64IntegerAttr(number))};
  }

  void rewrite(AllGatherOp gather, ArrayRef<NamedAttribute> argument,
               QuantAttr quant, SmallVectorImpl<CarriedTensor> &tensors) {
    auto getEntries = [&](ShardType shard) {
      SmallVector<NamedAttribute> entries = describe(shard);
      llvm::append_range(entries, argument);
      return entries;
    };
    IRRewriter builder(gather);
    builder.setInsertionPoint(gather);
    Location loc = gather.getLoc();
    auto source = gather.getOperand().getDefiningOp<FromLocalOp>();
    ShardType from = source.getType(), to = gather.getType();
    if (start) {
      builder.setInsertionPointAfter(gather);
      tensors.push_back({{}, source.getLocal(), "own", getEntries(from)});
      tensors.push_back(
          {{}, getLocal(builder, loc, gather), "held", getEntries(to)});
      return;
    }
    CarriedTensor own{
        createBefore(gather, from.getLocalType()), {}, "own", getEntries(from)};
    CarriedTensor held{
        createBefore(gather, to.getLocalType()), {}, "held", getEntries(to)};
    auto asShard = [&](ShardType type, CarriedTensor tensor) {
      return FromLocalOp::create(builder, loc, type,
                                 tensor.before.getResult(0));
    };
    Value ownBefore = asShard(from, own);
    Value sent = EncodeOp::create(builder, loc, from.withQuant(quant), source,
                                  ownBefore);
    auto moved = AllGatherOp::create(builder, loc, to.withQuant(quant), sent,
                                     gather.getAlong());
    copyOrigin(gather, moved);
    addGets(moved, kGetsDifferences);
    // The owner adds to its own part what it has sent, as everyone does.
    Value arrived =
        DecodeOp::create(builder, loc, to, moved, asShard(to, held));
    held.after = getLocal(builder, loc, arrived);
    own.after = getLocal(builder, loc,
                         DecodeOp::create(builder, loc, from, sent, ownBefore));
    remarkRewrite(moved, getArgument(), "sends the difference to what is held");
    replaceWithLocal(builder, gather, held.after);
    tensors.push_back(own);
    tensors.push_back(held);
  }

  ProvenanceAnalysis provenances;
};
} // namespace
