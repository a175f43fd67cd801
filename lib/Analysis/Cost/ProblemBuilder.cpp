//===- ProblemBuilder.cpp - The problem of a step -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ProblemBuilder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;
using namespace zpp;

/// Tasks of a problem. Later ones count as work that depends on nothing.
static constexpr size_t kMaxTasks = 1 << 17;

double ProblemBuilder::getReady(ValueRange values) const {
  double latest = 0;
  for (Value value : values)
    latest = std::max(latest, arrivals.lookup(value).first);
  return latest;
}

ProblemBuilder::Maker ProblemBuilder::getMaker(ValueRange values) {
  SmallVector<Maker> found;
  for (Value value : values)
    found.push_back(arrivals.lookup(value).second);
  return join(found);
}

void ProblemBuilder::set(ValueRange values, double when, Maker task) {
  for (Value value : values) {
    if (when > 0 || task)
      arrivals[value] = {when, task};
    else
      arrivals.erase(value);
  }
}

void ProblemBuilder::passTies(Operation *op, ValueRange results, double when) {
  ValueRange operands = op->getOperands();
  for (auto [operand, result] :
       llvm::zip(operands.take_back(results.size()), results))
    set(ValueRange(result), when, getMaker(ValueRange(operand)));
}

ProblemBuilder::Maker
ProblemBuilder::addTask(const std::vector<size_t> &resources, double usec,
                        ArrayRef<Maker> after) {
  if (problem.size() >= kMaxTasks)
    return std::nullopt;
  std::vector<size_t> before;
  for (Maker task : after)
    if (task)
      before.push_back(*task);
  llvm::sort(before);
  before.erase(llvm::unique(before), before.end());
  return problem.add(resources, usec, std::move(before));
}

ProblemBuilder::Maker ProblemBuilder::join(ArrayRef<Maker> tasks) {
  Maker only;
  bool isOne = true;
  for (Maker task : tasks) {
    if (!task)
      continue;
    isOne &= !only || only == task;
    only = task;
  }
  return isOne ? only : addTask({}, 0, tasks);
}

void ProblemBuilder::addRest(const Timeline &timeline) {
  for (size_t stream = 0; stream < timeline.getNumStreams(); ++stream) {
    double busy = timeline.getBusy(stream);
    double rest = busy - problem.getBusy(stream);
    // Sums of doubles in another order differ.
    if (rest > 1e-6 * busy)
      problem.add({stream}, rest, {});
  }
}
