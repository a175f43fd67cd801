//===- ValueGraph.h - A step as a graph, with calls expanded ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The values of a step and what they follow from: into and out of loops,
// branches, manual computations and called functions, which are expanded as
// often as they are called. Whatever asks where a value comes from, or where it
// goes, walks along these edges. Nodes are numbered such that all edges but
// those from one iteration of a loop to the next lead from a lower number to a
// higher one.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_VALUEGRAPH_H
#define ZPP_ANALYSIS_ROLES_VALUEGRAPH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <vector>

namespace zpp {

class ValueGraph;

/// True for ops whose derivative is zero wherever it exists.
bool isStepFunction(mlir::Operation *op);

/// Returns an op that reads `value` and has no results, such as a callback: it
/// is no node. Null if there is none.
mlir::Operation *findSilentReader(mlir::Value value);

/// Some nodes of a graph.
class NodeSet {
public:
  /// The set of no graph, which nothing is in.
  NodeSet() = default;
  explicit NodeSet(const ValueGraph &graph);
  /// Those of `values` that the graph has.
  NodeSet(const ValueGraph &graph, llvm::ArrayRef<mlir::Value> values);

  char &operator[](int64_t node) { return marks[node]; }
  bool operator[](int64_t node) const { return marks[node]; }
  bool contains(mlir::Value value) const;

private:
  const ValueGraph *graph = nullptr;
  std::vector<char> marks;
};

class ValueGraph {
public:
  using Node = int64_t;

  struct Edge {
    Node source, target;
    /// The operand of the op, or -1 where a loop, a branch or a call passes the
    /// value on.
    int64_t operand;
    /// True if each element of the target is made of one element of the source.
    bool isMoved;
    /// True if elements of the target grow as those of the source shrink to
    /// zero.
    bool isDivisor;
    /// True if it leads from one iteration of a loop to the next.
    bool isCarried;
    /// True if a derivative passes: floating-point numbers on both ends, and
    /// not through rounding or a sign.
    bool isDifferentiable;
  };

  /// A result of the step.
  struct Result {
    mlir::func::FuncOp function;
    unsigned index;
    Node node;
    /// "2", with the name that the producer gave it: "2 (params['w'])".
    std::string describe() const;
  };

  explicit ValueGraph(mlir::ModuleOp module);

  Node size() const { return static_cast<Node>(nodes.size()); }
  mlir::Value getValue(Node node) const { return nodes[node].value; }
  mlir::Type getType(Node node) const { return getValue(node).getType(); }
  /// Returns the op that defines the value, or null for arguments.
  mlir::Operation *getOp(Node node) const { return nodes[node].op; }
  /// True if an op of this name defines it.
  bool is(Node node, llvm::StringRef name) const {
    return getOp(node) && isNamed(getOp(node), name);
  }
  /// Returns the kind of the collective that defines it, or nullopt.
  std::optional<CollectiveKind> getCollective(Node node) const {
    return getOp(node) ? getGuestCollective(getOp(node)) : std::nullopt;
  }
  /// True for sums, maxima and the like over devices.
  bool isSumOverDevices(Node node) const {
    return getCollective(node) == CollectiveKind::AllReduce ||
           getCollective(node) == CollectiveKind::ReduceScatter;
  }
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

  /// Returns the edges, those with one target next to each other.
  llvm::ArrayRef<Edge> getEdges() const { return edges; }
  size_t getNumber(const Edge &edge) const { return &edge - edges.data(); }
  llvm::ArrayRef<Edge> getSources(Node node) const {
    return llvm::ArrayRef(edges).slice(
        firstSource[node], firstSource[node + 1] - firstSource[node]);
  }
  auto getReaders(Node node) const {
    return llvm::map_range(
        llvm::ArrayRef(readers).slice(firstReader[node], firstReader[node + 1] -
                                                             firstReader[node]),
        [this](size_t edge) -> const Edge & { return edges[edge]; });
  }

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
  /// Returns the input of the step that `node` is, or null.
  mlir::BlockArgument getInput(Node node) const;
  llvm::ArrayRef<Result> getResults() const { return results; }

  /// Returns the node that `node` is equal to because barriers, calls, branches
  /// of one way or loops that do not change it pass it on.
  Node getPassed(Node node) const;
  /// Returns what all elements of `node` are moved from in one step, or -1.
  Node getMoved(Node node) const;
  /// True if all elements of `node` are one number. False for -1.
  bool isNumber(Node node) const;

  //===--------------------------------------------------------------------===//
  // Walks
  //===--------------------------------------------------------------------===//

  enum class Direction { ToSources, ToReaders };
  using Follows = llvm::function_ref<bool(const Edge &)>;

  /// Adds to `found` all that the edges that `follows` accepts lead to from
  /// there.
  void mark(NodeSet &found, Direction direction, Follows follows) const;

  /// Calls `visit` for `starts` and all nodes that such edges lead to from
  /// there, each once and the nearest first, until it returns true. Returns
  /// whether it did.
  bool walk(llvm::ArrayRef<Node> starts, Direction direction, Follows follows,
            llvm::function_ref<bool(Node)> visit) const;

  /// Calls `update`, which returns whether it changes what is known of a node,
  /// for all nodes, until nothing changes: `from` one end, and as often as
  /// values may be passed from iteration to iteration.
  void settle(Direction towards, llvm::function_ref<bool(Node)> update) const;

private:
  class Builder;
  struct NodeData {
    mlir::Value value;
    mlir::Operation *op;
    int64_t count;
    bool isDifferentiable, isTransposed;
  };
  void sortEdges();

  std::vector<NodeData> nodes;
  std::vector<Edge> edges;
  /// The numbers of edges by their source; and for each node and the one after
  /// the last, where its edges begin.
  std::vector<size_t> readers, firstSource, firstReader;
  llvm::DenseMap<mlir::Value, Node> first;
  llvm::SmallVector<Node> leaves;
  std::vector<Result> results;
  bool hasNames = false, hasCarried = false;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_VALUEGRAPH_H
