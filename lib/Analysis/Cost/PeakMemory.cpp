//===- PeakMemory.cpp - What is alive at one time -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PeakMemory.h"

#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;

static void extend(llvm::DenseMap<Value, int64_t> &lastUse, Value value,
                   int64_t until) {
  auto [it, isNew] = lastUse.try_emplace(value, until);
  if (!isNew)
    it->second = std::max(it->second, until);
}

/// Whether the block returns `value`, which then has the memory of an argument:
/// steps are donated.
static bool isReturned(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return user == &user->getBlock()->back();
  });
}

/// Whether `value` has memory, which what writes it can take over: zeros that
/// are fused have none.
static bool isHeld(Value value, StoredValues &stored) {
  Operation *op = getStoredSource(value).getDefiningOp();
  return !op || isBarrier(op) || stored.storesAny(op);
}

/// The operand whose memory a result is. XLA reduces in place.
static std::optional<unsigned> getAliased(OpResult result,
                                          StoredValues &stored) {
  Operation *op = result.getOwner();
  unsigned index = result.getResultNumber();
  if (isBarrier(op))
    return index;
  if (isNamed(op, guest::kDynamicUpdateSlice))
    return op->getNumOperands() > 0 && isHeld(op->getOperand(0), stored)
               ? std::optional(0u)
               : std::nullopt;
  if (getGuestCollective(op) == CollectiveKind::AllReduce)
    return index < op->getNumOperands() ? std::optional(index) : std::nullopt;
  if (isWhile(op))
    return isHeld(op->getOperand(index), stored) ? std::optional(index)
                                                 : std::nullopt;
  bool isAnyStart = isStart(op);
  if (!isAnyStart && !isWait(op))
    return std::nullopt;
  // After inputs and outputs there are ties, which pass through.
  unsigned inputs = getInputs(op).size(), outputs = getOutputs(op).size();
  unsigned fromEnd = op->getNumResults() - index;
  if (isAnyStart && index < outputs)
    return getOverwrittenInput(op, index);
  if (isAnyStart)
    return fromEnd <= op->getNumOperands() - inputs
               ? std::optional(op->getNumOperands() - fromEnd)
               : std::nullopt;
  unsigned operand =
      index < outputs ? inputs + index : op->getNumOperands() - fromEnd;
  // Nothing has verified a custom call.
  return operand < op->getNumOperands() ? std::optional(operand) : std::nullopt;
}

int64_t zpp::getPeakBytes(Block &block, ComputeCosts &costs,
                          StoredValues &stored) {
  SmallVector<Operation *> ops = getOverlapOrder(block, costs, stored);
  // Where ops start, and where they are done.
  llvm::DenseMap<Operation *, int64_t> order, done;
  int64_t count = 0;
  for (Operation *op : ops) {
    order.try_emplace(op, count);
    done[op] = count++;
  }
  // The bytes of many large tensors may be more than 64 bits hold.
  std::vector<double> change(count + 1, 0);
  // The op after which nothing reads a value any more.
  llvm::DenseMap<Value, int64_t> lastUse;
  std::vector<int64_t> inner(count, 0);
  for (int64_t index = count - 1; index >= 0; --index) {
    Operation &op = *ops[index];
    if (index != order[&op])
      continue;
    for (Region &region : op.getRegions())
      for (Block &nested : region)
        if (isWhile(&op) || isManualComputation(&op) ||
            isNamed(&op, guest::kCase))
          inner[index] =
              std::max(inner[index], getPeakBytes(nested, costs, stored));
    int64_t until = done[&op];
    for (OpResult result : op.getResults()) {
      auto found = lastUse.find(result);
      int64_t last = found == lastUse.end() ? until : found->second;
      if (std::optional<unsigned> operand = getAliased(result, stored))
        extend(lastUse, op.getOperand(*operand), last);
      else if (!stored.isStored(result))
        until = std::max(until, last);
      // XLA removes what a loop makes for nobody.
      else if (!isReturned(result) && !(isWhile(&op) && result.use_empty())) {
        auto bytes = static_cast<double>(stored.getStoredBytes(result));
        change[index] += bytes;
        // What an op reads is alive while it runs.
        change[last + 1] -= bytes;
      }
    }
    for (Value operand : op.getOperands())
      extend(lastUse, operand, until);
    for (Region &region : op.getRegions())
      region.walk([&](Operation *nested) {
        for (Value operand : nested->getOperands())
          extend(lastUse, operand, until);
      });
  }
  double alive = 0, peak = 0;
  for (int64_t i = 0; i < count; ++i) {
    alive += change[i];
    peak = std::max(peak, alive + static_cast<double>(inner[i]));
  }
  return peak < 0x1p63 ? static_cast<int64_t>(peak)
                       : std::numeric_limits<int64_t>::max();
}

int64_t zpp::getStateBytes(FunctionOpInterface function, int64_t devices) {
  int64_t bytes = 0;
  llvm::SmallPtrSet<Operation *, 4> computations;
  function->walk([&](Operation *op) {
    if (isManualComputation(op))
      computations.insert(op);
  });
  for (BlockArgument argument : function.getFunctionBody().getArguments()) {
    int64_t own =
        getBytes(argument.getType()) / (computations.empty() ? 1 : devices);
    for (OpOperand &use : argument.getUses())
      if (computations.contains(use.getOwner()))
        own = getBytes(ManualView(use.getOwner())
                           .getArgument(use.getOperandNumber())
                           .getType());
    bytes = addSaturating(bytes, own);
  }
  return bytes;
}
