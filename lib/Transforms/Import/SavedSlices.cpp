//===- SavedSlices.cpp - Slices of weights that loops save ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SavedSlices.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

namespace {

/// What it takes at most to make a row again.
constexpr size_t kMaxOps = 32;

/// How a loop makes row i of a stack.
struct Row {
  Value result;
  /// In the order of the block, without `slices`.
  SmallVector<Operation *> ops;
  /// Each a slice of one row, with the stack outside of the loop that it is
  /// cut from.
  SmallVector<std::pair<Operation *, Value>> slices;
};

/// A row that another loop reads, and how it was made.
struct Reading {
  Operation *slice;
  Row row;
};

std::optional<int64_t> getInteger(Value value) {
  Operation *op = value.getDefiningOp();
  if (op && isNamed(op, guest::kConstant))
    if (auto elements = op->getAttrOfType<DenseIntElementsAttr>("value");
        elements && elements.isSplat())
      return elements.getSplatValue<APInt>().getSExtValue();
  return std::nullopt;
}

/// The index of the first row that `op`, a dynamic slice or an update by one,
/// cuts out or writes, where it is one whole row of a stack; null otherwise.
Value getRowIndex(Operation *op, Type row, unsigned firstIndex) {
  auto stack = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto part = dyn_cast<RankedTensorType>(row);
  if (!stack || !part || stack.getRank() == 0 ||
      stack.getRank() != part.getRank() || part.getDimSize(0) != 1 ||
      stack.getElementType() != part.getElementType() ||
      stack.getShape().drop_front() != part.getShape().drop_front() ||
      op->getNumOperands() != firstIndex + stack.getRank())
    return {};
  // Other indices do not matter: all of their dims is taken.
  return op->getOperand(firstIndex);
}

Value getSlicedRow(Operation *op) {
  if (!isNamed(op, guest::kDynamicSlice) || !isConsistentMovement(op))
    return {};
  return getRowIndex(op, op->getResult(0).getType(), 1);
}

Value getUpdatedRow(Operation *op) {
  if (!isNamed(op, guest::kDynamicUpdateSlice) || op->getNumOperands() < 2 ||
      op->getNumResults() != 1 ||
      op->getResult(0).getType() != op->getOperand(0).getType())
    return {};
  return getRowIndex(op, op->getOperand(1).getType(), 2);
}

/// The argument of the body of `loop` that counts its iterations, from 0 to
/// `count` by 1; null if there is none.
BlockArgument getCounter(Operation *loop, int64_t count) {
  Block &condition = loop->getRegion(0).front();
  Block &body = loop->getRegion(1).front();
  if (condition.back().getNumOperands() != 1)
    return {};
  Operation *compare = condition.back().getOperand(0).getDefiningOp();
  if (!compare || !comparesLess(compare) || compare->getNumOperands() != 2)
    return {};
  auto left = dyn_cast<BlockArgument>(compare->getOperand(0));
  if (!left || left.getOwner() != &condition ||
      getInteger(compare->getOperand(1)) != count ||
      getInteger(loop->getOperand(left.getArgNumber())) != 0)
    return {};
  BlockArgument counter = body.getArgument(left.getArgNumber());
  Operation *next = body.back().getOperand(left.getArgNumber()).getDefiningOp();
  if (!next || !isNamed(next, guest::kAdd) || next->getNumOperands() != 2)
    return {};
  for (unsigned side : {0, 1})
    if (next->getOperand(side) == counter &&
        getInteger(next->getOperand(1 - side)) == 1)
      return counter;
  return {};
}

/// How result `index` of `loop` is made, if the loop writes all rows of it,
/// each from the rows of the same number of stacks that it does not change.
std::optional<Row> getRow(Operation *loop, unsigned index) {
  if (!isWhile(loop))
    return std::nullopt;
  Block &body = loop->getRegion(1).front();
  BlockArgument stack = body.getArgument(index);
  Operation *update = body.back().getOperand(index).getDefiningOp();
  if (!update || update->getBlock() != &body || !stack.hasOneUse() ||
      !update->getResult(0).hasOneUse() || !getUpdatedRow(update) ||
      update->getOperand(0) != stack ||
      loop->getResult(index).getType() != stack.getType() ||
      !loop->getRegion(0).getArgument(index).use_empty())
    return std::nullopt;
  int64_t count = cast<ShapedType>(stack.getType()).getDimSize(0);
  BlockArgument counter = getCounter(loop, count);
  if (!counter || getUpdatedRow(update) != counter)
    return std::nullopt;

  Row row{update->getOperand(1), {}, {}};
  llvm::SetVector<Operation *> ops;
  SmallVector<Value> pending{row.result};
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != &body)
      return std::nullopt;
    if (!ops.insert(op))
      continue;
    if (ops.size() > kMaxOps)
      return std::nullopt;
    if (getSlicedRow(op) == counter) {
      Value from = op->getOperand(0);
      if (auto argument = dyn_cast<BlockArgument>(from);
          argument && argument.getOwner() == &body) {
        if (!isLoopInvariant(loop, argument.getArgNumber()))
          return std::nullopt;
        from = loop->getOperand(argument.getArgNumber());
      }
      auto type = dyn_cast<RankedTensorType>(from.getType());
      if (from.getParentRegion() == &loop->getRegion(1) || !type ||
          type.getDimSize(0) != count)
        return std::nullopt;
      row.slices.push_back({op, from});
      continue;
    }
    if (isNamed(op, guest::kConstant))
      continue;
    // Of the layers of one iteration.
    bool isShape = isConcatenation(op) || isNamed(op, guest::kBroadcastInDim) ||
                   (movesData(op) && op->getNumOperands() == 1);
    if (!isElementwise(op) && !isShape)
      return std::nullopt;
    llvm::append_range(pending, op->getOperands());
  }
  // Otherwise it depends on nothing, and is no weight.
  if (row.slices.empty())
    return std::nullopt;
  for (Operation &op : body)
    if (ops.contains(&op) && llvm::none_of(row.slices, [&](auto &slice) {
          return slice.first == &op;
        }))
      row.ops.push_back(&op);
  return row;
}

