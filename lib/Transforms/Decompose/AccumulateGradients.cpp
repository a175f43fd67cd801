//===- AccumulateGradients.cpp - Partial sums before slower tiers ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decompose/Accumulate/GradientTerm.h"
#include "mlir/IR/Remarks.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Analysis/Loops/IterationPlaces.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Limits.h"
#include "zpp/Transforms/Accumulated.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {
#define GEN_PASS_DEF_ACCUMULATEGRADIENTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static bool isAddition(Operation *op) {
  return op && isNamed(op, guest::kAdd) && op->getNumOperands() == 2 &&
         op->getNumResults() == 1;
}

namespace {
/// A sum in one block: what it adds up.
struct Sum {
  /// Terms that can be sent as one, in the order of the sum.
  SmallVector<SmallVector<GradientTerm>> terms;
  SmallVector<Value> others;
  /// Whether the carried value that was asked for is in it, once.
  bool hasCarried = false;
  SmallVector<Operation *> additions;
};

/// Rewrites the sums of one module, from the innermost loops outwards.
class Accumulator {
public:
  explicit Accumulator(const AccumulationGroup &group) : finder(group) {}

  void run(Block &block) {
    SmallVector<Operation *> nested;
    for (Operation &op : block)
      if (op.getNumRegions() > 0)
        nested.push_back(&op);
    for (Operation *op : nested) {
      for (Region &region : op->getRegions())
        for (Block &inner : region)
          run(inner);
      if (isWhile(op))
        leaveLoop(op);
    }
    addFirst(block);
  }

  /// Sends what has been added up, and erases what this replaces.
  void finish();

  /// True if some gradients are added up before they are sent.
  bool hasSums() const { return !made.empty(); }
  /// The bytes that all partial sums take beyond the gradients.
  int64_t getMoreBytes() const { return moreBytes; }

private:
  Sum findSum(Value root, Value carried);
  void leaveLoop(Operation *loop);
  void addFirst(Block &block);
  Value getPartial(OpBuilder &builder, const GradientTerm &term);
  Value getSumOfPartials(OpBuilder &builder, ArrayRef<GradientTerm> terms);
  Value makeTerm(OpBuilder &builder, GradientTerm like, Value partial,
                 Type type);
  Value addAll(OpBuilder &builder, Location loc, ArrayRef<Value> values);
  /// A value that stays valid when the loop that it is a result of is rebuilt.
  Value hold(OpBuilder &builder, Value result);

