//===- Moments.h - Momenta that are orthogonalized --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_MOMENTS_H
#define ZPP_LIB_ANALYSIS_ROLES_MOMENTS_H

#include "RoleFinder.h"
#include "zpp/Analysis/Roles/ValueGraph.h"
#include "llvm/ADT/StringMap.h"

namespace zpp {

/// Proves that gathers are of momenta which an optimizer orthogonalizes, as
/// Muon does (docs/rules.md, R19). Valid while the module does not change.
class Moments {
public:
  /// `ancestors` are the values from which gradients are computed.
  Moments(mlir::ModuleOp module, const ValueGraph &graph, const StepFlow &flow,
          const StepFlow::ValueSet &ancestors,
          llvm::ArrayRef<StepCollective> collectives);

  /// Returns what speaks against `gather` being one, with no reason if nothing
  /// does; nullopt if it gathers something else than a momentum that products
  /// contract.
  std::optional<Objection> check(const StepCollective &gather);

private:
  using Node = ValueGraph::Node;
  using Edge = ValueGraph::Edge;
  /// Whether each node is in the set.
  using NodeSet = std::vector<char>;

  /// The parts of which a value is made, element by element.
  struct Contents {
    llvm::SmallVector<const StepCollective *> gradients;
    llvm::SmallVector<mlir::BlockArgument> state;
    bool hasWeight = false, hasOther = false;
  };
  Contents read(Node value) const;
  void findMomenta();

  /// Returns the nodes that follow from `sources` over edges that `follows`
  /// accepts.
  NodeSet
  getReached(llvm::ArrayRef<Node> sources,
             llvm::function_ref<bool(const Edge &, Node target)> follows) const;
  bool isScaled(const Edge &edge, Node target) const;
  /// The products of two of `held` that are no single numbers, in `grams`.
  /// Returns whether any product reads one.
  bool findProducts(const NodeSet &held, llvm::SmallVectorImpl<Node> &grams);

  std::string findOtherReader(const NodeSet &all) const;
  std::string checkResults(const Contents &contents, Node whole,
                           const NodeSet &all, llvm::ArrayRef<Node> grams);

  const ValueGraph &graph;
  const StepFlow &flow;
  const StepFlow::ValueSet &ancestors;
  /// Sums of gradients, by their results.
  llvm::DenseMap<mlir::Value, const StepCollective *> gradients;
  /// A result of the step, and the weight that it is, updated; null for others.
  struct Returned {
    StepFlow::StepResult result;
    Node node;
    mlir::BlockArgument weight;
  };
  llvm::SmallVector<Returned> returned;
  /// How many results hold each weight; null stands for no weight.
  llvm::DenseMap<mlir::Value, int64_t> resultsOf;
  /// The weights that are gathered in each shape, by its mirror keys.
  llvm::StringMap<llvm::SmallDenseSet<mlir::Value>> weightsOf;
  /// State that is made of gradients, from step to step.
  llvm::DenseSet<mlir::Value> momenta;
  /// Nodes that hold elements of a weight.
  NodeSet isOfWeight;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_MOMENTS_H
