//===- PeakMemory.cpp - What is alive at one time -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PeakMemory.h"

#include "ComputeCosts.h"
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

/// Whether the step is donated: the memory of its arguments holds its results.
static bool isReturned(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    return user == &user->getBlock()->back();
  });
}

/// The operand whose memory a result is.
static std::optional<unsigned> getAliased(OpResult result) {
  Operation *op = result.getOwner();
  unsigned index = result.getResultNumber();
  if (isBarrier(op))
    return index;
  if (isNamed(op, guest::kDynamicUpdateSlice))
    return op->getNumOperands() > 0 ? std::optional(0u) : std::nullopt;
  bool isAnyStart = isStart(op);
  if (!isAnyStart && !isa<zero::WaitOp>(op) && getCallTarget(op) != kWaitTarget)
    return std::nullopt;
  // After inputs and outputs there are ties, which pass through.
  unsigned inputs = getInputs(op).size(), outputs = getOutputs(op).size();
  unsigned fromEnd = op->getNumResults() - index;
  if (isAnyStart)
    return fromEnd <= op->getNumOperands() - inputs
               ? std::optional(op->getNumOperands() - fromEnd)
               : std::nullopt;
  unsigned operand =
      index < outputs ? inputs + index : op->getNumOperands() - fromEnd;
  // Nothing has verified a custom call.
  return operand < op->getNumOperands() ? std::optional(operand) : std::nullopt;
}

static bool isStoredOp(Operation *op) {
  if (isFree(op) || isManualComputation(op) || isNamed(op, guest::kConstant))
    return false;
  return op->getNumResults() != 1 || isStored(op->getResult(0));
}

int64_t zpp::getPeakBytes(Block &block) {
  llvm::DenseMap<Operation *, int64_t> order;
  int64_t count = 0;
  for (Operation &op : block)
    order[&op] = count++;
  // The bytes of many large tensors may be more than 64 bits hold.
  std::vector<double> change(count + 1, 0);
  // The op after which nothing reads a value any more.
  llvm::DenseMap<Value, int64_t> lastUse;
  std::vector<int64_t> inner(count, 0);
  for (Operation &op : llvm::reverse(block)) {
    int64_t index = order[&op];
    for (Region &region : op.getRegions())
      for (Block &nested : region)
        if (isWhile(&op) || isManualComputation(&op) ||
            isNamed(&op, guest::kCase))
          inner[index] = std::max(inner[index], getPeakBytes(nested));
    bool storesResults = isStoredOp(&op);
    int64_t until = index;
    for (OpResult result : op.getResults()) {
      auto found = lastUse.find(result);
      int64_t last = found == lastUse.end() ? index : found->second;
      if (std::optional<unsigned> operand = getAliased(result))
        extend(lastUse, op.getOperand(*operand), last);
      else if (!storesResults)
        until = std::max(until, last);
      else if (last < count - 1 || !isReturned(result)) {
        auto bytes = static_cast<double>(getBytes(result.getType()));
        change[index] += bytes;
        change[last] -= bytes;
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
