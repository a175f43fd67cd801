//===- KeepFrozen.cpp - Weights that do not change are sent once ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CarriedState.h"
#include "FrozenWeights.h"
#include "LocalValues.h"
#include "Secondary/Gathers.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Transforms/Attributes.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {
#define GEN_PASS_DEF_KEEPFROZENPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class KeepFrozenPass : public zpp::impl::KeepFrozenPassBase<KeepFrozenPass> {
public:
  using KeepFrozenPassBase::KeepFrozenPassBase;

  void runOnOperation() override {
    FrozenWeights frozen(getOperation());
    ManualComputations manuals;
    using Sources = SmallVector<FrozenWeights::Source>;
    llvm::MapVector<Operation *, SmallVector<std::pair<AllGatherOp, Sources>>>
        gathers;
    getOperation().walk([&](AllGatherOp gather) {
      if (!gather->hasAttr(kKeepAttr))
        return;
      FromLocalOp source = getSource(gather);
      Sources sources =
          source ? frozen.getSources(source.getLocal()) : Sources();
      if (sources.empty())
        return;
      if (getCarryingFunction(gather, manuals))
        gathers[gather->getParentOp()].push_back({gather, std::move(sources)});
      else
        leaveAlone(gather, getArgument(), LeftAlone(kCarryReason.str()),
                   kGetsFrozen);
    });
    for (auto &[manual, group] : gathers) {
      SmallVector<CarriedTensor> tensors;
      for (auto &[gather, sources] : group)
        tensors.push_back(keep(gather, sources));
      carryState(manual, tensors);
    }
  }

private:
  CarriedTensor keep(AllGatherOp gather,
                     ArrayRef<FrozenWeights::Source> sources) {
    OpBuilder builder(gather);
    addGets(gather, kGetsFrozen);
    SmallVector<int64_t> arguments, results;
    for (const FrozenWeights::Source &source : sources) {
      arguments.push_back(source.argument);
      results.push_back(source.result);
    }
    CarriedTensor tensor;
    tensor.kind = kFrozenKind;
    tensor.more = {
        builder.getNamedAttr("arguments",
                             builder.getDenseI64ArrayAttr(arguments)),
        builder.getNamedAttr("results", builder.getDenseI64ArrayAttr(results))};
    if (start) {
      builder.setInsertionPointAfter(gather);
      tensor.after = getLocal(builder, gather.getLoc(), gather);
      // It counts as state now, and has no differences to send.
      gather->removeAttr(kKeepAttr);
      return tensor;
    }
    remarkRewrite(gather, getArgument(),
                  "what it moves does not change: it is sent in the first step "
                  "and kept");
    tensor.before = createBefore(gather, gather.getType().getLocalType());
    tensor.after = tensor.before.getResult(0);
    recordRemoved(gather);
    replaceWithLocal(builder, gather, tensor.after);
    return tensor;
  }
};
} // namespace
