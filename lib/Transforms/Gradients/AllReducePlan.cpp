//===- AllReducePlan.cpp - How an all-reduce is split ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AllReducePlan.h"

#include "Formats.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Support/CollectiveCost.h"
#include "zpp/Support/Limits.h"
#include "zpp/Support/Placement.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// More stages than this have pieces too small to be worth it, and a stage has
/// at least these elements on each device.
static constexpr int64_t kMostStages = 8;
static constexpr int64_t kLeastElements = 4096;

//===----------------------------------------------------------------------===//
// Hops
//===----------------------------------------------------------------------===//

/// Sets hops, gathers and formats of `exchanges`, whose types are known.
/// `scatter` is that of the partner, or null.
void AllReducePlanner::chooseHops(AllReduceOp allReduce,
                                  ReduceScatterOp scatter,
                                  ReduceExchanges &exchanges) const {
  MLIRContext *context = allReduce.getContext();
  Mesh mesh = allReduce.getMeshAttr().getMesh();
  std::vector<AxisRef> own = allReduce.getAxisRefs(), all = own;
  if (scatter)
    llvm::append_range(all, scatter.getAxisRefs());
  for (const TierHop &hop : getTierHops(mesh, all, formats.size()))
    // Axes of the scatter alone come first.
    for (bool isOfScatter : {true, false}) {
      SmallVector<AxisRef> axes;
      for (const AxisRef &ref : hop.axes)
        if (llvm::is_contained(own, ref) != isOfScatter)
          axes.push_back(ref);
      if (axes.empty())
        continue;
      ArrayAttr along = getAxesAttr(context, mesh, axes);
      // The hop after it sends this unquantized.
      if (isOfScatter && !exchanges.isOfScatter.empty() &&
          exchanges.isOfScatter.back())
        exchanges.hops.elements.back() =
            exchanges.hops.from.getGlobal().getElementType();
      exchanges.hops.append(along,
                            widen(formats[hop.format], {allReduce, scatter}),
                            exchanges.element);
      exchanges.isOfScatter.push_back(isOfScatter);
      if (!isOfScatter)
        exchanges.gathers.insert(exchanges.gathers.begin(), along);
    }
  exchanges.reduced = widen(reduced, {allReduce, scatter});
  exchanges.isSmall = exchanges.hops.isQuantized() || exchanges.reduced;
  exchanges.hops.dropFormatsThatDoNotPay();
  int64_t elements = exchanges.hops.to.getElementsPerUnit();
  if (exchanges.reduced &&
      exchanges.reduced.getLayout(elements).chunkBytes >=
          elements * exchanges.element.getIntOrFloatBitWidth() / 8)
    exchanges.reduced = QuantAttr();
  exchanges.isSmall &= !exchanges.hops.isQuantized() && !exchanges.reduced;
}

