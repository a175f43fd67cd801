//===- SplitStacks.cpp - Stacks of layers as layers -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/WriteLoops.h"

#include "LocalValues.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Dialect/Guest/While.h"

using namespace mlir;
using namespace zpp;

/// The most layers of a stack. Others are no layers of a model: barriers and
/// loops would have thousands of values.
static constexpr int64_t kMostLayers = 128;
/// The most writes that may follow each other.
static constexpr int kMostWrites = 1024;

/// Returns the type of a layer of `stack`, with a first dim of size 1; null if
/// it is no stack of known size.
static RankedTensorType getLayerType(Value stack) {
  auto type = dyn_cast<RankedTensorType>(stack.getType());
  if (!type || !type.hasStaticShape() || type.getRank() < 1 ||
      type.getDimSize(0) > kMostLayers)
    return {};
  SmallVector<int64_t> shape(type.getShape());
  shape.front() = 1;
  return type.clone(shape);
}

static int64_t getNumLayers(Value stack) {
  return getTensorType(stack).getDimSize(0);
}

/// Returns the number of the layer that `op` reads or writes at `index`;
/// nullopt if it is not known, or is that of no layer of `stack`.
static std::optional<int64_t> getLayerNumber(Operation *op, Value index,
                                             Value stack) {
  if (!index)
    return std::nullopt;
  auto known =
      dyn_cast_or_null<IntegerAttr>(op->getDiscardableAttr(kLayerNumberAttr));
  std::optional<int64_t> number =
      known ? std::optional(known.getInt()) : getConstantInteger(index);
  return number && *number >= 0 && *number < getNumLayers(stack) ? number
                                                                 : std::nullopt;
}

/// True if `layer` stays the same value while stacks are split: barriers and
/// loops are built anew.
static bool isLasting(Value layer) {
  Operation *op = layer.getDefiningOp();
  return !op || (!isBarrier(op) && !isWhile(op));
}

/// True if each use of `stack`, and of what it becomes, is a read or a write of
/// a layer whose number is known. `depth` counts what it has become before.
static bool canSplit(Value stack, int depth = 0) {
  RankedTensorType layer = getLayerType(stack);
  if (depth > kMostWrites)
    return false;
  for (OpOperand &use : stack.getUses()) {
    Operation *op = use.getOwner();
    unsigned number = use.getOperandNumber();
    if (Value index = getReadLayer(op); index && number == 0) {
      if (!getLayerNumber(op, index, stack) ||
          op->getResult(0).getType() != layer)
        return false;
    } else if (Value index = getWrittenLayer(op); index && number == 0) {
      if (!getLayerNumber(op, index, stack) ||
          op->getOperand(1).getType() != layer ||
          !isLasting(op->getOperand(1)) ||
          !canSplit(op->getResult(0), depth + 1))
        return false;
    } else if (isBarrier(op)) {
      if (op->getResult(number).getType() != stack.getType() ||
          !canSplit(op->getResult(number), depth + 1))
        return false;
    } else if (WhileView loop = WhileView::get(op)) {
      if (!loop.isInvariant(number) ||
          !loop.getConditionArgument(number).use_empty() ||
          loop.getResult(number).getType() != stack.getType() ||
          !canSplit(loop.getCarried(number), depth + 1) ||
          !canSplit(loop.getResult(number), depth + 1))
        return false;
    } else if (!isWhile(op->getParentOp()) ||
               op != WhileView(op->getParentOp()).getYield() ||
               WhileView(op->getParentOp()).getCarried(number) != stack) {
      return false;
    }
  }
  return true;
}

static void split(Value stack, ArrayRef<Value> layers);

/// Has `layers` pass through `barrier` in place of operand `number`.
static void splitBarrier(Operation *barrier, unsigned number,
                         ArrayRef<Value> layers) {
  Operation *rebuilt = rebuildBarrier(barrier, layers);
  split(rebuilt->getResult(number),
        SmallVector<Value>(rebuilt->getResults().take_back(layers.size())));
  SmallVector<Value> dropped;
  rebuildBarrier(rebuilt, {}, &dropped);
}

/// Has `loop` carry `layers` in place of value `number`, which does not change.
static void splitCarried(WhileView loop, unsigned number,
                         ArrayRef<Value> layers) {
  WhileView extended = extendLoop(loop.getOperation(), layers);
  SmallVector<Value> carried(
      extended.getBody().getArguments().take_back(layers.size()));
  extended.addNext(carried);
  split(extended.getCarried(number), carried);
  split(extended.getResult(number), layers);
  dropCarried(extended, number);
}

