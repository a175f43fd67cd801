//===- IterationPlaces.cpp - The places of a loop's gradients -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Loops/IterationPlaces.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

namespace {
/// Follows a value through one iteration of a loop, up to what it hands on.
class PlaceFinder {
public:
  PlaceFinder(Block &body, ProvenanceAnalysis &provenances)
      : body(body), provenances(provenances),
        counted(getCountedLoop(body.getParentOp(), provenances)) {}

  Decision<IterationPlaces> find(Value value) {
    source = value;
    // First what has the elements at positions that follow from theirs, then
    // the rest.
    values.insert(value);
    followAll();
    llvm::DenseSet<Value> placed(values.begin(), values.end());
    for (Operation *op : mixing)
      values.insert_range(op->getResults());
    isMixed = true;
    followAll();
    // All that follows from the value is known now.
    for (Operation *op : mixing)
      for (Value operand : op->getOperands())
        if (!values.contains(operand) && !isInvariant(operand))
          refuse(kChosen);
    // A mask, for instance, puts one of many copies into one layer.
    for (Operation *op : elementwise)
      if (llvm::none_of(op->getOperands(), [&](Value operand) {
            return placed.contains(operand);
          }))
        for (Value operand : op->getOperands())
          if (!values.contains(operand) && !isUniform(operand) &&
              !isInvariant(operand, /*orCarried=*/true))
            refuse(kChosen);
    if (refused)
      return *refused;
    return result;
  }

private:
  static constexpr llvm::StringLiteral kChosen =
      "the loop computes with it and with what changes from iteration to "
      "iteration, which may choose where it goes";

  /// Follows all values, and those that are added meanwhile.
  void followAll() {
    for (; numFollowed < values.size(); ++numFollowed)
      for (OpOperand &use : values[numFollowed].getUses()) {
        if (refused)
          return;
        follow(use);
      }
  }

  void refuse(StringRef reason) {
    if (!refused)
      refused = LeftAlone(reason.str());
  }

  void follow(OpOperand &use) {
    Operation *op = use.getOwner();
    unsigned number = use.getOperandNumber();
    if (op == &op->getBlock()->back() && op->getNumResults() == 0)
      return leave(use);
    if (isBarrier(op)) {
      values.insert(op->getResult(number));
    } else if (isWhile(op)) {
      values.insert(WhileView(op).getCarried(number));
      values.insert(op->getResult(number));
    } else if (isNamed(op, guest::kDynamicSlice) ||
               isNamed(op, guest::kDynamicUpdateSlice)) {
      // A slice of it, or a stack that it is written to. Where it is the stack,
      // what is written there has the index.
      unsigned numData = isNamed(op, guest::kDynamicSlice) ? 1 : 2;
      if (number >= numData)
        return refuse("the loop uses it as an index");
      if (number == numData - 1)
        chooseBy(op->getOperands().drop_front(numData));
      values.insert_range(op->getResults());
    } else if (isRowUpdate(op)) {
      if (number == 1)
        return refuse("the loop uses it as an index");
      if (number == 2)
        chooseBy(op->getOperand(1));
      values.insert_range(op->getResults());
    } else {
      if (isElementwise(op)) {
        elementwise.insert(op);
      } else if (!movesData(op) && !isZero(op)) {
        mixing.insert(op);
        if (!isMixed)
          return;
      }
      values.insert_range(op->getResults());
    }
  }

  /// True for a scatter that writes, or adds, one slice to a stack:
  /// `stack.at[index].set(layer)`.
  static bool isRowUpdate(Operation *op) {
    if (!isNamed(op, guest::kScatter) || op->getNumOperands() != 3 ||
        op->getNumResults() != 1)
      return false;
    auto type = dyn_cast<RankedTensorType>(op->getOperand(1).getType());
    return type && type.hasStaticShape() && type.getNumElements() == 1;
  }

  static bool isZero(Operation *op) {
    return isa_and_nonnull<zero::ZeroDialect>(op->getDialect());
  }

  /// `use` is in the terminator of a region.
  void leave(OpOperand &use) {
    Block *block = use.getOwner()->getBlock();
    Operation *parent = block->getParentOp();
    unsigned number = use.getOperandNumber();
    if (block == &body) {
      // A value that the next iteration may overwrite can go anywhere. Metrics,
      // which are scalars, are no gradients.
      if (!isScalar(use.get()) && !keeps(use.get(), body.getArgument(number)))
        refuse("the loop hands it to its next iteration, which may use it for "
               "anything");
      return;
    }
    if (!isWhile(parent)) {
      // A condition that changes may choose where it goes.
      if (parent->getNumResults() != use.getOwner()->getNumOperands())
        return refuse("an op of the loop that is not known has it in a region");
      mixing.insert(parent);
      values.insert(parent->getResult(number));
      return;
    }
    if (block != &WhileView(parent).getBody())
      return;
    values.insert(block->getArgument(number));
    values.insert(parent->getResult(number));
  }

  /// True for one element, if the value that is followed has more.
  bool isScalar(Value value) const {
    auto count = [](Value of) {
      auto type = dyn_cast<RankedTensorType>(of.getType());
      return type && type.hasStaticShape() ? type.getNumElements() : 0;
    };
    return count(value) == 1 && count(source) != 1;
  }

