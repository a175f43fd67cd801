//===- GradientSearch.cpp - Uses of weights, and ways to them -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientProver.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;
using Direction = ValueGraph::Direction;

bool zpp::keepsOrder(Operation *op) {
  static const llvm::StringSet<> names = {"maximum", "minimum", "tanh"};
  return isNamed(op, guest::kAdd) || isNamed(op, guest::kClamp) ||
         isNamed(op, guest::kSelect) || isDataMovement(op) ||
         isNamed(op, guest::kDynamicSlice) ||
         isNamed(op, guest::kDynamicUpdateSlice) ||
         isNamed(op, guest::kSdyShardingConstraint) || getGuestCollective(op) ||
         names.contains(op->getName().stripDialect());
}

NodeSet zpp::getTransposedProducts(const ValueGraph &graph) {
  NodeSet products(graph);
  for (ValueGraph::Node node = 0; node < graph.size(); ++node) {
    Operation *op = graph.getOp(node);
    products[node] = op && isProduct(op) && graph.isTransposed(node);
  }
  return products;
}

bool zpp::isProduct(Operation *op) {
  static const llvm::StringSet<> names = {
      "convolution", "dot",    "dot_general",  "dynamic_conv",
      "einsum",      "matmul", "batch_matmul", "select_and_scatter"};
  return op->getNumOperands() >= 2 &&
         names.contains(op->getName().stripDialect());
}

bool zpp::isLookup(Operation *op) {
  static const llvm::StringSet<> names = {"gather", "dynamic_gather",
                                          "torch_index_select"};
  return op->getNumOperands() >= 2 &&
         names.contains(op->getName().stripDialect());
}

bool zpp::isContraction(Operation *op) {
  return op && (isProduct(op) || isLookup(op));
}

bool zpp::isScatter(Operation *op) {
  return op->getNumOperands() == 3 && op->getNumResults() == 1 &&
         op->getName().stripDialect() == "scatter";
}

//===----------------------------------------------------------------------===//
// Weights and their uses
//===----------------------------------------------------------------------===//

GradientProver::GradientProver(
    const ValueGraph &graph, llvm::function_ref<bool(BlockArgument)> isData,
    llvm::function_ref<bool(BlockArgument)> mayBeData)
    : graph(graph), sets(graph.size()), hasData(graph), isWeight(graph),
      isHeld(graph), holdsProduct(graph), isAfterAutodiff(graph) {
  findLeaves();
  findWeights(isData, mayBeData);
  findUses();
  findAutodiff();
}

void GradientProver::findLeaves() {
  leavesOf.assign(graph.size(), NumberSets::kEmpty);
  for (Node leaf : graph.getLeaves()) {
    leavesOf[leaf] = sets.getSingle(leaf);
    Value value = graph.getValue(leaf);
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (isa<BlockArgument>(value) && type && graph.isDifferentiable(leaf) &&
        type.getRank() > 0)
      weightLeaves = sets.unite(weightLeaves, leavesOf[leaf]);
  }
  graph.settle(Direction::ToReaders, [&](Node node) {
    Set known = leavesOf[node];
    for (const Edge &edge : graph.getSources(node))
      leavesOf[node] = sets.unite(leavesOf[node], leavesOf[edge.source]);
    return leavesOf[node] != known;
  });
}

NodeSet GradientProver::findContracted() {
  NodeSet found(graph);
  // With another weight: norms and regularizers contract a weight with itself.
  auto hasOther = [&](Node node, Node than) {
    return !sets.isSubset(getWeightLeaves(node), leavesOf[than]);
  };
  for (Node node = 0; node < graph.size(); ++node) {
    Operation *op = graph.getOp(node);
    if (!op || !isProduct(op))
      continue;
    SmallVector<Node> operands = graph.getOperands(node);
    for (int index : {0, 1})
      if (operands[0] >= 0 && operands[1] >= 0 &&
          hasOther(operands[1 - index], operands[index]))
        found[operands[index]] = true;
  }
  graph.mark(found, Direction::ToSources, [&](const Edge &edge) {
    return edge.isMoved && graph.isDifferentiable(edge.target) &&
           !graph.getCollective(edge.target);
  });
  return found;
}

