//===- Divisions.cpp - Values whose errors a step makes larger ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles/Divisions.h"

#include "GradientProver.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;

/// True if small elements of the source make small ones of the target, or ones
/// that are close to a number.
static bool keepsSmall(const ValueGraph &graph, const Edge &edge) {
  static const llvm::StringSet<> names = {
      "abs", "clamp", "maximum", "minimum", "negate", "select", "sqrt"};
  Operation *op = graph.getOp(edge.target);
  if (!op || edge.operand < 0)
    return true;
  if (edge.isDivisor || !graph.isDifferentiable(edge.target))
    return false;
  StringRef name = op->getName().stripDialect();
  // Factors that are no numbers lead from a weight to gradients of others.
  if (name == "multiply" || name == "divide" || name == "add" ||
      name == "subtract") {
    Node other = graph.getOperand(edge.target, 1 - edge.operand);
    return graph.isNumber(other) ||
           (name == "multiply" && other == edge.source);
  }
  if (std::optional<CollectiveKind> kind = getGuestCollective(op))
    return *kind == CollectiveKind::AllGather;
  return isDataMovement(op) || names.contains(name) ||
         isNamed(op, guest::kBroadcastInDim) ||
         isNamed(op, guest::kDynamicUpdateSlice) ||
         (isLookup(op) && edge.operand == 0);
}

bool zpp::isDividedBy(const ValueGraph &graph, Value value) {
  std::optional<Node> node = graph.find(value);
  return node && graph.walk(
                     *node, ValueGraph::Direction::ToReaders,
                     [&](const Edge &edge) { return keepsSmall(graph, edge); },
                     [&](Node found) {
                       return llvm::any_of(
                           graph.getReaders(found),
                           [](const Edge &edge) { return edge.isDivisor; });
                     });
}

bool zpp::subtractsOwnGradients(const ValueGraph &graph, const StepFlow &flow,
                                ArrayRef<Value> inputs) {
  NodeSet gradients = getTransposedProducts(graph);
  graph.mark(gradients, ValueGraph::Direction::ToReaders, [](const Edge &edge) {
    return edge.isMoved && edge.isDifferentiable;
  });
  // Cotangents of activations may be subtracted, too.
  llvm::DenseSet<Type> types;
  graph.walk(
      llvm::map_to_vector(inputs,
                          [&](Value input) { return *graph.find(input); }),
      ValueGraph::Direction::ToReaders,
      [](const Edge &edge) { return edge.operand < 0; },
      [&](Node node) {
        types.insert(graph.getType(node));
        return false;
      });
  return llvm::any_of(llvm::seq<Node>(0, graph.size()), [&](Node node) {
    return graph.is(node, guest::kSubtract) &&
           types.contains(graph.getType(node)) &&
           llvm::all_of(graph.getOperands(node), [&](Node operand) {
             return operand >= 0 && gradients[operand] &&
                    !flow.holdsStepInput(graph.getValue(operand));
           });
  });
}
