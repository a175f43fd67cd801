//===- PartitionWithinNode.cpp - Secondary weight partitions (hpZ, 3.2) ---===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "LocalValues.h"
#include "WeightPath.h"
#include "mlir/IR/Dominance.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace zpp {
#define GEN_PASS_DEF_PARTITIONWITHINNODEPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// The axes of a gather, each marked as inside the secondary group or not.
struct SecondaryGroup {
  /// The primary partition, with an axis cut in two where the border of the
  /// group falls inside it.
  ShardType primary;
  ArrayAttr outer;
  ArrayAttr inner;
};

/// Where the gathers of a group that lie in several loops read from.
struct Stack {
  /// By gather.
  SmallVector<WeightPath> paths;
  /// The first op with a gather in the block around all loops: what is hoisted
  /// goes in front of it.
  Operation *anchor;
};

/// What becomes of the gathers of one weight.
struct Plan {
  ArrayRef<AllGatherOp> group;
  /// Why they are left alone, or empty.
  std::string reason;
  /// They are left alone only for the latency of the hops, which they would not
  /// have if they travelled with others.
  bool isSmall = false;
  SecondaryGroup axes;
  /// For each later gather the barrier that what is kept can cross with its
  /// operand, or null. Empty where a stack is hoisted out of loops instead.
  SmallVector<Operation *> crossed;
  std::optional<Stack> stack;
  /// The manual computation of each gather where they lie in several; else
  /// empty.
  SmallVector<Operation *> computations;
};

/// A kept partition that leaves a manual computation, and what stands for it in
/// those that it enters until they are rebuilt.
struct Passage {
  Operation *from;
  /// In the region of `from`.
  Value local;
  llvm::MapVector<Operation *, UnrealizedConversionCastOp> entries;
};