/// Replaces the uses of `stack`, for which canSplit holds, by those of
/// `layers`.
static void split(Value stack, ArrayRef<Value> layers) {
  auto getUse = [&]() -> OpOperand * {
    // The yield of a loop reads what the loop carries until that is dropped.
    for (OpOperand &use : stack.getUses())
      if (!isa<BlockArgument>(stack) ||
          use.getOwner() != &stack.getParentBlock()->back())
        return &use;
    return nullptr;
  };
  while (OpOperand *use = getUse()) {
    Operation *op = use->getOwner();
    if (Value index = getReadLayer(op)) {
      op->getResult(0).replaceAllUsesWith(
          layers[*getLayerNumber(op, index, stack)]);
      op->erase();
    } else if (Value index = getWrittenLayer(op)) {
      SmallVector<Value> written(layers);
      written[*getLayerNumber(op, index, stack)] = op->getOperand(1);
      split(op->getResult(0), written);
      op->erase();
    } else if (isBarrier(op)) {
      splitBarrier(op, use->getOperandNumber(), layers);
    } else {
      splitCarried(WhileView(op), use->getOperandNumber(), layers);
    }
  }
}

/// True if `op` joins layers, one after the other.
static bool joinsLayers(Operation *op) {
  if (!isConcatenation(op) ||
      op->getAttrOfType<IntegerAttr>("dimension").getInt() != 0)
    return false;
  RankedTensorType layer = getLayerType(op->getResult(0));
  return layer && getNumLayers(op->getResult(0)) == op->getNumOperands() &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           return operand.getType() == layer && isLasting(operand);
         });
}

/// Returns the writes that follow each other from `first` on, one for each
/// layer of the stack; empty if another op reads the stack in between.
static SmallVector<Operation *> getWritesOfAllLayers(Operation *first) {
  Value stack = first->getOperand(0);
  SmallVector<Operation *> writes{first};
  while (static_cast<int64_t>(writes.size()) < getNumLayers(stack)) {
    Value written = writes.back()->getResult(0);
    if (!written.hasOneUse() || written.use_begin()->getOperandNumber() != 0 ||
        !getWrittenLayer(*written.user_begin()))
      return {};
    writes.push_back(*written.user_begin());
  }
  return writes;
}

/// Replaces `first`, a write to zeros, and those that follow it by a
/// concatenation if they write each layer once and arithmetic reads the stack:
/// the update of a stack of weights reads the layers of its gradient where they
/// are (X17).
static void joinWrites(Operation *first) {
  Value stack = first->getOperand(0);
  RankedTensorType layer = getLayerType(stack);
  if (!layer)
    return;
  SmallVector<Operation *> writes = getWritesOfAllLayers(first);
  if (writes.empty() || !llvm::all_of(writes.back()->getUsers(), isElementwise))
    return;
  SmallVector<Value> layers(writes.size());
  for (Operation *write : writes) {
    std::optional<int64_t> number =
        getLayerNumber(write, getWrittenLayer(write), stack);
    if (!number || layers[*number] || write->getOperand(1).getType() != layer)
      return;
    layers[*number] = write->getOperand(1);
  }
  IRRewriter rewriter(first->getContext());
  rewriter.setInsertionPointAfter(writes.back());
  rewriter.replaceAllUsesWith(
      writes.back()->getResult(0),
      StablehloBuilder(rewriter, writes.back()->getLoc())
          .concatenate(layers, 0));
  for (Operation *write : llvm::reverse(writes))
    write->erase();
}

void zpp::splitStacks(Operation *root) {
  SmallVector<Operation *> joins, writes;
  root->walk([&](Operation *op) {
    if (joinsLayers(op))
      joins.push_back(op);
    else if (getWrittenLayer(op) && isZeros(op->getOperand(0)))
      writes.push_back(op);
  });
  // Erased at the end: the ops of one may compute layers of another one.
  SmallVector<Value> replaced;
  for (Operation *join : joins)
    if (canSplit(join->getResult(0))) {
      SmallVector<Value> layers(join->getOperands());
      split(join->getResult(0), layers);
      replaced.push_back(join->getResult(0));
    }
  for (Operation *write : writes) {
    Value stack = write->getOperand(0), first = write->getOperand(1);
    std::optional<int64_t> number =
        getLayerNumber(write, getWrittenLayer(write), stack);
    if (!number || first.getType() != getLayerType(stack) ||
        !isLasting(first) || !canSplit(write->getResult(0))) {
      joinWrites(write);
      replaced.push_back(stack);
      continue;
    }
    OpBuilder builder(write);
    SmallVector<Value> layers(
        getNumLayers(stack),
        createZeros(builder, write->getLoc(), getLayerType(stack)));
    layers[*number] = first;
    split(write->getResult(0), layers);
    replaced.push_back(stack);
    write->erase();
  }
  eraseIfDead(replaced);
}

void zpp::eraseLayerNumbers(Operation *root) {
  root->walk(
      [](Operation *op) { op->removeDiscardableAttr(kLayerNumberAttr); });
}
