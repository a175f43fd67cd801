//===- GradientPoints.cpp - The weights at which gradients are ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientPoints.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

GradientPoints::GradientPoints(const ValueGraph &graph, NumberSets &sets,
                               llvm::function_ref<bool(ValueGraph::Node)> isSum)
    : graph(graph), sets(sets), points(graph.size(), NumberSets::kEmpty),
      sums(graph.size(), NumberSets::kEmpty) {
  graph.settle(ValueGraph::Direction::ToReaders, [&](ValueGraph::Node node) {
    std::pair known = {points[node], sums[node]};
    bool isGather = graph.getCollective(node) == CollectiveKind::AllGather;
    if (isSum(node))
      sums[node] = sets.getSingle(node);
    else if (isGather)
      points[node] = sets.unite(points[node], sets.getSingle(node));
    for (const ValueGraph::Edge &edge : graph.getSources(node)) {
      if (isSum(node))
        break;
      points[node] = sets.unite(points[node], points[edge.source]);
      if (!isGather)
        sums[node] = sets.unite(sums[node], sums[edge.source]);
    }
    return std::pair(points[node], sums[node]) != known;
  });
}

NumberSets::Set GradientPoints::getAllGathers(ValueGraph::Node node) const {
  NumberSets::Set gathers = points[node];
  for (ValueGraph::Node sum : sets.getNumbers(sums[node]))
    for (const ValueGraph::Edge &edge : graph.getSources(sum))
      gathers = sets.unite(gathers, points[edge.source]);
  return gathers;
}

std::optional<std::pair<NumberSets::Set, NumberSets::Set>>
GradientPoints::findApart(ValueGraph::Node one, ValueGraph::Node other,
                          ArrayRef<NumberSets::Set> inputs) const {
  constexpr NumberSets::Set none = NumberSets::kEmpty;
  NumberSets::Set left = getAllGathers(one), right = getAllGathers(other);
  NumberSets::Set onlyLeft = sets.subtract(left, right);
  NumberSets::Set onlyRight = sets.subtract(right, left);
  bool areOfSums = sums[one] != none || sums[other] != none;
  if (areOfSums && left != right) {
    onlyLeft = onlyLeft == none ? left : onlyLeft;
    onlyRight = onlyRight == none ? right : onlyRight;
  }
  auto getInputs = [&](NumberSets::Set gathers) {
    NumberSets::Set found = none;
    for (ValueGraph::Node gather : sets.getNumbers(gathers))
      for (const ValueGraph::Edge &edge : graph.getSources(gather))
        found = sets.unite(found, inputs[edge.source]);
    return found;
  };
  if (sets.haveCommon(getInputs(onlyLeft), getInputs(onlyRight)))
    return std::pair(onlyLeft, onlyRight);
  if (left != none && !areOfSums && getStackedRows(graph, one, other) > 1)
    return std::pair(left, right);
  return std::nullopt;
}

/// Returns the static slices of which `node` holds elements, by what they are
/// of.
static llvm::DenseMap<ValueGraph::Node, Attribute>
getSlices(const ValueGraph &graph, ValueGraph::Node node) {
  llvm::DenseMap<ValueGraph::Node, Attribute> slices;
  graph.walk(
      node, ValueGraph::Direction::ToSources,
      [&](const ValueGraph::Edge &edge) {
        bool isSlice = graph.is(edge.target, guest::kSlice);
        if (isSlice)
          slices.try_emplace(
              edge.source, graph.getOp(edge.target)->getAttr("start_indices"));
        return !isSlice && edge.isMoved && edge.isDifferentiable &&
               !edge.isCarried;
      },
      [](ValueGraph::Node) { return false; });
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
  return llvm::map_to_vector(sets.getNumbers(gathers),
                             [&](size_t node) { return graph.getValue(node); });
}
