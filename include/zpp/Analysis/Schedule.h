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

/// An attribute of a module: the bytes that its schedule may have in flight.
inline constexpr llvm::StringLiteral kPrefetchAttr = "zpp.prefetch_bytes";

/// Finds heavy ops, the compute that communication can hide under: products,
/// convolutions, loops, library calls, and calls of functions that contain such
/// ops, directly or indirectly. Each function is visited once, so an object
/// must not outlive a change of what functions compute.
class HeavyOps {
public:
  /// `root` contains all functions that are called.
  explicit HeavyOps(mlir::Operation *root) : root(root) {}

  bool isHeavy(mlir::Operation *op);
  /// The same for an op that does not call a function.
  static bool isHeavyItself(mlir::Operation *op);

  /// Returns the heavy ops of `block` in order. If there are none, the op that
  /// reads and writes the most data.
  llvm::SmallVector<mlir::Operation *> getIn(mlir::Block &block);

  /// How long a heavy op takes, compared with others: the operations of its
  /// products, with those of functions that it calls and of all iterations of
  /// loops; for other ops the bytes that they read and write. Never 0.
  double getWork(mlir::Operation *op);

private:
  mlir::Operation *root;
  mlir::SymbolTableCollection symbols;
  /// The functions with heavy ops, computed for the first call.
  std::optional<llvm::DenseSet<mlir::Operation *>> functions;
};

/// Returns the number of `ops` that come before `op`; all are in one block, and
/// `ops` are in order. Two ops with the same number of heavy ops before them
/// are in the same place, as far as overlap is concerned.
int64_t countBefore(llvm::ArrayRef<mlir::Operation *> ops, mlir::Operation *op);

/// True if `op` is a `zero.start` or a `zero.wait`, or the custom call that it
/// becomes.
bool isStart(mlir::Operation *op);
bool isWait(mlir::Operation *op);
/// Returns the wait of a start: the op that reads its outputs.
mlir::Operation *getWait(mlir::Operation *start);
/// Returns the outputs of a start or wait, without ties and tokens.
mlir::ValueRange getOutputs(mlir::Operation *startOrWait);
/// Returns the inputs of a start.
mlir::ValueRange getInputs(mlir::Operation *start);
/// Returns the number of the input whose memory `output`, the number of an
/// output, takes over; nullopt for one with memory of its own, and for a
/// `zero.start`, of which that is not known yet.
std::optional<unsigned> getOverwrittenInput(mlir::Operation *start,
                                            unsigned output);

/// Returns the origins of the collectives that `start` runs.
llvm::SmallVector<Origin> getStartedOrigins(mlir::Operation *start);
/// True if `start` moves nothing but what has `role`.
bool hasRole(mlir::Operation *start, Role role);

/// A start or a wait of the schedule.
struct ScheduleEvent {
  mlir::Operation *op = nullptr;
  bool isStart = false;
  /// The number of the start, in program order.
  int64_t transfer = 0;
  std::string function;
  /// Role and phase of the first collective in it, and the number of
  /// collectives.
  std::optional<Role> role;
  std::optional<Phase> phase;
  int64_t numCollectives = 0;
  std::string location;
  /// The op of the compute before which it stands.
  std::string before;
  /// Executions per step; unknown counts as once.
  int64_t trips = 1;
  /// For a start: the bytes of the same role in flight under the next heavy op.
  /// A gather counts with its result, a scatter with its operand and its
  /// result.
  int64_t bytesInFlight = 0;
  /// For a wait: the number of heavy ops since the start.
  int64_t heavyOps = 0;
  /// A problem with its place, or empty.
  std::string flag;
  /// True if zero-overlap-collectives would not have placed it so.
  bool isMisplaced = false;
};

/// All starts and waits of the step in program order, which is the same on
/// every rank. Flags starts that are too early (more in flight than
/// `zpp.prefetch_bytes` of the module), weights that are waited for before they
/// are needed, and starts without a heavy op to hide under.
llvm::SmallVector<ScheduleEvent> getSchedule(mlir::ModuleOp module);

/// "stablehlo.dot_general at step.py:12:3"
std::string describeOp(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_ANALYSIS_SCHEDULE_H
