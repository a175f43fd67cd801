//===- DerivativeProof.cpp - What shows that a value is a derivative ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Any function of a product's result is the derivative of some loss: GELU of
// logits that of its integral. So where no name tells them apart, a value
// counts as a derivative only if the weight descends along what it contracts,
// where an average moves towards it; or if it has what a backward pass gives
// it: a target, or a way back through the weight of a later layer, with nothing
// but linear ops from there on.
//
//===----------------------------------------------------------------------===//

#include "GradientProver.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;
using Direction = ValueGraph::Direction;

static bool isFollowed(const Edge &edge) {
  return !edge.isCarried && edge.isDifferentiable;
}

bool zpp::isLinearIn(Operation *op, ArrayRef<int64_t> numbers) {
  auto areBelow = [&](int64_t end) {
    return llvm::all_of(numbers, [&](int64_t number) { return number < end; });
  };
  if (std::optional<CollectiveKind> kind = getGuestCollective(op))
    return (kind != CollectiveKind::AllReduce &&
            kind != CollectiveKind::ReduceScatter) ||
           isSum(op);
  if (isNamed(op, guest::kAdd) || isNamed(op, guest::kSubtract) ||
      isNamed(op, guest::kNegate) || isNamed(op, guest::kBroadcastInDim) ||
      isNamed(op, guest::kSdyShardingConstraint) || isDataMovement(op))
    return true;
  if (isNamed(op, guest::kMultiply) || isProduct(op))
    return numbers.size() == 1;
  if (isNamed(op, guest::kDivide) || isLookup(op))
    return areBelow(1);
  if (isNamed(op, guest::kDynamicSlice) ||
      isNamed(op, guest::kDynamicUpdateSlice))
    return areBelow(2);
  // The condition has no derivative.
  if (isNamed(op, guest::kSelect))
    return true;
  return (isNamed(op, guest::kReduce) || isScatter(op)) && isSum(op);
}

bool GradientProver::isLinear(ArrayRef<Node> between, Node from) const {
  llvm::DenseSet<Node> moved{from};
  for (Node node : between) {
    if (node <= from)
      continue;
    SmallVector<int64_t> numbers;
    bool isReached = false;
    for (const Edge &edge : graph.getSources(node)) {
      if (!isFollowed(edge) || !moved.contains(edge.source))
        continue;
      isReached = true;
      if (edge.operand >= 0)
        numbers.push_back(edge.operand);
    }
    if (!isReached)
      continue;
    Operation *op = graph.getOp(node);
    if (op && !numbers.empty() && !isLinearIn(op, numbers))
      return false;
    moved.insert(node);
  }
  return true;
}

bool GradientProver::isTarget(Node node, Node contracted) {
  // What a layer takes is a target only as it came, as that of an autoencoder,
  // or as numbers, as the tokens of a language model.
  return sets.contains(batchLeaves, strip(node)) ||
         sets.haveCommon(leavesOf[node], integerLeaves) ||
         !sets.isSubset(sets.intersect(leavesOf[node], batchLeaves),
                        leavesOf[contracted]);
}

bool GradientProver::meetsTarget(ArrayRef<Node> between, Node contracted) {
  // All that depends on the product's result, also by comparisons and indices.
  Node first = between.front();
  llvm::DenseSet<Node> dependent{first};
  for (Node node = first + 1; node <= between.back(); ++node)
    if (llvm::any_of(graph.getSources(node), [&](const Edge &edge) {
          return !edge.isCarried && dependent.contains(edge.source);
        }))
      dependent.insert(node);
  auto isFromTarget = [&](Node operand) {
    return operand >= 0 && !dependent.contains(operand) &&
           isTarget(operand, contracted);
  };
  auto isDependent = [&](Node operand) {
    return operand >= 0 && dependent.contains(operand);
  };
  return llvm::any_of(between, [&](Node node) {
    Operation *op = graph.getOp(node);
    if (!op || !isDependent(node))
      return false;
    SmallVector<Node> operands = graph.getOperands(node);
    bool isMet = false;
    if (isNamed(op, guest::kAdd) || isNamed(op, guest::kSubtract))
      isMet = llvm::any_of(operands, isFromTarget);
    // 1 is subtracted where the class is the target's.
    else if (isNamed(op, guest::kSelect))
      isMet = isFromTarget(operands[0]) && isDependent(operands[1]) &&
              isDependent(operands[2]);
    else if (isScatter(op) && isSum(op))
      isMet = isDependent(operands[0]) &&
              (isFromTarget(operands[1]) || isFromTarget(operands[2]));
    return isMet && isLinear(between, node);
  });
}

