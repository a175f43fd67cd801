//===- SendUpdates.cpp - Updated weights as what has changed --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The owner of a slice adds to what it held what it has sent, as all others do:
// all devices then hold the same bits. Where it keeps the slice in f32 as well,
// what is rounded is part of the next update.
//
//===----------------------------------------------------------------------===//

#include "Formats.h"
#include "LocalValues.h"
#include "UpdatedWeights.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Support/Placement.h"
#include "zpp/Transforms/Passes.h"

#include <map>

namespace zpp {
#define GEN_PASS_DEF_SENDUPDATESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// An exchange of updates, of the axes of one of the gathers over one tier.
struct Hop {
  ArrayAttr along;
  std::vector<AxisRef> axes;
  Operation *gather;
};

/// How updates of a weight are sent.
struct Plan {
  UpdatedWeight weight;
  QuantAttr quant;
  ShardType from, to;
  SmallVector<Hop> hops;
  /// The argument of the step that is updated, or null.
  Value input;
};

class SendUpdatesPass : public zpp::impl::SendUpdatesPassBase<SendUpdatesPass> {
public:
  using SendUpdatesPassBase::SendUpdatesPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<QuantAttr> quant = parseFormat(module, format, block);
    if (failed(quant))
      return signalPassFailure();
    if (!*quant)
      return;
    SmallVector<Operation *> gathers;
    module.walk([&](Operation *op) {
      if (op->hasAttr(kUpdatedAttr))
        gathers.push_back(op);
    });
    if (gathers.empty()) {
      remarkMissed(module, getArgument(), "nothing-updated")
          << "no update is sent: the step gathers no weights that its devices "
             "have updated in parts";
      return;
    }
    FailureOr<Mesh> mesh = getStepMesh(module, "");
    FailureOr<Machine> machine = Machine::get(module);
    if (failed(mesh) || failed(machine))
      return signalPassFailure();
    std::optional<LinkModel> model = machine->findLinks(*mesh);
    offsets.clear();
    // Everything is decided before anything changes.
    UpdatedWeights updated(module, *mesh);
    ProvenanceAnalysis provenances;
    llvm::SmallPtrSet<Operation *, 8> taken;
    std::vector<Plan> plans;
    SmallVector<std::pair<Operation *, LeftAlone>> left;
    // The last gather of a tensor comes first.
    for (Operation *gather : llvm::reverse(gathers)) {
      if (taken.contains(gather))
        continue;
      Decision<UpdatedWeight> weight = updated.find(
          gather, [](Operation *op) { return op->hasAttr(kUpdatedAttr); });
      Decision<Plan> plan = weight ? getPlan(std::move(*weight), *mesh, *quant,
                                             model, provenances)
                                   : Decision<Plan>(weight.getLeftAlone());
      if (!plan) {
        left.push_back({gather, plan.getLeftAlone()});
        continue;
      }
      for (const CollectiveView &view : plan->weight.gathers)
        taken.insert(view.op);
      plans.push_back(std::move(*plan));
    }
    for (auto &[gather, why] : llvm::reverse(left))
      leaveAlone(gather, getArgument(),
                 LeftAlone("it gathers state, of which no update is sent: " +
                           why.getReason()),
                 kGetsUpdate);
    for (Operation *gather : gathers)
      gather->removeAttr(kUpdatedAttr);
    for (Plan &plan : llvm::reverse(plans))
      rewrite(plan);
  }

private:
  /// How updates of `weight` are sent.
  Decision<Plan> getPlan(UpdatedWeight weight, const Mesh &mesh,
                         QuantAttr quant, const std::optional<LinkModel> &model,
                         ProvenanceAnalysis &provenances) {
    Plan plan{std::move(weight), quant, {}, {}, {}, {}};
    if (Provenance held = provenances.get(plan.weight.held); held.isStepInput)
      plan.input = held.root;
    for (const CollectiveView &gather : plan.weight.gathers)
      if (plan.quant = widen(plan.quant, gather.op); !plan.quant)
        return LeftAlone(getFloorReason(getOrigins(gather.op)));
    MLIRContext *context = &getContext();
    auto meshAttr = MeshAttr::get(context, mesh);
    SmallVector<FactorAttr> partitioned, whole;
    for (const AxisRef &axis : plan.weight.getAxes()) {
      partitioned.push_back(
          FactorAttr::getPartitioned(AxisRefAttr::get(context, mesh, axis)));
      whole.push_back(FactorAttr::getWhole(context, axis.size));
    }
    plan.from =
        ShardType::get(context, plan.weight.getWhole(), plan.weight.getDim(),
                       partitioned, meshAttr, QuantAttr());
    plan.to = plan.from.withFactors(whole);
    // From the slowest tier inwards, which has the least to carry then.
    std::vector<TierHop> tiers =
        getTierHops(mesh, plan.weight.getAxes(), /*numFormats=*/2);
    for (const TierHop &tier : llvm::reverse(tiers))
      for (const CollectiveView &gather : plan.weight.gathers) {
        std::vector<AxisRef> axes;
        for (const AxisRef &axis : tier.axes)
          if (llvm::is_contained(gather.axes, axis))
            axes.push_back(axis);
        if (!axes.empty())
          plan.hops.push_back(
              {getAxesAttr(context, mesh, axes), axes, gather.op});
      }
    SliceBytes bytes(plan.from, plan.quant);
    if (!bytes.isShorter())
      return bytes.getReason("as an update");
    if (!model)
      return plan;
    double usec = 0, sent = 0;
    for (const CollectiveView &gather : plan.weight.gathers)
      usec += model->getCollectiveUsec(
          mesh, CollectiveKind::AllGather, gather.axes,
          getBytes(gather.op->getOperand(0).getType()));
    int64_t devices = 1;
    for (const Hop &hop : plan.hops) {
      sent += model->getCollectiveUsec(mesh, CollectiveKind::AllGather,
                                       hop.axes, devices * bytes.wire);
      devices *= zpp::numDevices(hop.axes);
    }
    int64_t moved = 2 * bytes.plain + bytes.wire;
    sent +=
        LinkModel::kKernelWeight * (LinkModel::getKernelUsec(moved) +
                                    LinkModel::getKernelUsec(devices * moved));
    if (sent >= usec)
      return LeftAlone::onLinks(usec, "as an update", sent);
    return plan;
  }