void GradientProver::findWeights(
    llvm::function_ref<bool(BlockArgument)> isData,
    llvm::function_ref<bool(BlockArgument)> mayBeData) {
  NodeSet isContracted = findContracted();
  for (Node leaf : graph.getLeaves()) {
    BlockArgument input = graph.getInput(leaf);
    hasData[leaf] = !input || !graph.isDifferentiable(leaf) || isData(input) ||
                    (isContracted[leaf] && mayBeData(input));
    if (input && hasData[leaf] && graph.getCount(leaf) > 1) {
      batchLeaves = sets.unite(batchLeaves, leavesOf[leaf]);
      if (!graph.isDifferentiable(leaf))
        integerLeaves = sets.unite(integerLeaves, leavesOf[leaf]);
    }
    isHeld[leaf] = !hasData[leaf] && graph.getCount(leaf) != 1;
  }
  // Sums over devices are the same everywhere.
  graph.mark(hasData, Direction::ToReaders, [&](const Edge &edge) {
    return !graph.isSumOverDevices(edge.target) &&
           graph.getCount(edge.target) != 1;
  });
  graph.mark(isHeld, Direction::ToReaders, [&](const Edge &edge) {
    return graph.isDifferentiable(edge.target) &&
           (edge.isMoved || graph.is(edge.target, guest::kBroadcastInDim));
  });
  for (Node node = 0; node < graph.size(); ++node) {
    isWeight[node] = graph.isDifferentiable(node) && !hasData[node] &&
                     sets.haveCommon(leavesOf[node], weightLeaves);
    Operation *op = graph.getOp(node);
    holdsProduct[node] =
        op && !isWeight[node] && (isProduct(op) || isScatter(op));
  }
  graph.mark(holdsProduct, Direction::ToReaders, [&](const Edge &edge) {
    return edge.isMoved && graph.isDifferentiable(edge.target);
  });
}

void GradientProver::findUses() {
  auto add = [&](Node result, Node weight, Node other) {
    if (weight < 0)
      return;
    Node stored = weight;
    // A bias is broadcast to all rows.
    while (Operation *op = graph.getOp(stored)) {
      if (!isNamed(op, guest::kBroadcastInDim) && !movesData(op))
        break;
      Node operand = graph.getOperand(stored, 0);
      if (operand < 0 || (!isNamed(op, guest::kBroadcastInDim) &&
                          graph.getCount(operand) != graph.getCount(stored)))
        break;
      stored = operand;
    }
    usesAt[result].push_back(uses.size());
    if (other >= 0 && isContraction(graph.getOp(result))) {
      Set &ofLeaves = contractions[leavesOf[other]];
      ofLeaves = sets.unite(ofLeaves, sets.getSingle(result));
    }
    uses.push_back({result, weight, other, graph.getCount(stored)});
    if (firstUse < 0)
      firstUse = result;
  };
  for (Node node = 0; node < graph.size(); ++node) {
    Operation *op = graph.getOp(node);
    auto canBeWeight = [&](Node weight) {
      return weight >= 0 && (isWeight[weight] || isHeld[weight]);
    };
    if (!op || !graph.isDifferentiable(node) ||
        llvm::none_of(graph.getSources(node), [&](const Edge &edge) {
          return canBeWeight(edge.source);
        }))
      continue;
    if (isLookup(op)) {
      SmallVector<Node> operands = graph.getOperands(node);
      if (canBeWeight(operands[0]))
        add(node, operands[0], operands[1]);
    } else if (isProduct(op)) {
      SmallVector<Node> operands = graph.getOperands(node);
      for (int index : {0, 1})
        if (canBeWeight(operands[index]))
          add(node, operands[index], operands[1 - index]);
    } else if (!isWeight[node] && op->getNumOperands() == 2 &&
               isElementwise(op)) {
      SmallVector<Node> operands = graph.getOperands(node);
      for (int index : {0, 1})
        if (operands[index] >= 0 && isWeight[operands[index]])
          add(node, operands[index],
              isNamed(op, guest::kMultiply) ? operands[1 - index] : -1);
    }
  }
}

bool GradientProver::isTransposed(Node node) const {
  return graph.isTransposed(node) && leavesOf[node] != NumberSets::kEmpty;
}

void GradientProver::findAutodiff() {
  for (Node node = 0; node < graph.size(); ++node)
    isAfterAutodiff[node] = isTransposed(node);
  graph.mark(isAfterAutodiff, Direction::ToReaders,
             [](const Edge &) { return true; });
}

//===----------------------------------------------------------------------===//
// Ways through the graph
//===----------------------------------------------------------------------===//

Node GradientProver::strip(Node node) const {
  while (true) {
    Operation *op = graph.getOp(node);
    ArrayRef<Edge> sources = graph.getSources(node);
    bool isPassed = sources.size() == 1 && sources.front().operand < 0;
    if (sources.empty() || (!isPassed && !(op && isDataMovement(op))))
      return node;
    node = sources.front().source;
  }
}

