//===- GradientPoints.cpp - The weights at which gradients are ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientPoints.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace zpp;

GradientPoints::GradientPoints(const ValueGraph &graph, NumberSets &sets,
                               llvm::function_ref<bool(ValueGraph::Node)> isSum)
    : graph(graph), sets(sets), points(graph.size(), NumberSets::kEmpty) {
  graph.settle([&](ValueGraph::Node node) {
    if (isSum(node))
      return false;
    NumberSets::Set known = points[node];
    Operation *op = graph.getOp(node);
    if (op && getGuestCollective(op) == CollectiveKind::AllGather)
      points[node] = sets.unite(points[node], sets.getSingle(node));
    for (const ValueGraph::Edge &edge : graph.getSources(node))
      points[node] = sets.unite(points[node], points[edge.node]);
    return points[node] != known;
  });
}

/// The static slices of which `node` holds elements, by what they are of.
static llvm::DenseMap<ValueGraph::Node, Attribute>
getSlices(const ValueGraph &graph, ValueGraph::Node node) {
  llvm::DenseMap<ValueGraph::Node, Attribute> slices;
  llvm::DenseSet<ValueGraph::Node> seen{node};
  SmallVector<ValueGraph::Node> pending{node};
  while (!pending.empty()) {
    ValueGraph::Node next = pending.pop_back_val();
    Operation *op = graph.getOp(next);
    bool isSlice = op && isNamed(op, guest::kSlice);
    for (const ValueGraph::Edge &edge : graph.getSources(next))
      if (isSlice)
        slices.try_emplace(edge.node, op->getAttr("start_indices"));
      else if (edge.isMoved && edge.isDifferentiable && !edge.isCarried &&
               seen.insert(edge.node).second)
        pending.push_back(edge.node);
  }
  return slices;
}

int64_t zpp::getStackedRows(const ValueGraph &graph, ValueGraph::Node left,
                            ValueGraph::Node right) {
  auto ofLeft = getSlices(graph, left), ofRight = getSlices(graph, right);
  int64_t rows = 0;
  for (auto [stack, start] : ofLeft)
    if (auto other = ofRight.find(stack);
        other != ofRight.end() && other->second != start)
      if (auto type = dyn_cast<ShapedType>(graph.getValue(stack).getType()))
        rows = std::max(rows, type.getDimSize(0));
  return rows;
}

SmallVector<Value> GradientPoints::getValues(NumberSets::Set gathers) const {
  SmallVector<Value> values;
  sets.visit(gathers, [&](ValueGraph::Node node) {
    values.push_back(graph.getValue(node));
    return false;
  });
  return values;
}
