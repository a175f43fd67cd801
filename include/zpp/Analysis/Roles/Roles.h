//===- Roles.h - What the collectives of a step are for ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_ROLES_H
#define ZPP_ANALYSIS_ROLES_ROLES_H

#include "zpp/Analysis/Collectives.h"
#include "zpp/Analysis/Roles/Rules.h"
#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace zpp {

/// Moment is a momentum that products contract before it updates a weight.
/// Exchange is an all-to-all of rows that go to experts or come from them.
/// Update is what zero-send-updates makes of gathers of state: no collective of
/// a step has this role before.
enum class Role { Weight, Gradient, Moment, Exchange, Update, Other };
enum class Phase { Forward, Backward };
llvm::StringRef getRoleName(Role role);
llvm::StringRef getPhaseName(Phase phase);

/// A collective and its role in the step.
struct StepCollective : CollectiveView {
  /// If it is outlined, the start in the step that runs it; `op` is then the
  /// exchange number `index` of the started function.
  mlir::Operation *start = nullptr;
  int64_t index = 0;
  Role role = Role::Other;
  Phase phase = Phase::Forward;
  /// The number of executions per step, if known.
  std::optional<int64_t> trips;
  /// For weights: the number of the weight, in the order of first gathers, and
  /// the bytes of the whole weight in the type in which it is gathered.
  int64_t weight = -1;
  int64_t modelBytes = 0;
  /// For Role::Other: the reason why it is neither.
  std::string reason;
  /// The rule that decided about the role.
  Rule rule = Rule::None;
  /// The reason, with the rule: "it gathers state (R3)".
  std::string explain() const;
  /// For a weight of which the step computes neither a gradient nor a result:
  /// the number of the argument.
  std::optional<unsigned> taken;
  /// For a gradient: the argument of the step whose gradient it is; null where
  /// it is not known, or of several.
  mlir::BlockArgument argument;
  /// True for a gather of state: a result of the step is made of what it
  /// gathers, element by element.
  bool isState = false;
  /// True if the step decides, by a condition, whether it runs.
  bool isConditional = false;
  /// Why its elements are never rounded, with the rule; empty where they may
  /// be.
  std::string exact;
  /// The most elements of a block that has no others than of one parameter; 0
  /// where any block is of one.
  int64_t block = 0;
};

/// Arguments of the step that its user names: "all", or argument numbers and
/// ranges, such as "0,3-7".
class NamedArguments {
public:
  /// Emits an error at `module` if `text`, the value of `option`, is malformed
  /// or names an argument that the step does not have.
  static mlir::FailureOr<NamedArguments>
  parse(mlir::ModuleOp module, llvm::StringRef option, llvm::StringRef text);

  bool isEmpty() const { return !all && numbers.empty(); }
  bool containsAll() const { return all; }
  bool contains(mlir::BlockArgument input) const {
    return all || numbers.contains(input.getArgNumber());
  }

private:
  bool all = false;
  llvm::DenseSet<unsigned> numbers;
};

/// Declarations of the step's user about what the step does not show.
struct Declarations {
  /// `weights-of`: these arguments are weights, for instance those of an
  /// evaluation, which reduces no gradient and returns no weight.
  NamedArguments weights;
  /// `gradients-of`: sums by which these arguments are updated, element by
  /// element, are gradients; with "all", so are all sums that some result of
  /// the step is made of. No proof is asked for.
  NamedArguments gradients;

  bool isEmpty() const { return weights.isEmpty() && gradients.isEmpty(); }
  static mlir::FailureOr<Declarations> parse(mlir::ModuleOp module,
                                             llvm::StringRef weightsOf,
                                             llvm::StringRef gradientsOf);
};

/// Every collective of the module in program order, without its role. The
/// collectives of an outlined function appear once for every start.
llvm::SmallVector<StepCollective> readStepCollectives(mlir::ModuleOp module,
                                                      const Mesh &mesh);

/// Finds the roles of all collectives of the module.
///
/// Roles are two-sided. Whether a collective moves a weight or a gradient
/// depends on where its value comes from and on where it goes (ZeRO++ section
/// 2.2). docs/rules.md has the rules; `StepCollective::rule` names the one that
/// decided.
///
/// The first gather of a weight is forward, later ones are backward.
void findRoles(mlir::ModuleOp module, const Mesh &mesh,
               const Declarations &declared,
               llvm::MutableArrayRef<StepCollective> collectives);

/// Every collective of the module with its role.
llvm::SmallVector<StepCollective>
getStepCollectives(mlir::ModuleOp module, const Mesh &mesh,
                   const Declarations &declared = Declarations());

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_ROLES_H