class PartitionWithinNodePass
    : public zpp::impl::PartitionWithinNodePassBase<PartitionWithinNodePass> {
public:
  using PartitionWithinNodePassBase::PartitionWithinNodePassBase;

  LogicalResult initialize(MLIRContext *context) override {
    loadStablehlo(context);
    return success();
  }

  void runOnOperation() override {
    provenances = ProvenanceAnalysis();
    passages.clear();
    loopsOver.clear();
    // Gathers of the same values: the same root through the same casts.
    llvm::MapVector<Attribute, SmallVector<AllGatherOp>> gathers;
    getOperation().walk<WalkOrder::PreOrder>([&](AllGatherOp gather) {
      // The second half of a gather that is split already, or its first.
      if (gather.getOperand().getDefiningOp<AllGatherOp>() ||
          gather->hasAttr(kKeepAttr) ||
          llvm::any_of(gather->getUsers(), llvm::IsaPred<AllGatherOp>))
        return;
      if (Attribute key = getKey(gather)) {
        gathers[key].push_back(gather);
        Value local = getSource(gather).getLocal();
        if (isInLoop(gather))
          loopsOver[provenances.get(local).root].insert(gather->getBlock());
      }
    });
    // Everything is decided before anything is changed: an error leaves the
    // module alone, and dominance asks for an order of ops that insertions
    // would invalidate every time.
    std::vector<Plan> plans;
    LinksOption linksOption(getOperation(), links);
    for (auto &[key, group] : gathers) {
      FailureOr<Plan> plan = getPlan(group, linksOption);
      if (failed(plan))
        return signalPassFailure();
      plans.push_back(std::move(*plan));
    }
    if (splitSmall)
      splitBesideOthers(plans);
    for (const Plan &plan : plans)
      partition(plan);
    for (auto &[barrier, additions] : barriers)
      extendBarrier(barrier, additions);
    openPassages();
  }

private:
  //===--------------------------------------------------------------------===//
  // Which gathers read the same weight
  //===--------------------------------------------------------------------===//

  /// The local tensor that a gather reads, before it is quantized.
  static FromLocalOp getSource(AllGatherOp gather) {
    Value operand = gather.getOperand();
    if (auto encode = operand.getDefiningOp<EncodeOp>())
      operand = encode.getOperand();
    return operand.getDefiningOp<FromLocalOp>();
  }

  /// What is equal for values only if they are: the same slice, and the same
  /// casts of it.
  void appendKey(Value value, bool inAnyIteration,
                 SmallVectorImpl<Attribute> &steps) {
    steps.push_back(
        IntegerAttr::get(IndexType::get(&getContext()),
                         provenances.getSliceId(value, inAnyIteration)));
    for (Operation *op : provenances.getPath(value)) {
      // Which slice of a stack a loop reads is up to its index: the forward and
      // the backward loop go over all of them.
      steps.push_back(op->getName().getIdentifier());
      if (Attribute properties = op->getPropertiesAsAttribute())
        steps.push_back(properties);
      steps.push_back(TypeAttr::get(op->getResult(0).getType()));
    }
  }

  bool areEqual(Value a, Value b) {
    SmallVector<Attribute> keyOfA, keyOfB;
    appendKey(a, /*inAnyIteration=*/false, keyOfA);
    appendKey(b, /*inAnyIteration=*/false, keyOfB);
    return keyOfA == keyOfB;
  }

  /// Equal for gathers of the same weight; null where there is none to find.
  Attribute getKey(AllGatherOp gather) {
    FromLocalOp source = getSource(gather);
    if (!source)
      return {};
    // It starts from a secondary partition already.
    if (provenances.get(source.getLocal()).root.getDefiningOp<AllGatherOp>())
      return {};
    SmallVector<Attribute> steps{TypeAttr::get(gather.getType()),
                                 gather.getAlong()};
    appendKey(source.getLocal(), /*inAnyIteration=*/true, steps);
    return ArrayAttr::get(&getContext(), steps);
  }

  //===--------------------------------------------------------------------===//
  // The secondary group
  //===--------------------------------------------------------------------===//

  /// Divides the axes of `gather` by `secondary`; an empty reason means
  /// success.
  FailureOr<SecondaryGroup> getGroup(AllGatherOp gather, std::string &reason) {
    ShardType type = gather.getOperand().getType();
    Mesh mesh = type.getMesh().getMesh();
    SmallVector<AxisRef> refs =
        cast<CollectiveOpInterface>(gather.getOperation()).getAxisRefs();
    // From slowest to fastest link, however the dim is ordered.
    llvm::sort(refs, [&](const AxisRef &a, const AxisRef &b) {
      return std::make_pair(mesh.findAxis(a.name), a.preSize) <
             std::make_pair(mesh.findAxis(b.name), b.preSize);
    });
    int64_t size = 1;
    if (secondary.empty()) {
      for (const AxisRef &ref : refs)
        if (ref.name == refs.back().name)
          size *= ref.size;
    } else if (int64_t axis = mesh.findAxis(secondary); axis >= 0) {
      for (const AxisRef &ref : refs)
        if (mesh.findAxis(ref.name) >= axis)
          size *= ref.size;
    } else if (StringRef(secondary).getAsInteger(10, size) || size < 1) {
      return emitError(getOperation().getLoc(), "expected a tier of the mesh ")
             << mesh.str() << " or a group size as the secondary partition, "
             << "but got '" << secondary << "'";
    }
    std::vector<AxisRef> outer, inner;
    std::vector<AxisRef> ordered(refs.begin(), refs.end());
    int64_t devices = zpp::numDevices(ordered);
    // A weight that fewer devices share may have a smaller group.
    if (size % devices == 0 && mesh.numDevices() % size == 0)
      inner = ordered;
    else if (!splitRefs(ordered, size, outer, inner))
      return gather.emitError("expected a secondary group size that divides "
                              "the ")
             << devices << " devices of a weight's group on " << mesh.str()
             << ", but got " << size;
    if (inner.empty()) {
      reason = "its secondary group is one device";
      return SecondaryGroup();
    }
    if (outer.empty()) {
      reason = "its group lies within the secondary group of " +
               std::to_string(size);
      return SecondaryGroup();
    }
    SmallVector<FactorAttr> factors;
    for (FactorAttr factor : type.getFactors()) {
      std::optional<AxisRef> whole =
          factor.isWhole() ? std::nullopt : factor.getAxis().resolve(mesh);
      SmallVector<AxisRef> pieces;
      for (const std::vector<AxisRef> *part : {&outer, &inner})
        for (const AxisRef &ref : *part)
          if (whole && ref.name == whole->name &&
              ref.preSize >= whole->preSize &&
              ref.preSize * ref.size <= whole->preSize * whole->size)
            pieces.push_back(ref);
      if (pieces.empty())
        factors.push_back(factor);
      for (const AxisRef &ref : pieces)
        factors.push_back(FactorAttr::getPartitioned(
            AxisRefAttr::get(&getContext(), mesh, ref)));
    }
    return SecondaryGroup{type.withFactors(factors),
                          getAxesAttr(&getContext(), mesh, outer),
                          getAxesAttr(&getContext(), mesh, inner)};
  }

  //===--------------------------------------------------------------------===//
  // The rewrite
  //===--------------------------------------------------------------------===//

  /// `type` with the factors over `along` whole.
  static ShardType getGathered(ShardType type, ArrayAttr along) {
    Mesh mesh = type.getMesh().getMesh();
    SmallVector<FactorAttr> factors(type.getFactors());
    SmallVector<int64_t> positions = *type.findFactors(along);
    for (int64_t position : positions)
      factors[position] = FactorAttr::getWhole(
          type.getContext(), factors[position].getAxis().resolve(mesh)->size);
    return type.withFactors(factors);
  }

  AllGatherOp createGather(OpBuilder &builder, AllGatherOp like, Value operand,
                           ArrayAttr along) {
    auto result = AllGatherOp::create(
        builder, like.getLoc(),
        getGathered(cast<ShardType>(operand.getType()), along), operand, along);
    copyOrigin(like, result);
    return result;
  }

  /// Replaces a gather by a value of the same local tensor whose type may have
  /// an axis cut in two.
  void replaceGather(OpBuilder &builder, AllGatherOp gather, Value value) {
    // What is whole has the same factors but for cut ones: both stand for the
    // same local tensor.
    if (value.getType() != gather.getType()) {
      // An encoded tensor is read by a decode only; retype that.
      for (Operation *user : llvm::make_early_inc_range(gather->getUsers())) {
        auto decode = dyn_cast<DecodeOp>(user);
        if (!decode)
          continue;
        builder.setInsertionPoint(decode);
        Value decoded = DecodeOp::create(
            builder, decode.getLoc(),
            cast<ShardType>(value.getType()).withQuant(QuantAttr()), value);
        replaceWithLocal(builder, decode,
                         getLocal(builder, decode.getLoc(), decoded));
      }
      if (!gather->use_empty()) {
        builder.setInsertionPoint(gather);
        Value local = getLocal(builder, gather.getLoc(), value);
        return replaceWithLocal(builder, gather, local);
      }
    } else {
      gather.replaceAllUsesWith(value);
    }
    eraseDeadChain(gather);
  }

  //===--------------------------------------------------------------------===//
  // What is worth it
  //===--------------------------------------------------------------------===//

  /// What it takes on the links of `model` to gather `bytes` of each device
  /// along some axes of the mesh of `gather`.
  static double getExchangeUsec(AllGatherOp gather, ArrayAttr along,
                                int64_t bytes, const LinkModel &model) {
    SmallVector<AxisRef> refs = resolveAxes(along, gather.getMeshAttr());
    return model.getExchangeUsec(
        getSentBytes(gather.getMeshAttr().getMesh(), CollectiveKind::AllGather,
                     {refs.begin(), refs.end()}, bytes));
  }

  /// What a device contributes to a gather.
  static int64_t getOwnBytes(AllGatherOp gather) {
    return getBytes(gather.getOperand().getType().getLocalType());
  }

  /// What all gathers of a weight take, each over all axes, and with a
  /// secondary partition, on the links of `model`.
  static std::pair<double, double> getUsec(ArrayRef<AllGatherOp> group,
                                           const SecondaryGroup &axes,
                                           const LinkModel &model) {
    AllGatherOp forward = group.front();
    int64_t bytes = getOwnBytes(forward);
    auto getUsec = [&](ArrayAttr along, int64_t sent) {
      return getExchangeUsec(forward, along, sent, model);
    };
    SmallVector<AxisRef> outer = resolveAxes(axes.outer, forward.getMeshAttr());
    double inner = getUsec(
        axes.inner, bytes * zpp::numDevices({outer.begin(), outer.end()}));
    return {group.size() * getUsec(forward.getAlongAttr(), bytes),
            getUsec(axes.outer, bytes) + group.size() * inner};
  }

  /// True if the bytes of a gather take less than its latency.
  static bool isMostlyLatency(AllGatherOp gather, const LinkModel &model) {
    return getExchangeUsec(gather, gather.getAlongAttr(), getOwnBytes(gather),
                           model) < 2 * LinkModel::kExchangeUsec;
  }

  /// True if `gather` lies in a loop over a stack of weights and another loop
  /// gathers from this stack.
  bool readsOtherSlices(AllGatherOp gather) {
    Provenance provenance = provenances.get(getSource(gather).getLocal());
    return isInLoop(gather) && provenance.isSliced &&
           loopsOver.lookup(provenance.root).size() > 1;
  }

  FailureOr<Plan> getPlan(ArrayRef<AllGatherOp> group,
                          LinksOption &linksOption) {
    AllGatherOp forward = group.front();
    Plan plan;
    plan.group = group;
    FailureOr<SecondaryGroup> axes = getGroup(forward, plan.reason);
    if (failed(axes))
      return failure();
    plan.axes = *axes;
    if (!plan.reason.empty())
      return plan;
    Mesh mesh = forward.getMeshAttr().getMesh();
    FailureOr<std::optional<LinkModel>> model = linksOption.getModel(mesh);
    if (failed(model))
      return failure();
    plan.isSmall = isMostlyLatency(forward, model->value_or(LinkModel(mesh)));
    if (group.size() == 1 && readsOtherSlices(forward)) {
      plan.reason = "it is gathered once: other loops gather other slices of "
                    "its stack, as where the number of layers is no multiple "
                    "of scan's unroll";
      return plan;
    }
    if (group.size() == 1) {
      plan.reason = "it is gathered once";
      if (!forward->hasAttr(kForwardOnlyAttr))
        plan.reason +=
            "; zero-regather can gather it again in the backward pass";
      return plan;
    }
    if (*model) {
      auto [usec, partitioned] = getUsec(group, plan.axes, **model);
      if (partitioned >= usec) {
        plan.reason = "on these links its gathers take " +
                      std::to_string(static_cast<int64_t>(usec)) +
                      " usec, with a secondary partition " +
                      std::to_string(static_cast<int64_t>(partitioned));
        if (!plan.isSmall)
          return plan;
      }
    }
    plan.isSmall &= choosePlace(plan);
    return plan;
  }

  //===--------------------------------------------------------------------===//
  // Where the secondary partition is made and read
  //===--------------------------------------------------------------------===//

  /// Decides between one block, loops and manual computations. False, with the
  /// reason, where the secondary partition cannot be passed on.
  bool choosePlace(Plan &plan) {
    Block *common = getCommonBlock(plan.group);
    if (!common) {
      plan.reason = "the gathers of its weight have no region in common";
      return false;
    }
    auto getAncestor = [&](AllGatherOp gather) {
      return common->findAncestorOpInBlock(*gather.getOperation());
    };
    SmallVector<Operation *> ancestors =
        llvm::map_to_vector(plan.group, getAncestor);
    if (llvm::any_of(ancestors, isManualComputation)) {
      if (std::string reason = getPassageReason(ancestors); !reason.empty()) {
        plan.reason = reason;
        return false;
      }
      plan.computations = ancestors;
    }
    if (isStraight(plan)) {
      for (AllGatherOp gather : plan.group.drop_front()) {
        Operation *barrier = getBarrier(gather);
        plan.crossed.push_back(barrier && isReadable(plan, barrier) ? barrier
                                                                    : nullptr);
      }
      return true;
    }
    plan.stack = getStack(plan.group, ancestors, plan.reason);
    return plan.stack.has_value();
  }

  /// The innermost block that all of `group` lie in, or null.
  static Block *getCommonBlock(ArrayRef<AllGatherOp> group) {
    Block *common = AllGatherOp(group.front())->getBlock();
    auto isCommon = [&](AllGatherOp gather) {
      return common->findAncestorOpInBlock(*gather.getOperation()) != nullptr;
    };
    while (common && !llvm::all_of(group, isCommon)) {
      Operation *parent = common->getParentOp();
      common = parent ? parent->getBlock() : nullptr;
    }
    return common;
  }

  /// True if what the first gather of `plan` keeps can be read at `op`, as far
  /// as order and regions go.
  bool isReadable(const Plan &plan, Operation *op) {
    AllGatherOp forward = plan.group.front();
    if (dominance().properlyDominates(forward.getOperation(), op))
      return true;
    // In another manual computation it is an operand.
    return !plan.computations.empty() &&
           forward->getParentOp() == plan.computations.front() &&
           !plan.computations.front()->isAncestor(op) &&
           llvm::any_of(plan.computations, [&](Operation *computation) {
             return computation->isProperAncestor(op);
           });
  }

  /// True if the first gather runs before all others, and they gather the very
  /// same: in one iteration of a loop, slices at different indices differ.
  bool isStraight(const Plan &plan) {
    auto getExactKey = [&](AllGatherOp gather) {
      return provenances.getSliceId(getSource(gather).getLocal(),
                                    /*inAnyIteration=*/false);
    };
    int64_t key = getExactKey(plan.group.front());
    return llvm::all_of(plan.group.drop_front(), [&](AllGatherOp gather) {
      return isReadable(plan, gather) && getExactKey(gather) == key;
    });
  }

  /// Why a value cannot leave the first of `computations` and enter the others,
  /// or empty.
  static std::string getPassageReason(ArrayRef<Operation *> computations) {
    if (!llvm::all_of(computations, isManualComputation))
      return "one of the gathers of its weight lies in a manual computation, "
             "another one does not";
    Operation *from = computations.front();
    std::string sharding = getSharedNothingSharding(from);
    if (sharding.empty())
      return "the shardings of its manual computation name no mesh";
    llvm::DenseMap<Value, llvm::StringSet<>> shardings;
    for (Operation *computation : computations) {
      if (getSharedNothingSharding(computation) != sharding)
        return "the gathers of its weight lie in manual computations over "
               "different axes";
      for (auto [operand, sharding] : llvm::zip_equal(
               computation->getOperands(), getOperandShardings(computation)))
        shardings[operand].insert(sharding);
    }
    // What is the same value outside has to be the same inside.
    for (auto &[operand, different] : shardings)
      if (different.size() > 1)
        return "the manual computations with its gathers shard an operand "
               "differently";
    return "";
  }

  /// Splits small gathers too where others of the moment are split: with those
  /// they can travel (zero-coalesce-collectives), in hops that cost no latency
  /// of their own.
  void splitBesideOthers(MutableArrayRef<Plan> plans) {
    Builder builder(&getContext());
    HeavyOps compute(getOperation());
    llvm::DenseMap<Block *, SmallVector<Operation *>> heavyOps;
    // A block, the number of heavy ops before, and what else has to agree.
    using Moment = std::tuple<Block *, int64_t, Attribute>;
    auto getMoment = [&](AllGatherOp gather, const SecondaryGroup &axes) {
      Block *block = gather->getBlock();
      auto [heavy, isNew] = heavyOps.try_emplace(block);
      if (isNew)
        heavy->second = compute.getIn(*block);
      std::optional<Origin> origin = getOrigin(gather);
      return Moment(block, countBefore(heavy->second, gather),
                    builder.getArrayAttr(
                        {gather.getMeshAttr(), axes.outer, axes.inner,
                         builder.getStringAttr(origin ? origin->phase : "")}));
    };
    llvm::DenseMap<Moment, const Plan *> others;
    for (const Plan &plan : plans) {
      // What is not quantized is left to XLA; nothing joins it.
      if (!plan.reason.empty() || !plan.axes.primary.getQuant())
        continue;
      // In a block, only the first one has both hops.
      for (AllGatherOp gather :
           plan.stack ? plan.group : plan.group.take_front())
        others.try_emplace(getMoment(gather, plan.axes), &plan);
    }
    for (Plan &plan : plans) {
      if (plan.reason.empty() || !plan.isSmall)
        continue;
      AllGatherOp forward = plan.group.front();
      const Plan *other = others.lookup(getMoment(forward, plan.axes));
      if (!other)
        continue;
      if (other->stack && plan.group.size() == 1) {
        std::string reason;
        plan.stack = getStack(
            plan.group,
            other->stack->anchor->getBlock()->findAncestorOpInBlock(*forward),
            reason);
      }
      if (plan.stack.has_value() == other->stack.has_value())
        plan.reason.clear();
    }
  }

  //===--------------------------------------------------------------------===//
  // In one block
  //===--------------------------------------------------------------------===//

  void partition(const Plan &plan) {
    if (!plan.reason.empty()) {
      for (AllGatherOp gather : plan.group)
        leaveAlone(gather, getArgument(), plan.reason);
      return;
    }
    if (plan.stack)
      partitionAcrossLoops(plan);
    else
      partitionInBlock(plan);
  }

  /// The first gather dominates the later ones.
  void partitionInBlock(const Plan &plan) {
    AllGatherOp forward = plan.group.front();
    OpBuilder builder(forward);
    Location loc = forward.getLoc();
    AllGatherOp kept =
        gatherOuter(builder, forward, plan.axes.primary,
                    getSource(forward).getLocal(), plan.axes.outer);
    AllGatherOp whole = createGather(builder, forward, kept, plan.axes.inner);
    if (plan.group.size() == 1) {
      replaceGather(builder, forward, whole);
      remarkRewrite(kept, getArgument(),
                    "gathered in 2 hops, to travel with others");
      return;
    }
    kept->setAttr(kKeepAttr, builder.getUnitAttr());
    Value local = getLocal(builder, loc, kept);
    replaceGather(builder, forward, whole);
    remarkRewrite(kept, getArgument(),
                  "its result is kept for " + Twine(plan.group.size() - 1) +
                      " later gathers");
    std::optional<Passage> passage;
    if (!plan.computations.empty())
      passage = Passage{plan.computations.front(), local, {}};
    for (auto [index, barrier] : llvm::enumerate(plan.crossed)) {
      AllGatherOp gather = plan.group[1 + index];
      Value here =
          passage ? getValueIn(plan.computations[1 + index], *passage) : local;
      gatherWithin(gather, barrier, here, kept.getType(), plan.axes.inner);
    }
    if (passage)
      passages.push_back(std::move(*passage));
  }

  /// Gathers the primary partition `local` over the axes outside the group.
  AllGatherOp gatherOuter(OpBuilder &builder, AllGatherOp like,
                          ShardType primary, Value local, ArrayAttr outer) {
    Location loc = like.getLoc();
    Value shard = FromLocalOp::create(builder, loc,
                                      primary.withQuant(QuantAttr()), local);
    if (primary.getQuant())
      shard = EncodeOp::create(builder, loc, primary, shard);
    return createGather(builder, like, shard, outer);
  }

  //===--------------------------------------------------------------------===//
  // Across loops
  //===--------------------------------------------------------------------===//

  /// The stack that all gathers of `group` read, which lie in `ancestors`, ops
  /// of one block or manual computations; or nullopt and the reason.
  std::optional<Stack> getStack(ArrayRef<AllGatherOp> group,
                                ArrayRef<Operation *> ancestors,
                                std::string &reason) {
    Stack stack{{}, ancestors.front()};
    auto getOuterValue = [](const WeightPath &path, Operation *ancestor) {
      auto argument = dyn_cast<BlockArgument>(path.source);
      return argument && argument.getOwner()->getParentOp() == ancestor
                 ? ancestor->getOperand(argument.getArgNumber())
                 : path.source;
    };
    for (auto [gather, ancestor] : llvm::zip_equal(group, ancestors)) {
      std::optional<WeightPath> path = getWeightPath(
          getSource(gather).getLocal(), gather, ancestor, provenances);
      if (!path) {
        reason = "the regions around the gathers of its weight are not loops "
                 "over one stack of weights";
        return std::nullopt;
      }
      stack.paths.push_back(std::move(*path));
      const WeightPath &first = stack.paths.front();
      if (!areEqual(getOuterValue(stack.paths.back(), ancestor),
                    getOuterValue(first, ancestors.front())) ||
          !stack.paths.back().doesTheSame(first)) {
        reason = "the loops around the gathers of its weight read different "
                 "stacks of weights, or cast them differently";
        return std::nullopt;
      }
    }
    if (isManualComputation(stack.anchor))
      stack.anchor = stack.anchor->getRegion(0).front().findAncestorOpInBlock(
          *AllGatherOp(group.front()).getOperation());
    return stack;
  }

  /// Hoists the gather over the outer axes, of all layers at once, in front of
  /// the loops. A stack is one partitioned tensor whose dim has the layer as
  /// its most significant factor, held whole, so that every layer keeps units,
  /// and wire chunks, of its own.
  void partitionAcrossLoops(const Plan &plan) {
    ArrayRef<AllGatherOp> group = plan.group;
    AllGatherOp forward = group.front();
    OpBuilder builder(plan.stack->anchor);
    Location loc = forward.getLoc();
    ShardType primary = plan.axes.primary;
    int64_t dim = primary.getDim();

    LayerStack weights = createStack(builder, plan.stack->paths.front());
    Value local = weights.value;
    int64_t layers = llvm::product_of(weights.layers);
    ShardType stacked = primary;
    if (!weights.layers.empty()) {
      SmallVector<int64_t> shape(cast<RankedTensorType>(local.getType())
                                     .getShape()
                                     .drop_front(weights.layers.size()));
      SmallVector<int64_t> flat{layers};
      llvm::append_range(flat, shape);
      shape[dim] *= layers;
      local = createReshape(builder, loc, local, flat);
      local = createReshape(builder, loc,
                            createMoveDim(builder, loc, local, 0, dim), shape);
      SmallVector<int64_t> global(primary.getGlobal().getShape());
      global[dim] *= layers;
      SmallVector<FactorAttr> factors{
          FactorAttr::getWhole(&getContext(), layers)};
      llvm::append_range(factors, primary.getFactors());
      stacked =
          ShardType::get(&getContext(), primary.getGlobal().clone(global), dim,
                         factors, primary.getMesh(), primary.getQuant());
    }
    AllGatherOp kept =
        gatherOuter(builder, forward, stacked, local, plan.axes.outer);
    kept->setAttr(kKeepAttr, builder.getUnitAttr());
    LayerStack secondary{getLocal(builder, loc, kept), weights.layers};
    ShardType layerType = getGathered(primary, plan.axes.outer);
    RankedTensorType layerLocal = layerType.getLocalType();
    if (!weights.layers.empty()) {
      // [layers..., what a device keeps of one]
      int64_t position = layerType.getQuant() ? 0 : dim;
      SmallVector<int64_t> shape(layerLocal.getShape());
      shape.insert(shape.begin() + position, layers);
      secondary.value = createMoveDim(
          builder, loc, createReshape(builder, loc, secondary.value, shape),
          position, 0);
      SmallVector<int64_t> unflat(weights.layers);
      llvm::append_range(unflat, layerLocal.getShape());
      secondary.value = createReshape(builder, loc, secondary.value, unflat);
    }
    remarkRewrite(kept, getArgument(),
                  "hoisted out of the loops, its result is kept for " +
                      Twine(group.size()) +
                      (group.size() == 1 ? " gather" : " gathers"));
    std::optional<Passage> passage;
    if (!plan.computations.empty())
      passage = Passage{plan.computations.front(), secondary.value, {}};
    for (auto [index, path] : llvm::enumerate(plan.stack->paths)) {
      AllGatherOp gather = group[index];
      builder.setInsertionPoint(gather);
      if (Operation *barrier = getBarrier(gather))
        (void)barriers[barrier];
      LayerStack here = secondary;
      if (passage)
        here.value = getValueIn(plan.computations[index], *passage);
      Value layer = createLayerSlice(builder, gather.getLoc(), here, path);
      Value shard =
          FromLocalOp::create(builder, gather.getLoc(), layerType, layer);
      replaceGather(builder, gather,
                    createGather(builder, gather, shard, plan.axes.inner));
    }
    if (passage)
      passages.push_back(std::move(*passage));
  }

  //===--------------------------------------------------------------------===//
  // Between manual computations
  //===--------------------------------------------------------------------===//

  /// What `passage` brings into `computation`: its value where it is from
  /// there, else a placeholder for an argument.
  Value getValueIn(Operation *computation, Passage &passage) {
    if (computation == passage.from)
      return passage.local;
    UnrealizedConversionCastOp &entry = passage.entries[computation];
    if (!entry) {
      auto builder =
          OpBuilder::atBlockBegin(&computation->getRegion(0).front());
      entry = UnrealizedConversionCastOp::create(
          builder, passage.local.getLoc(), passage.local.getType(),
          ValueRange());
    }
    return entry.getResult(0);
  }

  /// Rebuilds the manual computations that partitions leave and enter. What
  /// passes is flat: each device has its own, which the type outside has to
  /// say.
  void openPassages() {
    llvm::SetVector<Operation *> affected;
    for (Passage &passage : passages)
      if (!passage.entries.empty()) {
        affected.insert(passage.from);
        for (auto &[computation, entry] : passage.entries)
          affected.insert(computation);
      }
    if (affected.empty())
      return;
    // A computation is rebuilt after those whose results it gets.
    SmallVector<Operation *> computations;
    getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (affected.contains(op))
        computations.push_back(op);
    });
    llvm::DenseMap<Passage *, Value> outside;
    for (Operation *computation : computations) {
      Block &body = computation->getRegion(0).front();
      auto builder = OpBuilder(body.getTerminator());
      SmallVector<Passage *> leaving, entering;
      SmallVector<Value> results, operands;
      for (Passage &passage : passages) {
        auto type = cast<RankedTensorType>(passage.local.getType());
        if (passage.from == computation && !passage.entries.empty()) {
          leaving.push_back(&passage);
          results.push_back(createReshape(builder, passage.local.getLoc(),
                                          passage.local,
                                          type.getNumElements()));
        } else if (passage.entries.contains(computation)) {
          entering.push_back(&passage);
          operands.push_back(outside.lookup(&passage));
        }
      }
      int64_t devices = getNumDevices(getOperation()).value_or(1);
      size_t numResults = computation->getNumResults();
      size_t numOperands = computation->getNumOperands();
      Operation *extended =
          extendManualComputation(computation, operands, results, devices);
      for (auto [index, passage] : llvm::enumerate(leaving))
        outside[passage] = extended->getResult(numResults + index);
      builder.setInsertionPointToStart(&body);
      for (auto [index, passage] : llvm::enumerate(entering)) {
        UnrealizedConversionCastOp entry = passage->entries[computation];
        Value flat = body.getArgument(numOperands + index);
        entry.getResult(0).replaceAllUsesWith(createReshape(
            builder, flat.getLoc(), flat,
            cast<RankedTensorType>(entry.getResult(0).getType()).getShape()));
        entry.erase();
      }
    }
  }

  //===--------------------------------------------------------------------===//
  // Barriers
  //===--------------------------------------------------------------------===//

  /// Replaces `gather` by one within the group, of the kept partition `local`,
  /// which crosses `crossed` or else a barrier of its own.
  void gatherWithin(AllGatherOp gather, Operation *crossed, Value local,
                    ShardType kept, ArrayAttr inner) {
    OpBuilder builder(gather);
    if (Operation *barrier = getBarrier(gather))
      (void)barriers[barrier];
    Value behind;
    if (crossed) {
      // A placeholder until the barrier gets its new operand.
      auto cast = UnrealizedConversionCastOp::create(builder, gather.getLoc(),
                                                     local.getType(), local);
      barriers[crossed].push_back(cast);
      behind = cast.getResult(0);
    } else {
      behind = createBarrier(builder, gather.getLoc(), local)->getResult(0);
    }
    Value shard = FromLocalOp::create(builder, gather.getLoc(), kept, behind);
    replaceGather(builder, gather, createGather(builder, gather, shard, inner));
  }

  /// The barrier nearest to `gather` that its operand comes through, or what it
  /// is computed from.
  static Operation *getBarrier(AllGatherOp gather) {
    FromLocalOp source = getSource(gather);
    if (!source)
      return nullptr;
    llvm::SetVector<Operation *> pending;
    auto visit = [&](Value value) {
      if (Operation *op = value.getDefiningOp())
        pending.insert(op);
    };
    visit(source.getLocal());
    for (size_t i = 0; i < pending.size(); ++i) {
      Operation *op = pending[i];
      if (isBarrier(op))
        return op;
      if (isDeterministic(op))
        llvm::for_each(op->getOperands(), visit);
    }
    return nullptr;
  }

  /// Rebuilds `barrier` with the kept partitions among its operands, and
  /// without the operands that nothing reads behind it any more.
  void extendBarrier(Operation *barrier,
                     ArrayRef<UnrealizedConversionCastOp> additions) {
    OpBuilder builder(barrier);
    SmallVector<Value> operands, replaced, dropped;
    for (auto [operand, result] :
         llvm::zip_equal(barrier->getOperands(), barrier->getResults()))
      if (!result.use_empty()) {
        operands.push_back(operand);
        replaced.push_back(result);
      } else {
        dropped.push_back(operand);
      }
    for (UnrealizedConversionCastOp cast : additions) {
      operands.push_back(cast.getOperand(0));
      replaced.push_back(cast.getResult(0));
    }
    if (!operands.empty()) {
      Operation *extended = createBarrier(builder, barrier->getLoc(), operands);
      extended->setDiscardableAttrs(barrier->getDiscardableAttrDictionary());
      for (auto [from, to] : llvm::zip_equal(replaced, extended->getResults()))
        from.replaceAllUsesWith(to);
    }
    for (UnrealizedConversionCastOp cast : additions)
      cast.erase();
    barrier->erase();
    // The primary partitions that only crossed it for the later gathers.
    eraseIfDead(dropped);
  }

  /// Valid until the first rewrite.
  ProvenanceAnalysis provenances;
  /// The blocks of loops with gathers, by the root of these.
  llvm::DenseMap<Value, llvm::SmallPtrSet<Block *, 2>> loopsOver;

  DominanceInfo &dominance() { return getAnalysis<DominanceInfo>(); }

  llvm::MapVector<Operation *, SmallVector<UnrealizedConversionCastOp>>
      barriers;
  std::vector<Passage> passages;
};
} // namespace
