//===- SplitAllReduce.cpp - All-reduces as scatters and gathers -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every device that keeps a piece of the sum sends it in the format of the
// gather, and reads its own piece from what it sent: all devices then hold the
// same bits.
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "LocalValues.h"
#include "ScatterHops.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Support/CollectiveCost.h"
#include "zpp/Support/Limits.h"
#include "zpp/Support/Placement.h"
#include "zpp/Transforms/Passes.h"

#include <set>

namespace zpp {
#define GEN_PASS_DEF_SPLITALLREDUCEPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// More stages than this have pieces too small to be worth it, and a stage has
/// at least these elements on each device.
constexpr int64_t kMostStages = 8;
constexpr int64_t kLeastElements = 4096;

/// A scatter that sums what an all-reduce does over other axes: before it
/// (HSDP), or behind it, where the order of the two is of no use.
struct Partner {
  ReduceScatterOp scatter;
  bool isBehind = false;
  /// What lies between the two, in order: casts, transposes, reshapes, and
  /// products with constants. Each has one operand that is no constant.
  SmallVector<Operation *> path;
  bool isScaled = false;
  /// The dim that is scattered, of what is summed first.
  int64_t dim = 0;
};

/// How an all-reduce is done, with or without its partner.
struct Plan {
  mutable AllReduceOp allReduce;
  std::optional<Partner> partner;
  ScatterHops hops;
  /// Of the hops, those of the scatter.
  SmallVector<bool> isOfScatter;
  /// The axes of each gather, slower tiers first, and their format.
  SmallVector<ArrayAttr> gathers;
  QuantAttr reduced;
  /// The elements of the result.
  Type element;
  /// True if the whole tensor is scattered as one flat dim.
  bool isFlat = false;
  bool isSmall = false;
  /// Parts of a flat tensor, each of which is an all-reduce of its own.
  int64_t stages = 1;
};

class SplitAllReducePass
    : public zpp::impl::SplitAllReducePassBase<SplitAllReducePass> {
public:
  using SplitAllReducePassBase::SplitAllReducePassBase;

  LogicalResult initialize(MLIRContext *context) override {
    loadStablehlo(context);
    return success();
  }

  void runOnOperation() override {
    if (stages < 0 || stages > kMaxStages) {
      emitError(getOperation().getLoc(), "expected 1 to ")
          << kMaxStages << " stages, or 0 to choose, but got "
          << stages.getValue();
      return signalPassFailure();
    }
    FailureOr<SmallVector<QuantAttr>> quants =
        parseFormats(getOperation(), formats, block, rotate);
    FailureOr<QuantAttr> back =
        parseFormat(getOperation(), reduced, block, rotate);
    if (failed(quants) || failed(back))
      return signalPassFailure();
    SmallVector<AllReduceOp> allReduces;
    getOperation().walk(
        [&](AllReduceOp allReduce) { allReduces.push_back(allReduce); });
    LinksOption linksOption(getOperation(), links);
    std::vector<Plan> plans;
    bool hasLarge = false;
    partners.clear();
    for (AllReduceOp allReduce : allReduces) {
      FailureOr<std::optional<LinkModel>> model =
          linksOption.getModel(allReduce.getMeshAttr().getMesh());
      if (failed(model))
        return signalPassFailure();
      std::string reason;
      std::optional<Plan> plan =
          getPlan(allReduce, *quants, *back, *model, reason);
      if (!plan) {
        restore(allReduce, reason);
        continue;
      }
      hasLarge |= !plan->isSmall;
      plans.push_back(std::move(*plan));
    }
    for (const Plan &plan : plans) {
      // There is no all-reduce of StableHLO that averages.
      if (plan.isSmall && plan.allReduce.getKind() == ReduceKind::Sum &&
          !(splitSmall && hasLarge))
        restore(plan.allReduce,
                "its pieces are so small that they would not shrink");
      else
        split(plan);
    }
  }

private:
  //===--------------------------------------------------------------------===//
  // Partners
  //===--------------------------------------------------------------------===//

  /// The operand of `op` that is no constant, if `op` multiplies it with one or
  /// divides it by one, the same for all elements.
  static OpOperand *getScaled(Operation *op) {
    bool isProduct = isNamed(op, guest::kMultiply);
    if ((!isProduct && !isNamed(op, guest::kDivide)) ||
        op->getNumOperands() != 2 || op->getNumResults() != 1 ||
        !llvm::all_equal({op->getOperand(0).getType(),
                          op->getOperand(1).getType(),
                          op->getResult(0).getType()}))
      return nullptr;
    for (unsigned index : {0, 1})
      if ((index == 0 || isProduct) && isSplat(op->getOperand(1 - index)))
        return &op->getOpOperand(index);
    return nullptr;
  }

  /// True for a constant, also a broadcast one, with equal elements.
  static bool isSplat(Value value) {
    Operation *op = value.getDefiningOp();
    while (op && op->getNumOperands() == 1 &&
           (isNamed(op, guest::kBroadcastInDim) ||
            isNamed(op, guest::kConvert) || isNamed(op, guest::kReshape)))
      op = op->getOperand(0).getDefiningOp();
    if (!op || !isNamed(op, guest::kConstant))
      return false;
    Attribute attr = op->getAttr("value");
    auto elements = dyn_cast_or_null<ElementsAttr>(attr);
    return elements && elements.isSplat();
  }

  static bool isFloat(Type type) {
    return isQuantizable(getElementTypeOrSelf(type));
  }

  /// The operand of `op` that goes on to its result if `op` may lie between the
  /// partners, or null.
  static OpOperand *getPassed(Operation *op) {
    if (isNamed(op, guest::kTranspose) || isNamed(op, guest::kReshape) ||
        isNamed(op, guest::kConvert))
      return isConsistentMovement(op) && isFloat(op->getOperand(0).getType()) &&
                     isFloat(op->getResult(0).getType())
                 ? &op->getOpOperand(0)
                 : nullptr;
    return getScaled(op);
  }

  /// True if `scatter` can be done together with `allReduce`.
  static bool isPartner(ReduceScatterOp scatter, AllReduceOp allReduce) {
    return scatter && !scatter.getWire() &&
           scatter.getKind() == allReduce.getKind() &&
           scatter->getBlock() == allReduce->getBlock() &&
           scatter.getOperand().getType().isWhole();
  }

  /// The scatter whose result `allReduce` sums, if nothing else reads it.
  static std::optional<Partner> getScatterBefore(AllReduceOp allReduce) {
    auto border = allReduce.getOperand().getDefiningOp<FromLocalOp>();
    if (!border || !border->hasOneUse())
      return std::nullopt;
    Partner partner;
    Value value = border.getLocal();
    while (value.hasOneUse()) {
      Operation *op = value.getDefiningOp();
      if (!op)
        return std::nullopt;
      if (auto toLocal = dyn_cast<ToLocalOp>(op)) {
        partner.scatter = toLocal.getShard().getDefiningOp<ReduceScatterOp>();
        if (!isPartner(partner.scatter, allReduce) ||
            !partner.scatter->hasOneUse())
          return std::nullopt;
        std::reverse(partner.path.begin(), partner.path.end());
        partner.dim = partner.scatter.getType().getDim();
        return partner;
      }
      OpOperand *passed = getPassed(op);
      if (!passed)
        return std::nullopt;
      partner.isScaled |= getScaled(op) != nullptr;
      partner.path.push_back(op);
      value = passed->get();
    }
    return std::nullopt;
  }

  /// The scatter that alone reads the result of `allReduce`.
  static std::optional<Partner> getScatterBehind(AllReduceOp allReduce) {
    if (!allReduce->hasOneUse())
      return std::nullopt;
    auto border = dyn_cast<ToLocalOp>(*allReduce->user_begin());
    if (!border)
      return std::nullopt;
    Partner partner;
    partner.isBehind = true;
    Value value = border.getLocal();
    while (value.hasOneUse()) {
      OpOperand &use = *value.use_begin();
      Operation *op = use.getOwner();
      if (auto fromLocal = dyn_cast<FromLocalOp>(op)) {
        if (!fromLocal->hasOneUse())
          return std::nullopt;
        partner.scatter = dyn_cast<ReduceScatterOp>(*fromLocal->user_begin());
        if (!isPartner(partner.scatter, allReduce))
          return std::nullopt;
        std::optional<int64_t> dim = partner.scatter.getType().getDim();
        for (Operation *step : llvm::reverse(partner.path))
          if (dim && !getScaled(step))
            dim = getOperandDim(step, *dim);
        if (!dim)
          return std::nullopt;
        partner.dim = *dim;
        return partner;
      }
      if (getPassed(op) != &use)
        return std::nullopt;
      partner.isScaled |= getScaled(op) != nullptr;
      partner.path.push_back(op);
      value = op->getResult(0);
    }
    return std::nullopt;
  }

  //===--------------------------------------------------------------------===//
  // Plans
  //===--------------------------------------------------------------------===//

  static std::vector<AxisRef> getAxes(Operation *op) {
    SmallVector<AxisRef> refs = cast<CollectiveOpInterface>(op).getAxisRefs();
    return {refs.begin(), refs.end()};
  }

  /// The formats of a group over `refs`: those of its own tiers, without those
  /// of faster ones of the mesh.
  static ArrayRef<QuantAttr> getFormats(const Mesh &mesh,
                                        ArrayRef<AxisRef> refs,
                                        ArrayRef<QuantAttr> formats) {
    if (formats.size() == 1)
      return formats;
    std::set<int64_t> tiers;
    for (const AxisRef &ref : refs)
      tiers.insert(mesh.findAxis(ref.name));
    int64_t faster = 0;
    for (size_t axis = *tiers.rbegin() + 1; axis < mesh.getAxes().size();
         ++axis)
      faster += mesh.getAxes()[axis].size > 1;
    size_t kept = tiers.size() == 1 ? 1 : 2;
    ArrayRef<QuantAttr> rest =
        formats.drop_front(std::min<size_t>(faster, formats.size() - kept));
    return tiers.size() == 1 ? rest.take_front() : rest;
  }

  /// Sets hops, gathers and formats of `plan`, whose types are known.
  void chooseHops(Plan &plan, ArrayRef<QuantAttr> formats, QuantAttr back) {
    Mesh mesh = plan.allReduce.getMeshAttr().getMesh();
    std::vector<AxisRef> own = getAxes(plan.allReduce), all = own;
    if (plan.partner)
      llvm::append_range(all, getAxes(plan.partner->scatter));
    formats = getFormats(mesh, all, formats);
    for (const TierHop &hop : getTierHops(mesh, all, formats.size()))
      // What only the scatter goes over comes first.
      for (bool isOfScatter : {true, false}) {
        SmallVector<AxisRef> axes;
        for (const AxisRef &ref : hop.axes)
          if (llvm::is_contained(own, ref) != isOfScatter)
            axes.push_back(ref);
        if (axes.empty())
          continue;
        ArrayAttr along = getAxesAttr(&getContext(), mesh, axes);
        // What the hop after it sends unquantized.
        if (isOfScatter && !plan.isOfScatter.empty() && plan.isOfScatter.back())
          plan.hops.elements.back() =
              plan.hops.from.getGlobal().getElementType();
        plan.hops.append(along, formats[hop.format], plan.element);
        plan.isOfScatter.push_back(isOfScatter);
        if (!isOfScatter)
          plan.gathers.insert(plan.gathers.begin(), along);
      }
    plan.reduced = back;
    plan.isSmall = plan.hops.isQuantized() || back;
    plan.hops.dropFormatsThatDoNotPay();
    int64_t elements = plan.hops.to.getElementsPerUnit();
    if (back && back.getLayout(elements).chunkBytes >=
                    elements * plan.element.getIntOrFloatBitWidth() / 8)
      plan.reduced = QuantAttr();
    plan.isSmall &= !plan.hops.isQuantized() && !plan.reduced;
  }

  /// Partitioned tensors like `type` with the factors of `axes`, held whole and
  /// partitioned, behind those it has.
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

  /// The all-reduce alone, of a flat tensor.
  Plan getPlanAlone(AllReduceOp allReduce, ArrayRef<QuantAttr> formats,
                    QuantAttr back) {
    Plan plan;
    plan.allReduce = allReduce;
    plan.isFlat = true;
    RankedTensorType local = allReduce.getType().getLocalType();
    plan.element = local.getElementType();
    MeshAttr mesh = allReduce.getMeshAttr();
    // In the order of the hops: what goes to one device lies together.
    SmallVector<FactorAttr> whole, partitioned;
    for (const TierHop &hop :
         getTierHops(mesh.getMesh(), getAxes(allReduce), /*numFormats=*/2))
      appendFactors(getAxesAttr(&getContext(), mesh.getMesh(), hop.axes), mesh,
                    whole, partitioned);
    auto flat = RankedTensorType::get(local.getNumElements(), plan.element);
    plan.hops.from =
        ShardType::get(&getContext(), flat, 0, whole, mesh, QuantAttr());
    plan.hops.to = plan.hops.from.withFactors(partitioned);
    chooseHops(plan, formats, back);
    return plan;
  }

  /// The all-reduce and its partner as one; nullopt where the pieces of the
  /// scatter cannot be divided further.
  std::optional<Plan> getPlanWithScatter(AllReduceOp allReduce,
                                         const Partner &partner,
                                         ArrayRef<QuantAttr> formats,
                                         QuantAttr back) {
    ReduceScatterOp scatter = partner.scatter;
    ShardType from = scatter.getOperand().getType(), to = scatter.getType();
    ShardType sum = allReduce.getType();
    MeshAttr mesh = sum.getMesh();
    std::vector<AxisRef> all = getAxes(scatter);
    llvm::append_range(all, getAxes(allReduce));
    if (from.getMesh() != mesh || !mesh.getMesh().verify(all).empty() ||
        to.getAxes().size() != getAxes(scatter).size())
      return std::nullopt;
    Plan plan;
    plan.allReduce = allReduce;
    plan.partner = partner;
    plan.element = (partner.isBehind ? to : sum).getGlobal().getElementType();
    // What is scaled down after the sum may not be in the range of f16 before.
    if (partner.isScaled && plan.element.isF16())
      plan.element = Float32Type::get(&getContext());
    RankedTensorType global =
        partner.isBehind ? sum.getLocalType() : from.getGlobal();
    Type element = global.getElementType();
    if (element != plan.element && !element.isF32() && !plan.element.isF32())
      return std::nullopt;
    int64_t dim = partner.dim, devices = zpp::numDevices(all);
    if (global.getDimSize(dim) % devices != 0) {
      int64_t outer = llvm::product_of(global.getShape().take_front(dim));
      if (outer != 1 || global.getNumElements() % devices != 0 ||
          global.getDimSize(dim) % zpp::numDevices(getAxes(scatter)) != 0)
        return std::nullopt;
      plan.isFlat = true;
      global = RankedTensorType::get(global.getNumElements(),
                                     global.getElementType());
      dim = 0;
    }
    SmallVector<FactorAttr> whole(from.getFactors());
    SmallVector<FactorAttr> partitioned(to.getFactors());
    appendFactors(allReduce.getAlong(), mesh, whole, partitioned);
    plan.hops.from =
        ShardType::get(&getContext(), global, dim, whole, mesh, QuantAttr());
    plan.hops.to = plan.hops.from.withFactors(partitioned);
    chooseHops(plan, formats, back);
    return plan;
  }

  /// What a collective of StableHLO takes on the links of `model`.
  static double getPlainUsec(CollectiveOpInterface op, CollectiveKind kind,
                             int64_t bytes, const LinkModel &model) {
    SmallVector<AxisRef> refs = op.getAxisRefs();
    return model.getCollectiveUsec(op.getMeshAttr().getMesh(), kind,
                                   {refs.begin(), refs.end()}, bytes);
  }

  /// What each exchange of `plan` takes on the links of `model`.
  static std::vector<double> getExchanges(const Plan &plan,
                                          const LinkModel &model) {
    std::vector<double> usec = plan.hops.getExchanges(model);
    AllReduceOp allReduce = plan.allReduce;
    MeshAttr mesh = allReduce.getMeshAttr();
    int64_t elements = plan.hops.to.getElementsPerUnit();
    int64_t plain = elements * plan.element.getIntOrFloatBitWidth() / 8;
    int64_t bytes =
        plan.reduced ? plan.reduced.getLayout(elements).chunkBytes : plain;
    int64_t devices = 1;
    for (ArrayAttr along : plan.gathers) {
      SmallVector<AxisRef> refs = resolveAxes(along, mesh);
      std::vector<AxisRef> axes(refs.begin(), refs.end());
      usec.push_back(model.getExchangeUsec(getSentBytes(
          mesh.getMesh(), CollectiveKind::AllGather, axes, devices * bytes)));
      devices *= zpp::numDevices(axes);
    }
    return usec;
  }

  /// What `plan` takes on the links of `model`, with its kernels.
  static double getUsec(const Plan &plan, const LinkModel &model) {
    double usec = plan.hops.getKernelUsec();
    for (double exchange : getExchanges(plan, model))
      usec += exchange;
    // The last kernel reads what has arrived.
    int64_t elements = plan.hops.to.getElementsPerUnit();
    for (ArrayAttr along : plan.gathers)
      for (const AxisRef &ref :
           resolveAxes(along, AllReduceOp(plan.allReduce).getMeshAttr()))
        elements *= ref.size;
    return usec + LinkModel::kKernelWeight *
                      LinkModel::getKernelUsec(
                          elements * plan.element.getIntOrFloatBitWidth() / 4);
  }

  /// Cuts a flat tensor into as many parts as are asked for, or suit the links.
  void chooseStages(Plan &plan, const std::optional<LinkModel> &model) {
    if (plan.isSmall)
      return;
    int64_t asked = stages;
    if (asked == 0 && model) {
      // The scatter and the gather over a tier take the same links.
      std::vector<double> usec = getExchanges(plan, *model), byTier;
      for (size_t tier = 0; 2 * tier < usec.size(); ++tier)
        byTier.push_back(usec[tier] + usec[usec.size() - 1 - tier]);
      asked = zpp::chooseStages(byTier, kMostStages);
    }
    plan.stages =
        std::clamp<int64_t>(plan.hops.to.getElementsPerUnit() / kLeastElements,
                            1, std::max<int64_t>(asked, 1));
  }

  /// How `allReduce` is done; nullopt, and a reason, where it is left alone.
  std::optional<Plan> getPlan(AllReduceOp allReduce,
                              ArrayRef<QuantAttr> formats, QuantAttr back,
                              const std::optional<LinkModel> &model,
                              std::string &reason) {
    Plan alone = getPlanAlone(allReduce, formats, back);
    std::optional<Plan> joined;
    std::optional<Partner> partner = getScatterBefore(allReduce);
    if (!partner)
      partner = getScatterBehind(allReduce);
    // Between two all-reduces it is the partner of the first one.
    if (partner && partners.insert(partner->scatter).second)
      joined = getPlanWithScatter(allReduce, *partner, formats, back);
    chooseStages(alone, model);
    if (!model)
      return joined ? std::move(*joined) : std::move(alone);
    double plain = getPlainUsec(
        cast<CollectiveOpInterface>(allReduce.getOperation()),
        CollectiveKind::AllReduce,
        getBytes(allReduce.getOperand().getType().getLocalType()), *model);
    double usec = getUsec(alone, *model);
    if (joined) {
      ReduceScatterOp scatter = joined->partner->scatter;
      double apart =
          std::min(plain, usec) +
          getPlainUsec(cast<CollectiveOpInterface>(scatter.getOperation()),
                       CollectiveKind::ReduceScatter,
                       getBytes(scatter.getType().getLocalType()), *model);
      if (joined->isSmall || getUsec(*joined, *model) < apart)
        return joined;
    }
    if (alone.isSmall || usec < plain || allReduce.getKind() != ReduceKind::Sum)
      return alone;
    reason = "on these links it takes " +
             std::to_string(static_cast<int64_t>(plain)) + " usec, in hops " +
             std::to_string(static_cast<int64_t>(usec));
    return std::nullopt;
  }

  //===--------------------------------------------------------------------===//
  // The rewrite
  //===--------------------------------------------------------------------===//

  /// Makes of `allReduce` what it was imported from.
  void restore(AllReduceOp allReduce, const Twine &reason) {
    leaveAlone(allReduce, getArgument(), reason);
    IRRewriter rewriter(allReduce);
    StablehloBuilder stablehlo(rewriter, allReduce.getLoc());
    Value local =
        getLocal(rewriter, allReduce.getLoc(), allReduce.getOperand());
    Operation *restored = stablehlo.allReduce(
        local, allReduce.getMeshAttr().getMesh().getGroups(getAxes(allReduce)));
    restoreSource(allReduce, restored);
    copyOrigin(allReduce, restored);
    replaceWithLocal(rewriter, allReduce, restored->getResult(0));
  }

  void split(const Plan &plan) {
    AllReduceOp allReduce = plan.allReduce;
    ReduceScatterOp scatter;
    if (plan.partner)
      scatter = plan.partner->scatter;
    bool isBehind = scatter && plan.partner->isBehind;
    Operation *last = isBehind ? scatter.getOperation() : allReduce;
    Operation *first =
        scatter && !isBehind ? scatter.getOperation() : allReduce;
    Location loc = allReduce.getLoc();
    IRRewriter rewriter(last);
    StablehloBuilder stablehlo(rewriter, loc);
    Value operand = getLocal(rewriter, loc, first->getOperand(0));
    if (plan.isFlat)
      operand =
          stablehlo.reshape(operand, plan.hops.from.getGlobal().getShape());
    Value value = plan.stages > 1 ? reduceInStages(rewriter, plan, operand)
                                  : reduce(rewriter, plan, plan.hops, operand);
    auto result = cast<ShardType>(last->getResult(0).getType()).getLocalType();
    if (scatter) {
      // The path works on the piece that a device has.
      value = stablehlo.reshape(value, getPieceShape(plan));
      int64_t dim = plan.partner->dim;
      for (Operation *op : plan.partner->path)
        value = rebuild(stablehlo, rewriter, op, value, isBehind, dim);
    }
    value = stablehlo.reshape(stablehlo.convert(value, result.getElementType()),
                              result.getShape());
    remarkRewrite(allReduce, getArgument(),
                  (scatter ? "summed with a scatter in " : "scattered in ") +
                      Twine(plan.hops.along.size()) + " hops and gathered in " +
                      Twine(plan.gathers.size()));
    replaceWithLocal(rewriter, last, value);
    if (scatter)
      eraseDeadChain(first);
  }

  /// What a device has of the scattered tensor where the path begins.
  static SmallVector<int64_t> getPieceShape(const Plan &plan) {
    const Partner &partner = *plan.partner;
    ReduceScatterOp scatter = partner.scatter;
    if (!partner.isBehind)
      return llvm::to_vector(scatter.getType().getLocalType().getShape());
    SmallVector<int64_t> shape(
        plan.allReduce.getType().getLocalType().getShape());
    shape[partner.dim] /= zpp::numDevices(getAxes(scatter));
    return shape;
  }

  /// Scatters and gathers `operand`, what a device has of `hops.from`.
  Value reduce(OpBuilder &builder, const Plan &plan, const ScatterHops &hops,
               Value operand) {
    AllReduceOp allReduce = plan.allReduce;
    Location loc = allReduce.getLoc();
    Value value = FromLocalOp::create(builder, loc, hops.from, operand);
    value = hops.build(
        builder, loc, allReduce.getKind(), value,
        /*isEncodedNext=*/static_cast<bool>(plan.reduced),
        /*inF32=*/plan.isSmall, [&](ReduceScatterOp hop, size_t index) {
          copyOrigin(plan.isOfScatter[index]
                         ? ReduceScatterOp(plan.partner->scatter).getOperation()
                         : allReduce.getOperation(),
                     hop);
        });
    ShardType type =
        cast<ShardType>(value.getType()).withElementType(plan.element);
    return getLocal(builder, loc, gather(builder, plan, value, type));
  }

  /// The same for each part of a flat tensor: the hops of one part run under
  /// those of others (zero-pipeline-chunks).
  Value reduceInStages(OpBuilder &builder, const Plan &plan, Value operand) {
    Location loc = AllReduceOp(plan.allReduce).getLoc();
    RankedTensorType whole = plan.hops.from.getGlobal();
    int64_t elements = whole.getNumElements();
    // Only the last part is padded.
    int64_t unit = llvm::product_of(plan.hops.to.getFactorSizes()) * block;
    int64_t most =
        llvm::divideCeil(llvm::divideCeil(elements, plan.stages), unit) * unit;
    SmallVector<Value> parts;
    for (int64_t begin = 0; begin < elements; begin += most) {
      int64_t size = std::min(most, elements - begin);
      auto type = RankedTensorType::get(size, whole.getElementType());
      Value part = tensor::ExtractSliceOp::create(
          builder, loc, type, operand,
          ArrayRef<OpFoldResult>{builder.getIndexAttr(begin)},
          ArrayRef<OpFoldResult>{builder.getIndexAttr(size)},
          ArrayRef<OpFoldResult>{builder.getIndexAttr(1)});
      ScatterHops hops = plan.hops;
      for (ShardType *shard : {&hops.from, &hops.to})
        *shard = ShardType::get(&getContext(), type, 0, shard->getFactors(),
                                shard->getMesh(), QuantAttr());
      parts.push_back(reduce(builder, plan, hops, part));
    }
    return tensor::ConcatOp::create(builder, loc, /*dim=*/0, parts);
  }

  /// Gathers the pieces `value`, whose type is `type` but for the elements of
  /// a sum that stays in f32.
  Value gather(OpBuilder &builder, const Plan &plan, Value value,
               ShardType type) {
    AllReduceOp allReduce = plan.allReduce;
    Location loc = allReduce.getLoc();
    if (plan.reduced)
      value = EncodeOp::create(builder, loc, type.withQuant(plan.reduced),
                               value, /*held=*/Value());
    Mesh mesh = allReduce.getMeshAttr().getMesh();
    for (ArrayAttr along : plan.gathers) {
      auto from = cast<ShardType>(value.getType());
      SmallVector<FactorAttr> factors(from.getFactors());
      SmallVector<int64_t> positions = *from.findFactors(along);
      for (int64_t position : positions)
        factors[position] = FactorAttr::getWhole(
            &getContext(), factors[position].getAxis().resolve(mesh)->size);
      auto hop = AllGatherOp::create(builder, loc, from.withFactors(factors),
                                     value, along);
      copyOrigin(allReduce, hop);
      value = hop;
    }
    if (!plan.reduced)
      return value;
    auto encoded = cast<ShardType>(value.getType());
    return DecodeOp::create(builder, loc, encoded.withQuant(QuantAttr()), value,
                            /*held=*/Value());
  }

  /// What `op`, of the path between the partners, makes of `value`, in the type
  /// of its elements. If `isPart`, `value` is a part in dim `dim` of what `op`
  /// had; `dim` becomes that of the result.
  static Value rebuild(StablehloBuilder &stablehlo, RewriterBase &rewriter,
                       Operation *op, Value value, bool isPart, int64_t &dim) {
    if (isNamed(op, guest::kConvert))
      return value;
    auto type = cast<RankedTensorType>(value.getType());
    Type element = type.getElementType();
    Value result;
    if (OpOperand *scaled = getScaled(op)) {
      Value factor = op->getOperand(1 - scaled->getOperandNumber());
      if (isPart)
        factor = stablehlo.slice(factor, dim, 0, type.getDimSize(dim));
      factor = stablehlo.convert(factor, element);
      SmallVector<Value> operands{value, factor};
      if (scaled->getOperandNumber() == 1)
        std::swap(operands[0], operands[1]);
      return stablehlo.elementwise(op->getName().stripDialect(), operands);
    }
    if (isPart) {
      int64_t size = type.getDimSize(dim);
      dim = *getResultDim(op, dim);
      result = buildOnPart(rewriter, op, value, dim, size);
    } else {
      IRMapping mapping;
      mapping.map(op->getOperand(0), value);
      result = rewriter.clone(*op, mapping)->getResult(0);
    }
    result.setType(cast<RankedTensorType>(result.getType()).clone(element));
    return result;
  }

  llvm::SmallPtrSet<Operation *, 8> partners;
};

} // namespace
