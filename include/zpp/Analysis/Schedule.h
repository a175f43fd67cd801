//===- Schedule.h - What runs beside what -----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order of starts, compute and waits in a step. Ops of other dialects are
// recognized by name.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_SCHEDULE_H
#define ZPP_ANALYSIS_SCHEDULE_H

#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Location.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

namespace zpp {

/// Of a module: bytes that its schedule may have in flight.
inline constexpr llvm::StringLiteral kPrefetchAttr = "zpp.prefetch_bytes";

/// Finds the compute that communication hides under, called heavy: products,
/// convolutions, loops, calls of a library, and calls of a function that
/// contains such ops or calls one that does. Each function is looked into once,
/// so that an object must not outlive a change of what functions compute.
class HeavyOps {
public:
  /// `root` contains all functions that are called.
  explicit HeavyOps(mlir::Operation *root) : root(root) {}

  bool isHeavy(mlir::Operation *op);
  /// The same for an op that calls no function.
  static bool isHeavyItself(mlir::Operation *op);

  /// The heavy ops of `block` in order. Where there is none, the op that reads
  /// and writes the most data.
  llvm::SmallVector<mlir::Operation *> getIn(mlir::Block &block);

private:
  mlir::Operation *root;
  mlir::SymbolTableCollection symbols;
  /// Found when the first call is seen.
  std::optional<llvm::DenseSet<mlir::Operation *>> functions;
};

/// How many of `ops`, of one block and in order, come before `op` in it: what
/// has the same number of heavy ops before it is of one moment.
int64_t countBefore(llvm::ArrayRef<mlir::Operation *> ops, mlir::Operation *op);

/// True if `op` is a `zero.start`, or the custom call that one becomes.
bool isStart(mlir::Operation *op);
/// The wait of a start: what reads its outputs.
mlir::Operation *getWait(mlir::Operation *start);
/// The outputs of a start, and of its wait; ties and tokens are none.
mlir::ValueRange getOutputs(mlir::Operation *startOrWait);
/// The inputs of a start.
mlir::ValueRange getInputs(mlir::Operation *start);

/// The origins of all that `start` runs.
llvm::SmallVector<Origin> getStartedOrigins(mlir::Operation *start);

/// One call of the schedule, a start or a wait.
struct ScheduleEvent {
  bool isStart = false;
  /// The number of the start, in program order.
  int64_t transfer = 0;
  std::string function;
  /// Of the first collective in it, and how many there are.
  std::string role, phase;
  int64_t numCollectives = 0;
  std::string location;
  /// The op of the compute that it stands before.
  std::string before;
  /// Executions per step; unknown counts as once.
  int64_t trips = 1;
  /// Starts: bytes of the same role in flight under the next heavy op, all that
  /// is gathered, or scattered with its results.
  int64_t bytesInFlight = 0;
  /// Waits: heavy ops since the start.
  int64_t heavyOps = 0;
  /// What is wrong with it, or empty.
  std::string flag;
};

/// All starts and waits of the step in program order, which is that of every
/// rank. Flags weights that are gathered too early (more in flight than
/// `zpp.prefetch_bytes` of the module) or waited for before they are needed,
/// and starts with nothing heavy to hide under.
llvm::SmallVector<ScheduleEvent> getSchedule(mlir::ModuleOp module);

/// "stablehlo.dot_general at step.py:12:3"
std::string describeOp(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_ANALYSIS_SCHEDULE_H
