//===- SplitHierarchy.cpp - One hop per tier (qgZ, 3.3.2) -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formats.h"
#include "ScatterHops.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Support/CollectiveCost.h"
#include "zpp/Support/Placement.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_SPLITHIERARCHYPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class SplitHierarchyPass
    : public zpp::impl::SplitHierarchyPassBase<SplitHierarchyPass> {
public:
  using SplitHierarchyPassBase::SplitHierarchyPassBase;

  void runOnOperation() override {
    FailureOr<SmallVector<QuantAttr>> quants =
        parseFormats(getOperation(), formats, block, rotate);
    if (failed(quants))
      return signalPassFailure();
    SmallVector<ReduceScatterOp> scatters;
    getOperation().walk([&](ReduceScatterOp scatter) {
      // Hops of an earlier run already have their format.
      if (!scatter.getWire() && !isOneOfSeveralHops(scatter))
        scatters.push_back(scatter);
    });
    // Small scatters are split only if they can travel with a large one.
    llvm::DenseSet<std::pair<Block *, Attribute>> large;
    auto getPlace = [](ReduceScatterOp scatter) {
      return std::pair<Block *, Attribute>(scatter->getBlock(),
                                           scatter.getAlongAttr());
    };
    std::vector<std::pair<ReduceScatterOp, Decision<Plan>>> plans;
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return signalPassFailure();
    for (ReduceScatterOp scatter : scatters) {
      Mesh mesh = scatter.getMeshAttr().getMesh();
      plans.push_back(
          {scatter, getPlan(scatter, *quants, machine->findLinks(mesh))});
      const Decision<Plan> &plan = plans.back().second;
      if (plan && plan->hops.isQuantized())
        large.insert(getPlace(scatter));
    }
    for (auto &[scatter, plan] : plans) {
      if (!plan)
        leaveAlone(scatter, getArgument(), plan.getLeftAlone());
      else if (plan->isSmall &&
               !(splitSmall && large.contains(getPlace(scatter))))
        leaveAlone(scatter, getArgument(), plan->whyAlone);
      else
        split(scatter, *plan);
    }
  }

private:
  /// The hops of a scatter and their formats.
  struct Plan {
    ScatterHops hops;
    /// It is split only to travel with others, unquantized.
    bool isSmall = false;
    /// Why it is left alone if there are no others.
    LeftAlone whyAlone{"its chunks are so small that they would not shrink"};
  };

  /// One of several hops, or what `zero-split-all-reduce` has made.
  static bool isOneOfSeveralHops(ReduceScatterOp scatter) {
    return scatter.getOperand().getDefiningOp<ReduceScatterOp>() ||
           llvm::any_of(scatter->getUsers(),
                        llvm::IsaPred<ReduceScatterOp, EncodeOp, AllGatherOp>);
  }

  /// Returns the hops of `scatter`, with the formats that pay.
  static Plan chooseHops(ReduceScatterOp scatter, ArrayRef<QuantAttr> formats) {
    Plan plan;
    Mesh mesh = scatter.getMeshAttr().getMesh();
    plan.hops.from = scatter.getOperand().getType();
    plan.hops.to = scatter.getType();
    for (const TierHop &hop :
         getTierHops(mesh, scatter.getAxisRefs(), formats.size()))
      plan.hops.append(getAxesAttr(scatter.getContext(), mesh, hop.axes),
                       widen(formats[hop.format], scatter.getOperation()),
                       scatter.getType().getGlobal().getElementType());
    plan.isSmall = plan.hops.isQuantized();
    plan.hops.dropFormatsThatDoNotPay();
    plan.isSmall &= !plan.hops.isQuantized();
    return plan;
  }

  /// Time of a scatter in one piece, rather than in `hops`, on the links of
  /// `model`.
  static double getPlainUsec(ReduceScatterOp scatter, const ScatterHops &hops,
                             const LinkModel &model) {
    std::vector<AxisRef> axes = scatter.getAxisRefs();
    return model.getCollectiveUsec(
        scatter.getMeshAttr().getMesh(), CollectiveKind::ReduceScatter, axes,
        hops.getElements() / zpp::numDevices(axes) *
            (hops.from.getGlobal().getElementTypeBitWidth() / 8));
  }

  /// How `scatter` is split, unless it is faster in one piece on the links of
  /// `model`.
  Decision<Plan> getPlan(ReduceScatterOp scatter, ArrayRef<QuantAttr> formats,
                         const std::optional<LinkModel> &model) const {
    bool isExact = hasFormat(formats) && getFloor(scatter) == Floor::None;
    if (!splitExact && isExact)
      return LeftAlone(getFloorReason(getOrigins(scatter)));
    Plan plan = chooseHops(scatter, formats);
    if (!model || plan.isSmall || isExact)
      return plan;
    double plain = getPlainUsec(scatter, plan.hops, *model);
    double usec = plan.hops.getKernelUsec();
    for (double exchange : plan.hops.getExchanges(*model))
      usec += exchange;
    if (usec < plain)
      return plan;
    plan.whyAlone = LeftAlone::onLinks(plain, "in hops", usec);
    llvm::fill(plan.hops.quants, QuantAttr());
    plan.isSmall = plan.hops.isMostlyLatency(*model);
    if (!plan.isSmall)
      return plan.whyAlone;
    return plan;
  }

  void split(ReduceScatterOp scatter, const Plan &plan) {
    OpBuilder builder(scatter);
    // What is left unquantized as too small was rounded once before: sums stay
    // in f32, but on the slowest links, which are to carry no more than before.
    Value value = plan.hops.build(
        builder, scatter.getLoc(), scatter.getKind(), scatter.getOperand(),
        /*isEncodedNext=*/false, /*inF32=*/plan.isSmall,
        [&](ReduceScatterOp hop, size_t) { copyOrigin(scatter, hop); });
    remarkRewrite(scatter, getArgument(),
                  "scattered in " + Twine(plan.hops.along.size()) + " hops");
    scatter.replaceAllUsesWith(value);
    scatter.erase();
  }
};
} // namespace
