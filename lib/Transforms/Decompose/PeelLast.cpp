//===- PeelLast.cpp - The last micro-batch after its loop -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decompose/Accumulate/GradientSum.h"
#include "FormatOptions.h"
#include "Loops/Peeling.h"
#include "zpp/Analysis/Collectives.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Limits.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_PEELLASTPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// The one reader of `value`; null if there are more, or none.
static Operation *getOnlyUser(Value value) {
  return value.hasOneUse() ? *value.user_begin() : nullptr;
}

/// True if the only reader of `result` adds another gradient to it.
static bool isAddedTo(OpResult result, TermFinder &finder) {
  Operation *add = getOnlyUser(result);
  return isAddition(add) &&
         llvm::any_of(add->getOperands(), [&](Value operand) {
           return operand != result && finder.find(operand);
         });
}

/// True if `value` is there only when a collective or an inner loop has ended:
/// little compute is left that could hide what is sent of it.
static bool comesLate(Value value) {
  Operation *op = value.getDefiningOp();
  while (op && movesData(op) && !isJoin(op))
    op = op->getOperand(0).getDefiningOp();
  return op && (isa<ToLocalOp>(op) || isWhile(op) || isCollective(op));
}

/// The value that each iteration of `loop` adds to carried value `number`; null
/// if it does something else with that.
static Value getAdded(WhileView loop, unsigned number) {
  BlockArgument carried = loop.getCarried(number);
  Operation *add = findCarriedAddition(loop, number);
  if (!add || getOnlyUser(carried) != add)
    return {};
  return add->getOperand(add->getOperand(0) == carried ? 1 : 0);
}

/// The hops that `value` takes as the only reader of it asks for, after casts,
/// shape changes and products with a number; none if there is another reader.
static OuterHops findHopsOf(Value value) {
  OuterHops hops;
  while (Operation *user = getOnlyUser(value)) {
    if (isa<ReduceScatterOp, AllGatherOp>(user))
      hops.ops.push_back(user);
    else if (!isa<FromLocalOp, EncodeOp, DecodeOp>(user) &&
             !(movesData(user) && !isJoin(user)) && !getScaledOperand(user))
      break;
    value = user->getResult(0);
  }
  return hops;
}

namespace {
class PeelLastPass : public zpp::impl::PeelLastPassBase<PeelLastPass> {
public:
  using PeelLastPassBase::PeelLastPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    loadStablehlo(context);
    return success();
  }

  void runOnOperation() override {
    std::optional<Mesh> mesh = findScatterMesh(getOperation());
    if (!mesh)
      return markAllAnalysesPreserved();
    FailureOr<std::optional<LinkModel>> model =
        LinksOption(getOperation(), links).getModel(*mesh);
    if (failed(model))
      return signalPassFailure();
    std::optional<AccumulationGroup> parsed =
        AccumulationGroup::parse(group, *mesh);
    // zero-accumulate-gradients says what is wrong with it.
    if (!parsed && !group.empty())
      return markAllAnalysesPreserved();
    std::optional<TermFinder> finder;
    if (parsed)
      finder.emplace(*parsed);
    ProvenanceAnalysis provenances;
    SmallVector<std::pair<WhileView, LoopCounter>> peeled;
    getOperation().walk([&](Operation *op) {
      WhileView loop = WhileView::get(op);
      if (!loop)
        return;
      LinkModel speeds = model->value_or(LinkModel(*mesh));
      double usec = getUsecAfter(loop, speeds) +
                    (finder ? getUsec(loop, *finder, speeds) : 0);
      if (usec == 0)
        return;
      Decision<LoopCounter> counter = canPeel(loop, usec, minUsec, provenances);
      remarkPeeling(
          counter, loop, getArgument(),
          "its last iteration is written after it, to send gradients under its "
          "compute",
          "gradients are sent after the loop, where nothing hides it");
      if (counter)
        peeled.emplace_back(loop, *counter);
    });
    for (const auto &[loop, counter] : peeled)
      peelLast(loop, counter);
  }

private:
  /// The time of the hops that the step itself writes after `loop`, for what
  /// `loop` adds up; 0 if most of that comes late. Latencies do not count:
  /// small tensors travel together.
  static double getUsecAfter(WhileView loop, const LinkModel &model) {
    double early = 0, late = 0;
    for (unsigned number : llvm::seq(loop.getNumCarried())) {
      Value added = getAdded(loop, number);
      if (!added)
        continue;
      OuterHops hops = findHopsOf(loop.getResult(number));
      (comesLate(added) ? late : early) +=
          hops.getUsec(/*layers=*/1, model) - hops.getUsec(/*layers=*/0, model);
    }
    return early > late ? early : 0;
  }

  /// The time of the outer hops of what `loop` adds up, unless another gradient
  /// is added after it.
  static double getUsec(WhileView loop, TermFinder &finder,
                        const LinkModel &model) {
    double usec = 0;
    for (unsigned number : llvm::seq(loop.getNumCarried())) {
      std::optional<GradientSum> sum = findCarriedSum(finder, loop, number);
      if (!sum || isAddedTo(loop.getResult(number), finder))
        continue;
      for (const auto &terms : sum->terms)
        usec += terms.front().hops.getUsec(
            llvm::product_of(terms.front().getLayers()), model);
    }
    return usec;
  }
};
} // namespace