  /// An iteration writes to `indices` of a stack, or reads a slice there.
  void chooseBy(ValueRange indices) {
    for (Value index : indices) {
      if (isInvariant(index))
        continue;
      if (!counted)
        return refuse("the loop does not count its iterations from 0 to a "
                      "constant, and each has a place of its own for it");
      if (!isIndexOfIteration(index, *counted, provenances))
        return refuse("the loop stores it at an index that does not follow "
                      "from the number of the iteration alone");
      result.stack = *counted;
    }
  }

  /// True if all elements of `value` are equal.
  static bool isUniform(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (type && type.getRank() == 0)
      return true;
    Operation *op = value.getDefiningOp();
    if (!op)
      return false;
    if (isElementwise(op))
      return op->getNumOperands() == 1 && isUniform(op->getOperand(0));
    if (!isNamed(op, guest::kBroadcastInDim) || op->getNumOperands() != 1)
      return false;
    type = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
    return type && type.hasStaticShape() && type.getNumElements() == 1;
  }

  /// True if each iteration of the loop computes `value` alike, or, with
  /// `orCarried`, from tensors that the loop carries, such as the state of an
  /// optimizer, but from no number that it carries.
  bool isInvariant(Value value, bool orCarried = false) {
    llvm::SetVector<Value> pending;
    pending.insert(value);
    for (size_t i = 0; i < pending.size(); ++i) {
      Value next = pending[i];
      if (!body.getParent()->isAncestor(next.getParentRegion()))
        continue;
      if (auto argument = dyn_cast<BlockArgument>(next)) {
        Block *block = argument.getOwner();
        Operation *parent = block->getParentOp();
        unsigned number = argument.getArgNumber();
        if (!isWhile(parent))
          return false;
        if (isLoopInvariant(parent, number)) {
          pending.insert(parent->getOperand(number));
          continue;
        }
        if (block == &body) {
          auto type = dyn_cast<RankedTensorType>(next.getType());
          if (!orCarried || !type || type.getElementType().isInteger())
            return false;
          continue;
        }
        pending.insert(parent->getOperand(number));
        pending.insert(WhileView(parent).getNext(number));
        continue;
      }
      Operation *op = next.getDefiningOp();
      if (WhileView loop = WhileView::get(op)) {
        unsigned number = cast<OpResult>(next).getResultNumber();
        pending.insert(loop.getInit(number));
        pending.insert(loop.getNext(number));
        // The number of its iterations.
        pending.insert_range(loop.getPredicates());
        continue;
      }
      if (isBarrier(op)) {
        pending.insert(op->getOperand(cast<OpResult>(next).getResultNumber()));
        continue;
      }
      // JAX calls functions for where, clip and the like.
      if (!isDeterministic(op) && !isNamed(op, guest::kPartitionId) &&
          !isa<func::CallOp>(op) &&
          !(orCarried &&
            (op->getNumRegions() == 0 || isNamed(op, guest::kReduce))))
        return false;
      pending.insert(op->operand_begin(), op->operand_end());
    }
    return true;
  }

  /// True if `value` is `kept`, or has its elements at their positions with
  /// something added to them or written over them.
  static bool keeps(Value value, Value kept) {
    llvm::SetVector<Value> pending;
    pending.insert(value);
    for (size_t i = 0; i < pending.size(); ++i) {
      Value next = pending[i];
      if (next == kept)
        return true;
      Operation *op = next.getDefiningOp();
      if (!op)
        continue;
      unsigned number = cast<OpResult>(next).getResultNumber();
      if (isBarrier(op)) {
        pending.insert(op->getOperand(number));
      } else if (WhileView inner = WhileView::get(op)) {
        if (keeps(inner.getNext(number), inner.getCarried(number)))
          pending.insert(inner.getInit(number));
      } else if (isNamed(op, guest::kDynamicUpdateSlice) || isRowUpdate(op)) {
        pending.insert(op->getOperand(0));
      } else if (isElementwise(op) || isNamed(op, guest::kReshape) ||
                 (isNamed(op, guest::kBroadcastInDim) && movesData(op))) {
        pending.insert(op->operand_begin(), op->operand_end());
      } else {
        // The branches of a condition.
        for (Region &region : op->getRegions())
          if (region.hasOneBlock() && region.getNumArguments() == 0 &&
              region.front().mightHaveTerminator() &&
              region.front().back().getNumOperands() == op->getNumResults())
            pending.insert(region.front().back().getOperand(number));
      }
    }
    return false;
  }

  Block &body;
  ProvenanceAnalysis &provenances;
  std::optional<CountedLoop> counted;
  Value source;
  /// The values that follow from the source.
  llvm::SetVector<Value> values;
  size_t numFollowed = 0;
  /// The ops that compute them which may move elements to other positions, and
  /// those that do not.
  llvm::SetVector<Operation *> mixing, elementwise;
  /// Whether `values` has what `mixing` computes.
  bool isMixed = false;
  IterationPlaces result;
  std::optional<LeftAlone> refused;
};
} // namespace

Decision<IterationPlaces>
zpp::getIterationPlaces(Value value, Operation *loop,
                        ProvenanceAnalysis &provenances) {
  return PlaceFinder(WhileView(loop).getBody(), provenances).find(value);
}
