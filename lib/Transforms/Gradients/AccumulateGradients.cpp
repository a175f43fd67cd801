//===- AccumulateGradients.cpp - Partial sums before slower tiers ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gradients/Accumulate/Accumulator.h"
#include "Loops/LayerStacks.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Transforms/Attributes.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_ACCUMULATEGRADIENTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// Says why the sum of `scatter`, which leaves `group`, is left in a loop, and
/// what would have to change.
static std::string getWhyRepeated(ReduceScatterOp scatter,
                                  const AccumulationGroup &group) {
  bool isOneHop = llvm::any_of(scatter.getAxisRefs(), [&](const AxisRef &axis) {
    return group.contains(axis);
  });
  if (!isOneHop)
    return "which does more with it, or with the sum, than to add it up in f32 "
           "or bf16 and to scale it alike on all devices; read norms and "
           "conditions after the loop";
  if (auto reason = scatter->getAttrOfType<StringAttr>(kReasonAttr))
    return ("because it stays one hop over all tiers: " + reason.getValue() +
            "; take fewer, larger micro-batches")
        .str();
  return "because one hop sends it over all tiers; give formats of several "
         "hops, as in gradients=i8:i4";
}

/// Returns the numbers of the carried values of `loop` in which an iteration
/// hands on what follows from `sum`.
static llvm::SmallSetVector<unsigned, 4> findHandedOn(Value sum,
                                                      WhileView loop) {
  llvm::SmallSetVector<unsigned, 4> numbers;
  llvm::SetVector<Value> values;
  values.insert(sum);
  for (size_t i = 0; i < values.size(); ++i)
    for (OpOperand &use : values[i].getUses()) {
      Operation *op = use.getOwner(), *around = op->getParentOp();
      unsigned number = use.getOperandNumber();
      WhileView own = WhileView::get(around);
      bool isYield = own && op == own.getYield();
      if (isYield && around == loop.getOperation()) {
        numbers.insert(number);
      } else if (WhileView inner = isYield ? own : WhileView::get(op)) {
        values.insert(inner.getCarried(number));
        values.insert(inner.getResult(number));
      } else if (isBarrier(op)) {
        values.insert(op->getResult(number));
      } else {
        values.insert_range(
            (op->getNumResults() == 0 ? around : op)->getResults());
      }
    }
  return numbers;
}

/// True if iterations of `loop` store what follows from `sum` in stacks alone,
/// each in a layer of its own: they are layers, not micro-batches.
static bool isStoredByLayer(Value sum, WhileView loop,
                            ProvenanceAnalysis &provenances) {
  std::optional<CountedLoop> counted =
      getCountedLoop(loop.getOperation(), provenances);
  bool isStored = false;
  for (unsigned number : findHandedOn(sum, loop)) {
    // Metrics are scalars.
    if (hasOneElement(loop.getCarried(number).getType()))
      continue;
    std::optional<LayerWrite> write = getLayerWrite(loop, number);
    auto indices = counted && write
                       ? getIndices(write->index, *counted, provenances)
                       : std::nullopt;
    if (!indices || !indices->areDistinct())
      return false;
    isStored = true;
  }
  return isStored;
}

/// True if `value` is made, element by element and by sums over devices, of
/// what a loop has added up.
static bool isAddedUp(Value value) {
  SmallVector<Value> worklist{value};
  llvm::SmallDenseSet<Value> visited{value};
  while (!worklist.empty()) {
    Value made = worklist.pop_back_val();
    Operation *op = made.getDefiningOp();
    if (WhileView loop = WhileView::get(op)) {
      unsigned index = cast<OpResult>(made).getResultNumber();
      Operation *sum = loop.getNext(index).getDefiningOp();
      if (isAddition(sum) &&
          llvm::is_contained(sum->getOperands(), loop.getCarried(index)))
        return true;
    } else if (op && (isElementwise(op) || movesData(op) ||
                      isa<FromLocalOp, ToLocalOp, ReduceScatterOp>(op))) {
      for (Value operand : op->getOperands())
        if (visited.insert(operand).second)
          worklist.push_back(operand);
    }
  }
  return false;
}

namespace {
class AccumulateGradientsPass
    : public zpp::impl::AccumulateGradientsPassBase<AccumulateGradientsPass> {
public:
  using AccumulateGradientsPassBase::AccumulateGradientsPassBase;

  void runOnOperation() override {
    std::optional<Mesh> mesh = findScatterMesh(getOperation());
    if (!mesh)
      return markAllAnalysesPreserved();
    std::optional<AccumulationGroup> parsed =
        AccumulationGroup::parse(group, *mesh);
    if (!parsed) {
      emitError(getOperation().getLoc(), "expected a tier of the mesh ")
          << mesh->str() << ", or the number of devices of its fastest tiers, "
          << "as the group that adds up gradients, but got '"
          << group.getValue() << "'";
      return signalPassFailure();
    }
    Accumulator accumulator(*parsed);
    for (Region &region : getOperation()->getRegions())
      for (Block &block : region)
        accumulator.run(block);
    accumulator.finish();
    explain(*parsed, accumulator.hasSums());
    auto setNumber = [&](StringRef name, int64_t number) {
      if (number > 0)
        getOperation()->setAttr(
            name, Builder(&getContext()).getI64IntegerAttr(number));
    };
    setNumber(kAccumulatedAttr, accumulator.getMoreBytes());
    setNumber(kMicroBatchesAttr, accumulator.getMicroBatches());
  }

private:
  /// Says of each sum over slower tiers that is left in a loop what would have
  /// to change. Says of a step without such a loop that its gradients are added
  /// up before, or that the step is to have the loop.
  void explain(const AccumulationGroup &group, bool hasSums) {
    ProvenanceAnalysis provenances;
    ReduceScatterOp alone;
    bool hasLoop = false;
    getOperation().walk([&](ReduceScatterOp scatter) {
      if (!leavesGroup(scatter, group))
        return;
      if (!isInLoop(scatter)) {
        if (!alone)
          alone = scatter;
        return;
      }
      hasLoop = true;
      bool isRepeated = false;
      for (Operation *loop = scatter->getParentOp(); isWhile(loop);
           loop = loop->getParentOp()) {
        std::optional<LoopCounter> counter =
            getLoopCounter(WhileView(loop), provenances);
        if (counter && counter->trips <= 1)
          continue;
        isRepeated |=
            !isStoredByLayer(scatter.getResult(), WhileView(loop), provenances);
      }
      if (!isRepeated)
        return;
      missed(scatter, "in-each-iteration",
             "it crosses the slower tiers in each iteration of a loop, " +
                 getWhyRepeated(scatter, group));
    });
    if (!alone || hasLoop || hasSums)
      return;
    if (isAddedUp(alone->getOperand(0)))
      missed(alone, "added-up-before",
             "a loop adds up the gradients before they leave the group, so "
             "they cross the slower tiers once per update as it is; leave out "
             "accumulate");
    else
      missed(alone, "one-micro-batch",
             "the step adds up no gradients of micro-batches; what is added up "
             "over several calls, as by optax.MultiSteps, crosses the slower "
             "tiers in each call; take all micro-batches in one call, in a "
             "lax.scan");
  }

  /// Says why nothing is added up for `scatter`.
  void missed(ReduceScatterOp scatter, StringRef name, const Twine &why) {
    remarkMissed(scatter, getArgument(), name) << why;
    addLacks(scatter, kGetsAccumulate, why);
  }
};
} // namespace
