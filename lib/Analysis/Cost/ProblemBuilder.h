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

/// Builds a problem from ops in program order. It knows for each value when it
/// is there on the timeline, and after which task of the problem; 0 and nullopt
/// stand for the begin of the step.
class ProblemBuilder {
public:
  using Maker = std::optional<size_t>;

  explicit ProblemBuilder(ScheduleProblem &problem) : problem(problem) {}

  double getReady(mlir::ValueRange values) const;
  Maker getMaker(mlir::ValueRange values);
  void set(mlir::ValueRange values, double when, Maker task);
  /// Has `to` be there when `from` is.
  void passOn(mlir::Value from, mlir::Value to) {
    set(mlir::ValueRange(to), getReady(mlir::ValueRange(from)),
        getMaker(mlir::ValueRange(from)));
  }
  /// Has the last results of `op`, which are values of its last operands, be
  /// there at `when`, after the tasks of these.
  void passTies(mlir::Operation *op, mlir::ValueRange results, double when);

  /// Adds a task that begins when all of `after` have ended.
  Maker addTask(const std::vector<size_t> &resources, double usec,
                llvm::ArrayRef<Maker> after);
  /// Returns a task after which all of `tasks` have ended.
  Maker join(llvm::ArrayRef<Maker> tasks);
  /// Adds what `timeline` does in iterations, and in very long steps, without a
  /// task: work that depends on nothing.
  void addRest(const Timeline &timeline);

private:
  ScheduleProblem &problem;
  llvm::DenseMap<mlir::Value, std::pair<double, Maker>> arrivals;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_COST_PROBLEMBUILDER_H
