//===- StepCollectives.h - The collectives of a training step ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the collectives of an exported step are for. Ops of other dialects are
// recognized by name and attributes, so that the same code works on
// unregistered ops and in a compiler that registers StableHLO or Shardy.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_STEPCOLLECTIVES_H
#define ZPP_ANALYSIS_STEPCOLLECTIVES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Support/CollectiveCost.h"
#include "zpp/Support/Mesh.h"

namespace zpp {

/// A collective as its op states it.
struct CollectiveView {
  mlir::Operation *op = nullptr;
  CollectiveKind kind = CollectiveKind::AllGather;
  /// Gathered, scattered or split dim; -1 where there is none.
  int64_t dim = -1;
  /// The axes of its groups, most significant first; empty where the groups
  /// are no product over axes, for which `groupError` gives the reason.
  std::vector<AxisRef> axes;
  std::string groupError;

  /// Bytes that a device sends over each axis of `mesh` in one execution.
  std::vector<int64_t> getSentBytes(const Mesh &mesh) const;
};

/// True if `op` is a collective of StableHLO, of upstream's shard dialect or of
/// the zero dialect.
bool isCollective(mlir::Operation *op);

/// Reads `op` if it is a collective of StableHLO, of upstream's shard dialect
/// or of the zero dialect.
std::optional<CollectiveView> getCollective(mlir::Operation *op,
                                            const Mesh &mesh);

/// "all_gather" and so on.
llvm::StringRef getKindName(CollectiveKind kind);

/// The mesh that the step runs on: `spec` ("node:2,gpu:4") where it is not
/// empty, else the module's own. Emits an error where `spec` does not parse or
/// does not cover the devices of the module, or where there is neither.
mlir::FailureOr<Mesh> getStepMesh(mlir::ModuleOp module, llvm::StringRef spec);

/// The axes of the module's mesh that the `sdy.manual_computation` around `op`
/// leaves to the partitioner, as "tensor, expert"; empty where there is none.
/// Shapes in it are still global along those axes.
std::string getAutomaticAxes(mlir::Operation *op);

/// How often the loops around `op` execute it, or nullopt where a loop's trip
/// count is not a constant.
std::optional<int64_t> getTripCount(mlir::Operation *op);

/// True if operand `index` of the `stablehlo.while` has the same value in every
/// iteration.
bool isLoopInvariant(mlir::Operation *whileOp, unsigned index);

/// Where a value comes from.
struct Provenance {
  /// The step input, or the first value that is computed.
  mlir::Value root;
  /// True if `root` is an input of the step.
  bool isStepInput;
  /// True if the value is a slice of `root` that a loop chooses.
  bool isSliced;
  /// The ops between, from the value to the root, without barriers.
  llvm::SmallVector<mlir::Operation *> path;
};

/// Follows `value` through casts, reshapes, slices, barriers, calls and loops
/// that carry it unchanged, and the first operand of a concatenation of nothing
/// but step inputs and constants.
Provenance getProvenance(mlir::Value value);

/// Text that says which slice of which root `value` holds, however it is cast:
/// equal for values only if it is the same. With `inAnyIteration`, a slice that
/// a loop chooses stands for those of all iterations, so that a forward and a
/// backward loop over one stack agree. Valid while the module does not change.
std::string getSliceKey(mlir::Value value, bool inAnyIteration);

/// True if `op` is called `name`: ops of guest dialects have no class.
bool isNamed(mlir::Operation *op, llvm::StringRef name);

/// A `stablehlo.while` whose regions fit its operands. Nothing has verified ops
/// of guest dialects.
bool isWhile(mlir::Operation *op);

/// Replaces `loop`, a `stablehlo.while`, by one that carries more, at first
/// `init`. What its body carries on is for the caller to add.
mlir::Operation *extendLoop(mlir::Operation *loop, mlir::ValueRange init);

/// True if `op` only passes its operands on, so that what reads a result reads
/// the operand (an `optimization_barrier`).
bool isBarrier(mlir::Operation *op);

/// True if `op` only moves or casts data: what `getProvenance` looks through,
/// barriers included. Has no effect.
bool isDataMovement(mlir::Operation *op);

enum class Role { Weight, Gradient, Other };
enum class Phase { Forward, Backward };
llvm::StringRef getRoleName(Role role);
llvm::StringRef getPhaseName(Phase phase);

/// The module of outlined collectives, within the step's.
inline constexpr llvm::StringLiteral kHostModule = "zpp_host";
/// The custom calls that `zero.start` and `zero.wait` become.
inline constexpr llvm::StringLiteral kStartTarget = "zpp.start";
inline constexpr llvm::StringLiteral kWaitTarget = "zpp.wait";

/// The function that `op` runs beside the compute: the callee of a
/// `zero.start` or of the custom call that one becomes. Null for other ops, and
/// where the function is not in the module.
mlir::FunctionOpInterface getStartedFunction(mlir::Operation *op);

/// A collective and its part in the step.
struct StepCollective : CollectiveView {
  /// What runs it, if it is outlined: an op in the step for which `op` is the
  /// exchange `index` of its function.
  mlir::Operation *start = nullptr;
  int64_t index = 0;
  Role role = Role::Other;
  Phase phase = Phase::Forward;
  /// Executions per step, if known.
  std::optional<int64_t> trips;
  /// Weights only: which one, counted in order of their first gather, and the
  /// bytes of all of it in the type in which it is gathered.
  int64_t weight = -1;
  int64_t modelBytes = 0;
  /// Role::Other only: why it is neither.
  std::string reason;
};

/// Every collective of the module in program order, those of an outlined
/// function once for every start. A gather of a float tensor
/// that comes from a step input through casts, reshapes, slices and barriers is
/// a weight gather; the first of a weight is forward, later ones are backward.
/// A scatter with sum that mirrors one (same dim, group and shapes) is a
/// gradient scatter (ZeRO++ section 2.2).
llvm::SmallVector<StepCollective> getStepCollectives(mlir::ModuleOp module,
                                                     const Mesh &mesh);

} // namespace zpp

#endif // ZPP_ANALYSIS_STEPCOLLECTIVES_H