/// Partitioned tensors like `type` with the factors of `axes`, held whole and
/// partitioned, after those it has.
static void appendFactors(ArrayAttr axes, MeshAttr mesh,
                          SmallVectorImpl<FactorAttr> &whole,
                          SmallVectorImpl<FactorAttr> &partitioned) {
  Mesh plain = mesh.getMesh();
  for (auto axis : axes.getAsRange<AxisRefAttr>()) {
    whole.push_back(
        FactorAttr::getWhole(mesh.getContext(), axis.resolve(plain)->size));
    partitioned.push_back(FactorAttr::getPartitioned(axis));
  }
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

/// Returns the time of a collective of StableHLO on the links of `model`.
static double getPlainUsec(CollectiveOpInterface op, CollectiveKind kind,
                           int64_t bytes, const LinkModel &model) {
  return model.getCollectiveUsec(op.getMeshAttr().getMesh(), kind,
                                 op.getAxisRefs(), bytes);
}

/// Returns the time of each of `exchanges` on the links of `model`.
static std::vector<double> getExchangeUsec(const ReduceExchanges &exchanges,
                                           const LinkModel &model) {
  std::vector<double> usec = exchanges.hops.getExchanges(model);
  MeshAttr mesh = exchanges.hops.from.getMesh();
  int64_t elements = exchanges.hops.to.getElementsPerUnit();
  int64_t plain = elements * exchanges.element.getIntOrFloatBitWidth() / 8;
  int64_t bytes = exchanges.reduced
                      ? exchanges.reduced.getLayout(elements).chunkBytes
                      : plain;
  int64_t devices = 1;
  for (ArrayAttr along : exchanges.gathers) {
    std::vector<AxisRef> axes = resolveAxes(along, mesh);
    usec.push_back(model.getCollectiveUsec(
        mesh.getMesh(), CollectiveKind::AllGather, axes, devices * bytes));
    devices *= zpp::numDevices(axes);
  }
  return usec;
}

/// Returns the time of `exchanges` on the links of `model`, with their kernels.
static double getUsec(const ReduceExchanges &exchanges,
                      const LinkModel &model) {
  double usec = exchanges.hops.getKernelUsec();
  for (double exchange : getExchangeUsec(exchanges, model))
    usec += exchange;
  // The last kernel reads what has arrived.
  int64_t elements = exchanges.hops.to.getElementsPerUnit();
  for (ArrayAttr along : exchanges.gathers)
    for (const AxisRef &ref : resolveAxes(along, exchanges.hops.from.getMesh()))
      elements *= ref.size;
  return usec +
         LinkModel::kKernelWeight *
             LinkModel::getKernelUsec(
                 elements * exchanges.element.getIntOrFloatBitWidth() / 4);
}

//===----------------------------------------------------------------------===//
// Ways
//===----------------------------------------------------------------------===//

/// As many parts of a flat tensor as are asked for, or suit the links.
int64_t
AllReducePlanner::chooseStages(const ReduceExchanges &exchanges,
                               const std::optional<LinkModel> &model) const {
  if (exchanges.isSmall)
    return 1;
  int64_t asked = stages;
  if (asked == 0 && model) {
    // The scatter and the gather over a tier take the same links.
    std::vector<double> usec = getExchangeUsec(exchanges, *model), byTier;
    for (size_t tier = 0; 2 * tier < usec.size(); ++tier)
      byTier.push_back(usec[tier] + usec[usec.size() - 1 - tier]);
    asked = zpp::chooseStages(byTier, kMostStages);
  }
  return std::clamp<int64_t>(exchanges.hops.to.getElementsPerUnit() /
                                 kLeastElements,
                             1, std::max<int64_t>(asked, 1));
}

/// The all-reduce alone, of a flat tensor.
SplitAlone
AllReducePlanner::planAlone(AllReduceOp allReduce,
                            const std::optional<LinkModel> &model) const {
  MLIRContext *context = allReduce.getContext();
  SplitAlone plan;
  ReduceExchanges &exchanges = plan.exchanges;
  exchanges.isFlat = true;
  RankedTensorType local = allReduce.getType().getLocalType();
  exchanges.element = local.getElementType();
  MeshAttr mesh = allReduce.getMeshAttr();
  // In the order of the hops: what goes to one device lies together.
  SmallVector<FactorAttr> whole, partitioned;
  for (const TierHop &hop :
       getTierHops(mesh.getMesh(), allReduce.getAxisRefs(), /*numFormats=*/2))
    appendFactors(getAxesAttr(context, mesh.getMesh(), hop.axes), mesh, whole,
                  partitioned);
  auto flat = RankedTensorType::get(local.getNumElements(), exchanges.element);
  exchanges.hops.from =
      ShardType::get(context, flat, 0, whole, mesh, QuantAttr());
  exchanges.hops.to = exchanges.hops.from.withFactors(partitioned);
  chooseHops(allReduce, /*scatter=*/{}, exchanges);
  plan.stages = chooseStages(exchanges, model);
  return plan;
}

/// The all-reduce and its partner as one; nullopt where the pieces of the
/// scatter cannot be divided further.
std::optional<SplitWithScatter>
AllReducePlanner::planWithScatter(AllReduceOp allReduce,
                                  const ScatterPartner &partner) const {
  MLIRContext *context = allReduce.getContext();
  ReduceScatterOp scatter = partner.scatter;
  ShardType from = scatter.getOperand().getType(), to = scatter.getType();
  ShardType sum = allReduce.getType();
  MeshAttr mesh = sum.getMesh();
  std::vector<AxisRef> all = scatter.getAxisRefs();
  llvm::append_range(all, allReduce.getAxisRefs());
  if (from.getMesh() != mesh || !mesh.getMesh().verify(all).empty() ||
      to.getAxes().size() != scatter.getAxisRefs().size())
    return std::nullopt;
  SplitWithScatter plan;
  plan.partner = partner;
  ReduceExchanges &exchanges = plan.exchanges;
  exchanges.element = (partner.isAfter ? to : sum).getGlobal().getElementType();
  // A sum that is scaled down later may not be in the range of f16 before.
  if (partner.isScaled && exchanges.element.isF16())
    exchanges.element = Float32Type::get(context);
  RankedTensorType global =
      partner.isAfter ? sum.getLocalType() : from.getGlobal();
  Type element = global.getElementType();
  if (element != exchanges.element && !element.isF32() &&
      !exchanges.element.isF32())
    return std::nullopt;
  int64_t dim = partner.dim, devices = zpp::numDevices(all);
  if (global.getDimSize(dim) % devices != 0) {
    int64_t outer = llvm::product_of(global.getShape().take_front(dim));
    if (outer != 1 || global.getNumElements() % devices != 0 ||
        global.getDimSize(dim) % zpp::numDevices(scatter.getAxisRefs()) != 0)
      return std::nullopt;
    exchanges.isFlat = true;
    global =
        RankedTensorType::get(global.getNumElements(), global.getElementType());
    dim = 0;
  }
  SmallVector<FactorAttr> whole(from.getFactors());
  SmallVector<FactorAttr> partitioned(to.getFactors());
  appendFactors(allReduce.getAlong(), mesh, whole, partitioned);
  exchanges.hops.from =
      ShardType::get(context, global, dim, whole, mesh, QuantAttr());
  exchanges.hops.to = exchanges.hops.from.withFactors(partitioned);
  chooseHops(allReduce, scatter, exchanges);
  return plan;
}

Decision<AllReducePlan>
AllReducePlanner::decide(AllReduceOp allReduce,
                         const std::optional<LinkModel> &model) {
  SplitAlone alone = planAlone(allReduce, model);
  std::optional<SplitWithScatter> joined;
  std::optional<ScatterPartner> partner = findPartner(allReduce);
  // Between two all-reduces it is the partner of the first one.
  if (partner && taken.insert(partner->scatter).second)
    joined = planWithScatter(allReduce, *partner);
  // There is no all-reduce of StableHLO that averages.
  bool isRestorable = allReduce.getKind() == ReduceKind::Sum;
  bool isExact =
      (reduced || hasFormat(formats)) && getFloor(allReduce) == Floor::None;
  if (!joined && isRestorable && !splitExact && isExact)
    return LeftAlone(getFloorReason(getOrigins(allReduce)));
  if (!model || (splitExact && isExact))
    return joined ? AllReducePlan(std::move(*joined)) : std::move(alone);
  double plain = getPlainUsec(
      cast<CollectiveOpInterface>(allReduce.getOperation()),
      CollectiveKind::AllReduce,
      getBytes(allReduce.getOperand().getType().getLocalType()), *model);
  double usec = getUsec(alone.exchanges, *model);
  if (joined) {
    ReduceScatterOp scatter = joined->partner.scatter;
    double apart =
        std::min(plain, usec) +
        getPlainUsec(cast<CollectiveOpInterface>(scatter.getOperation()),
                     CollectiveKind::ReduceScatter,
                     getBytes(scatter.getType().getLocalType()), *model);
    if (joined->exchanges.isSmall || getUsec(joined->exchanges, *model) < apart)
      return AllReducePlan(std::move(*joined));
  }
  if (alone.exchanges.isSmall || usec < plain || !isRestorable)
    return AllReducePlan(std::move(alone));
  return LeftAlone::onLinks(plain, "in hops", usec);
}