/// True if what is gathered holds `value`, moved at most.
bool isGathered(Value value) {
  llvm::SetVector<Operation *> pending;
  pending.insert_range(value.getUsers());
  for (size_t index = 0; index < pending.size(); ++index) {
    Operation *op = pending[index];
    if (getGuestCollective(op) == CollectiveKind::AllGather)
      return true;
    if (isDataMovement(op) || isElementwise(op))
      pending.insert_range(op->getUsers());
  }
  return false;
}

/// The rows that `loop` gathers and that another loop has made.
SmallVector<Reading> findReadings(Operation *loop) {
  SmallVector<Reading> readings;
  Block &body = loop->getRegion(1).front();
  for (auto [index, operand] : llvm::enumerate(loop->getOperands())) {
    auto made = dyn_cast<OpResult>(operand);
    if (!made || !isWhile(made.getOwner()) ||
        made.getOwner()->getBlock() != loop->getBlock() ||
        !isLoopInvariant(loop, index))
      continue;
    std::optional<Row> row = getRow(made.getOwner(), made.getResultNumber());
    if (!row)
      continue;
    for (Operation *user : body.getArgument(index).getUsers())
      if (user->getBlock() == &body && getSlicedRow(user) &&
          user->getOperand(0) == body.getArgument(index) &&
          isGathered(user->getResult(0)))
        readings.push_back({user, *row});
  }
  return readings;
}

