//===- Broadcasts.cpp - Sums of what one device has -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Branches.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

#include <set>

using namespace mlir;
using namespace zpp;

namespace {

/// Finds sums over devices with which an owner sends the others what it has
/// computed: all but one add zeros, `psum(where(me == owner, x, 0))`.
class Broadcasts {
  using Node = ValueGraph::Node;

public:
  Broadcasts(const ValueGraph &graph, const Mesh &mesh)
      : graph(graph), mesh(mesh), tables(mesh.numDevices()) {}

  bool isBroadcast(const StepCollective &sum) {
    std::optional<Node> operand = graph.find(sum.op->getOperand(0));
    if (!operand || sum.axes.empty())
      return false;
    auto [condition, isNegated] = getCondition(strip(*operand));
    return condition >= 0 && isOfOwner(condition, isNegated, sum);
  }

private:
  /// The node before it was moved or broadcast.
  ValueGraph::Node strip(Node node) const {
    while (true) {
      Operation *op = graph.getOp(node);
      ArrayRef<ValueGraph::Edge> sources = graph.getSources(node);
      bool isPassed = sources.size() == 1 && sources.front().operand < 0;
      bool isMoved =
          op && op->getNumOperands() == 1 &&
          (isDataMovement(op) || isNamed(op, guest::kBroadcastInDim));
      if (sources.empty() || (!isPassed && !isMoved))
        return node;
      node = sources.front().source;
    }
  }

  /// True if all elements of `node` are zero.
  bool isZero(Node node) const { return isZeros(graph.getValue(strip(node))); }

  /// Returns the condition under which `node` is not zero, and whether it has
  /// to be false; -1 if there is none.
  std::pair<ValueGraph::Node, bool> getCondition(Node node) const {
    Operation *op = graph.getOp(node);
    if (!op)
      return {-1, false};
    SmallVector<Node> operands = graph.getOperands(node);
    if (isNamed(op, guest::kSelect) && operands.size() == 3) {
      for (int number : {1, 2})
        if (operands[number] >= 0 && isZero(operands[number]))
          return {operands[0], number == 1};
    } else if (isNamed(op, guest::kMultiply)) {
      // A mask of numbers.
      for (Node operand : operands)
        if (operand >= 0 &&
            getElementTypeOrSelf(graph.getValue(strip(operand))).isInteger(1))
          return {operand, false};
    } else if (std::optional<BranchesView> branches = BranchesView::get(op);
               branches && op->getNumOperands() == 1) {
      // In the order of the branches: that of what is false comes first in a
      // `case`, and last in an `if`.
      ArrayRef<ValueGraph::Edge> exits = graph.getSources(node);
      std::optional<Node> index = graph.find(op->getOperand(0));
      if (exits.size() == 2 && index &&
          isZero(exits[0].source) != isZero(exits[1].source))
        return {*index, isZero(exits[1].source) == isNamed(op, guest::kCase)};
    }
    return {-1, false};
  }

  /// True if `node` compares a number that each device of `sum` has to itself
  /// with one that is the same on all.
  bool isOfOwner(Node node, bool isNegated, const StepCollective &sum) {
    node = strip(node);
    Operation *op = graph.getOp(node);
    if (!op || !isNamed(op, guest::kCompare))
      return false;
    StringRef wanted = isNegated ? " NE" : " EQ";
    Attribute direction = op->getAttr("comparison_direction");
    SmallVector<Node> operands = graph.getOperands(node);
    return direction && StringRef(toText(direction)).contains(wanted) &&
           operands[0] >= 0 && operands[1] >= 0 &&
           ((isDistinct(operands[0], sum) && isShared(operands[1])) ||
            (isDistinct(operands[1], sum) && isShared(operands[0])));
  }

  bool isDistinct(Node node, const StepCollective &sum) {
    std::optional<std::vector<int64_t>> numbers =
        tables.evaluate(graph.getValue(strip(node)));
    if (!numbers)
      return false;
    // By the first device of each group.
    std::set<std::pair<int64_t, int64_t>> known;
    for (auto [device, number] : llvm::enumerate(*numbers)) {
      int64_t first = device;
      for (const AxisRef &axis : sum.axes) {
        int64_t stride = mesh.getStride(axis);
        first -= static_cast<int64_t>(device) / stride % axis.size * stride;
      }
      if (!known.insert({first, number}).second)
        return false;
    }
    return true;
  }

  bool isShared(Node node) const {
    return !graph.walk(
        node, ValueGraph::Direction::ToSources,
        [](const ValueGraph::Edge &) { return true; },
        [&](Node next) {
          Operation *op = graph.getOp(next);
          bool isLeaf = graph.getSources(next).empty();
          return op ? isNamed(op, guest::kPartitionId) ||
                          op->getName().stripDialect() == "replica_id" ||
                          (isLeaf && !isNamed(op, guest::kConstant))
                    : isLeaf && graph.getCount(next) != 1;
        });
  }

  const ValueGraph &graph;
  const Mesh &mesh;
  PartitionTables tables;
};

} // namespace

bool RoleFinder::isBroadcast(const StepCollective &sum) const {
  return Broadcasts(graph, mesh).isBroadcast(sum);
}
