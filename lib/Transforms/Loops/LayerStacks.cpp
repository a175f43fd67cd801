//===- LayerStacks.cpp - Stacks of layers that loops write and read -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/LayerStacks.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

Value zpp::createLayerSlice(OpBuilder &builder, Location loc,
                            const LayerStack &stack, ArrayRef<Value> indices) {
  if (stack.layers.empty())
    return stack.value;
  return createLayerSlice(builder, loc, stack.value, indices);
}

std::optional<LayerWrite> zpp::getLayerWrite(WhileView loop, unsigned index) {
  BlockArgument stack = loop.getCarried(index);
  Operation *update = loop.getNext(index).getDefiningOp();
  if (!update || update->getBlock() != &loop.getBody() ||
      !loop.getConditionArgument(index).use_empty())
    return std::nullopt;
  Value at = getWrittenLayer(update);
  if (!at || update->getOperand(0) != stack ||
      !llvm::all_equal({stack.getType(), update->getResult(0).getType(),
                        loop.getResult(index).getType()}))
    return std::nullopt;
  return LayerWrite{update, update->getOperand(1), at,
                    stack.hasOneUse() && update->getResult(0).hasOneUse()};
}

std::optional<LayerWrite> zpp::getWriteOfAll(const CountedLoop &counted,
                                             unsigned index,
                                             ProvenanceAnalysis &provenances) {
  std::optional<LayerWrite> write = getLayerWrite(counted.loop, index);
  if (!write || !write->isOnlyUse || counted.trips < 1 ||
      cast<ShapedType>(write->update->getResult(0).getType()).getDimSize(0) !=
          counted.trips)
    return std::nullopt;
  auto indices = getIndices(write->index, counted, provenances);
  return indices && indices->areBelow(counted.trips) && indices->areDistinct()
             ? write
             : std::nullopt;
}

WhileView zpp::writeNewStack(OpBuilder &builder, Location loc, WhileView loop,
                             Value layer, int64_t layers, Value index) {
  RankedTensorType type = getTensorType(layer);
  SmallVector<int64_t> shape(type.getShape());
  shape.insert(shape.begin(), layers);
  OpBuilder front(loop.getOperation());
  Value zeros = createZeros(front, loc, type.clone(shape));
  WhileView extended = extendLoop(loop.getOperation(), zeros);
  Value stack = extended.getCarried(extended.getNumCarried() - 1);
  extended.addNext(createLayerUpdate(builder, loc, stack, layer, index));
  return extended;
}

std::optional<WrittenStack>
zpp::getWrittenStack(const CountedLoop &counted, unsigned index,
                     ProvenanceAnalysis &provenances) {
  std::optional<LayerWrite> write = getWriteOfAll(counted, index, provenances);
  if (!write || getIndices(write->index, counted, provenances)->at(0) != 0)
    return std::nullopt;
  return WrittenStack{counted, index, write->layer};
}

zero::AllGatherOp zpp::getGathered(const WrittenStack &stack) {
  Operation *reshape = stack.layer.getDefiningOp();
  Value layer =
      reshape && movesData(reshape) ? reshape->getOperand(0) : stack.layer;
  auto local = layer.getDefiningOp<zero::ToLocalOp>();
  return local ? local.getOperand().getDefiningOp<zero::AllGatherOp>()
               : zero::AllGatherOp();
}

/// Adds the reads of `value`, which holds the stack.
static void findReads(Value value, const WrittenStack &stack, StackReads &reads,
                      ProvenanceAnalysis &provenances) {
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    Value index = use.getOperandNumber() == 0 ? getReadLayer(user) : Value();
    if (index) {
      std::optional<CountedLoop> loop =
          getCountedLoop(user->getParentOp(), provenances);
      auto indices = loop && user->getBlock() == &loop->getBody()
                         ? getIndices(index, *loop, provenances)
                         : std::nullopt;
      if (indices && indices->areBelow(stack.loop.trips)) {
        reads.layers.push_back({user, index});
        continue;
      }
    }
    // Another loop has it in all iterations, and passes it on.
    if (isLoopInvariant(user, use.getOperandNumber()) &&
        user->getResult(use.getOperandNumber()).use_empty()) {
      unsigned number = use.getOperandNumber();
      WhileView other(user);
      if (other.getConditionArgument(number).use_empty()) {
        findReads(other.getCarried(number), stack, reads, provenances);
        continue;
      }
    }
    // The terminator of that loop.
    if (auto argument = dyn_cast<BlockArgument>(value);
        argument && user == &argument.getOwner()->back() &&
        use.getOperandNumber() == argument.getArgNumber())
      continue;
    reads.areComplete = false;
  }
}

StackReads zpp::getReads(const WrittenStack &stack,
                         ProvenanceAnalysis &provenances) {
  StackReads reads;
  findReads(stack.loop.loop.getResult(stack.index), stack, reads, provenances);
  return reads;
}

SmallVector<std::pair<WrittenStack, StackReads>>
zpp::getWrittenStacks(const CountedLoop &loop,
                      ProvenanceAnalysis &provenances) {
  SmallVector<std::pair<WrittenStack, StackReads>> stacks;
  for (unsigned index = 0; index < loop.loop.getNumCarried(); ++index)
    if (auto stack = getWrittenStack(loop, index, provenances))
      stacks.push_back({*stack, getReads(*stack, provenances)});
  return stacks;
}

void WrittenStack::erase() const {
  Operation *update = loop.loop.getNext(index).getDefiningOp();
  loop.loop.setNext(index, loop.loop.getCarried(index));
  update->erase();
}

void LayerRead::replace(Value layer) const {
  Value read = slice->getResult(0);
  Operation *reshape = layer.getDefiningOp();
  if (reshape && movesData(reshape) && reshape->getNumOperands() == 1)
    for (Operation *user : llvm::make_early_inc_range(read.getUsers()))
      if (isNamed(user, guest::kReshape) &&
          user->getResultTypes() == reshape->getOperandTypes()) {
        user->replaceAllUsesWith(reshape->getOperands());
        user->erase();
      }
  read.replaceAllUsesWith(layer);
  slice->erase();
}
