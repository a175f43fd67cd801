//===- IterationPlaces.cpp - Where iterations leave a gradient ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "IterationPlaces.h"

#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

namespace {
/// Follows a value through one iteration of a loop, up to what the iteration
/// hands on.
class PlaceFinder {
public:
  PlaceFinder(Operation *loop, ProvenanceAnalysis &provenances)
      : loop(loop), body(loop->getRegion(1).front()), provenances(provenances),
        counted(getCountedLoop(loop, provenances)) {}

  IterationPlaces find(Value value) {
    source = value;
    values.insert(value);
    for (size_t i = 0; i < values.size() && result.reason.empty(); ++i)
      for (OpOperand &use : values[i].getUses()) {
        follow(use);
        if (!result.reason.empty())
          break;
      }
    // All that follows from the value is known now.
    for (Operation *op : mixing)
      for (Value operand : op->getOperands())
        if (!values.contains(operand) && !isInvariant(operand))
          refuse("the loop computes with it and with what changes from "
                 "iteration to iteration, which may choose where it goes");
    if (!result.reason.empty())
      return {IterationPlaces::Unknown, {}, result.reason};
    return std::move(result);
  }

private:
  void refuse(StringRef reason) {
    if (result.reason.empty())
      result.reason = reason;
  }

  void follow(OpOperand &use) {
    Operation *op = use.getOwner();
    unsigned number = use.getOperandNumber();
    if (op == &op->getBlock()->back() && op->getNumResults() == 0)
      return leave(use);
    if (isBarrier(op)) {
      values.insert(op->getResult(number));
    } else if (isWhile(op)) {
      values.insert(op->getRegion(1).front().getArgument(number));
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
      if (!isElementwise(op) && !movesData(op) && !isZero(op))
        mixing.insert(op);
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
      // Of what the next iteration overwrites, nothing says where it goes.
      // Metrics, which are scalars, are no gradients.
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
    if (block != &parent->getRegion(1).front())
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
      result.kind = IterationPlaces::Own;
      result.loop = *counted;
    }
  }

  /// True if each iteration of the loop computes `value` alike.
  bool isInvariant(Value value) {
    llvm::SetVector<Value> pending;
    pending.insert(value);
    for (size_t i = 0; i < pending.size(); ++i) {
      Value next = pending[i];
      if (!loop->getRegion(1).isAncestor(next.getParentRegion()))
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
        if (block == &body)
          return false;
        pending.insert(parent->getOperand(number));
        pending.insert(parent->getRegion(1).front().back().getOperand(number));
        continue;
      }
      Operation *op = next.getDefiningOp();
      if (isWhile(op)) {
        unsigned number = cast<OpResult>(next).getResultNumber();
        pending.insert(op->getOperand(number));
        pending.insert(op->getRegion(1).front().back().getOperand(number));
        // How often it runs.
        Operation &condition = op->getRegion(0).front().back();
        pending.insert(condition.operand_begin(), condition.operand_end());
        continue;
      }
      if (isBarrier(op)) {
        pending.insert(op->getOperand(cast<OpResult>(next).getResultNumber()));
        continue;
      }
      if (!isDeterministic(op) && !isNamed(op, guest::kPartitionId))
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
      } else if (isWhile(op)) {
        Block &inner = op->getRegion(1).front();
        if (keeps(inner.back().getOperand(number), inner.getArgument(number)))
          pending.insert(op->getOperand(number));
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

  Operation *loop;
  Block &body;
  ProvenanceAnalysis &provenances;
  std::optional<CountedLoop> counted;
  Value source;
  /// What follows from the source.
  llvm::SetVector<Value> values;
  /// The ops among them that may move elements to other positions.
  llvm::SetVector<Operation *> mixing;
  IterationPlaces result;
};
} // namespace

IterationPlaces zpp::getIterationPlaces(Value value, Operation *loop,
                                        ProvenanceAnalysis &provenances) {
  return PlaceFinder(loop, provenances).find(value);
}
