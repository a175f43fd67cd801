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
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

/// True if few ops make the layer that `stack` has of an iteration, and one of
/// them reads that layer of another stack: all else is no weight.
static bool isMadeOfLayer(const WrittenStack &stack) {
  constexpr size_t kMaxOps = 32;
  llvm::SetVector<Operation *> ops;
  auto add = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (op && op->getBlock() == &stack.loop.getBody())
      ops.insert(op);
  };
  add(stack.layer);
  bool isMade = false;
  for (size_t i = 0; i < ops.size() && ops.size() <= kMaxOps; ++i) {
    isMade |= getReadLayer(ops[i]) == stack.loop.counter;
    llvm::for_each(ops[i]->getOperands(), add);
  }
  return isMade && ops.size() <= kMaxOps;
}

/// True if what is gathered holds `value`, moved at most.
static bool isGathered(Value value) {
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

/// Reshapes of `value`, which a reshape may have made itself, reshape what that
/// was made from: the gather of a row then reads what its other gathers do.
static void skipReshapes(Value value) {
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

/// Has the readers of `slice` read `layer`, and what cuts it of several parts
/// read these.
static void replaceSlice(Operation *slice, Value layer) {
  slice->getResult(0).replaceAllUsesWith(layer);
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
  eraseIfDead({layer, slice->getResult(0)});
}

void zpp::recomputeSavedSlices(
    ModuleOp module, llvm::function_ref<void(Operation *slice)> onRewrite) {
  SmallVector<Operation *> loops;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (isWhile(op))
      loops.push_back(op);
  });
  for (Operation *op : loops) {
    // Valid until the module changes.
    ProvenanceAnalysis provenances;
    std::optional<CountedLoop> loop = getCountedLoop(op, provenances);
    if (!loop)
      continue;
    for (const auto &[stack, reads] : getWrittenStacks(*loop, provenances)) {
      if (!isMadeOfLayer(stack))
        continue;
      for (const LayerRead &read : reads.layers) {
        IterationValues iteration(*loop, read.index, [](Operation *op) {
          return mayRepeat(op, Effort::Tensors);
        });
        if (!isGathered(read.slice->getResult(0)) ||
            !iteration.canGet(stack.layer))
          continue;
        onRewrite(read.slice);
        OpBuilder builder(read.slice);
        replaceSlice(read.slice, iteration.get(builder, stack.layer));
      }
    }
  }
}
