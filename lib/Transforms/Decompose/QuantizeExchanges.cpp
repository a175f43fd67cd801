//===- QuantizeExchanges.cpp - Rows for experts in quantized form ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formats.h"
#include "LocalValues.h"
#include "zpp/Analysis/Collectives.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Support/Placement.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_QUANTIZEEXCHANGESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class QuantizeExchangesPass
    : public zpp::impl::QuantizeExchangesPassBase<QuantizeExchangesPass> {
public:
  using QuantizeExchangesPassBase::QuantizeExchangesPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<QuantAttr> quant = parseFormat(module, format, block);
    if (failed(quant))
      return signalPassFailure();
    SmallVector<Operation *> exchanges;
    module.walk([&](Operation *op) {
      if (getGuestCollective(op) == CollectiveKind::AllToAll &&
          hasRole(getOrigins(op), moments ? Role::Moment : Role::Exchange) &&
          !op->hasAttr(kReasonAttr))
        exchanges.push_back(op);
    });
    if (!*quant || exchanges.empty())
      return;
    FailureOr<Mesh> mesh = getStepMesh(module, "");
    FailureOr<Machine> machine = Machine::get(module);
    if (failed(mesh) || failed(machine))
      return signalPassFailure();
    CollectiveReader reader(*mesh);
    for (Operation *op : exchanges) {
      CollectiveView view = *reader.read(op);
      Decision<Plan> plan =
          getPlan(view, *mesh, *quant, machine->findLinks(*mesh));
      if (plan)
        rewrite(view, *mesh, *plan);
      else
        leaveAlone(op, getArgument(), plan.getLeftAlone());
    }
  }

private:
  struct Plan {
    QuantAttr quant;
    /// How the operand is cut into chunks, and the result is put together.
    SlicesAttr sent, received;
    /// The bytes of a chunk, as it is and quantized.
    int64_t plain, wire;
  };

  Decision<Plan> getPlan(const CollectiveView &view, const Mesh &mesh,
                         QuantAttr quant,
                         const std::optional<LinkModel> &model) {
    Operation *op = view.op;
    auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
    auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    auto concatenated = op->getAttrOfType<IntegerAttr>("concat_dimension");
    int64_t devices = zpp::numDevices(view.axes);
    if (!view.groupError.empty())
      return LeftAlone(view.groupError);
    if (!from || !to || !concatenated ||
        from.getElementType() != to.getElementType() ||
        !isQuantizable(from.getElementType()))
      return LeftAlone("it exchanges no single tensor of f32, bf16 or f16");
    QuantAttr wide = widen(quant, op);
    if (!wide)
      return LeftAlone("it is not quantized: " +
                       getFloorReason(getOrigins(op)));
    auto getSlices = [&](int64_t dim) {
      return SlicesAttr::get(&getContext(), dim, {devices}, {0}, 0, 1);
    };
    Plan plan{wide, getSlices(view.dim), getSlices(concatenated.getInt()), 0,
              0};
    if (plan.sent.getChunkShape(from.getShape()) !=
        plan.received.getChunkShape(to.getShape()))
      return LeftAlone("its chunks are not what it receives");
    int64_t elements = from.getNumElements() / devices;
    plan.plain = elements * getElementBits(from.getElementType()) / 8;
    plan.wire = wide.getLayout(elements).chunkBytes;
    if (plan.wire >= plan.plain)
      return LeftAlone("a chunk of " + std::to_string(plan.plain) +
                       " bytes would take " + std::to_string(plan.wire) +
                       " quantized");
    if (!model) {
      if (isWithinNode(mesh, view.axes))
        return LeftAlone("its devices share a node, and nothing of it crosses "
                         "slower links");
      return plan;
    }
    auto getUsec = [&](int64_t bytes) {
      return model->getExchangeUsec(
          getSentBytes(mesh, CollectiveKind::AllToAll, view.axes, bytes));
    };
    double usec = getUsec(plan.plain);
    double quantized =
        getUsec(plan.wire) +
        2 * LinkModel::kKernelWeight *
            LinkModel::getKernelUsec(devices * (plan.plain + plan.wire));
    if (quantized >= usec)
      return LeftAlone::onLinks(usec, "quantized", quantized);
    return plan;
  }

  void rewrite(const CollectiveView &view, const Mesh &mesh, const Plan &plan) {
    Operation *op = view.op;
    OpBuilder builder(op);
    Location loc = op->getLoc();
    auto from = cast<RankedTensorType>(op->getOperand(0).getType());
    auto to = cast<RankedTensorType>(op->getResult(0).getType());
    RankedTensorType chunks =
        from.clone(plan.sent.getChunkShape(from.getShape()));
    auto moved = AllToAllOp::create(
        builder, loc, TypeRange{chunks}, op->getOperand(0),
        createEmpty(builder, loc, chunks),
        getAxesAttr(&getContext(), mesh, view.axes),
        MeshAttr::get(&getContext(), mesh), plan.sent, plan.quant);
    copyOrigin(op, moved);
    remarkRewrite(moved, getArgument(),
                  "chunks of " + Twine(plan.plain) + " bytes travel in " +
                      Twine(plan.wire));
    op->getResult(0).replaceAllUsesWith(createLocal<UnpackSlicesOp>(
        builder, loc, to, moved->getResult(0), plan.received));
    op->erase();
  }
};
} // namespace
