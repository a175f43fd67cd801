//===- PeelLast.cpp - The last micro-batch after its loop -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decompose/Accumulate/GradientSum.h"
#include "FormatOptions.h"
#include "Loops/Peeling.h"
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

/// True if the only reader of `result` adds another gradient to it.
static bool isAddedTo(OpResult result, TermFinder &finder) {
  if (!result.hasOneUse())
    return false;
  Operation *add = *result.user_begin();
  return isAddition(add) &&
         llvm::any_of(add->getOperands(), [&](Value operand) {
           return operand != result && finder.find(operand);
         });
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
    if (!parsed)
      return markAllAnalysesPreserved();
    TermFinder finder(*parsed);
    ProvenanceAnalysis provenances;
    SmallVector<std::pair<WhileView, LoopCounter>> peeled;
    getOperation().walk([&](Operation *op) {
      WhileView loop = WhileView::get(op);
      double usec =
          loop ? getUsec(loop, finder, model->value_or(LinkModel(*mesh))) : 0;
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
