//===- ProblemBuilder.h - The problem of a step -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_COST_PROBLEMBUILDER_H
#define ZPP_LIB_ANALYSIS_COST_PROBLEMBUILDER_H

#include "mlir/IR/Operation.h"
#include "zpp/Support/ScheduleProblem.h"
#include "zpp/Support/Timeline.h"
#include "llvm/ADT/DenseMap.h"
#include <optional>

namespace zpp {

/// Builds a problem from ops in program order. It knows for each value the task
/// after which it is there; nullopt stands for the begin of the step.
class ProblemBuilder {
public:
  using Maker = std::optional<size_t>;

  /// `begins` is when the timeline begins each task of `problem`.
  ProblemBuilder(ScheduleProblem &problem, std::vector<double> &begins)
      : problem(problem), begins(begins) {}

  Maker getMaker(mlir::ValueRange values);
  void setMaker(mlir::ValueRange values, Maker task);
  /// Has the last results of `op`, which are values of its last operands, come
  /// with these.
  void passMakers(mlir::Operation *op, mlir::ValueRange results);

  /// Adds a task that the timeline begins at `begin`.
  Maker addTask(const std::vector<size_t> &resources, double begin, double usec,
                llvm::ArrayRef<Maker> after);
  /// Returns a task after which all of `tasks` have ended.
  Maker join(llvm::ArrayRef<Maker> tasks);
  /// Adds what `timeline` does in iterations, and in very long steps, without a
  /// task: work that depends on nothing.
  void addRest(const Timeline &timeline);

private:
  ScheduleProblem &problem;
  std::vector<double> &begins;
  llvm::DenseMap<mlir::Value, size_t> makers;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_COST_PROBLEMBUILDER_H