bool GradientProver::comesBack(ArrayRef<Node> between) {
  llvm::DenseSet<Node> onPath(between.begin(), between.end());
  Node first = between.front();
  auto isLaterLayer = [&](const Use &use) {
    Operation *op = graph.getOp(use.result);
    return use.result > first && use.other >= 0 && op && isProduct(op);
  };
  return llvm::any_of(uses, [&](const Use &back) {
    if (!isLaterLayer(back) || !onPath.contains(back.result) ||
        !isLinear(between, back.result))
      return false;
    llvm::DenseSet<Node> before;
    visitAncestors(back.other, first, [&](Node node) {
      before.insert(node);
      return false;
    });
    return llvm::any_of(uses, [&](const Use &forth) {
      if (!isLaterLayer(forth) || !before.contains(forth.result) ||
          !depends(forth.result, first, /*byDerivative=*/true))
        return false;
      return sets.haveCommon(getWeightLeaves(forth.weight),
                             leavesOf[back.weight]);
    });
  });
}

bool GradientProver::isDerivative(const Use &use, Node contracted, Node other) {
  SmallVector<Node> between;
  visitAncestors(other, use.result, [&](Node node) {
    between.push_back(node);
    return false;
  });
  llvm::sort(between);
  if (between.front() != use.result)
    return false;
  return meetsTarget(between, contracted) || comesBack(between);
}

//===----------------------------------------------------------------------===//
// Directions
//===----------------------------------------------------------------------===//

int GradientProver::getSign(Node factor) {
  Node node = strip(factor);
  auto known = knownSigns.find(node);
  return known != knownSigns.end() ? known->second
                                   : knownSigns[node] = findSign(node);
}

int GradientProver::findSign(Node node) {
  Operation *op = graph.getOp(node);
  // A rate.
  if (!op)
    return graph.isDifferentiable(node) && graph.getCount(node) == 1;
  if (DenseElementsAttr data = getSplatConstant(op);
      data && isa<FloatType>(data.getElementType())) {
    auto number = data.getSplatValue<APFloat>();
    return number.isZero() || number.isNaN() ? 0 : number.isNegative() ? -1 : 1;
  }
  SmallVector<Node> operands = graph.getOperands(node);
  if (isNamed(op, guest::kBroadcastInDim) && operands[0] >= 0)
    return getSign(operands[0]);
  if (isNamed(op, guest::kNegate) && operands[0] >= 0)
    return -getSign(operands[0]);
  if (isNamed(op, guest::kMultiply) && operands[0] >= 0 && operands[1] >= 0 &&
      operands[0] != operands[1])
    return getSign(operands[0]) * getSign(operands[1]);
  return isNeverNegative(node);
}

int GradientProver::getDirection(const Edge &edge) {
  Operation *op = graph.getOp(edge.target);
  if (!edge.isMoved)
    return 0;
  if (!op || edge.operand < 0)
    return 1;
  SmallVector<Node> operands = graph.getOperands(edge.target);
  if (isNamed(op, guest::kNegate))
    return -1;
  if (isNamed(op, guest::kSubtract))
    return edge.operand == 1 ? -1 : 1;
  if (isNamed(op, guest::kMultiply)) {
    Node factor = operands[1 - edge.operand];
    return factor < 0 || operands[0] == operands[1] ? 0 : getSign(factor);
  }
  if (isNamed(op, guest::kDivide))
    // Roots of second moments and counts, whatever they are made of.
    return edge.operand != 0                              ? 0
           : operands[1] >= 0 && getSign(operands[1]) < 0 ? -1
                                                          : 1;
  return keepsOrder(op) || op->getName().stripDialect() == "sign";
}

std::vector<GradientProver::Directions> GradientProver::findDirections() {
  std::vector<Directions> found(graph.size());
  for (Node node = 0; node < graph.size(); ++node)
    if (graph.getCollective(node) &&
        graph.find(graph.getOp(node)->getResult(0)) == node)
      found[node].up = sets.getSingle(node);
  graph.settle(Direction::ToReaders, [&](Node node) {
    Directions known = found[node], &own = found[node];
    for (const Edge &edge : graph.getSources(node)) {
      Directions more = found[edge.source];
      if (more.up == NumberSets::kEmpty && more.down == NumberSets::kEmpty)
        continue;
      int direction = getDirection(edge);
      if (direction == 0)
        continue;
      if (direction < 0)
        std::swap(more.up, more.down);
      own.up = sets.unite(own.up, more.up);
      own.down = sets.unite(own.down, more.down);
    }
    return own.up != known.up || own.down != known.down;
  });
  return found;
}

NumberSets::Set GradientProver::findDescents() {
  NodeSet held(graph);
  llvm::DenseSet<Type> types;
  for (Node leaf : sets.getNumbers(weightLeaves)) {
    held[leaf] = true;
    types.insert(graph.getType(leaf));
  }
  graph.mark(held, Direction::ToReaders,
             [](const Edge &edge) { return edge.isMoved; });
  std::vector<Directions> directions = findDirections();
  Set found = NumberSets::kEmpty;
  for (const ValueGraph::Result &result : graph.getResults())
    if (held[result.node] && types.contains(graph.getType(result.node)))
      found = sets.unite(found, sets.subtract(directions[result.node].down,
                                              directions[result.node].up));
  return found;
}

bool GradientProver::isDescent(Node result) {
  if (!descents)
    descents = findDescents();
  return sets.contains(*descents, result);
}
