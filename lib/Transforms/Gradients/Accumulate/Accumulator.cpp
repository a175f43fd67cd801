//===- Accumulator.cpp - Gradients added up before they travel ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gradients/Accumulate/Accumulator.h"

#include "Loops/LayerStacks.h"
#include "Loops/LoopPlan.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

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

/// The partial sum that `hops` send on, in f32, made in front of them.
static Value createPartial(OpBuilder &builder, const OuterHops &hops) {
  builder.setInsertionPoint(hops.getFirst());
  Value partial = hops.getPartial(builder);
  if (getTensorType(partial).getElementType().isF32())
    return partial;
  return createOp(builder, partial.getLoc(), guest::kConvert, partial,
                  getTensorType(partial).clone(builder.getF32Type()));
}

/// Returns the partial sums of all layers of `term`, in f32. Loops that write a
/// stack of gradients write one of partial sums instead.
Value Accumulator::getPartial(const GradientTerm &term) {
  OpBuilder at(term.hops.getFirst()->getContext());
  Value partial = term.partial;
  if (partial)
    consumed.insert(partial);
  else
    partial = createPartial(at, term.hops);
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
    at.setInsertionPoint(loop.getYield());
    WhileView extended =
        writeNewStack(at, step->getLoc(), loop, partial,
                      getTensorType(step->getResult(0)).getDimSize(0), index);
    at.setInsertionPointAfter(extended.getOperation());
    partial = hold(at, extended.getResult(extended.getNumCarried() - 1));
  }
  llvm::append_range(obsolete, term.steps);
  discard(term.hops);
  return partial;
}

/// Has `finish` erase `hops`, which something else does.
void Accumulator::discard(const OuterHops &hops) {
  llvm::append_range(obsolete, llvm::reverse(hops.ops));
  obsolete.push_back(hops.result);
  obsolete.push_back(hops.getFirst().getOperand().getDefiningOp());
}

/// `a` + `b`, as soon as both are there.
static Value addWhereKnown(Value a, Value b) {
  OpBuilder builder(a.getContext());
  // Without an op, it is an argument of the block.
  Operation *first = a.getDefiningOp(), *second = b.getDefiningOp();
  bool isSecondLast = !first || (second && first->isBeforeInBlock(second));
  builder.setInsertionPointAfterValue(isSecondLast ? b : a);
  return createOp(builder, b.getLoc(), guest::kAdd, {a, b}, a.getType());
}

/// Returns the sum of the partial sums of `terms`, in their block. A sum that
/// is known early can be sent early, and takes less memory than what it adds
/// up.
Value Accumulator::getSumOfPartials(ArrayRef<GradientTerm> terms) {
  Value sum;
  for (const GradientTerm &term : terms) {
    Value partial = getPartial(term);
    sum = sum ? addWhereKnown(sum, partial) : partial;
  }
  return sum;
}

/// Returns the number of gradients that `terms` add up, 0 if it is not known.
static int64_t getCount(ArrayRef<GradientTerm> terms) {
  int64_t count = 0;
  for (const GradientTerm &term : terms) {
    if (term.count == 0)
      return 0;
    count = addSaturating(count, term.count);
  }
  return count;
}

