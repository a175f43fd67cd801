//===- StepFlow.h - Where values of a step go -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step as a graph of values. An edge leads from an operand to a result, into
// and out of loops, branches, manual computations and called functions. It is
// one of four kinds:
//
//   Moved     the result holds the operand's elements, each changed by itself:
//             elementwise ops, casts, slices, shape changes, updates of a part,
//             and collectives. An elementwise product with an activation is
//             Computed instead, because state never depends on data that
//             differs between devices
//   Divided   like Moved, but the result grows as the operand shrinks to zero:
//             it is a divisor
//   Computed  the result mixes elements of the operand: products, convolutions,
//             reductions, lookups, broadcasts
//   Carried   like Moved, from one iteration of a loop to the next. What is no
//             state and differs between devices, such as activations and their
//             cotangents, is Moved instead, and so are weights that wait for
//             the next iteration
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_STEPFLOW_H
#define ZPP_ANALYSIS_ROLES_STEPFLOW_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <memory>
#include <optional>
#include <vector>

namespace zpp {

/// The graph of a step, and reachability in it. Building it and answering all
/// queries take linear time. Valid while the module does not change.
class StepFlow {
public:
  /// `isNamedWeight` is true for arguments of the step that its user declares
  /// to be weights, `isData` for those that are data of which each device has
  /// its own part, unless the step returns a value of their type.
  StepFlow(mlir::ModuleOp module,
           llvm::function_ref<bool(mlir::BlockArgument)> isNamedWeight,
           llvm::function_ref<bool(mlir::BlockArgument)> isData);
  ~StepFlow();

  /// A result of a public function.
  struct StepResult {
    mlir::func::FuncOp function;
    unsigned index;
    /// "2", with the name that the producer gave it: "2 (params['w'])".
    std::string describe() const;
  };

  /// Returns the first result of the step that holds elements of `value`, each
  /// changed by itself, or nullopt. A value that reaches a result in this way
  /// is state.
  std::optional<StepResult> getReachedResult(mlir::Value value) const;

  /// True if `input` is a weight or other state that the step returns, updated
  /// or unchanged: a result of the same type is made of it element by element,
  /// and that result is no other input's.
  bool isReturned(mlir::BlockArgument input) const;

  /// True if `value` holds elements of a floating-point input of the step, each
  /// changed by itself.
  bool holdsStepInput(mlir::Value value) const;

  /// True if `value` depends on weights and on no other input of the step.
  /// Weights are inputs that are returned and those that the user named.
  bool isMadeOfWeights(mlir::Value value) const;

  /// Some of the step's values. Valid as long as the StepFlow.
  class ValueSet {
  public:
    bool contains(mlir::Value value) const;

  private:
    friend class StepFlow;
    const StepFlow *flow = nullptr;
    std::vector<char> found;
  };

  /// Returns the values from which others are computed: by at least one
  /// Computed edge and no Carried edge.
  ValueSet getAncestors(llvm::ArrayRef<mlir::Value> values) const;

  /// Returns the members of `ancestors` that also reach another value by a path
  /// without a moved weight or a further sum.
  ValueSet getAncestorsBeside(llvm::ArrayRef<mlir::Value> values,
                              const ValueSet &ancestors) const;

  /// Returns the values that are computed from others, likewise.
  ValueSet getDescendants(llvm::ArrayRef<mlir::Value> values) const;

  /// The updates of the step's weights.
  struct Updates {
    /// True if the step returns any weight updated.
    bool hasUpdates = false;
    /// Values from which weights are updated element by element: without what
    /// only divides, as the second moments of Adam do, and with it.
    ValueSet moved, movedOrDivided;
    /// All values that they depend on in any way.
    ValueSet contributing;
    /// Values that other results of the shape of a weight, with two dims or
    /// more, are made of element by element: those that an input of the step is
    /// part of, such as sums of gradients, and those that are new, such as
    /// gradients.
    ValueSet accumulated, returned;
  };

  /// Weights are here the floating-point inputs in `ancestors`. They are
  /// updated in the results of their type that hold their elements, and in
  /// `inFlight`, values that the step uses before it returns them.
  Updates getUpdates(const ValueSet &ancestors,
                     llvm::ArrayRef<mlir::Value> inFlight) const;

  /// Returns the values by which the inputs that `isWanted` accepts are
  /// updated, element by element: in results of their type that hold their
  /// elements.
  ValueSet
  getUpdatesOf(llvm::function_ref<bool(mlir::BlockArgument)> isWanted) const;

  /// Returns the inputs that any of `values` updates, as in getUpdatesOf().
  llvm::DenseSet<mlir::Value>
  getUpdatedBy(llvm::ArrayRef<mlir::Value> values) const;

  /// Returns the inputs of two dims or more that some result of their type
  /// holds which is made of weights, single numbers and `cuts` alone.
  llvm::DenseSet<mlir::Value>
  getUpdatedOnlyBy(llvm::ArrayRef<mlir::Value> cuts) const;

  /// True if `value` is used to compute a result of the type of `input` that
  /// holds its elements, as a weight is used to compute its gradient.
  bool isUpdatedFrom(mlir::BlockArgument input, mlir::Value value) const;

  /// Returns the values that depend on an input which is no weight, other than
  /// through `cuts`.
  ValueSet getDependents(llvm::ArrayRef<mlir::Value> cuts) const;

  /// For each of `values` the one of the floating-point inputs in `ancestors`
  /// of which it holds elements, or null where that is none or several.
  llvm::SmallVector<mlir::BlockArgument>
  getHeldInputs(llvm::ArrayRef<mlir::Value> values,
                const ValueSet &ancestors) const;

private:
  class Graph;

  /// For each value, the first of `returned` that it reaches by Moved and
  /// Carried edges, or -1.
  std::vector<int64_t> findReached(llvm::ArrayRef<mlir::Value> returned) const;

  void findReturnedInputs(llvm::function_ref<bool(mlir::BlockArgument)> isData);

  ValueSet getSet(std::vector<char> found) const;
  /// Returns the values that depend on any of `sources`, other than through
  /// `cuts`.
  ValueSet getDependents(llvm::ArrayRef<mlir::Value> cuts,
                         llvm::ArrayRef<int64_t> sources) const;
  /// Returns the inputs of whose elements a result of their type that
  /// `isWanted` accepts is made.
  llvm::DenseSet<mlir::Value>
  getInputsHeldBy(llvm::function_ref<bool(mlir::Value)> isWanted) const;
  /// Returns the floating-point inputs in `ancestors` that are no scalars.
  llvm::SmallVector<mlir::BlockArgument>
  getInputsIn(const ValueSet &ancestors) const;

  std::unique_ptr<Graph> graph;
  llvm::SmallVector<mlir::BlockArgument> inputs;
  std::vector<StepResult> results;
  /// The value of each result.
  llvm::SmallVector<mlir::Value> returned;
  /// For each value, the first result that it reaches, or -1.
  std::vector<int64_t> reached;
  /// For each value, whether it holds elements of a floating-point input,
  /// whether it depends on a weight, and whether it depends on another input.
  std::vector<char> fromInput, fromWeight, fromOther;
  /// Inputs that are no weights, and random numbers.
  llvm::SmallVector<int64_t> otherSources;
  llvm::SmallPtrSet<void *, 16> returnedInputs;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_STEPFLOW_H
