//===- GradientSum.cpp - Sums of gradients --------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gradients/Accumulate/GradientSum.h"

#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

bool zpp::zero::isAddition(Operation *op) {
  return op && isNamed(op, guest::kAdd) && op->getNumOperands() == 2 &&
         op->getNumResults() == 1 &&
         llvm::all_equal({op->getOperand(0).getType(),
                          op->getOperand(1).getType(),
                          op->getResult(0).getType()});
}

const SmallVector<GradientTerm> *
GradientSum::find(const GradientTerm &like) const {
  const auto *found = llvm::find_if(
      terms, [&](const auto &group) { return group.front().isLike(like); });
  return found == terms.end() ? nullptr : found;
}

void GradientSum::eraseAdditions() const {
  for (Operation *op : additions)
    op->erase();
}

GradientSum zpp::zero::findSum(TermFinder &finder, Value root, Value carried) {
  GradientSum sum;
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

Operation *zpp::zero::findCarriedAddition(WhileView loop, unsigned number) {
  Operation *add = loop.getNext(number).getDefiningOp();
  return isAddition(add) && add->getBlock() == &loop.getBody() &&
                 loop.getCarried(number).hasOneUse() &&
                 loop.getConditionArgument(number).use_empty()
             ? add
             : nullptr;
}

std::optional<GradientSum>
zpp::zero::findCarriedSum(TermFinder &finder, WhileView loop, unsigned number) {
  Value next = loop.getNext(number);
  if (!findCarriedAddition(loop, number) || !next.hasOneUse() ||
      loop.getResult(number).use_empty())
    return std::nullopt;
  GradientSum sum = findSum(finder, next, loop.getCarried(number));
  if (!sum.hasCarried || sum.terms.empty())
    return std::nullopt;
  return sum;
}

//===----------------------------------------------------------------------===//
// Layer by layer
//===----------------------------------------------------------------------===//

/// Returns the step of `term` that writes a layer, if it is the only one, and
/// its loop stands in `block`; null otherwise.
static Operation *getOnlyWrite(const GradientTerm &term, Block &block) {
  SmallVector<Operation *> writes = llvm::filter_to_vector(
      term.steps, [](Operation *step) { return getWrittenLayer(step); });
  return writes.size() == 1 &&
                 writes.front()->getParentOp()->getBlock() == &block
             ? writes.front()
             : nullptr;
}

bool zpp::zero::isDefinedBefore(Value value, Operation *op) {
  Operation *source = value.getDefiningOp();
  return !source ||
         (source->getBlock() == op->getBlock() && source->isBeforeInBlock(op));
}

/// True if `value` is a constant, possibly broadcast, or known before `op`.
static bool isKnownBefore(Value value, Operation *op) {
  Operation *source = value.getDefiningOp();
  if (source && isNamed(source, guest::kBroadcastInDim)) {
    value = source->getOperand(0);
    source = value.getDefiningOp();
  }
  return (source && isNamed(source, guest::kConstant) &&
          source->getAttrOfType<DenseElementsAttr>("value")) ||
         isDefinedBefore(value, op);
}

bool zpp::zero::canScaleIn(Operation *loop, Operation *step) {
  std::optional<unsigned> scaled = getScaledOperand(step);
  return !scaled || step->getNumOperands() == 1 ||
         isKnownBefore(step->getOperand(1 - *scaled), loop);
}

bool zpp::zero::canSendInLoop(ArrayRef<GradientTerm> terms, Block &block) {
  const GradientTerm &last = terms.back();
  Operation *write = getOnlyWrite(last, block);
  if (terms.size() < 2 || last.partial || !write ||
      isWhile(block.getParentOp()))
    return false;
  Operation *loop = write->getParentOp();
  auto isBefore = [&](Operation *op) {
    Operation *inBlock = block.findAncestorOpInBlock(*op);
    return inBlock && inBlock->isBeforeInBlock(loop);
  };
  for (const GradientTerm &term : terms.drop_back()) {
    Operation *source =
        term.partial ? term.partial.getDefiningOp() : term.hops.getFirst();
    if (!isBefore(source) ||
        !llvm::all_of(ArrayRef(term.steps).drop_front(term.numDone), isBefore))
      return false;
  }
  for (Operation *step : ArrayRef(last.steps)
                             .drop_front(llvm::find(last.steps, write) -
                                         last.steps.begin() + 1)) {
    if (!canScaleIn(loop, step))
      return false;
    // The hops would leave what they add up in f32.
    if (isNamed(step, guest::kConvert))
      return false;
  }
  return true;
}
