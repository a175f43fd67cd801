//===- SavedSlices.cpp - Slices of weights that loops save ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PartitionerOutput.h"

#include "LocalValues.h"
#include "Loops/LayerStacks.h"
#include "Loops/Recomputation.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

namespace {

/// The most ops that make a layer again.
constexpr size_t kMaxOps = 32;

/// A layer that a loop gathers, of a stack that another loop has written.
struct Reading {
  /// The op that reads it, and its index.
  Operation *slice;
  Value index;
  WrittenStack stack;
  /// The layers, in the loop that wrote it, that it is made of, each with the
  /// stack outside of the loop that it is cut from.
  llvm::SmallMapVector<Value, Value, 2> sources;
};

/// Returns the layers of other stacks that the layer of `written` in the same
/// iteration is made of, by ops that may be done again, with these stacks;
/// empty if it is made of anything else.
llvm::SmallMapVector<Value, Value, 2> getSources(const WrittenStack &written) {
  WhileView loop = written.loop.loop;
  llvm::SmallMapVector<Value, Value, 2> sources;
  llvm::SetVector<Operation *> ops;
  SmallVector<Value> pending{written.layer};
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (!op || op->getBlock() != &loop.getBody() ||
        !mayRepeat(op, Effort::Tensors))
      return {};
    if (!ops.insert(op))
      continue;
    if (ops.size() > kMaxOps)
      return {};
    if (getReadLayer(op) != written.loop.counter) {
      llvm::append_range(pending, op->getOperands());
      continue;
    }
    Value stack = op->getOperand(0);
    if (auto argument = dyn_cast<BlockArgument>(stack);
        argument && argument.getOwner() == &loop.getBody()) {
      if (!loop.isInvariant(argument.getArgNumber()))
        return {};
      stack = loop.getInit(argument.getArgNumber());
    }
    auto type = dyn_cast<RankedTensorType>(stack.getType());
    if (loop.contains(stack) || !type ||
        type.getDimSize(0) != written.loop.trips)
      return {};
    sources[op->getResult(0)] = stack;
  }
  return sources;
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

/// `value`, or what loops around it carry as it in all iterations.
Value getOutside(Value value) {
  while (auto argument = dyn_cast<BlockArgument>(value)) {
    WhileView loop = WhileView::get(argument.getOwner()->getParentOp());
    if (!loop || !loop.isInvariant(argument.getArgNumber()))
      break;
    value = loop.getInit(argument.getArgNumber());
  }
  return value;
}

/// Returns the layers that `loop` gathers and that another loop has written, in
/// front of it or of a loop around it.
SmallVector<Reading> findReadings(WhileView loop,
                                  ProvenanceAnalysis &provenances) {
  SmallVector<Reading> readings;
  for (auto [index, operand] : llvm::enumerate(loop->getOperands())) {
    auto made = dyn_cast<OpResult>(getOutside(operand));
    if (!made || !loop.isInvariant(index))
      continue;
    std::optional<CountedLoop> other =
        getCountedLoop(made.getOwner(), provenances);
    std::optional<WrittenStack> stack =
        other ? getWrittenStack(*other, made.getResultNumber(), provenances)
              : std::nullopt;
    if (!stack)
      continue;
    auto sources = getSources(*stack);
    // Without any, it depends on nothing, and is no weight.
    if (sources.empty())
      continue;
    for (Operation *user : loop.getCarried(index).getUsers())
      if (Value layer = getReadLayer(user);
          layer && user->getBlock() == &loop.getBody() &&
          user->getOperand(0) == loop.getCarried(index) &&
          isGathered(user->getResult(0)))
        readings.push_back({user, layer, *stack, sources});
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
}

/// Makes a layer again where it is read. `inside` has what stands for each
/// stack in the loop.
void recompute(const Reading &reading,
               const llvm::MapVector<Value, Value> &inside) {
  OpBuilder builder(reading.slice);
  Value zero;
  Recomputation values([&](OpBuilder &builder, Value value) -> Value {
    auto source = reading.sources.find(value);
    if (source == reading.sources.end())
      return {};
    Operation *slice = value.getDefiningOp();
    OperationState state(slice->getLoc(), slice->getName());
    state.addOperands({inside.lookup(source->second), reading.index});
    if (slice->getNumOperands() > 2 && !zero)
      zero = createIndex(builder, slice->getLoc(),
                         cast<RankedTensorType>(reading.index.getType()), 0);
    state.operands.append(slice->getNumOperands() - 2, zero);
    state.addTypes(value.getType());
    state.propertiesAttr = slice->getPropertiesAsAttribute();
    state.addAttributes(slice->getDiscardableAttrDictionary().getValue());
    return builder.create(state)->getResult(0);
  });
  Value layer = values.get(builder, reading.stack.layer);
  reading.slice->getResult(0).replaceAllUsesWith(layer);
  Operation *whole = layer.getDefiningOp();
  while (isNamed(whole, guest::kReshape) &&
         whole->getOperand(0).getDefiningOp())
    whole = whole->getOperand(0).getDefiningOp();
  skipReshapes(layer);
  if (isConcatenation(whole))
    for (Operation *user :
         llvm::make_early_inc_range(whole->getResult(0).getUsers()))
      if (Value part = getSlicedOperand(user)) {
        user->getResult(0).replaceAllUsesWith(part);
        user->erase();
        skipReshapes(part);
      }
  eraseIfDead(layer);
}

} // namespace

void zpp::recomputeSavedSlices(
    ModuleOp module, llvm::function_ref<void(Operation *slice)> onRewrite) {
  SmallVector<WhileView> loops;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (WhileView loop = WhileView::get(op))
      loops.push_back(loop);
  });
  ProvenanceAnalysis provenances;
  for (WhileView loop : loops) {
    SmallVector<Reading> readings = findReadings(loop, provenances);
    if (readings.empty())
      continue;
    // Those stacks that the loop has already need not enter it again.
    llvm::MapVector<Value, Value> inside;
    SmallVector<Value> added;
    for (const Reading &reading : readings)
      for (auto [slice, stack] : reading.sources)
        if (inside.insert({stack, {}}).second) {
          for (auto [index, operand] : llvm::enumerate(loop->getOperands()))
            if (operand == stack && loop.isInvariant(index))
              inside[stack] = loop.getCarried(index);
          if (!inside[stack])
            added.push_back(stack);
        }
    if (!added.empty()) {
      unsigned first = loop.getNumCarried();
      WhileView extended = extendLoop(loop.getOperation(), added);
      for (auto [index, stack] : llvm::enumerate(added))
        inside[stack] = extended.getCarried(first + index);
      extended.addNext(
          ValueRange(extended.getBody().getArguments().drop_front(first)));
    }
    for (const Reading &reading : readings) {
      recompute(reading, inside);
      onRewrite(reading.slice);
      eraseIfDead(Value(reading.slice->getResult(0)));
    }
    // The module has changed.
    provenances = ProvenanceAnalysis();
  }
}
