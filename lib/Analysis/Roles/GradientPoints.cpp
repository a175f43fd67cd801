//===- GradientPoints.cpp - The weights at which gradients are ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientPoints.h"

#include "zpp/Dialect/Guest/Stablehlo.h"

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

SmallVector<Value> GradientPoints::getValues(NumberSets::Set gathers) const {
  SmallVector<Value> values;
  sets.visit(gathers, [&](ValueGraph::Node node) {
    values.push_back(graph.getValue(node));
    return false;
  });
  return values;
}
