//===- PartitionWithinNode.cpp - Secondary weight partitions (hpZ, 3.2) ---===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "LocalValues.h"
#include "mlir/IR/Dominance.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

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

/// Where the gathers of a group in several loops read from.
struct Stack {
  /// The weights of all layers, [layers, local...], or one weight, in a block
  /// around all of the loops; and the first op of the block with a gather.
  Value value;
  Operation *anchor;
  /// The ops that choose a layer, one per gather; null where all read the
  /// same.
  SmallVector<Operation *> slices;
  /// Element-wise ops between the stack and the gather, in order.
  SmallVector<Operation *> casts;
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
    // Gathers of the same values: the same root through the same casts.
    llvm::MapVector<std::pair<Value, Attribute>, SmallVector<AllGatherOp>>
        gathers;
    getOperation().walk<WalkOrder::PreOrder>([&](AllGatherOp gather) {
      // The second half of a gather that is split already, or its first.
      if (gather.getOperand().getDefiningOp<AllGatherOp>() ||
          gather->hasAttr(kKeepAttr) ||
          llvm::any_of(gather->getUsers(), llvm::IsaPred<AllGatherOp>))
        return;
      if (std::optional<std::pair<Value, Attribute>> key = getKey(gather))
        gathers[*key].push_back(gather);
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

  std::optional<std::pair<Value, Attribute>> getKey(AllGatherOp gather) {
    FromLocalOp source = getSource(gather);
    if (!source)
      return std::nullopt;
    Value root = provenances.get(source.getLocal()).root;
    // It starts from a secondary partition already.
    if (root.getDefiningOp<AllGatherOp>())
      return std::nullopt;
    // The same slice, and the same casts of it.
    SmallVector<Attribute> steps{
        TypeAttr::get(gather.getType()), gather.getAlong(),
        IntegerAttr::get(IndexType::get(&getContext()),
                         provenances.getSliceId(source.getLocal(),
                                                /*inAnyIteration=*/true))};
    for (Operation *op : provenances.getPath(source.getLocal())) {
      // Which slice of a stack a loop reads is up to its index: the forward and
      // the backward loop go over all of them.
      steps.push_back(op->getName().getIdentifier());
      if (Attribute properties = op->getPropertiesAsAttribute())
        steps.push_back(properties);
      steps.push_back(TypeAttr::get(op->getResult(0).getType()));
    }
    return std::make_pair(root,
                          Attribute(ArrayAttr::get(&getContext(), steps)));
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

  FailureOr<Plan> getPlan(ArrayRef<AllGatherOp> group,
                          LinksOption &linksOption) {
    AllGatherOp forward = group.front();
    Plan plan{group, {}, false, {}, {}, {}};
    FailureOr<SecondaryGroup> axes = getGroup(forward, plan.reason);
    if (failed(axes))
      return failure();
    plan.axes = *axes;
    if (!plan.reason.empty())
      return plan;
    auto getExactKey = [&](AllGatherOp gather) {
      return provenances.getSliceId(getSource(gather).getLocal(),
                                    /*inAnyIteration=*/false);
    };
    Mesh mesh = forward.getMeshAttr().getMesh();
    FailureOr<std::optional<LinkModel>> model = linksOption.getModel(mesh);
    if (failed(model))
      return failure();
    plan.isSmall = isMostlyLatency(forward, model->value_or(LinkModel(mesh)));
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
    // In one iteration of a loop, slices at different indices are different.
    int64_t key = getExactKey(forward);
    bool isStraight = llvm::all_of(group.drop_front(), [&](AllGatherOp gather) {
      return dominance().properlyDominates(forward.getOperation(),
                                           gather.getOperation()) &&
             getExactKey(gather) == key;
    });
    if (!isStraight) {
      plan.stack = getStack(group, plan.reason);
      plan.isSmall &= plan.stack.has_value();
      return plan;
    }
    for (AllGatherOp gather : group.drop_front()) {
      Operation *barrier = getBarrier(gather);
      bool isCrossed = barrier && dominance().properlyDominates(
                                      forward.getOperation(), barrier);
      plan.crossed.push_back(isCrossed ? barrier : nullptr);
    }
    return plan;
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
      if (other->stack && plan.group.size() == 1)
        plan.stack = getStack(
            forward,
            other->stack->anchor->getBlock()->findAncestorOpInBlock(*forward));
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
      partitionAcrossLoops(plan.group, *plan.stack, plan.axes);
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
    for (auto [gather, barrier] :
         llvm::zip_equal(plan.group.drop_front(), plan.crossed))
      gatherWithin(gather, barrier, local, kept.getType(), plan.axes.inner);
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

  /// The stack that all gathers of `group` read, or nullopt and the reason.
  static std::optional<Stack> getStack(ArrayRef<AllGatherOp> group,
                                       std::string &reason) {
    Block *common = AllGatherOp(group.front())->getBlock();
    auto isCommon = [&](AllGatherOp gather) {
      return common->findAncestorOpInBlock(*gather.getOperation()) != nullptr;
    };
    while (common && !llvm::all_of(group, isCommon)) {
      Operation *parent = common->getParentOp();
      common = parent ? parent->getBlock() : nullptr;
    }
    if (!common) {
      reason = "the gathers of its weight have no region in common";
      return std::nullopt;
    }
    std::optional<Stack> result;
    for (AllGatherOp gather : group) {
      Operation *ancestor =
          common->findAncestorOpInBlock(*gather.getOperation());
      std::optional<Stack> stack = getStack(gather, ancestor);
      if (!stack || (result && (result->value != stack->value ||
                                !result->slices[0] != !stack->slices[0]))) {
        reason = "the regions around the gathers of its weight are not loops "
                 "over one stack of weights";
        return std::nullopt;
      }
      if (!result)
        result = stack;
      else
        result->slices.push_back(stack->slices[0]);
    }
    return result;
  }

  /// The stack that `gather` reads, which lies within `ancestor`.
  static std::optional<Stack> getStack(AllGatherOp gather,
                                       Operation *ancestor) {
    Stack stack{getSource(gather).getLocal(), ancestor, {nullptr}, {}};
    auto localType = cast<RankedTensorType>(stack.value.getType());
    // Out of a branch, a gather might run that the step does not.
    for (Operation *parent = gather; parent != ancestor;) {
      parent = parent->getParentOp();
      if (parent->getName().getStringRef() != "stablehlo.while")
        return std::nullopt;
    }
    while (true) {
      Value value = stack.value;
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        Operation *parent = argument.getOwner()->getParentOp();
        if (!ancestor->isAncestor(parent))
          break;
        if (parent->getName().getStringRef() != "stablehlo.while" ||
            !isLoopInvariant(parent, argument.getArgNumber()))
          return std::nullopt;
        stack.value = parent->getOperand(argument.getArgNumber());
        continue;
      }
      Operation *op = value.getDefiningOp();
      if (isBarrier(op)) {
        stack.value = op->getOperand(cast<OpResult>(value).getResultNumber());
        continue;
      }
      if (!ancestor->isAncestor(op))
        break;
      StringRef name = op->getName().getStringRef();
      if (name == "stablehlo.convert" || name == "stablehlo.reduce_precision")
        stack.casts.push_back(op);
      else if (name == "stablehlo.dynamic_slice" && !stack.slices[0])
        stack.slices[0] = op;
      else if (name != "stablehlo.reshape" || stack.slices[0])
        return std::nullopt;
      stack.value = op->getOperand(0);
    }
    std::reverse(stack.casts.begin(), stack.casts.end());
    // One layer at a time, of the shape that is gathered.
    SmallVector<int64_t> expected(localType.getShape());
    auto type = cast<RankedTensorType>(stack.value.getType());
    if (stack.slices[0]) {
      auto slice =
          cast<RankedTensorType>(stack.slices[0]->getResult(0).getType());
      if (slice.getDimSize(0) != 1)
        return std::nullopt;
      expected.insert(expected.begin(), type.getDimSize(0));
    }
    if (type.getShape() != ArrayRef(expected))
      return std::nullopt;
    return stack;
  }

  /// An op of StableHLO, by name.
  static Value createOp(OpBuilder &builder, Location loc, StringRef name,
                        ValueRange operands, RankedTensorType type,
                        ArrayRef<NamedAttribute> attributes = {}) {
    OperationState state(loc, name);
    state.addOperands(operands);
    state.addTypes(type);
    if (!attributes.empty())
      state.propertiesAttr = builder.getDictionaryAttr(attributes);
    return builder.create(state)->getResult(0);
  }

  static Value reshape(OpBuilder &builder, Location loc, Value value,
                       ArrayRef<int64_t> shape) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getShape() == shape)
      return value;
    return createOp(builder, loc, "stablehlo.reshape", value,
                    type.clone(shape));
  }

  /// Moves dim `from` to position `to`.
  static Value moveDim(OpBuilder &builder, Location loc, Value value,
                       int64_t from, int64_t to) {
    if (from == to)
      return value;
    auto type = cast<RankedTensorType>(value.getType());
    SmallVector<int64_t> permutation =
        llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    permutation.erase(permutation.begin() + from);
    permutation.insert(permutation.begin() + to, from);
    SmallVector<int64_t> shape = llvm::map_to_vector(
        permutation, [&](int64_t dim) { return type.getDimSize(dim); });
    return createOp(
        builder, loc, "stablehlo.transpose", value, type.clone(shape),
        builder.getNamedAttr("permutation",
                             builder.getDenseI64ArrayAttr(permutation)));
  }

  /// Hoists the gather over the outer axes, of all layers at once, in front of
  /// the loops. A stack is one partitioned tensor whose dim has the layer as
  /// its most significant factor, held whole, so that every layer keeps units,
  /// and wire chunks, of its own.
  void partitionAcrossLoops(ArrayRef<AllGatherOp> group, const Stack &stack,
                            const SecondaryGroup &secondaryGroup) {
    AllGatherOp forward = group.front();
    OpBuilder builder(stack.anchor);
    Location loc = forward.getLoc();
    ShardType primary = secondaryGroup.primary;
    int64_t dim = primary.getDim();
    bool isSliced = stack.slices.front() != nullptr;

    Value local = stack.value;
    for (Operation *cast : stack.casts) {
      auto type = mlir::cast<RankedTensorType>(cast->getResult(0).getType());
      local = createOp(
          builder, cast->getLoc(), cast->getName().getStringRef(), local,
          RankedTensorType::get(
              mlir::cast<RankedTensorType>(local.getType()).getShape(),
              type.getElementType()),
          cast->getPropertiesAsAttribute()
              ? mlir::cast<DictionaryAttr>(cast->getPropertiesAsAttribute())
                    .getValue()
              : ArrayRef<NamedAttribute>());
    }
    int64_t layers = 1;
    ShardType stacked = primary;
    if (isSliced) {
      SmallVector<int64_t> shape(
          cast<RankedTensorType>(local.getType()).getShape());
      layers = shape.front();
      shape.erase(shape.begin());
      shape[dim] *= layers;
      local =
          reshape(builder, loc, moveDim(builder, loc, local, 0, dim), shape);
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
        gatherOuter(builder, forward, stacked, local, secondaryGroup.outer);
    kept->setAttr(kKeepAttr, builder.getUnitAttr());
    Value secondary = getLocal(builder, loc, kept);
    ShardType layerType = getGathered(primary, secondaryGroup.outer);
    RankedTensorType layerLocal = layerType.getLocalType();
    if (isSliced) {
      // [layers, what a device keeps of one]
      int64_t position = layerType.getQuant() ? 0 : dim;
      SmallVector<int64_t> shape(layerLocal.getShape());
      shape.insert(shape.begin() + position, layers);
      secondary = moveDim(builder, loc, reshape(builder, loc, secondary, shape),
                          position, 0);
    }
    remarkRewrite(kept, getArgument(),
                  "hoisted out of the loops, its result is kept for " +
                      Twine(group.size()) +
                      (group.size() == 1 ? " gather" : " gathers"));
    for (auto [index, slice] : llvm::enumerate(stack.slices)) {
      AllGatherOp gather = group[index];
      builder.setInsertionPoint(gather);
      if (Operation *barrier = getBarrier(gather))
        (void)barriers[barrier];
      Value layer = secondary;
      if (isSliced) {
        auto type = cast<RankedTensorType>(secondary.getType());
        SmallVector<int64_t> sizes(type.getShape());
        sizes.front() = 1;
        // The layer's index, and zero for every other dim.
        SmallVector<Value> operands{secondary, slice->getOperand(1)};
        operands.append(type.getRank() - 1, slice->getOperand(2));
        layer =
            createOp(builder, gather.getLoc(), "stablehlo.dynamic_slice",
                     operands, type.clone(sizes),
                     builder.getNamedAttr("slice_sizes",
                                          builder.getDenseI64ArrayAttr(sizes)));
        layer = reshape(builder, gather.getLoc(), layer, layerLocal.getShape());
      }
      Value shard =
          FromLocalOp::create(builder, gather.getLoc(), layerType, layer);
      replaceGather(builder, gather,
                    createGather(builder, gather, shard, secondaryGroup.inner));
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

  /// The barrier nearest to `gather` that its operand comes through.
  static Operation *getBarrier(AllGatherOp gather) {
    FromLocalOp source = getSource(gather);
    if (!source)
      return nullptr;
    Value value = source.getLocal();
    while (Operation *op = value.getDefiningOp()) {
      if (isBarrier(op))
        return op;
      if (!movesData(op))
        return nullptr;
      value = op->getOperand(0);
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

  DominanceInfo &dominance() { return getAnalysis<DominanceInfo>(); }

  llvm::MapVector<Operation *, SmallVector<UnrealizedConversionCastOp>>
      barriers;
};
} // namespace
