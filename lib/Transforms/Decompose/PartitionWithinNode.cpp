//===- PartitionWithinNode.cpp - Secondary weight partitions (hpZ, 3.2) ---===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "FrozenWeights.h"
#include "LocalValues.h"
#include "LoopStacks.h"
#include "RemovedOrigins.h"
#include "WeightPath.h"
#include "mlir/IR/Dominance.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Support/Limits.h"
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

/// The axes of a gather, inside and outside the secondary group.
struct SecondaryGroup {
  /// The primary partition. An axis is cut in two if the border of the group
  /// falls inside it.
  ShardType primary;
  ArrayAttr outer;
  ArrayAttr inner;
};

/// The stack of weights that gathers in several loops read.
struct Stack {
  /// The path of each gather.
  SmallVector<WeightPath> paths;
  /// Instead, where the gathers take layers of the stack in different ways.
  SmallVector<LayerPath> layerPaths;
  /// The first op with a gather in the block around all loops. Hoisted ops are
  /// inserted before it.
  Operation *anchor;
};

/// Where each iteration of a loop gathers a weight that it computes: the loop
/// leaves a stack of what it keeps to the later ones.
struct KeptStack {
  CountedLoop loop;
  /// By later gather: which iteration's it needs.
  SmallVector<Value> indices;
};

/// The rewrite of the gathers of one weight.
struct Plan {
  ArrayRef<AllGatherOp> group;
  /// The reason why they are left alone, or empty.
  std::string reason;
  /// True if they are left alone only because of the latency of the hops, which
  /// would cost nothing if they travelled with others.
  bool isSmall = false;
  /// What is kept is for the next step too.
  bool isBetweenSteps = false;
  SecondaryGroup axes;
  /// For each later gather, the barrier through which its operand passes and
  /// through which the kept value can pass too, or null. Empty if a stack is
  /// hoisted out of loops instead.
  SmallVector<Operation *> crossed;
  std::optional<Stack> stack;
  std::optional<KeptStack> kept;
  /// The manual computation of each gather if they lie in several; otherwise
  /// empty.
  SmallVector<Operation *> computations;
};