  /// Builds the value of `weight` that all devices hold, and the slice of it
  /// whose update a device sends, in the type and shape in which the new one is
  /// gathered.
  std::pair<Value, Value> buildHeld(IRRewriter &builder, Location loc,
                                    const UpdatedWeight &weight) {
    StablehloBuilder stablehlo(builder, loc);
    RankedTensorType type = weight.getWhole();
    RankedTensorType part = getTensorType(weight.getOperand());
    auto as = [&](Value value, RankedTensorType wanted) {
      return stablehlo.convert(stablehlo.reshape(value, wanted.getShape()),
                               wanted.getElementType());
    };
    if (weight.slice)
      return {as(weight.held, type), as(weight.slice->getResult(0), part)};
    Value held = weight.held;
    for (Operation *op : llvm::reverse(weight.path))
      if (auto order = op->getAttrOfType<DenseI64ArrayAttr>("permutation"))
        held = stablehlo.permute(held, getTensorType(held).getShape(),
                                 invertPermutationVector(order));
      else
        held = as(held, getTensorType(op->getOperand(0)));
    // Most weights have the same offsets.
    Value &offset = offsets[{builder.getBlock(), weight.offsets}];
    if (!offset) {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(builder.getBlock());
      offset = buildPartitionOffset(builder, loc, weight.offsets);
    }
    return {held, buildSliceAt(builder, loc, held, weight.getDim(), offset,
                               part.getDimSize(weight.getDim()))};
  }

  void rewrite(const Plan &plan) {
    const UpdatedWeight &weight = plan.weight;
    Operation *last = weight.gathers.front().op;
    Location loc = getNamedLocation(last, Role::Update, plan.input);
    IRRewriter builder(last);
    auto [held, own] = buildHeld(builder, loc, weight);
    auto asShard = [&](ShardType type, Value local) {
      return FromLocalOp::create(builder, loc, type, local);
    };
    Value value = EncodeOp::create(
        builder, loc, plan.from.withQuant(plan.quant),
        asShard(plan.from, weight.getOperand()), asShard(plan.from, own));
    for (const Hop &hop : plan.hops) {
      auto from = cast<ShardType>(value.getType());
      auto moved =
          AllGatherOp::create(builder, hop.gather->getLoc(),
                              from.withWhole(hop.along), value, hop.along);
      if (std::optional<Origin> origin = getOrigin(hop.gather)) {
        origin->role = Role::Update;
        moved->setAttr(kOriginAttr, getOriginAttr(&getContext(), *origin));
      }
      value = moved;
    }
    value =
        DecodeOp::create(builder, loc, plan.to, value, asShard(plan.to, held));
    remarkRewrite(last, getArgument(),
                  "sends by how much its tensor has changed, in " +
                      Twine(plan.hops.size()) + " hops");
    last->getResult(0).replaceAllUsesWith(getLocal(builder, loc, value));
    for (const CollectiveView &gather : weight.gathers) {
      // A gather of one device moves nothing.
      if (gather.axes.empty())
        recordRemoved(gather.op);
      gather.op->erase();
    }
  }

  /// Offsets of a device's slice, by block and by those of all devices.
  std::map<std::pair<Block *, std::vector<int64_t>>, Value> offsets;
};
} // namespace
