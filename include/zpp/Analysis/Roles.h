//===- Roles.h - What the collectives of a step are for ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_H
#define ZPP_ANALYSIS_ROLES_H

#include "zpp/Analysis/Collectives.h"

namespace zpp {

enum class Role { Weight, Gradient, Other };
enum class Phase { Forward, Backward };
llvm::StringRef getRoleName(Role role);
llvm::StringRef getPhaseName(Phase phase);

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

#endif // ZPP_ANALYSIS_ROLES_H
