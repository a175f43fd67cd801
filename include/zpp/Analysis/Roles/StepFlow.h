//===- StepFlow.h - Where values of a step go -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The ways of a step's values through its graph. What an edge does is one of
// four things:
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

#include "zpp/Analysis/Roles/ValueGraph.h"
#include "llvm/ADT/DenseSet.h"

namespace zpp {

/// Reachability in the graph of a step. Building it and answering all queries
/// take linear time. Valid while the graph is.
class StepFlow {
public:
  /// `isNamedWeight` is true for arguments of the step that its user declares
  /// to be weights, `isData` for those that are data of which each device has
  /// its own part, unless the step returns a value of their type.
  StepFlow(const ValueGraph &graph,
           llvm::function_ref<bool(mlir::BlockArgument)> isNamedWeight,
           llvm::function_ref<bool(mlir::BlockArgument)> isData);

  /// Returns the first result of the step that holds elements of `value`, each
  /// changed by itself, or null. A value that reaches a result in this way
  /// is state.
  const ValueGraph::Result *getReachedResult(mlir::Value value) const;

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

  /// Returns the values from which others are computed: by at least one
  /// Computed edge and no Carried edge.
  NodeSet getAncestors(llvm::ArrayRef<mlir::Value> values) const;

  /// Returns the members of `ancestors` that also reach another value by a path
  /// without a moved weight or a further sum.
  NodeSet getAncestorsBeside(llvm::ArrayRef<mlir::Value> values,
                             const NodeSet &ancestors) const;

  /// Returns the values that are computed from others, likewise.
  NodeSet getDescendants(llvm::ArrayRef<mlir::Value> values) const;

  /// The updates of the step's weights.
  struct Updates {
    /// True if the step returns any weight updated.
    bool hasUpdates = false;
    /// Values from which weights are updated element by element: without what
    /// only divides, as the second moments of Adam do, and with it.
    NodeSet moved, movedOrDivided;
    /// All values that they depend on in any way.
    NodeSet contributing;
    /// Values that other results of the shape of a weight, with two dims or
    /// more, are made of element by element: those that an input of the step is
    /// part of, such as sums of gradients, and those that are new, such as
    /// gradients.
    NodeSet accumulated, returned;
  };

  /// Weights are here the floating-point inputs in `ancestors`. They are
  /// updated in the results of their type that hold their elements, and in
  /// `inFlight`, values that the step uses before it returns them.
  Updates getUpdates(const NodeSet &ancestors,
                     llvm::ArrayRef<mlir::Value> inFlight) const;

  /// Returns the values by which the inputs that `isWanted` accepts are
  /// updated, element by element: in results of their type that hold their
  /// elements.
  NodeSet
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
  NodeSet getDependents(llvm::ArrayRef<mlir::Value> cuts) const;

  /// For each of `values` the one of the floating-point inputs in `ancestors`
  /// of which it holds elements, or null where that is none or several.
  llvm::SmallVector<mlir::BlockArgument>
  getHeldInputs(llvm::ArrayRef<mlir::Value> values,
                const NodeSet &ancestors) const;

private:
  using Node = ValueGraph::Node;
  using Edge = ValueGraph::Edge;
  enum class Kind : uint8_t { Moved, Divided, Computed, Carried };

  Kind getKind(const Edge &edge) const { return kinds[graph.getNumber(edge)]; }
  /// True if the target holds elements of the source, from any iteration.
  bool keeps(const Edge &edge) const { return getKind(edge) != Kind::Computed; }
  /// The same, of the same iteration.
  bool moves(const Edge &edge) const {
    return getKind(edge) == Kind::Moved || getKind(edge) == Kind::Divided;
  }
  /// True if the target follows from the source in one iteration.
  bool leads(const Edge &edge) const { return getKind(edge) != Kind::Carried; }

  void findReached();
  void cutActivations(NodeSet data);
  void passOn(NodeSet data, const NodeSet &held);
  void findReturnedInputs(llvm::function_ref<bool(mlir::BlockArgument)> isData);
  /// Marks what follows from `data` and differs between devices.
  void spreadData(NodeSet &data) const;

  /// The same nodes, and those that edges of the kind lead to from there.
  NodeSet getKept(NodeSet nodes, ValueGraph::Direction direction) const;
  NodeSet getComputed(llvm::ArrayRef<mlir::Value> values,
                      ValueGraph::Direction direction,
                      ValueGraph::Follows isOpen) const;
  NodeSet getDependents(llvm::ArrayRef<mlir::Value> cuts,
                        llvm::ArrayRef<Node> sources) const;
  /// Returns the results that hold elements of one of `inputs`, of its type.
  llvm::SmallVector<mlir::Value>
  getUpdated(llvm::ArrayRef<mlir::BlockArgument> inputs) const;
  /// Returns the inputs of whose elements a result of their type that
  /// `isWanted` accepts is made.
  llvm::DenseSet<mlir::Value>
  getInputsHeldBy(llvm::function_ref<bool(mlir::Value)> isWanted) const;
  /// Returns the floating-point inputs in `ancestors` that are no scalars.
  llvm::SmallVector<mlir::BlockArgument>
  getInputsIn(const NodeSet &ancestors) const;

  const ValueGraph &graph;
  /// By the numbers of edges.
  std::vector<Kind> kinds;
  llvm::SmallVector<mlir::BlockArgument> inputs;
  /// For each node, the first result that it reaches, or the number of results.
  std::vector<size_t> reached;
  /// The nodes that hold elements of a floating-point input, that depend on a
  /// weight, and that depend on another input.
  NodeSet fromInput, fromWeight, fromOther;
  /// Inputs that are no weights, and random numbers.
  llvm::SmallVector<Node> otherSources;
  llvm::DenseSet<mlir::Value> returnedInputs;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_STEPFLOW_H