Node GradientProver::getKept(Node node) const {
  auto getTerms = [&](Node of, StringRef name) {
    SmallVector<Node> terms = graph.getOperands(of);
    bool isOfTwo = graph.is(of, name) && terms.size() == 2 &&
                   !llvm::is_contained(terms, -1);
    return isOfTwo ? terms : SmallVector<Node>();
  };
  if (SmallVector<Node> sum = getTerms(node, guest::kAdd); !sum.empty())
    for (int index : {0, 1})
      if (SmallVector<Node> inner = getTerms(sum[index], guest::kSubtract);
          !inner.empty() && strip(inner[1]) == strip(sum[1 - index]))
        return inner[0];
  if (SmallVector<Node> outer = getTerms(node, guest::kSubtract);
      !outer.empty())
    if (SmallVector<Node> sum = getTerms(outer[0], guest::kAdd); !sum.empty())
      for (int index : {0, 1})
        if (strip(sum[index]) == strip(outer[1]))
          return sum[1 - index];
  return -1;
}

bool GradientProver::isNeverNegative(Node node) const {
  // Statistics are computed in a few ops.
  constexpr size_t kMostNodes = 64;
  llvm::DenseSet<Node> seen{node};
  SmallVector<Node> pending{node};
  auto add = [&](Node source) {
    if (source >= 0 && seen.insert(source).second)
      pending.push_back(source);
    return source >= 0 && seen.size() <= kMostNodes;
  };
  while (!pending.empty()) {
    Node next = pending.pop_back_val();
    if (isKnownNotNegative(graph.getValue(next)))
      continue;
    ArrayRef<Edge> sources = graph.getSources(next);
    Operation *op = graph.getOp(next);
    // The end of a loop, a branch or a call. What a loop carries is never
    // negative if what it starts with is not and an iteration keeps it so.
    if (!sources.empty() && llvm::all_of(sources, [](const Edge &edge) {
          return edge.operand < 0;
        })) {
      if (!llvm::all_of(sources,
                        [&](const Edge &edge) { return add(edge.source); }))
        return false;
      continue;
    }
    if (!op)
      return false;
    SmallVector<Node> operands = graph.getOperands(next);
    // Result i has the elements of operand i.
    if (isBarrier(op) || isNamed(op, guest::kSort) ||
        (takesLargest(op) && graph.getValue(next) == op->getResult(0))) {
      if (!add(
              operands[cast<OpResult>(graph.getValue(next)).getResultNumber()]))
        return false;
      continue;
    }
    // A hard choice whose derivative is that of a soft one.
    if (Node kept = getKept(next); kept >= 0) {
      if (!add(kept))
        return false;
      continue;
    }
    std::optional<SmallVector<unsigned>> numbers = getSignOperands(op);
    if (!numbers || !llvm::all_of(*numbers, [&](unsigned number) {
          return add(operands[number]);
        }))
      return false;
  }
  return true;
}

bool GradientProver::depends(Node from, Node on, bool byDerivative) const {
  return sets.isSubset(leavesOf[on], leavesOf[from]) &&
         graph.walk(
             from, Direction::ToSources,
             [&](const Edge &edge) {
               return !edge.isCarried && edge.source >= on &&
                      (!byDerivative || edge.isDifferentiable);
             },
             [&](Node node) { return node == on; });
}

bool GradientProver::visitAncestors(
    Node from, Node first, llvm::function_ref<bool(Node)> visit) const {
  return graph.walk(
      from, Direction::ToSources,
      [&](const Edge &edge) {
        return !edge.isCarried && edge.isDifferentiable && edge.source >= first;
      },
      visit);
}

bool GradientProver::findWays(Node operand, SmallVectorImpl<Node> &path,
                              SmallVectorImpl<Node> &mixing) const {
  bool isRounded = false;
  llvm::DenseSet<Node> seen{operand};
  SmallVector<Node> pending{operand};
  // What is found last counts first: not the nearest.
  while (!pending.empty()) {
    Node node = pending.pop_back_val();
    path.push_back(node);
    bool isMixed = false;
    for (const Edge &edge : graph.getSources(node)) {
      // A single number scales or fills all elements alike.
      if (!graph.isDifferentiable(edge.source) ||
          graph.getCount(edge.source) == 1)
        continue;
      if (!edge.isMoved)
        isMixed = true;
      else if (!edge.isDifferentiable)
        isRounded = true;
      else if (seen.insert(edge.source).second)
        pending.push_back(edge.source);
    }
    if (isMixed)
      mixing.push_back(node);
  }
  return isRounded;
}
