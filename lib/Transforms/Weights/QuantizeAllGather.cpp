//===- QuantizeAllGather.cpp - Gather weights in quantized form (qwZ) -----===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formats.h"
#include "Loops/LayerStacks.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Placement.h"
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
    ProvenanceAnalysis provenances;
    getOperation().walk([&](AllGatherOp gather) {
      if (isOfMoment(gather) == moments &&
          (!singleOnly || !isOfSecondary(gather, provenances)))
        gathers.push_back(gather);
    });
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return signalPassFailure();
    for (AllGatherOp gather : gathers) {
      if (gather.getOperand().getType().getQuant())
        continue;
      QuantAttr wide = widen(*quant, gather.getOperation());
      if (!wide) {
        remarkFloor(gather, getArgument());
        continue;
      }
      Decision<SliceBytes> sizes = getSizes(
          gather, wide, machine->findLinks(gather.getMeshAttr().getMesh()));
      if (moments && sizes && isWithinNode(gather) &&
          !machine->findLinks(gather.getMeshAttr().getMesh()))
        sizes = LeftAlone("its devices share a node, and nothing of it crosses "
                          "slower links");
      if (sizes)
        quantize(gather, wide, *sizes);
      else
        leaveAlone(gather, getArgument(), sizes.getLeftAlone());
    }
  }

private:
  static bool isOfMoment(AllGatherOp gather) {
    return hasRole(getOrigins(gather), Role::Moment);
  }

  static bool isWithinNode(AllGatherOp gather) {
    return zpp::isWithinNode(gather.getMeshAttr().getMesh(),
                             gather.getAxisRefs());
  }

  /// True if `gather` makes a secondary partition, or reads one.
  static bool isOfSecondary(AllGatherOp gather,
                            ProvenanceAnalysis &provenances) {
    if (gather->hasAttr(kKeepAttr) ||
        gather.getOperand().getDefiningOp<AllGatherOp>())
      return true;
    auto source = gather.getOperand().getDefiningOp<FromLocalOp>();
    if (!source)
      return false;
    Value root = provenances.get(source.getLocal()).root;
    if (root.getDefiningOp<AllGatherOp>())
      return true;
    // A layer of those that a loop has left.
    auto result = dyn_cast<OpResult>(root);
    std::optional<CountedLoop> loop =
        result ? getCountedLoop(result.getOwner(), provenances) : std::nullopt;
    std::optional<WrittenStack> stack =
        loop ? getWrittenStack(*loop, result.getResultNumber(), provenances)
             : std::nullopt;
    AllGatherOp kept = stack ? getGathered(*stack) : AllGatherOp();
    return kept && kept->hasAttr(kKeepAttr);
  }

  /// Returns the time of a gather on the links of `model`, plain and quantized.
  static std::pair<double, double> getUsec(AllGatherOp gather, QuantAttr quant,
                                           const LinkModel &model) {
    ShardType from = gather.getOperand().getType();
    Mesh mesh = gather.getMeshAttr().getMesh();
    std::vector<AxisRef> axes = gather.getAxisRefs();
    int64_t plain = getBytes(from.getLocalType());
    int64_t wire = getBytes(from.withQuant(quant).getLocalType());
    int64_t devices = zpp::numDevices(axes);
    return {
        model.getCollectiveUsec(mesh, CollectiveKind::AllGather, axes, plain),
        model.getHopsUsec(mesh, axes, wire) +
            LinkModel::kKernelWeight *
                (LinkModel::getKernelUsec(plain + wire) +
                 LinkModel::getKernelUsec(devices * (plain + wire)))};
  }

  /// Sizes before and after quantization, unless it does not pay on the links
  /// of `model`.
  static Decision<SliceBytes> getSizes(AllGatherOp gather, QuantAttr quant,
                                       const std::optional<LinkModel> &model) {
    ShardType from = gather.getOperand().getType();
    Type element = from.getGlobal().getElementType();
    if (!isQuantizable(element)) {
      std::string text = toText(element);
      if (getElementBits(element) <= 8)
        return LeftAlone("the step has quantized what it gathers, to " + text);
      return LeftAlone(
          "expected f32, bf16 or f16 elements to quantize, but got " + text);
    }
    SliceBytes bytes(from, quant);
    if (!bytes.isShorter())
      return bytes.getReason("quantized");
    if (model) {
      auto [usec, quantized] = getUsec(gather, quant, *model);
      if (quantized >= usec)
        return LeftAlone::onLinks(usec, "quantized", quantized);
    }
    return bytes;
  }

  void quantize(AllGatherOp gather, QuantAttr quant, SliceBytes sizes) {
    AllGatherOp moved = encodeGather(gather, quant, kForwardOnlyAttr);
    remarkRewrite(moved, getArgument(),
                  "slices of " + Twine(sizes.plain) + " bytes travel in " +
                      Twine(sizes.wire));
  }
};
} // namespace
