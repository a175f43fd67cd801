//===- PartitionWithinNode.cpp - Secondary weight partitions (hpZ, 3.2) ---===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "mlir/IR/Dominance.h"
#include "zpp/Analysis/Origin.h"
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

class PartitionWithinNodePass
    : public zpp::impl::PartitionWithinNodePassBase<PartitionWithinNodePass> {
public:
  using PartitionWithinNodePassBase::PartitionWithinNodePassBase;

  void runOnOperation() override {
    // Gathers of the same values: the same root through the same casts.
    llvm::MapVector<std::pair<Value, Attribute>, SmallVector<AllGatherOp>>
        gathers;
    getOperation().walk<WalkOrder::PreOrder>([&](AllGatherOp gather) {
      if (gather.getOperand().getDefiningOp<AllGatherOp>())
        return;
      if (std::optional<std::pair<Value, Attribute>> key = getKey(gather))
        gathers[*key].push_back(gather);
    });
    for (auto &[key, group] : gathers)
      if (failed(partition(group)))
        return signalPassFailure();
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
    Provenance provenance = getProvenance(source.getLocal());
    SmallVector<Attribute> steps{TypeAttr::get(gather.getType()),
                                 gather.getAlong()};
    for (Operation *op : provenance.path) {
      // Which slice of a stack a loop reads is up to its index: the forward and
      // the backward loop go over all of them.
      steps.push_back(op->getName().getIdentifier());
      if (Attribute properties = op->getPropertiesAsAttribute())
        steps.push_back(properties);
      steps.push_back(TypeAttr::get(op->getResult(0).getType()));
    }
    return std::make_pair(provenance.root,
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
      return getOperation().emitError("expected a tier of the mesh ")
             << mesh.str() << " or a group size as the secondary partition, "
             << "but got '" << secondary << "'";
    }
    std::vector<AxisRef> outer, inner;
    std::vector<AxisRef> ordered(refs.begin(), refs.end());
    if (!splitRefs(ordered, size, outer, inner))
      return getOperation().emitError("expected a secondary group size that "
                                      "divides the ")
             << zpp::numDevices(ordered) << " devices of a weight's group on "
             << mesh.str() << ", but got " << size;
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

  LogicalResult partition(ArrayRef<AllGatherOp> group) {
    AllGatherOp forward = group.front();
    std::string reason;
    FailureOr<SecondaryGroup> secondaryGroup = getGroup(forward, reason);
    if (failed(secondaryGroup))
      return failure();
    if (!reason.empty()) {
      for (AllGatherOp gather : group)
        leaveAlone(gather, getArgument(), reason);
      return success();
    }
    if (group.size() == 1) {
      leaveAlone(forward, getArgument(),
                 "it is gathered once and kept; regather=true gathers it again "
                 "in the backward pass");
      return success();
    }
    SmallVector<AllGatherOp> later;
    for (AllGatherOp gather : group.drop_front()) {
      if (dominance().properlyDominates(forward.getOperation(),
                                        gather.getOperation()))
        later.push_back(gather);
      else
        leaveAlone(gather, getArgument(),
                   "the first gather of its weight is in another region");
    }
    if (later.empty()) {
      leaveAlone(forward, getArgument(),
                 "the later gathers of its weight are in another region");
      return success();
    }

    OpBuilder builder(forward);
    Location loc = forward.getLoc();
    Value primary = FromLocalOp::create(
        builder, loc, secondaryGroup->primary.withQuant(QuantAttr()),
        getSource(forward).getLocal());
    if (QuantAttr quant = secondaryGroup->primary.getQuant())
      primary =
          EncodeOp::create(builder, loc, secondaryGroup->primary, primary);
    AllGatherOp kept =
        createGather(builder, forward, primary, secondaryGroup->outer);
    kept->setAttr(kKeepAttr, builder.getUnitAttr());
    AllGatherOp whole =
        createGather(builder, forward, kept, secondaryGroup->inner);
    Value local = getLocal(builder, loc, kept);
    replaceGather(builder, forward, whole);
    remarkRewrite(kept, getArgument(),
                  "its result is kept for " + Twine(later.size()) +
                      " later gathers");
    for (AllGatherOp gather : later)
      gatherWithin(gather, local, kept.getType(), secondaryGroup->inner);
    return success();
  }

  /// Replaces `gather` by one within the group, of the kept partition `local`
  /// behind the barrier that the gather's operand comes through.
  void gatherWithin(AllGatherOp gather, Value local, ShardType kept,
                    ArrayAttr inner) {
    OpBuilder builder(gather);
    Operation *barrier = getBarrier(gather);
    Value behind;
    if (barrier && dominance().properlyDominates(local, barrier)) {
      // A placeholder until the barrier gets its new operand; it keeps the
      // barrier alive until then.
      auto cast = UnrealizedConversionCastOp::create(
          builder, gather.getLoc(), local.getType(),
          ValueRange{local, barrier->getResult(0)});
      barriers[barrier].push_back(cast);
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
      if (!isDataMovement(op))
        return nullptr;
      value = op->getOperand(0);
    }
    return nullptr;
  }

  static Operation *createBarrier(OpBuilder &builder, Location loc,
                                  ValueRange operands) {
    OperationState state(loc, "stablehlo.optimization_barrier");
    state.addOperands(operands);
    state.addTypes(operands.getTypes());
    return builder.create(state);
  }

  /// Rebuilds `barrier` with the kept partitions among its operands, and
  /// without the operands that nothing reads behind it any more.
  void extendBarrier(Operation *barrier,
                     ArrayRef<UnrealizedConversionCastOp> additions) {
    OpBuilder builder(barrier);
    SmallVector<Value> operands, replaced;
    for (UnrealizedConversionCastOp cast : additions)
      cast->eraseOperand(1);
    for (auto [operand, result] :
         llvm::zip_equal(barrier->getOperands(), barrier->getResults()))
      if (!result.use_empty()) {
        operands.push_back(operand);
        replaced.push_back(result);
      }
    for (UnrealizedConversionCastOp cast : additions) {
      operands.push_back(cast.getOperand(0));
      replaced.push_back(cast.getResult(0));
    }
    Operation *extended = createBarrier(builder, barrier->getLoc(), operands);
    extended->setDiscardableAttrs(barrier->getDiscardableAttrDictionary());
    for (auto [from, to] : llvm::zip_equal(replaced, extended->getResults()))
      from.replaceAllUsesWith(to);
    for (UnrealizedConversionCastOp cast : additions)
      cast.erase();
    barrier->erase();
  }

  DominanceInfo &dominance() { return getAnalysis<DominanceInfo>(); }

  llvm::MapVector<Operation *, SmallVector<UnrealizedConversionCastOp>>
      barriers;
};
} // namespace
