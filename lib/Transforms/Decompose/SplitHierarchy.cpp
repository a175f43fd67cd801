//===- SplitHierarchy.cpp - One hop per tier (qgZ, 3.3.2) -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
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
    bool hasLarge = false;
    SmallVector<Plan> plans;
    LinksOption linksOption(getOperation(), links);
    for (ReduceScatterOp scatter : scatters) {
      FailureOr<std::optional<LinkModel>> model =
          linksOption.getModel(scatter.getMeshAttr().getMesh());
      if (failed(model))
        return signalPassFailure();
      plans.push_back(getPlan(scatter, *quants, *model));
      hasLarge |= plans.back().reason.empty() && !plans.back().isSmall;
    }
    for (const Plan &plan : plans)
      split(plan, splitSmall && hasLarge);
  }

private:
  /// The hops of a scatter and their formats.
  struct Plan {
    ReduceScatterOp scatter;
    SmallVector<ArrayAttr> hops;
    SmallVector<QuantAttr> quants;
    /// True if no chunk would shrink in any format.
    bool isSmall = false;
    /// The reason why it is left alone in any case, or empty.
    std::string reason;
  };

  static bool isOneOfSeveralHops(ReduceScatterOp scatter) {
    return scatter.getOperand().getDefiningOp<ReduceScatterOp>() ||
           llvm::any_of(scatter->getUsers(), llvm::IsaPred<ReduceScatterOp>);
  }

  /// Sets hops and formats of `plan`.
  static void chooseHops(Plan &plan, ArrayRef<QuantAttr> formats) {
    ReduceScatterOp scatter = plan.scatter;
    Mesh mesh = scatter.getMeshAttr().getMesh();
    SmallVector<AxisRef> refs =
        cast<CollectiveOpInterface>(scatter.getOperation()).getAxisRefs();
    for (const TierHop &hop :
         getTierHops(mesh, {refs.begin(), refs.end()}, formats.size())) {
      plan.hops.push_back(getAxesAttr(scatter.getContext(), mesh, hop.axes));
      plan.quants.push_back(formats[hop.format]);
    }
    plan.isSmall = llvm::any_of(plan.quants, isQuantized);
    dropFormatsThatDoNotPay(plan);
    plan.isSmall &= llvm::none_of(plan.quants, isQuantized);
  }

  static bool isQuantized(QuantAttr quant) { return static_cast<bool>(quant); }

  /// Removes the formats of hops whose chunks would not become smaller.
  static void dropFormatsThatDoNotPay(Plan &plan) {
    ReduceScatterOp scatter = plan.scatter;
    ShardType from = scatter.getOperand().getType(), to = scatter.getType();
    int64_t elementBytes = from.getGlobal().getElementTypeBitWidth() / 8;
    // The number of elements that a device holds; each hop divides it.
    int64_t elements =
        to.getElementsPerUnit() * llvm::product_of(from.getWholeSizes());
    for (auto [hop, quant] : llvm::zip_equal(plan.hops, plan.quants)) {
      for (const AxisRef &ref : resolveAxes(hop, scatter.getMeshAttr()))
        elements /= ref.size;
      if (quant &&
          quant.getLayout(elements).chunkBytes >= elements * elementBytes)
        quant = QuantAttr();
    }
  }

  /// The time of a scatter on the links of `model`, in one piece and in hops.
  static std::pair<double, double> getUsec(const Plan &plan,
                                           const LinkModel &model) {
    ReduceScatterOp scatter = plan.scatter;
    ShardType from = scatter.getOperand().getType(), to = scatter.getType();
    Mesh mesh = scatter.getMeshAttr().getMesh();
    int64_t elementBytes = from.getGlobal().getElementTypeBitWidth() / 8;
    int64_t elements =
        to.getElementsPerUnit() * llvm::product_of(from.getWholeSizes());
    SmallVector<AxisRef> refs =
        cast<CollectiveOpInterface>(scatter.getOperation()).getAxisRefs();
    std::vector<AxisRef> axes(refs.begin(), refs.end());
    double plain = model.getExchangeUsec(
        getSentBytes(mesh, CollectiveKind::ReduceScatter, axes,
                     elements / zpp::numDevices(axes) * elementBytes));
    // The first kernel reads the gradient; each other one reads what a hop
    // sends.
    double usec = LinkModel::kKernelWeight *
                  LinkModel::getKernelUsec(elements * elementBytes);
    for (auto [hop, quant] : llvm::zip_equal(plan.hops, plan.quants)) {
      SmallVector<AxisRef> hopRefs = resolveAxes(hop, scatter.getMeshAttr());
      std::vector<AxisRef> hopAxes(hopRefs.begin(), hopRefs.end());
      int64_t devices = zpp::numDevices(hopAxes);
      elements /= devices;
      int64_t chunk = quant ? quant.getLayout(elements).chunkBytes
                            : elements * elementBytes;
      usec += model.getExchangeUsec(getSentBytes(mesh, CollectiveKind::AllToAll,
                                                 hopAxes, chunk)) +
              LinkModel::kKernelWeight *
                  LinkModel::getKernelUsec(2 * devices * chunk);
    }
    return {plain, usec};
  }

  Plan getPlan(ReduceScatterOp scatter, ArrayRef<QuantAttr> formats,
               const std::optional<LinkModel> &model) {
    Plan plan;
    plan.scatter = scatter;
    chooseHops(plan, formats);
    if (!model || plan.isSmall)
      return plan;
    auto [plain, usec] = getUsec(plan, *model);
    if (usec >= plain)
      plan.reason = "on these links it takes " +
                    std::to_string(static_cast<int64_t>(plain)) +
                    " usec, in hops " +
                    std::to_string(static_cast<int64_t>(usec));
    return plan;
  }

  void split(const Plan &plan, bool splitsSmall) {
    ReduceScatterOp scatter = plan.scatter;
    ArrayRef<ArrayAttr> hops = plan.hops;
    ArrayRef<QuantAttr> quants = plan.quants;
    bool isSmall = plan.isSmall;
    if (!plan.reason.empty()) {
      leaveAlone(scatter, getArgument(), plan.reason);
      return;
    }
    if (isSmall && !splitsSmall) {
      leaveAlone(scatter, getArgument(),
                 "its chunks are so small that they would not shrink");
      return;
    }
    OpBuilder builder(scatter);
    Value value = scatter.getOperand();
    ShardType full = scatter.getOperand().getType(), to = scatter.getType();
    SmallVector<FactorAttr> factors(full.getFactors());
    for (auto [index, along] : llvm::enumerate(hops)) {
      for (auto axis : along.getAsRange<AxisRefAttr>())
        for (auto [factor, partitioned] :
             llvm::zip_equal(factors, to.getFactors()))
          if (partitioned.getAxis() == axis)
            factor = partitioned;
      bool isLast = index + 1 == hops.size();
      // A partial sum stays in f32 until the next hop quantizes it. A scatter
      // that would round only once if it were left alone also keeps f32 between
      // its hops, except on the slowest links, which must not carry more bytes
      // than before.
      ShardType type = full.withFactors(factors);
      if (!isLast &&
          (quants[index + 1] || (isSmall && index + 2 < hops.size())))
        type = type.withElementType(builder.getF32Type());
      else
        type = type.withElementType(to.getGlobal().getElementType());
      auto part = ReduceScatterOp::create(builder, scatter.getLoc(), type,
                                          scatter.getKind(), value, along,
                                          quants[index]);
      copyOrigin(scatter, part);
      value = part;
    }
    remarkRewrite(scatter, getArgument(),
                  "scattered in " + Twine(hops.size()) + " hops");
    scatter.replaceAllUsesWith(value);
    scatter.erase();
  }
};
} // namespace