/// A kept partition that leaves a manual computation, and its placeholders in
/// the computations that it enters, until these are rebuilt.
struct Passage {
  Operation *from;
  /// The value in the region of `from`.
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
    if (!llvm::is_contained({"none", "frozen", "all"},
                            StringRef(betweenSteps))) {
      emitError(
          getOperation().getLoc(),
          "expected partitions between steps none, frozen or all, but got "
          "'")
          << betweenSteps << "'";
      return signalPassFailure();
    }
    provenances = ProvenanceAnalysis();
    frozen.reset();
    if (betweenSteps == "frozen")
      frozen.emplace(getOperation());
    passages.clear();
    loopsOver.clear();
    // Gathers of the same values, which come from the same root through the
    // same casts.
    llvm::MapVector<Attribute, SmallVector<AllGatherOp>> gathers;
    getOperation().walk<WalkOrder::PreOrder>([&](AllGatherOp gather) {
      // Skip both halves of a gather that is already split.
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
    mergeLayers(gathers);
    // Plan everything before changing anything. An error then leaves the module
    // as it was, and the order of ops, which dominance needs, is not
    // invalidated by insertions.
    std::vector<Plan> plans;
    LinksOption linksOption(getOperation(), links);
    for (auto &[key, group] : gathers) {
      if (group.empty())
        continue;
      FailureOr<Plan> plan = getPlan(group, linksOption);
      if (failed(plan))
        return signalPassFailure();
      plans.push_back(std::move(*plan));
    }
    if (splitSmall)
      splitBesideOthers(plans);
    for (const Plan &plan : plans)
      partition(plan);
    keepInLoops(plans);
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

  /// Appends a key that is equal for two values only if the values are: the
  /// same slice of the same root, with the same casts.
  void appendKey(Value value, bool inAnyIteration,
                 SmallVectorImpl<Attribute> &steps) {
    steps.push_back(
        IntegerAttr::get(IndexType::get(&getContext()),
                         provenances.getSliceId(value, inAnyIteration)));
    for (Operation *op : provenances.getPath(value)) {
      // The index decides which slice of a stack a loop reads. The forward and
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

  /// A key that is equal for gathers of the same weight, or null if the weight
  /// is not known.
  Attribute getKey(AllGatherOp gather) {
    FromLocalOp source = getSource(gather);
    if (!source)
      return {};
    // Skip a gather that already starts from a secondary partition.
    if (provenances.get(source.getLocal()).root.getDefiningOp<AllGatherOp>())
      return {};
    SmallVector<Attribute> steps{TypeAttr::get(gather.getType()),
                                 gather.getAlong()};
    appendKey(source.getLocal(), /*inAnyIteration=*/true, steps);
    return ArrayAttr::get(&getContext(), steps);
  }

  /// Makes one group of all gathers of single layers of a stack that do the
  /// same to the layer, where the loops that do so cut the stack in different
  /// ways: scan's `unroll`, where it does not divide the number of layers.
  void
  mergeLayers(llvm::MapVector<Attribute, SmallVector<AllGatherOp>> &gathers) {
    llvm::MapVector<Attribute, SmallVector<AllGatherOp>> merged;
    SmallVector<std::pair<AllGatherOp, WeightPath>> known;
    for (auto &[key, group] : gathers) {
      AllGatherOp gather = group.front();
      Value local = getSource(gather).getLocal();
      Value root = provenances.get(local).root;
      if (group.size() > 1 || !loopsOver.contains(root))
        continue;
      std::optional<LayerPath> path = getLayerPath(gather);
      if (!path)
        continue;
      auto *first = llvm::find_if(known, [&](const auto &other) {
        return AllGatherOp(other.first).getType() == gather.getType() &&
               AllGatherOp(other.first).getAlong() == gather.getAlong() &&
               areEqual(other.second.source, path->path.source) &&
               other.second.doesTheSame(path->path);
      });
      if (first == known.end()) {
        known.push_back({gather, path->path});
        first = &known.back();
      }
      merged[getKey(first->first)].push_back(gather);
    }
    for (auto &[key, group] : merged) {
      if (!areGatheredAgain(group, getLayerPath(group.front())->path))
        continue;
      for (AllGatherOp gather : group)
        gathers[getKey(gather)].clear();
      gathers[key] = group;
    }
  }

  /// True if `group` gathers layers of the stack `path.source` more often than
  /// it has some.
  bool areGatheredAgain(ArrayRef<AllGatherOp> group, const WeightPath &path) {
    int64_t times = 0;
    for (AllGatherOp gather : group)
      times =
          addSaturating(times, provenances.getTripCount(gather).value_or(1));
    return times > cast<RankedTensorType>(path.source.getType()).getDimSize(0);
  }

  /// The path from the argument of the step, or of its manual computation, to
  /// the layer that `gather` gathers.
  std::optional<LayerPath> getLayerPath(AllGatherOp gather) {
    Operation *ancestor = gather->getParentOp();
    while (ancestor && !manuals.contains(ancestor) &&
           !isa<FunctionOpInterface>(ancestor))
      ancestor = ancestor->getParentOp();
    std::optional<WeightPath> path =
        ancestor ? getWeightPath(getSource(gather).getLocal(), gather, ancestor,
                                 provenances)
                 : std::nullopt;
    return path ? zpp::getLayerPath(*path) : std::nullopt;
  }

  //===--------------------------------------------------------------------===//
  // The secondary group
  //===--------------------------------------------------------------------===//

  /// Divides the axes of `gather` by `secondary`; an empty reason means
  /// success.
  FailureOr<SecondaryGroup> getGroup(AllGatherOp gather, bool isBetweenSteps,
                                     std::string &reason) {
    ShardType type = gather.getOperand().getType();
    Mesh mesh = type.getMesh().getMesh();
    SmallVector<AxisRef> refs =
        cast<CollectiveOpInterface>(gather.getOperation()).getAxisRefs();
    // Sort from the slowest to the fastest link, regardless of the order of the
    // factors.
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
    // A weight that is shared by fewer devices may have a smaller group.
    if (size % devices == 0 && mesh.numDevices() % size == 0)
      inner = ordered;
    else if (!splitRefs(ordered, size, outer, inner))
      return gather.emitError("expected a secondary group size that divides "
                              "the ")
             << devices << " devices of a weight's group on " << mesh.str()
             << ", but got " << size;
    if (inner.empty() && !isBetweenSteps) {
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

  /// The gather of what is kept within its group, which may be one device.
  Value gatherInner(OpBuilder &builder, AllGatherOp like, Value operand,
                    ArrayAttr inner) {
    if (!inner.empty())
      return createGather(builder, like, operand, inner);
    // Recorded twice where a gather over the outer axes stands for it.
    recordRemoved(like);
    return operand;
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
    // Both types are whole and stand for the same local tensor. They differ
    // only in axes that were cut in two.
    if (value.getType() != gather.getType()) {
      // Only decodes read an encoded tensor; change their operand type.
      for (Operation *user : llvm::make_early_inc_range(gather->getUsers())) {
        auto decode = dyn_cast<DecodeOp>(user);
        if (!decode)
          continue;
        builder.setInsertionPoint(decode);
        Value decoded = DecodeOp::create(
            builder, decode.getLoc(),
            cast<ShardType>(value.getType()).withQuant(QuantAttr()), value,
            /*held=*/Value());
        replaceWithLocal(builder, decode,
                         getLocal(builder, decode.getLoc(), decoded));
      }
      if (!gather->use_empty()) {
        builder.setInsertionPoint(gather);
        Value local = getLocal(builder, gather.getLoc(), value);
        return replaceWithLocal(builder, gather, local);
      }
    } else if (auto source = value.getDefiningOp<FromLocalOp>()) {
      // The group is one device.
      replaceWithLocal(builder, gather, source.getLocal());
      return eraseIfDead(value);
    } else {
      gather.replaceAllUsesWith(value);
    }
    eraseDeadChain(gather);
  }

  //===--------------------------------------------------------------------===//
  // What is worth it
  //===--------------------------------------------------------------------===//

  /// The time to gather `bytes` from each device along some axes of the mesh of
  /// `gather`, on the links of `model`.
  static double getGatherUsec(AllGatherOp gather, ArrayAttr along,
                              int64_t bytes, const LinkModel &model) {
    SmallVector<AxisRef> refs = resolveAxes(along, gather.getMeshAttr());
    return model.getCollectiveUsec(gather.getMeshAttr().getMesh(),
                                   CollectiveKind::AllGather,
                                   {refs.begin(), refs.end()}, bytes);
  }

  /// The bytes that a device contributes to a gather.
  static int64_t getOwnBytes(AllGatherOp gather) {
    return getBytes(gather.getOperand().getType().getLocalType());
  }

  /// The time of all gathers of a weight on the links of `model`: each over all
  /// axes, and with a secondary partition.
  static std::pair<double, double> getUsec(ArrayRef<AllGatherOp> group,
                                           const SecondaryGroup &axes,
                                           const LinkModel &model) {
    AllGatherOp forward = group.front();
    int64_t bytes = getOwnBytes(forward);
    auto getUsec = [&](ArrayAttr along, int64_t sent) {
      return getGatherUsec(forward, along, sent, model);
    };
    SmallVector<AxisRef> outer = resolveAxes(axes.outer, forward.getMeshAttr());
    double inner =
        axes.inner.empty()
            ? 0
            : getUsec(axes.inner,
                      bytes * zpp::numDevices({outer.begin(), outer.end()}));
    return {group.size() * getUsec(forward.getAlongAttr(), bytes),
            getUsec(axes.outer, bytes) + group.size() * inner};
  }

  /// True if the bytes of a gather take less time than its latency.
  static bool isMostlyLatency(AllGatherOp gather, const LinkModel &model) {
    SmallVector<AxisRef> refs =
        cast<CollectiveOpInterface>(gather.getOperation()).getAxisRefs();
    return model.getExchangeUsec(getSentBytes(
               gather.getMeshAttr().getMesh(), CollectiveKind::AllGather,
               {refs.begin(), refs.end()}, getOwnBytes(gather))) <
           2 * LinkModel::kExchangeUsec;
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
    plan.isBetweenSteps =
        betweenSteps == "all" ||
        (betweenSteps == "frozen" &&
         !frozen->getSources(getSource(forward).getLocal(), /*anySlice=*/true)
              .empty());
    FailureOr<SecondaryGroup> axes =
        getGroup(forward, plan.isBetweenSteps, plan.reason);
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
    if (group.size() == 1 && plan.isBetweenSteps) {
      plan.isSmall = false;
      (void)choosePlace(plan);
      return plan;
    }
    if (group.size() == 1 && readsOtherSlices(forward)) {
      plan.reason = "it is gathered once: other loops gather other slices of "
                    "its stack, for example because the number of layers is "
                    "not a multiple of scan's unroll";
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

  /// Decides whether the partition is passed on within one block, across loops
  /// or between manual computations. If none of these is possible, sets the
  /// reason and returns false.
  bool choosePlace(Plan &plan) {
    Block *common = getCommonBlock(plan.group);
    if (plan.isBetweenSteps && common && chooseStack(plan))
      return true;
    if (!common) {
      plan.reason = "the gathers of its weight have no region in common";
      return false;
    }
    auto getAncestor = [&](AllGatherOp gather) {
      return common->findAncestorOpInBlock(*gather.getOperation());
    };
    SmallVector<Operation *> ancestors =
        llvm::map_to_vector(plan.group, getAncestor);
    if (llvm::any_of(ancestors,
                     [&](Operation *op) { return manuals.contains(op); })) {
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
    std::string reason;
    plan.stack = getStack(plan.group, ancestors, reason);
    if (!plan.stack)
      plan.stack = getLayerStack(plan.group, ancestors);
    if (!plan.stack && plan.computations.empty())
      plan.kept = getKeptStack(plan.group, ancestors);
    if (plan.stack || plan.kept)
      return true;
    plan.reason = reason;
    return false;
  }

  /// Has all layers gathered at once if the gathers of `plan` lie in one loop
  /// over them: what is to be kept for the next step must leave the loop.
  bool chooseStack(Plan &plan) {
    AllGatherOp forward = plan.group.front();
    Operation *around = forward->getParentOp();
    while (around && !manuals.contains(around))
      around = around->getParentOp();
    if (!around || around == forward->getParentOp())
      return false;
    SmallVector<Operation *> ancestors;
    for (AllGatherOp gather : plan.group)
      if (Operation *ancestor =
              around->getRegion(0).front().findAncestorOpInBlock(*gather))
        ancestors.push_back(ancestor);
    std::string reason;
    if (ancestors.size() == plan.group.size())
      plan.stack = getStack(plan.group, ancestors, reason);
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

  /// True if the order of ops and regions allows `op` to read what the first
  /// gather of `plan` keeps.
  bool isReadable(const Plan &plan, Operation *op) {
    AllGatherOp forward = plan.group.front();
    if (dominance().properlyDominates(forward.getOperation(), op))
      return true;
    // Another manual computation gets it as an operand.
    return !plan.computations.empty() &&
           forward->getParentOp() == plan.computations.front() &&
           !plan.computations.front()->isAncestor(op) &&
           llvm::any_of(plan.computations, [&](Operation *computation) {
             return computation->isProperAncestor(op);
           });
  }

  /// True if the first gather runs before all others and they gather the same
  /// slice. In one iteration of a loop, slices at different indices differ.
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

  /// The reason why a value cannot leave the first of `computations` and enter
  /// the others, or empty.
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
    // A value that is the same outside must be the same inside.
    for (auto &[operand, different] : shardings)
      if (different.size() > 1)
        return "the manual computations with its gathers shard an operand "
               "differently";
    return "";
  }

  /// Also splits small gathers if a large one in the same place is split. They
  /// can travel with it (zero-coalesce-collectives), so that their hops cost no
  /// latency of their own.
  void splitBesideOthers(MutableArrayRef<Plan> plans) {
    Builder builder(&getContext());
    HeavyOps compute(getOperation());
    llvm::DenseMap<Block *, SmallVector<Operation *>> heavyOps;
    // A block, the number of heavy ops before it, and the other properties that
    // must agree.
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
      // A gather that is not quantized is left to XLA, so nothing can join it.
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
    else if (!plan.kept)
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
    Value whole = gatherInner(builder, forward, kept, plan.axes.inner);
    if (plan.group.size() == 1 && !plan.isBetweenSteps) {
      replaceGather(builder, forward, whole);
      remarkRewrite(kept, getArgument(),
                    "gathered in 2 hops, to travel with others");
      return;
    }
    kept->setAttr(kKeepAttr, builder.getUnitAttr());
    Value local = getLocal(builder, loc, kept);
    replaceGather(builder, forward, whole);
    remarkRewrite(
        kept, getArgument(),
        "its result is kept for " +
            (plan.group.size() == 1
                 ? "the next step"
                 : std::to_string(plan.group.size() - 1) + " later gathers"));
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
      shard = EncodeOp::create(builder, loc, primary, shard, /*held=*/Value());
    return createGather(builder, like, shard, outer);
  }

  //===--------------------------------------------------------------------===//
  // Across loops
  //===--------------------------------------------------------------------===//

  /// The stack that all gathers of `group` read, or nullopt and the reason. The
  /// gathers lie in `ancestors`, which are ops of one block or manual
  /// computations.
  std::optional<Stack> getStack(ArrayRef<AllGatherOp> group,
                                ArrayRef<Operation *> ancestors,
                                std::string &reason) {
    Stack stack{{}, {}, ancestors.front()};
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
    if (!getStackedType(AllGatherOp(group.front()).getOperand().getType(),
                        stack.paths.front().getNumLayers())) {
      reason = "the stack of its weights has more elements than a tensor can "
               "have";
      return std::nullopt;
    }
    if (manuals.contains(stack.anchor))
      stack.anchor = stack.anchor->getRegion(0).front().findAncestorOpInBlock(
          *AllGatherOp(group.front()).getOperation());
    return stack;
  }

  /// The same where each gather takes one layer in a way of its own.
  std::optional<Stack> getLayerStack(ArrayRef<AllGatherOp> group,
                                     ArrayRef<Operation *> ancestors) {
    Stack stack{{}, {}, ancestors.front()};
    for (AllGatherOp gather : group) {
      std::optional<LayerPath> path = getLayerPath(gather);
      if (!path)
        return std::nullopt;
      stack.layerPaths.push_back(std::move(*path));
      const LayerPath &first = stack.layerPaths.front();
      if (!areEqual(stack.layerPaths.back().path.source, first.path.source) ||
          !stack.layerPaths.back().path.doesTheSame(first.path))
        return std::nullopt;
    }
    auto source =
        cast<RankedTensorType>(stack.layerPaths.front().path.source.getType());
    if (!getStackedType(AllGatherOp(group.front()).getOperand().getType(),
                        source.getDimSize(0)))
      return std::nullopt;
    if (!areGatheredAgain(group, stack.layerPaths.front().path))
      return std::nullopt;
    if (manuals.contains(stack.anchor))
      stack.anchor = stack.anchor->getRegion(0).front().findAncestorOpInBlock(
          *AllGatherOp(group.front()).getOperation());
    return stack;
  }

  /// The type of `layers` tensors of type `layer` as one, whose dim has the
  /// layer as its most significant factor; null where there is none so large.
  static ShardType getStackedType(ShardType layer, int64_t layers) {
    SmallVector<int64_t> shape(layer.getGlobal().getShape());
    shape[layer.getDim()] = multiplySaturating(shape[layer.getDim()], layers);
    SmallVector<FactorAttr> factors{
        FactorAttr::getWhole(layer.getContext(), std::max<int64_t>(layers, 1))};
    llvm::append_range(factors, layer.getFactors());
    RankedTensorType global = layer.getGlobal().clone(shape);
    // Whether it is one is a question here, not an error.
    ScopedDiagnosticHandler ignore(layer.getContext(),
                                   [](Diagnostic &) { return success(); });
    auto emit = [&] {
      return mlir::emitError(UnknownLoc::get(layer.getContext()));
    };
    if (layers < 1 ||
        failed(ShardType::verify(emit, global, layer.getDim(), factors,
                                 layer.getMesh(), layer.getQuant())))
      return {};
    return ShardType::get(layer.getContext(), global, layer.getDim(), factors,
                          layer.getMesh(), layer.getQuant());
  }

  /// Hoists the gather over the outer axes before the loops, for all layers at
  /// once. A stack is one partitioned tensor whose dim has the layer as its
  /// most significant factor, held whole, so that every layer has its own units
  /// and wire chunks.
  void partitionAcrossLoops(const Plan &plan) {
    ArrayRef<AllGatherOp> group = plan.group;
    AllGatherOp forward = group.front();
    OpBuilder builder(plan.stack->anchor);
    Location loc = forward.getLoc();
    ShardType primary = plan.axes.primary;
    int64_t dim = primary.getDim();

    const Stack &stack = *plan.stack;
    bool hasPaths = stack.layerPaths.empty();
    LayerStack weights = hasPaths
                             ? createStack(builder, stack.paths.front())
                             : createStack(builder, stack.layerPaths.front());
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
      stacked = getStackedType(primary, layers);
    }
    AllGatherOp kept =
        gatherOuter(builder, forward, stacked, local, plan.axes.outer);
    kept->setAttr(kKeepAttr, builder.getUnitAttr());
    LayerStack secondary{getLocal(builder, loc, kept), weights.layers};
    ShardType layerType = getGathered(primary, plan.axes.outer);
    RankedTensorType layerLocal = layerType.getLocalType();
    if (!weights.layers.empty()) {
      // [layers..., the part of one layer that a device keeps]
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
    for (auto [index, later] : llvm::enumerate(group)) {
      AllGatherOp gather = later;
      builder.setInsertionPoint(gather);
      if (Operation *barrier = getBarrier(gather))
        (void)barriers[barrier];
      LayerStack here = secondary;
      if (passage)
        here.value = getValueIn(plan.computations[index], *passage);
      Value layer = hasPaths ? createLayerSlice(builder, gather.getLoc(), here,
                                                stack.paths[index])
                             : createLayerSlice(builder, gather.getLoc(), here,
                                                stack.layerPaths[index]);
      Value shard =
          FromLocalOp::create(builder, gather.getLoc(), layerType, layer);
      replaceGather(builder, gather,
                    gatherInner(builder, gather, shard, plan.axes.inner));
    }
    if (passage)
      passages.push_back(std::move(*passage));
  }

  //===--------------------------------------------------------------------===//
  // From loop to loop
  //===--------------------------------------------------------------------===//

  /// The one value that chooses what `value`, in the body of a loop, is made of
  /// in an iteration; null where it depends on the iteration in other ways.
  Value getIterationIndex(Value value, Operation *loop) {
    llvm::SetVector<Value> pending;
    pending.insert(value);
    Value index;
    Region &body = loop->getRegion(1);
    for (size_t i = 0; i < pending.size(); ++i) {
      Value next = pending[i];
      if (!body.isAncestor(next.getParentRegion()))
        continue;
      if (auto argument = dyn_cast<BlockArgument>(next)) {
        if (argument.getOwner() != &body.front() ||
            !isLoopInvariant(loop, argument.getArgNumber()))
          return {};
        continue;
      }
      Operation *op = next.getDefiningOp();
      if (isBarrier(op)) {
        pending.insert(op->getOperand(cast<OpResult>(next).getResultNumber()));
      } else if (isNamed(op, guest::kDynamicSlice)) {
        pending.insert(op->getOperand(0));
        for (Value offset : op->getOperands().drop_front()) {
          if (provenances.getConstant(offset))
            continue;
          if (index && index != offset)
            return {};
          index = offset;
        }
      } else if (isDeterministic(op)) {
        pending.insert(op->operand_begin(), op->operand_end());
      } else {
        return {};
      }
    }
    return index;
  }

  /// How the loop with the first gather of `group` can leave what it keeps to
  /// those with the later ones, which lie behind it in one block; nullopt where
  /// it cannot.
  std::optional<KeptStack> getKeptStack(ArrayRef<AllGatherOp> group,
                                        ArrayRef<Operation *> ancestors) {
    KeptStack kept;
    for (auto [number, gather, ancestor] : llvm::enumerate(group, ancestors)) {
      std::optional<CountedLoop> loop = getCountedLoop(ancestor, provenances);
      if (!loop || AllGatherOp(gather)->getBlock() != &loop->getBody())
        return std::nullopt;
      Value index = getIterationIndex(getSource(gather).getLocal(), ancestor);
      if (!index || !isa<IntegerType>(getElementTypeOrSelf(index)))
        return std::nullopt;
      if (number == 0) {
        if (index != loop->counter)
          return std::nullopt;
        kept.loop = *loop;
        continue;
      }
      if (!kept.loop.loop->isBeforeInBlock(ancestor) ||
          !isIndexBelow(index, kept.loop.trips, *loop, provenances))
        return std::nullopt;
      kept.indices.push_back(index);
    }
    return kept;
  }

  /// Rebuilds the loops that leave stacks of what they keep.
  void keepInLoops(ArrayRef<Plan> plans) {
    llvm::MapVector<Operation *, SmallVector<const Plan *>> byLoop;
    for (const Plan &plan : plans)
      if (plan.kept && plan.reason.empty())
        byLoop[plan.kept->loop.loop].push_back(&plan);
    for (auto &[loop, ofLoop] : byLoop) {
      OpBuilder builder(loop);
      Location loc = loop->getLoc();
      SmallVector<Value> layers, stacks;
      SmallVector<ShardType> types;
      for (const Plan *plan : ofLoop) {
        AllGatherOp forward = plan->group.front();
        builder.setInsertionPoint(forward);
        AllGatherOp kept =
            gatherOuter(builder, forward, plan->axes.primary,
                        getSource(forward).getLocal(), plan->axes.outer);
        kept->setAttr(kKeepAttr,
                      builder.getI64IntegerAttr(plan->kept->loop.trips));
        Value whole = gatherInner(builder, forward, kept, plan->axes.inner);
        layers.push_back(getLocal(builder, forward.getLoc(), kept));
        types.push_back(kept.getType());
        replaceGather(builder, forward, whole);
        remarkRewrite(kept, getArgument(),
                      "the loop keeps its results for " +
                          Twine(plan->group.size() - 1) + " later gathers");
        builder.setInsertionPoint(loop);
        auto type = cast<RankedTensorType>(layers.back().getType());
        SmallVector<int64_t> shape{plan->kept->loop.trips};
        llvm::append_range(shape, type.getShape());
        stacks.push_back(createZeros(builder, loc, type.clone(shape)));
      }
      size_t first = loop->getNumResults();
      Value counter = ofLoop.front()->kept->loop.counter;
      Operation *extended = extendLoop(loop, stacks);
      Block &body = extended->getRegion(1).front();
      Operation *last = &body.back();
      builder.setInsertionPoint(last);
      SmallVector<Value> carried(last->getOperands());
      for (auto [number, layer] : llvm::enumerate(layers))
        carried.push_back(createLayerUpdate(builder, layer.getLoc(),
                                            body.getArgument(first + number),
                                            layer, counter));
      last->setOperands(carried);
      for (auto [number, plan] : llvm::enumerate(ofLoop)) {
        LayerStack stack{extended->getResult(first + number),
                         {plan->kept->loop.trips}};
        for (auto [index, later] : llvm::enumerate(plan->kept->indices)) {
          AllGatherOp gather = plan->group[1 + index];
          builder.setInsertionPoint(gather);
          if (Operation *barrier = getBarrier(gather))
            (void)barriers[barrier];
          Value layer =
              createLayerSlice(builder, gather.getLoc(), stack, later);
          Value shard = FromLocalOp::create(builder, gather.getLoc(),
                                            types[number], layer);
          replaceGather(builder, gather,
                        gatherInner(builder, gather, shard, plan->axes.inner));
        }
      }
    }
  }

  //===--------------------------------------------------------------------===//
  // Between manual computations
  //===--------------------------------------------------------------------===//

  /// The value of `passage` in `computation`: the value itself in the
  /// computation that it comes from, otherwise a placeholder for an argument.
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

  /// Rebuilds the manual computations that partitions leave and enter. A
  /// partition is passed as a flat tensor, sharded over all axes, because each
  /// device has its own.
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
    // A computation is rebuilt after those whose results it reads.
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

  /// Replaces `gather` by one within the group that reads the kept partition
  /// `local`, which passes through `crossed` or else a barrier of its own.
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
    replaceGather(builder, gather, gatherInner(builder, gather, shard, inner));
  }

  /// The barrier nearest to `gather` through which its operand, or a value that
  /// the operand is computed from, passes.
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

  /// Rebuilds `barrier` with the kept partitions as additional operands and
  /// without operands whose results are not read any more.
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
    // Erase the primary partitions that passed through it only for the later
    // gathers.
    eraseIfDead(dropped);
  }

  ManualComputations manuals;
  /// Valid until the first rewrite.
  ProvenanceAnalysis provenances;
  std::optional<FrozenWeights> frozen;
  /// For each root, the blocks of loops that gather from it.
  llvm::DenseMap<Value, llvm::SmallPtrSet<Block *, 2>> loopsOver;

  DominanceInfo &dominance() { return getAnalysis<DominanceInfo>(); }

  llvm::MapVector<Operation *, SmallVector<UnrealizedConversionCastOp>>
      barriers;
  std::vector<Passage> passages;
};
} // namespace