  TermFinder finder;
  /// Values that stand for terms, and for results of loops.
  SmallVector<std::pair<UnrealizedConversionCastOp, GradientTerm>> made;
  SmallVector<UnrealizedConversionCastOp> held;
  /// The partial sums of terms that are part of others.
  llvm::DenseSet<Value> consumed;
  SmallVector<Operation *> obsolete;
  int64_t moreBytes = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// The sum that `root` is, of `carried`, terms and other values.
Sum Accumulator::findSum(Value root, Value carried) {
  Sum sum;
  SmallVector<Value> pending{root};
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (value == carried) {
      sum.hasCarried = true;
    } else if (isAddition(op) && (value == root || value.hasOneUse()) &&
               op->getBlock() == root.getParentBlock()) {
      sum.additions.push_back(op);
      // The first operand is the next one.
      pending.push_back(op->getOperand(1));
      pending.push_back(op->getOperand(0));
    } else if (std::optional<GradientTerm> term = finder.find(value)) {
      auto *like = llvm::find_if(sum.terms, [&](const auto &terms) {
        return terms.front().isLike(*term);
      });
      if (like == sum.terms.end())
        like = &sum.terms.emplace_back();
      like->push_back(std::move(*term));
    } else {
      sum.others.push_back(value);
    }
  }
  return sum;
}

Value Accumulator::addAll(OpBuilder &builder, Location loc,
                          ArrayRef<Value> values) {
  Value sum = values.front();
  for (Value value : values.drop_front())
    sum = createOp(builder, loc, guest::kAdd, {sum, value}, sum.getType());
  return sum;
}

Value Accumulator::hold(OpBuilder &builder, Value result) {
  held.push_back(UnrealizedConversionCastOp::create(builder, result.getLoc(),
                                                    result.getType(), result));
  return held.back().getResult(0);
}

/// The partial sums of all layers of `term`, in f32. Loops that write a stack
/// of gradients write one of partial sums instead.
Value Accumulator::getPartial(OpBuilder &builder, const GradientTerm &term) {
  Value partial = term.partial;
  if (partial)
    consumed.insert(partial);
  OpBuilder at = builder;
  if (!partial) {
    at.setInsertionPoint(term.hops.getFirst());
    partial = term.hops.getPartial(at);
    if (!typeOf(partial).getElementType().isF32())
      partial = createOp(at, partial.getLoc(), guest::kConvert, partial,
                         typeOf(partial).clone(at.getF32Type()));
  }
  for (Operation *step : ArrayRef(term.steps).drop_front(term.numDone)) {
    if (getScaledOperand(step)) {
      at.setInsertionPoint(step);
      partial = scale(at, step, partial);
      continue;
    }
    Value index = getWrittenLayer(step);
    if (!index)
      continue;
    WhileView loop(step->getParentOp());
    at.setInsertionPoint(loop.getOperation());
    SmallVector<int64_t> shape(typeOf(partial).getShape());
    shape.insert(shape.begin(), typeOf(step->getResult(0)).getDimSize(0));
    Value zeros = createZeros(at, step->getLoc(), typeOf(partial).clone(shape));
    WhileView extended = extendLoop(loop.getOperation(), zeros);
    unsigned number = extended.getNumCarried() - 1;
    at.setInsertionPoint(extended.getYield());
    extended.addNext(createLayerUpdate(
        at, step->getLoc(), extended.getCarried(number), partial, index));
    at.setInsertionPointAfter(extended.getOperation());
    partial = hold(at, extended.getResult(number));
  }
  llvm::append_range(obsolete, term.steps);
  llvm::append_range(obsolete, llvm::reverse(term.hops.ops));
  obsolete.push_back(term.hops.result);
  obsolete.push_back(term.hops.getFirst().getOperand().getDefiningOp());
  return partial;
}

Value Accumulator::getSumOfPartials(OpBuilder &builder,
                                    ArrayRef<GradientTerm> terms) {
  SmallVector<Value> partials;
  for (const GradientTerm &term : terms)
    partials.push_back(getPartial(builder, term));
  return addAll(builder, terms.front().hops.getFirst().getLoc(), partials);
}

/// A value of `type` that stands for the term of `partial`, which is `like`.
Value Accumulator::makeTerm(OpBuilder &builder, GradientTerm like,
                            Value partial, Type type) {
  like.partial = partial;
  like.numDone = like.steps.size();
  auto value = UnrealizedConversionCastOp::create(builder, partial.getLoc(),
                                                  type, partial);
  made.push_back({value, like});
  finder.setTerm(value.getResult(0), std::move(like));
  return value.getResult(0);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// Erases the additions of a sum that nothing reads any more, the last one
/// first.
static void erase(ArrayRef<Operation *> additions) {
  for (Operation *op : additions)
    op->erase();
}

/// Adds up terms of each sum in `block` before they are sent.
void Accumulator::addFirst(Block &block) {
  SmallVector<Operation *> roots;
  for (Operation &op : block)
    if (isAddition(&op) && !op.use_empty() &&
        !(op.hasOneUse() && isAddition(*op.user_begin()) &&
          op.user_begin()->getBlock() == &block))
      roots.push_back(&op);
  for (Operation *root : roots) {
    Sum sum = findSum(root->getResult(0), Value());
    if (llvm::none_of(sum.terms,
                      [](const auto &terms) { return terms.size() > 1; }))
      continue;
    OpBuilder builder(root);
    Type type = root->getResult(0).getType();
    SmallVector<Value> values(sum.others);
    for (ArrayRef<GradientTerm> terms : sum.terms) {
      Value partial = getSumOfPartials(builder, terms);
      values.push_back(makeTerm(builder, terms.front(), partial, type));
    }
    root->getResult(0).replaceAllUsesWith(
        addAll(builder, root->getLoc(), values));
    erase(sum.additions);
  }
}

/// Has `op`, a loop, carry the sums of partial sums whose gradients it adds up.
void Accumulator::leaveLoop(Operation *op) {
  // Valid until something changes.
  ProvenanceAnalysis provenances;
  std::optional<LoopCounter> counter =
      getLoopCounter(WhileView(op), provenances);
  if (counter && counter->trips < 2)
    return;
  WhileView loop(op);
  for (unsigned number = 0, count = loop.getNumCarried(); number < count;
       ++number) {
    BlockArgument carried = loop.getCarried(number);
    if (!carried.hasOneUse() ||
        !loop.getConditionArgument(number).use_empty() ||
        loop.isInvariant(number) || loop.getResult(number).use_empty())
      continue;
    Value next = loop.getNext(number);
    if (!isAddition(next.getDefiningOp()) || !next.hasOneUse() ||
        next.getParentBlock() != &loop.getBody())
      continue;
    Sum sum = findSum(next, carried);
    if (!sum.hasCarried || sum.terms.empty())
      continue;
    Location loc = next.getLoc();
    OpBuilder builder(loop->getContext());
    SmallVector<Value> partials, zeros;
    for (ArrayRef<GradientTerm> terms : sum.terms) {
      builder.setInsertionPoint(next.getDefiningOp());
      partials.push_back(getSumOfPartials(builder, terms));
      builder.setInsertionPoint(loop.getOperation());
      zeros.push_back(createZeros(builder, loc, typeOf(partials.back())));
    }
    // What else is added stays in the sum that the loop carries.
    SmallVector<Value> values{carried};
    llvm::append_range(values, sum.others);
    builder.setInsertionPoint(next.getDefiningOp());
    loop.setNext(number, addAll(builder, loc, values));
    erase(sum.additions);
    unsigned first = loop.getNumCarried();
    loop = extendLoop(loop.getOperation(), zeros);
    builder.setInsertionPoint(loop.getYield());
    SmallVector<Value> sums;
    for (auto [index, partial] : llvm::enumerate(partials))
      sums.push_back(
          addAll(builder, loc, {loop.getCarried(first + index), partial}));
    loop.addNext(sums);
    builder.setInsertionPointAfter(loop.getOperation());
    Value result = loop.getResult(number);
    Type type = result.getType();
    SmallVector<Value> total;
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : result.getUses())
      uses.push_back(&use);
    if (sum.others.empty()) {
      // Nothing is left to be added in the loop.
      Value init = loop.getInit(number);
      if (!isZeros(init)) {
        total.push_back(init);
        OpBuilder before(loop.getOperation());
        loop->setOperand(number, createZeros(before, loc, typeOf(result)));
      }
    } else {
      total.push_back(hold(builder, result));
    }
    for (auto [index, terms] : llvm::enumerate(sum.terms))
      total.push_back(makeTerm(builder, terms.front(),
                               hold(builder, loop.getResult(first + index)),
                               type));
    Value all = addAll(builder, loc, total);
    for (OpOperand *use : uses)
      use->set(all);
  }
}

//===----------------------------------------------------------------------===//
// The end
//===----------------------------------------------------------------------===//

void Accumulator::finish() {
  for (auto &[value, term] : made) {
    if (value.getResult(0).use_empty() || consumed.contains(term.partial))
      continue;
    OpBuilder builder(value);
    moreBytes = addSaturating(moreBytes, term.getMoreBytes());
    // What `build` makes has the origins of these.
    for (Operation *hop : term.hops.ops)
      addGets(hop, kGetsAccumulate);
    value.getResult(0).replaceAllUsesWith(
        term.build(builder, value.getOperand(0)));
    remarkRewrite(term.hops.getFirst(), "zero-accumulate-gradients",
                  "added up before it crosses slower tiers");
  }
  llvm::SetVector<Operation *> pending(obsolete.begin(), obsolete.end());
  // Stacks of gradients are not written any more.
  for (Operation *op : pending)
    if (getWrittenLayer(op))
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
  SmallVector<Operation *> dead;
  auto note = [&](Operation *op) {
    if (op && pending.contains(op) && op->use_empty())
      dead.push_back(op);
  };
  llvm::for_each(pending, note);
  while (!dead.empty()) {
    Operation *op = dead.pop_back_val();
    llvm::SmallSetVector<Operation *, 2> sources;
    for (Value operand : op->getOperands())
      sources.insert(operand.getDefiningOp());
    op->erase();
    llvm::for_each(sources, note);
  }
  for (auto &[value, term] : made)
    value.erase();
  for (UnrealizedConversionCastOp cast : held) {
    cast.getResult(0).replaceAllUsesWith(cast.getOperand(0));
    cast.erase();
  }
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class AccumulateGradientsPass
    : public zpp::impl::AccumulateGradientsPassBase<AccumulateGradientsPass> {
public:
  using AccumulateGradientsPassBase::AccumulateGradientsPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    loadStablehlo(context);
    return success();
  }

  void runOnOperation() override {
    ReduceScatterOp first;
    getOperation().walk([&](ReduceScatterOp scatter) {
      first = scatter;
      return WalkResult::interrupt();
    });
    if (!first)
      return markAllAnalysesPreserved();
    Mesh mesh = first.getMeshAttr().getMesh();
    std::optional<AccumulationGroup> parsed =
        AccumulationGroup::parse(group, mesh);
    if (!parsed) {
      emitError(getOperation().getLoc(), "expected a tier of the mesh ")
          << mesh.str() << ", or the number of devices of its fastest tiers, "
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
    if (int64_t bytes = accumulator.getMoreBytes())
      getOperation()->setAttr(kAccumulatedAttr,
                              Builder(&getContext()).getI64IntegerAttr(bytes));
  }

private:
  /// Says of each sum over slower tiers that is left in a loop what would have
  /// to change, and of a step without such a loop, in which no gradients of
  /// micro-batches are added up, that the step is to have the loop.
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
        Decision<IterationPlaces> places =
            getIterationPlaces(scatter.getResult(), loop, provenances);
        isRepeated |= !places || !places->stack;
      }
      if (!isRepeated)
        return;
      bool isOneHop = llvm::any_of(
          cast<CollectiveOpInterface>(scatter.getOperation()).getAxisRefs(),
          [&](const AxisRef &axis) { return group.contains(axis); });
      remark::missed(
          scatter.getLoc(),
          remark::RemarkOpts::name("in-each-iteration").category(getArgument()))
          << (isOneHop
                  ? "it crosses the slower tiers in each iteration of a loop, "
                    "because one hop sends it over all tiers; give formats of "
                    "several hops, as in gradients=i8:i4"
                  : "it crosses the slower tiers in each iteration of a loop, "
                    "which does more with it, or with the sum, than to add it "
                    "up in f32 or bf16 and to scale it alike on all devices; "
                    "read norms and conditions after the loop");
    });
    if (!alone || hasLoop || hasSums)
      return;
    remark::missed(
        alone.getLoc(),
        remark::RemarkOpts::name("one-micro-batch").category(getArgument()))
        << "the step adds up no gradients of micro-batches; what is added up "
           "over several calls, as by optax.MultiSteps, crosses the slower "
           "tiers in each call; take all micro-batches in one call, in a "
           "lax.scan";
  }
};
} // namespace
