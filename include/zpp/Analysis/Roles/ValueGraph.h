//===- ValueGraph.h - A step as a graph, with calls expanded ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Proofs about single values need more than StepFlow knows: the op behind each
// edge, functions as often as they are called, and which edges a derivative
// passes. Nodes are numbered such that all edges but those from one iteration
// of a loop to the next lead from a lower number to a higher one.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_VALUEGRAPH_H
#define ZPP_ANALYSIS_ROLES_VALUEGRAPH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <vector>

namespace zpp {

class BranchesView;

/// The part of autodiff that made an op, by the name in its location. Where a
/// location has several names, the last of these counts.
enum class AutodiffName { None, Transposed, Recomputed };

/// Reads names. Ops share most of what their locations are made of, so each
/// part is read once.
class AutodiffNames {
public:
  /// JAX writes `transpose(jvp(...))` where it transposes, and
  /// `rematted_computation` where it computes a forward value again.
  AutodiffName read(mlir::LocationAttr loc);

private:
  AutodiffName read(mlir::StringAttr name);

  /// The locations, and names in them, that have been read.
  llvm::DenseMap<mlir::Attribute, AutodiffName> known;
};

/// True for ops whose derivative is zero wherever it exists.
bool isStepFunction(mlir::Operation *op);

class ValueGraph {
public:
  using Node = int64_t;

  struct Edge {
    Node node;
    /// The operand of the op, or -1 where a loop, a branch or a call passes the
    /// value on.
    int64_t operand;
    /// True if each element of the target is made of one element of the source.
    bool isMoved;
    /// True if it leads from one iteration of a loop to the next.
    bool isCarried;
    /// True if a derivative passes: floating-point numbers on both ends, and
    /// not through rounding or a sign.
    bool isDifferentiable;
  };

  explicit ValueGraph(mlir::ModuleOp module);

  Node size() const { return static_cast<Node>(nodes.size()); }
  mlir::Value getValue(Node node) const { return nodes[node].value; }
  /// Returns the op that defines the value, or null for arguments.
  mlir::Operation *getOp(Node node) const { return nodes[node].op; }
  /// True for a number with a derivative, or a tensor of such.
  bool isDifferentiable(Node node) const {
    return nodes[node].isDifferentiable;
  }
  /// Returns the number of elements, or -1 if it is not known.
  int64_t getCount(Node node) const { return nodes[node].count; }
  /// True if autodiff's transposition made the op, by the names in locations:
  /// its own, or that of a loop or a call around it.
  bool isTransposed(Node node) const { return nodes[node].isTransposed; }
  /// True if any op of the module is named so.
  bool hasTransposed() const { return hasNames; }

  llvm::ArrayRef<Edge> getSources(Node node) const { return nodes[node].in; }
  /// Returns the operands of the op that defines `node`, or -1 for those that
  /// only choose a position.
  llvm::SmallVector<Node> getOperands(Node node) const;
  /// One of them.
  Node getOperand(Node node, int64_t operand) const;
  /// Returns the first node of `value`, or nullopt.
  std::optional<Node> find(mlir::Value value) const;

  /// Returns the inputs of the step, and values that depend on something else
  /// than operands, such as random numbers.
  llvm::ArrayRef<Node> getLeaves() const { return leaves; }

  /// Returns the results of the step.
  llvm::ArrayRef<Node> getReturned() const { return returned; }
  /// Calls `visit` for each edge from `node`, with its target.
  void forEachReader(Node node,
                     llvm::function_ref<void(const Edge &, Node)> visit) const;

  /// Returns the node that `node` is equal to because barriers, calls, branches
  /// of one way or loops that do not change it pass it on.
  Node getPassed(Node node) const;

  /// Calls `update`, which returns whether it changes what is known of a node,
  /// for all nodes, until nothing changes: sources first, and as often as
  /// values may be passed from iteration to iteration.
  void settle(llvm::function_ref<bool(Node)> update) const;

  /// Marks all values that depend on marked ones over edges that `follows`
  /// accepts.
  void markForward(
      std::vector<char> &found,
      llvm::function_ref<bool(const Edge &, Node target)> follows) const;

private:
  /// The facts about a value that follow from its type, which many share.
  struct TypeFacts {
    bool isDifferentiable;
    int64_t count;
  };
  struct NodeData {
    mlir::Value value;
    mlir::Operation *op;
    int64_t count;
    llvm::SmallVector<Edge, 2> in;
    bool isDifferentiable, isTransposed;
  };
  /// The nodes of values in one call of their function.
  using Scope = llvm::DenseMap<mlir::Value, Node>;

  Node add(mlir::Value value, bool isTransposed, Scope &scope);
  void addBlock(mlir::Block &block, Scope &scope, bool isTransposed);
  void addOp(mlir::Operation *op, Scope &scope, bool isTransposed);
  void addLoop(mlir::Operation *op, Scope &scope, bool isTransposed);
  void addBranches(mlir::Operation *op, const BranchesView &branches,
                   Scope &scope, bool isTransposed);
  bool addCall(mlir::func::CallOp call, Scope &scope, bool isTransposed);
  void connect(Node source, Node target, int64_t operand, bool isMoved,
               bool passesDerivative = true, bool isCarried = false);
  void pass(mlir::Value source, mlir::Value target, Scope &scope,
            bool isCarried = false);

  TypeFacts getFacts(mlir::Type type);

  std::vector<NodeData> nodes;
  llvm::DenseMap<mlir::Type, TypeFacts> facts;
  AutodiffNames names;
  llvm::DenseMap<mlir::Value, Node> first;
  llvm::SmallVector<Node> leaves, returned;
  /// For each node, the nodes that read it; built when first needed.
  mutable std::vector<llvm::SmallVector<Node, 2>> readers;
  llvm::SmallVector<mlir::Operation *> callees;
  /// As many values or more end the expansion of calls.
  Node largestSize = 0;
  bool hasNames = false, hasCarried = false;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_VALUEGRAPH_H