/// Reshapes of `value`, which a reshape may have made itself, reshape what that
/// was made from: the gather of a row then reads what its other gathers do.
void skipReshapes(Value value) {
  Value source = value;
  while (Operation *op = source.getDefiningOp()) {
    if (!isNamed(op, guest::kReshape) || !isConsistentMovement(op))
      break;
    source = op->getOperand(0);
  }
  for (Operation *user : llvm::make_early_inc_range(value.getUsers())) {
    if (!isNamed(user, guest::kReshape) || !isConsistentMovement(user))
      continue;
    user->setOperand(0, source);
    if (user->getResult(0).getType() == source.getType()) {
      user->replaceAllUsesWith(ValueRange(source));
      user->erase();
    }
  }
  if (Operation *op = value.getDefiningOp())
    eraseUnread(op);
}

/// Makes a row again where it is read. `inside` has what stands for each stack
/// in the loop.
void recompute(const Reading &reading,
               const llvm::MapVector<Value, Value> &inside) {
  IRRewriter builder(reading.slice);
  IRMapping mapping;
  Value index = getSlicedRow(reading.slice);
  StablehloBuilder stablehlo(builder, reading.slice->getLoc());
  for (auto [slice, stack] : reading.row.slices) {
    auto type = cast<RankedTensorType>(slice->getResult(0).getType());
    SmallVector<Value> operands{inside.lookup(stack), index};
    if (type.getRank() > 1)
      operands.append(type.getRank() - 1,
                      stablehlo.zeros(cast<RankedTensorType>(index.getType())));
    OperationState state(slice->getLoc(), slice->getName());
    state.addOperands(operands);
    state.addTypes(type);
    state.propertiesAttr = slice->getPropertiesAsAttribute();
    state.addAttributes(slice->getDiscardableAttrDictionary().getValue());
    mapping.map(slice->getResult(0), builder.create(state)->getResult(0));
  }
  for (Operation *op : reading.row.ops)
    builder.clone(*op, mapping);
  Value row = mapping.lookup(reading.row.result);
  reading.slice->getResult(0).replaceAllUsesWith(row);
  Operation *whole = row.getDefiningOp();
  while (isNamed(whole, guest::kReshape) &&
         whole->getOperand(0).getDefiningOp())
    whole = whole->getOperand(0).getDefiningOp();
  skipReshapes(row);
  if (!isConcatenation(whole))
    return;
  for (Operation *user :
       llvm::make_early_inc_range(whole->getResult(0).getUsers()))
    if (Value part = getSlicedOperand(user)) {
      user->getResult(0).replaceAllUsesWith(part);
      user->erase();
      skipReshapes(part);
    }
  eraseUnread(whole);
}

} // namespace

void zpp::recomputeSavedSlices(
    ModuleOp module, llvm::function_ref<void(Operation *slice)> onRewrite) {
  SmallVector<Operation *> loops;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isWhile(op))
      loops.push_back(op);
  });
  for (Operation *loop : loops) {
    SmallVector<Reading> readings = findReadings(loop);
    if (readings.empty())
      continue;
    // Those stacks that the loop has already need not enter it again.
    llvm::MapVector<Value, Value> inside;
    SmallVector<Value> added;
    for (const Reading &reading : readings)
      for (auto [slice, stack] : reading.row.slices)
        if (inside.insert({stack, {}}).second) {
          for (auto [index, operand] : llvm::enumerate(loop->getOperands()))
            if (operand == stack && isLoopInvariant(loop, index))
              inside[stack] = loop->getRegion(1).getArgument(index);
          if (!inside[stack])
            added.push_back(stack);
        }
    if (!added.empty()) {
      unsigned first = loop->getNumOperands();
      Block &body = extendLoop(loop, added)->getRegion(1).front();
      for (auto [index, stack] : llvm::enumerate(added))
        inside[stack] = body.getArgument(first + index);
      body.back().insertOperands(first, body.getArguments().drop_front(first));
    }
    for (const Reading &reading : readings) {
      recompute(reading, inside);
      onRewrite(reading.slice);
      eraseUnread(reading.slice);
    }
  }
}
