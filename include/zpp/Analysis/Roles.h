//===- Roles.h - What the collectives of a step are for ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_H
#define ZPP_ANALYSIS_ROLES_H

#include "zpp/Analysis/Collectives.h"
#include "llvm/ADT/DenseSet.h"

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

/// The arguments of the step that its user declares to be weights: "all", or
/// argument numbers and ranges of them, as "0,3-7". What an argument is does
/// not follow from the step alone where no gradient is reduced and nothing is
/// returned, in an evaluation step for instance.
class NamedWeights {
public:
  /// Emits an error at `module` where `text` is none of that, or names an
  /// argument that the step does not have.
  static mlir::FailureOr<NamedWeights> parse(mlir::ModuleOp module,
                                             llvm::StringRef text);

  bool contains(mlir::BlockArgument input) const {
    return all || numbers.contains(input.getArgNumber());
  }

private:
  bool all = false;
  llvm::DenseSet<unsigned> numbers;
};

/// Every collective of the module in program order, those of an outlined
/// function once for every start, with its role.
///
/// Roles are two-sided. What a collective moves is a weight or a gradient by
/// where it comes from and by where it goes (ZeRO++ section 2.2):
///
/// - A gather is a *weight* gather if its operand comes from floating-point
///   inputs of the step that are weights, if a gradient is computed from it,
///   and if it is no state. Inputs are weights if the step returns them updated
///   or as they were, if a gradient of the shape of the whole is reduced, or if
///   they are named.
/// - What reaches a result of the step element by element is *state*, which is
///   never rounded: updated weights, averages of weights, optimizer state.
/// - A sum over devices that hold different data is a *gradient* if its result
///   reaches results of the step element by element, or mirrors a weight gather
///   (same dim, group and shapes); if its operand is computed, and if no other
///   gradient is computed from it.
///
/// The first gather of a weight is forward, later ones are backward.
llvm::SmallVector<StepCollective>
getStepCollectives(mlir::ModuleOp module, const Mesh &mesh,
                   const NamedWeights &named = NamedWeights());

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_H
