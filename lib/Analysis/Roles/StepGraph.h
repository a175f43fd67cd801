//===- StepGraph.h - The graph of StepFlow ----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_STEPGRAPH_H
#define ZPP_LIB_ANALYSIS_ROLES_STEPGRAPH_H

#include "zpp/Analysis/Roles/StepFlow.h"

namespace zpp {

class StepFlow::Graph {
public:
  enum class Kind : uint8_t { Moved, Divided, Computed, Carried };
  /// True for the kinds that keep elements apart within an iteration.
  static bool isMoved(Kind kind) {
    return kind == Kind::Moved || kind == Kind::Divided;
  }
  /// A path from an argument of a function to one of its results, and its
  /// kinds of edges.
  struct Summary {
    unsigned argument, result;
    Kind kind;
    /// Arguments each of which scales elements on all ways from the argument
    /// to the result.
    llvm::SmallVector<unsigned> factors;
  };
  using Summaries = llvm::DenseMap<mlir::Operation *, std::vector<Summary>>;

  explicit Graph(Summaries &summaries) : summaries(summaries) {}

  /// Has room for `values`.
  void reserve(size_t values) {
    numbers.reserve(values);
    this->values.reserve(values);
  }

  void addBlock(mlir::Block &block) {
    for (mlir::Value argument : block.getArguments())
      (void)getNumber(argument);
    for (mlir::Operation &op : block)
      addOp(&op);
  }

  /// To be called once, when all blocks have been added.
  void sortEdges() {
    sort(in, [](const Edge &edge) { return edge.target; });
    sort(out, [](const Edge &edge) { return edge.source; });
  }

  size_t size() const { return numbers.size(); }

  mlir::Value getValue(int64_t number) const { return values[number]; }

  int64_t getNumber(mlir::Value value) {
    auto [it, isNew] = numbers.try_emplace(value, numbers.size());
    if (isNew)
      values.push_back(value);
    return it->second;
  }

  std::optional<int64_t> findNumber(mlir::Value value) const {
    auto it = numbers.find(value);
    if (it == numbers.end())
      return std::nullopt;
    return it->second;
  }

  /// Calls `visit` for each neighbor along edges (`forward`) or against them.
  void forEachNeighbor(
      int64_t value, bool forward,
      llvm::function_ref<void(int64_t neighbor, Kind kind)> visit) const {
    const Index &index = forward ? out : in;
    for (int64_t i = index.begin[value]; i < index.begin[value + 1]; ++i) {
      const Edge &edge = edges[index.edges[i]];
      visit(forward ? edge.target : edge.source, edge.kind);
    }
  }

  /// Marks in `found` all values that can be reached from marked ones by edges
  /// of the kinds that `follows` accepts. No way leads on from what `isStop`
  /// accepts.
  void mark(
      std::vector<char> &found, bool forward,
      llvm::function_ref<bool(Kind)> follows,
      llvm::function_ref<bool(size_t)> isStop = [](size_t) {
        return false;
      }) const {
    llvm::SmallVector<int64_t> worklist;
    for (size_t value = 0; value < found.size(); ++value)
      if (found[value] && !isStop(value))
        worklist.push_back(value);
    while (!worklist.empty())
      forEachNeighbor(worklist.pop_back_val(), forward,
                      [&](int64_t neighbor, Kind kind) {
                        if (!follows(kind) || found[neighbor])
                          return;
                        found[neighbor] = true;
                        if (!isStop(neighbor))
                          worklist.push_back(neighbor);
                      });
  }

  /// Makes products with activations Computed. Activations are values that
  /// depend on `data`, which is marked by value, unless a sum or a gather over
  /// devices makes them the same everywhere.
  void cutActivations(std::vector<char> data);

  /// Makes what loops carry Moved where it is activations or their cotangents,
  /// and no state: it follows from `data`, likewise, and `isState` is false for
  /// it. And where `isWaiting` is true for what an iteration leaves.
  void passOn(std::vector<char> data, llvm::function_ref<bool(int64_t)> isState,
              llvm::function_ref<bool(int64_t)> isWaiting);

  /// Results that are not constant but depend on something other than operands:
  /// for instance, random numbers.
  llvm::SmallVector<int64_t> unknown;

private:
  struct Edge {
    int64_t source, target;
    Kind kind;
  };
  /// The edges of value i are edges[begin[i]] to edges[begin[i + 1] - 1].
  struct Index {
    std::vector<int64_t> begin, edges;
  };

  template <typename KeyT> void sort(Index &index, KeyT getKey) {
    index.begin.assign(numbers.size() + 1, 0);
    for (const Edge &edge : edges)
      ++index.begin[getKey(edge) + 1];
    for (size_t i = 1; i < index.begin.size(); ++i)
      index.begin[i] += index.begin[i - 1];
    std::vector<int64_t> next = index.begin;
    index.edges.resize(edges.size());
    for (auto [number, edge] : llvm::enumerate(edges))
      index.edges[next[getKey(edge)]++] = number;
  }

  void addEdge(mlir::Value source, mlir::Value target, Kind kind) {
    int64_t from = getNumber(source);
    edges.push_back({from, getNumber(target), kind});
  }

  /// Returns the values each of which makes the edge Computed if it is data.
  llvm::SmallVector<mlir::Value> getFactors(size_t index) const;
  /// Marks what follows from marked values, and differs between devices.
  void spreadData(std::vector<char> &data) const;
  /// True if elements of `from` are moved to `to` on a way on which nothing
  /// that `scales` accepts scales them.
  bool isMovedUnscaled(int64_t from, int64_t to,
                       llvm::function_ref<bool(mlir::Value)> scales) const;
  llvm::SmallVector<unsigned> getFactorArguments(mlir::Block &body,
                                                 unsigned argument,
                                                 mlir::Value result) const;

  void addOp(mlir::Operation *op);
  void addCall(mlir::func::CallOp call);
  llvm::ArrayRef<Summary> getSummary(mlir::func::FuncOp function);

  llvm::DenseMap<mlir::Value, int64_t> numbers;
  std::vector<mlir::Value> values;
  std::vector<Edge> edges;
  /// The factors of edges that are calls, by the number of the edge.
  llvm::DenseMap<size_t, llvm::SmallVector<mlir::Value>> factors;
  Index in, out;
  Summaries &summaries;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_STEPGRAPH_H