/// A value of `type` that stands for the term of `partial`, which is `like` and
/// adds up `count` gradients.
Value Accumulator::makeTerm(OpBuilder &builder, GradientTerm like,
                            int64_t count, Value partial, Type type) {
  like.count = count;
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

/// Adds up terms of each sum in `block` before they are sent.
void Accumulator::addFirst(Block &block) {
  SmallVector<Operation *> roots;
  for (Operation &op : block)
    if (isAddition(&op) && !op.use_empty() &&
        !(op.hasOneUse() && isAddition(*op.user_begin()) &&
          op.user_begin()->getBlock() == &block))
      roots.push_back(&op);
  for (Operation *root : roots) {
    GradientSum sum = findSum(finder, root->getResult(0), Value());
    if (llvm::none_of(sum.terms,
                      [](const auto &terms) { return terms.size() > 1; }))
      continue;
    OpBuilder builder(root);
    Type type = root->getResult(0).getType();
    SmallVector<Value> values = llvm::filter_to_vector(
        sum.others, [](Value value) { return !isZeros(value); });
    for (ArrayRef<GradientTerm> terms : sum.terms) {
      if (canSendInLoop(terms, block)) {
        values.push_back(sendInLoop(terms));
        continue;
      }
      Value partial = getSumOfPartials(terms);
      OpBuilder at(root);
      at.setInsertionPointAfterValue(partial);
      values.push_back(
          makeTerm(at, terms.front(), getCount(terms), partial, type));
    }
    root->getResult(0).replaceAllUsesWith(
        addAll(builder, root->getLoc(), values));
    sum.eraseAdditions();
  }
}

//===----------------------------------------------------------------------===//
// Layer by layer
//===----------------------------------------------------------------------===//

/// Sends the sum of `terms` in the loop that writes the stack of the last one,
/// and returns that stack.
Value Accumulator::sendInLoop(ArrayRef<GradientTerm> terms) {
  const GradientTerm &last = terms.back();
  auto *write = llvm::find_if(
      last.steps, [](Operation *step) { return getWrittenLayer(step); });
  Value earlier = getSumOfPartials(terms.drop_back());
  moreBytes = addSaturating(moreBytes, last.getMoreBytes());
  noteCount(getCount(terms));
  WhileView loop((*write)->getParentOp());
  Value index = getWrittenLayer(*write);
  // The partial sum of the layer, with the scale of its steps.
  OpBuilder at(last.hops.getFirst());
  Value partial = createPartial(at, last.hops);
  GradientTerm layer{last.hops, {}, {}, 0};
  for (Operation *step : ArrayRef<Operation *>(last.steps.begin(), write)) {
    if (getScaledOperand(step)) {
      at.setInsertionPoint(step);
      partial = scale(at, step, partial);
    }
    layer.steps.push_back(step);
  }
  at.setInsertionPointAfterValue(partial);
  // A step of the stack becomes one of its layers.
  OpOperand &yielded = *(*write)->getResult(0).use_begin();
  Value stack = loop.getResult(yielded.getOperandNumber());
  for (Operation *step : ArrayRef<Operation *>(write + 1, last.steps.end())) {
    stack = step->getResult(0);
    if (std::optional<unsigned> scaled = getScaledOperand(step)) {
      partial = scale(at, step, partial);
      stack = step->getOperand(*scaled);
      step->getResult(0).replaceAllUsesWith(stack);
    }
  }
  if (Operation *computed = index.getDefiningOp();
      computed && computed->getBlock() == at.getInsertionBlock() &&
      partial.getDefiningOp()->isBeforeInBlock(computed))
    at.setInsertionPointAfter(computed);
  Value sum = createOp(
      at, partial.getLoc(), guest::kAdd,
      {createLayerSlice(at, partial.getLoc(), earlier, index), partial},
      partial.getType());
  for (Operation *hop : last.hops.ops)
    addGets(hop, kGetsAccumulate);
  (*write)->setOperand(1, layer.build(at, sum));
  remarkRewrite(last.hops.getFirst(), "zero-accumulate-gradients",
                "added up before it crosses slower tiers, layer by layer");
  llvm::append_range(obsolete, layer.steps);
  discard(last.hops);
  sendsInLoops = true;
  at.setInsertionPointAfterValue(stack);
  return hold(at, stack);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// Returns the sum that `init` is, where the partial sums of `sum`, which a
/// loop adds to it, can begin with its terms. Otherwise it has none.
GradientSum Accumulator::findSumInFront(Value init, const GradientSum &sum) {
  GradientSum before;
  if (!init.hasOneUse())
    return before;
  before = findSum(finder, init, /*carried=*/Value());
  if (!llvm::all_of(before.terms,
                    [&](const auto &terms) { return sum.find(terms.front()); }))
    return {};
  llvm::erase_if(before.others, isZeros);
  // Loops that they are results of are rebuilt.
  for (Value &other : before.others) {
    OpBuilder builder(init.getContext());
    builder.setInsertionPointAfterValue(other);
    other = hold(builder, other);
  }
  return before;
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
  if (!hasOneTypePerValue(loop))
    return;
  for (unsigned number : llvm::seq(loop.getNumCarried())) {
    std::optional<GradientSum> sum = findCarriedSum(finder, loop, number);
    if (!sum)
      continue;
    LoopPartials partials = takePartials(loop, number, *sum, counter);
    loop = carryPartials(loop, number, *sum, partials);
    addPartials(loop, number, *sum, partials);
  }
}

/// The partial sums of `sum`, to which `loop` adds as carried value `number`.
/// They begin with those in front of the loop, which it is not given any more.
LoopPartials
Accumulator::takePartials(WhileView loop, unsigned number,
                          const GradientSum &sum,
                          const std::optional<LoopCounter> &counter) {
  Location loc = loop.getNext(number).getLoc();
  LoopPartials partials{loc, {}, {}, {}};
  OpBuilder builder(loop->getContext());
  GradientSum before = findSumInFront(loop.getInit(number), sum);
  for (ArrayRef<GradientTerm> terms : sum.terms) {
    Value partial = getSumOfPartials(terms);
    int64_t count =
        counter ? multiplySaturating(getCount(terms), counter->trips) : 0;
    builder.setInsertionPoint(loop.getOperation());
    const auto *like = before.find(terms.front());
    if (like && count > 0)
      count = addSaturating(count, getCount(*like));
    partials.partials.push_back(partial);
    partials.counts.push_back(count);
    partials.begin.push_back(
        like ? getSumOfPartials(*like)
             : createZeros(builder, loc, getTensorType(partial)));
  }
  if (!before.terms.empty()) {
    loop->setOperand(
        number,
        before.others.empty()
            ? createZeros(builder, loc, getTensorType(loop.getNext(number)))
            : addAll(builder, loc, before.others));
    before.eraseAdditions();
  }
  return partials;
}

/// Has `loop` carry `partials`, after its other values, in place of what they
/// are in `sum`. Returns the loop that replaces it.
WhileView Accumulator::carryPartials(WhileView loop, unsigned number,
                                     const GradientSum &sum,
                                     const LoopPartials &partials) {
  Location loc = partials.loc;
  // What else is added stays in the sum that the loop carries.
  SmallVector<Value> values{loop.getCarried(number)};
  llvm::append_range(values, sum.others);
  OpBuilder builder(loop.getNext(number).getDefiningOp());
  loop.setNext(number, addAll(builder, loc, values));
  sum.eraseAdditions();
  unsigned first = loop.getNumCarried();
  WhileView extended = extendLoop(loop.getOperation(), partials.begin);
  builder.setInsertionPoint(extended.getYield());
  SmallVector<Value> sums;
  for (auto [index, partial] : llvm::enumerate(partials.partials))
    sums.push_back(
        addAll(builder, loc, {extended.getCarried(first + index), partial}));
  extended.addNext(sums);
  return extended;
}

/// Adds what becomes of `partials`, the last values that `loop` carries, to its
/// result `number`.
void Accumulator::addPartials(WhileView loop, unsigned number,
                              const GradientSum &sum,
                              const LoopPartials &partials) {
  OpBuilder builder(loop->getContext());
  builder.setInsertionPointAfter(loop.getOperation());
  Value result = loop.getResult(number);
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : result.getUses())
    uses.push_back(&use);
  SmallVector<Value> total;
  if (sum.others.empty()) {
    // Nothing is left to be added in the loop.
    Value init = loop.getInit(number);
    if (!isZeros(init)) {
      total.push_back(init);
      OpBuilder before(loop.getOperation());
      loop->setOperand(
          number, createZeros(before, partials.loc, getTensorType(result)));
    }
  } else {
    total.push_back(hold(builder, result));
  }
  unsigned first = loop.getNumCarried() - partials.begin.size();
  for (auto [index, terms] : llvm::enumerate(sum.terms))
    total.push_back(makeTerm(builder, terms.front(), partials.counts[index],
                             hold(builder, loop.getResult(first + index)),
                             result.getType()));
  Value all = addAll(builder, partials.loc, total);
  for (OpOperand *use : uses)
    use->set(all);
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
    noteCount(term.count);
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
