//===- StepFlow.h - Where values of a step go -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step as a graph of values. An edge leads from an operand to a result, into
// and out of loops, branches, manual computations and called functions. It is
// one of three kinds:
//
//   Moved     the result holds the operand's elements, each changed by itself:
//             elementwise ops, casts, slices, shape changes, updates of a part,
//             and collectives. A product with an activation is not one: state
//             is the same on all devices, or a slice of what is
//   Computed  the result mixes elements of the operand: products, convolutions,
//             reductions, lookups, broadcasts
//   Carried   like Moved, from one iteration of a loop to the next
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_STEPFLOW_H
#define ZPP_ANALYSIS_STEPFLOW_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <memory>
#include <optional>
#include <vector>

namespace zpp {

/// The graph of a step and what is reachable in it. Building it and answering
/// for all values take linear time. Valid while the module does not change.
class StepFlow {
public:
  /// `isNamedWeight` says which arguments of the step its user declares to be
  /// weights, `isData` which are known to be data of which each device has a
  /// part of its own.
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

  /// The first result of the step that holds elements of `value`, each changed
  /// by itself: what reaches a result in this way is state. nullopt where there
  /// is none.
  std::optional<StepResult> getReachedResult(mlir::Value value) const;

  /// True if an argument of the step is a weight or other state: a result of
  /// the same type is made of it element by element, so that the step returns
  /// it updated or as it was.
  bool isReturned(mlir::BlockArgument input) const;

  /// True if `value` holds elements of a floating-point input of the step, each
  /// changed by itself.
  bool holdsStepInput(mlir::Value value) const;

  /// True if weights take part in `value`, and no other input of the step does.
  /// Weights are inputs that are returned, and those that the user named.
  bool isMadeOfWeights(mlir::Value value) const;

  /// The values from which others are computed, by one Computed edge or more
  /// and by no Carried one.
  class Ancestors {
  public:
    bool contains(mlir::Value value) const;

  private:
    friend class StepFlow;
    const StepFlow *flow = nullptr;
    std::vector<char> found;
  };
  Ancestors getAncestors(llvm::ArrayRef<mlir::Value> values) const;

private:
  class Graph;

  /// For each value the first of `returned` that it reaches by Moved and
  /// Carried edges, or -1.
  std::vector<int64_t> findReached(llvm::ArrayRef<mlir::Value> returned) const;

  std::unique_ptr<Graph> graph;
  std::vector<StepResult> results;
  /// By value: the first result that it reaches, or -1.
  std::vector<int64_t> reached;
  /// By value: whether it holds elements of a floating-point input; whether a
  /// weight takes part in it, and whether another input does.
  std::vector<char> fromInput, fromWeight, fromOther;
  llvm::SmallPtrSet<void *, 16> returnedInputs;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_STEPFLOW_H
