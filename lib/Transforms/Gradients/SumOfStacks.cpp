//===- SumOfStacks.cpp - Sums that a step sends of stacks -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gradients/SumOfStacks.h"

#include "Gradients/Accumulate/GradientSum.h"
#include "LocalValues.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Stacks
//===----------------------------------------------------------------------===//

int64_t StackOfLayers::getNumLayers() const {
  return getTensorType(loop.getResult(number)).getDimSize(0);
}

std::optional<StackOfLayers>
zpp::zero::findStack(Value value, ProvenanceAnalysis &provenances) {
  StackOfLayers stack;
  Operation *op = value.getDefiningOp();
  while (value.hasOneUse() && op && !isWhile(op)) {
    std::optional<unsigned> scaled = getScaledOperand(op);
    if (!scaled && !isNamed(op, guest::kConvert))
      return std::nullopt;
    stack.steps.insert(stack.steps.begin(), op);
    value = op->getOperand(scaled.value_or(0));
    op = value.getDefiningOp();
  }
  std::optional<CountedLoop> counted =
      op && value.hasOneUse() ? getCountedLoop(op, provenances) : std::nullopt;
  if (!counted)
    return std::nullopt;
  stack.loop = counted->loop;
  stack.number = cast<OpResult>(value).getResultNumber();
  std::optional<LayerWrite> write =
      getWriteOfAll(*counted, stack.number, provenances);
  if (!write || !llvm::all_of(stack.steps, [&](Operation *step) {
        return canScaleIn(op, step);
      }))
    return std::nullopt;
  stack.write = *write;
  return stack;
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

/// Returns the type of one of the `layers` of `type`, whose elements are stored
/// layer by layer: its first dim is that much smaller. Null if there is none.
static Type getLayerType(Type type, int64_t layers) {
  auto shard = dyn_cast<ShardType>(type);
  auto tensor = shard ? shard.getGlobal() : dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape() || tensor.getRank() == 0 ||
      tensor.getDimSize(0) % layers != 0)
    return {};
  SmallVector<int64_t> shape(tensor.getShape());
  shape[0] /= layers;
  if (!shard)
    return tensor.clone(shape);
  if (shard.getDim() == 0 &&
      shape[0] % llvm::product_of(shard.getFactorSizes()) != 0)
    return {};
  return ShardType::get(type.getContext(), tensor.clone(shape), shard.getDim(),
                        shard.getFactors(), shard.getMesh(), shard.getQuant());
}

std::optional<SumOfStacks> SumOfStacks::find(Operation *hop) {
  if (!isa<ReduceScatterOp>(hop))
    return std::nullopt;
  Block *block = hop->getBlock();
  auto isElementwise = [](Operation *op) {
    return getScaledOperand(op) || isNamed(op, guest::kConvert) ||
           isNamed(op, guest::kReshape);
  };
  SumOfStacks found;
  Value value = hop->getOperand(0);
  while (value.hasOneUse()) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != block ||
        !(isa<FromLocalOp>(op) || isElementwise(op)))
      break;
    found.ops.insert(found.ops.begin(), op);
    value = op->getOperand(getScaledOperand(op).value_or(0));
  }
  found.sum = value;
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getRank() == 0 || !value.hasOneUse())
    return std::nullopt;
  Operation *op = hop;
  while (true) {
    found.ops.push_back(op);
    value = op->getResult(0);
    auto left = dyn_cast<RankedTensorType>(value.getType());
    if (left && left.getRank() == type.getRank() &&
        left.getDimSize(0) == type.getDimSize(0))
      return found;
    if (!value.hasOneUse())
      return std::nullopt;
    op = *value.user_begin();
    if (op->getBlock() != block ||
        !(isa<ReduceScatterOp, AllGatherOp, EncodeOp, DecodeOp, ToLocalOp>(
              op) ||
          isElementwise(op)))
      return std::nullopt;
  }
}

bool SumOfStacks::canSendInLoop(int64_t layers, Operation *loop) const {
  ShardType from, to;
  for (Operation *op : ops) {
    if (!getLayerType(op->getResult(0).getType(), layers) ||
        !canScaleIn(loop, op))
      return false;
    if (isa<FromLocalOp>(op))
      from = cast<ShardType>(op->getResult(0).getType());
    if (isa<ToLocalOp>(op))
      to = cast<ShardType>(op->getOperand(0).getType());
  }
  // Between whole stacks it does not matter which device adds up a layer.
  return from && to &&
         ((from.getDim() > 0 && to.getDim() > 0) ||
          (from.isWhole() && to.isWhole()));
}

/// A layer of what `op` makes of a stack, of that layer of its operand.
static Value createLayerOf(OpBuilder &builder, Operation *op, Value layer,
                           int64_t layers) {
  if (getScaledOperand(op))
    return scale(builder, op, layer);
  IRMapping mapping;
  mapping.map(op->getOperand(0), layer);
  Operation *clone = builder.clone(*op, mapping);
  clone->getResult(0).setType(getLayerType(op->getResult(0).getType(), layers));
  return clone->getResult(0);
}

Operation *SumOfStacks::sendInLoop(const StackOfLayers &stack,
                                   Value earlier) const {
  int64_t layers = stack.getNumLayers();
  WhileView loop = stack.loop;
  const LayerWrite &write = stack.write;
  OpBuilder builder(write.update);
  Location loc = write.update->getLoc();
  Value value = write.layer;
  for (Operation *op : stack.steps)
    value = createLayerOf(builder, op, value, layers);
  RankedTensorType type = getTensorType(value);
  Value before = createReshape(
      builder, loc, createLayerSlice(builder, loc, earlier, write.index),
      type.getShape());
  value = createOp(builder, sum.getLoc(), guest::kAdd, {before, value}, type);
  Operation *firstHop = nullptr;
  for (Operation *op : ops) {
    value = createLayerOf(builder, op, value, layers);
    if (!firstHop && isa<ReduceScatterOp>(op))
      firstHop = value.getDefiningOp();
  }
  // The stack of what is left, in place of the gradients' if it has its type.
  Value left = ops.back()->getResult(0);
  unsigned number = stack.number;
  if (left.getType() == loop.getResult(number).getType()) {
    write.update->setOperand(1, value);
  } else {
    ArrayRef<int64_t> shape = getTensorType(value).getShape();
    value = createReshape(builder, loc, value, shape.drop_front());
    loop = writeNewStack(builder, loc, loop, value, layers, write.index);
    number = loop.getNumCarried() - 1;
    write.update->getResult(0).replaceAllUsesWith(write.update->getOperand(0));
    write.update->erase();
  }
  left.replaceAllUsesWith(loop.getResult(number));
  SmallVector<Operation *> obsolete(stack.steps);
  obsolete.push_back(sum.getDefiningOp());
  llvm::append_range(obsolete, ops);
  SmallVector<Value> numbers;
  for (Operation *op : llvm::reverse(obsolete)) {
    if (std::optional<unsigned> scaled = getScaledOperand(op);
        scaled && op->getNumOperands() == 2)
      numbers.push_back(op->getOperand(1 - *scaled));
    op->erase();
  }
  eraseIfDead(numbers);
  return firstHop;
}
