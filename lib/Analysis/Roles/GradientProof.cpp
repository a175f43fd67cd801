//===- GradientProof.cpp - What shows that a sum is a gradient ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientProver.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;
using Direction = ValueGraph::Direction;

//===----------------------------------------------------------------------===//
// Proofs
//===----------------------------------------------------------------------===//

/// True for ops that may make a gradient: products, lookups and sums.
static bool addsUp(Operation *op) {
  return op &&
         (isContraction(op) || isScatter(op) || isNamed(op, guest::kReduce));
}

void GradientProver::findProductsBefore() {
  if (!productsBefore.empty())
    return;
  productsBefore.assign(graph.size(), NumberSets::kEmpty);
  for (const auto &[leaves, ofLeaves] : contractions)
    for (Node result : sets.getNumbers(ofLeaves))
      productsBefore[result] = sets.getSingle(result);
  for (Node node = 0; node < graph.size(); ++node)
    for (const Edge &edge : graph.getSources(node))
      if (!edge.isCarried && edge.isDifferentiable)
        productsBefore[node] =
            sets.unite(productsBefore[node], productsBefore[edge.source]);
}

SmallVector<size_t, 4> GradientProver::getCandidates(Node contracted,
                                                     Node other) {
  auto ofLeaves = contractions.find(leavesOf[contracted]);
  if (ofLeaves == contractions.end())
    return {};
  findProductsBefore();
  SmallVector<size_t, 4> candidates;
  Set results = sets.intersect(productsBefore[other], ofLeaves->second);
  for (Node result : sets.getNumbers(results))
    if (!depends(contracted, result, /*byDerivative=*/false))
      for (size_t index : usesAt[result])
        if (uses[index].other >= 0 &&
            leavesOf[uses[index].other] == ofLeaves->first)
          candidates.push_back(index);
  return candidates;
}

int GradientProver::getRank(const Use &use, Node contracted) const {
  // A product with a weight itself says whose gradient it is; one with
  // activations that a weight was added to does not.
  bool isOfWeight = isWeight[use.weight];
  bool isSame = strip(use.other) == strip(contracted);
  return isOfWeight && isSame                       ? kHighestRank
         : isOfWeight && isCertain(use, contracted) ? 3
         : isSame                                   ? 2
                                                    : isOfWeight;
}

const GradientProver::Use *
GradientProver::findPartner(Node contracted, Node other,
                            llvm::function_ref<bool(const Use &)> isEnough,
                            bool &isOnly) {
  if (contracted < 0 || other < 0)
    return nullptr;
  SmallVector<size_t, 4> candidates = getCandidates(contracted, other);
  const Use *found = nullptr;
  int best = -1;
  llvm::SmallSetVector<Value, 4> weights;
  auto consider = [&](size_t index) {
    const Use &use = uses[index];
    if (!isEnough(use))
      return;
    // What a later product contracts may depend on the same inputs: what a
    // loop makes of a batch, on all that an iteration does.
    if (isWeight[use.weight])
      weights.insert_range(getWeights(use, /*isDirect=*/true));
    int rank = getRank(use, contracted);
    if (rank > best || (rank == best && use.result < found->result)) {
      best = rank;
      found = &use;
    }
  };
  // Of several of the highest rank, the one counts that `other` follows from in
  // the fewest steps.
  if (candidates.size() > 1 && llvm::any_of(candidates, [&](size_t index) {
        return getRank(uses[index], contracted) == kHighestRank;
      }))
    visitAncestors(other, uses[candidates.front()].result, [&](Node node) {
      for (size_t index : candidates)
        if (uses[index].result == node)
          consider(index);
      return best == kHighestRank;
    });
  else
    llvm::for_each(candidates, consider);
  isOnly =
      best == kHighestRank ||
      (found && weights.size() == getWeights(*found, /*isDirect=*/true).size());
  return found;
}

/// True if it is `use` whose weight has a gradient that contracts `contracted`.
/// Where weights are adapted first, all that follows depends on the same
/// inputs, also on what has no gradient: then it must be the very operand.
bool GradientProver::isCertain(const Use &use, Node contracted) const {
  return strip(use.other) == strip(contracted) ||
         llvm::none_of(getWeights(use, /*isDirect=*/true), [&](Value weight) {
           std::optional<Node> node = graph.find(weight);
           return node && depends(contracted, *node, /*byDerivative=*/false);
         });
}

const GradientProver::Use *GradientProver::findReduced(Node source) {
  int64_t count = graph.getCount(source);
  const Use *found = nullptr;
  if (firstUse >= 0)
    visitAncestors(source, firstUse, [&](Node node) {
      auto at = usesAt.find(node);
      if (at == usesAt.end() || node == source)
        return false;
      for (size_t index : at->second)
        if (uses[index].count == count && !isProduct(graph.getOp(node))) {
          found = &uses[index];
          return true;
        }
      return false;
    });
  return found;
}

SmallVector<Value> GradientProver::getWeights(const Use &use,
                                              bool isDirect) const {
  SmallVector<Value> weights;
  if (!isWeight[use.weight])
    return weights;
  auto isWhole = [&](Node node) {
    return graph.getCollective(node) || graph.getSources(node).empty();
  };
  graph.walk(
      use.weight, Direction::ToSources,
      [&](const Edge &edge) {
        return (edge.isMoved || !isDirect) && !isWhole(edge.target);
      },
      [&](Node node) {
        if (isWhole(node))
          weights.push_back(graph.getValue(node));
        return false;
      });
  return weights;
}

void GradientProver::setWeights(GradientProof &proof, const Use &use) const {
  proof.weights = getWeights(use, /*isDirect=*/false);
  proof.direct = getWeights(use, /*isDirect=*/true);
}

Node GradientProver::stripScales(Node node) const {
  while (true) {
    node = strip(node);
    bool isProduct = graph.is(node, guest::kMultiply);
    Node left = graph.getOperand(node, 0), right = graph.getOperand(node, 1);
    if ((isProduct || graph.is(node, guest::kDivide)) && left >= 0 &&
        graph.isNumber(right))
      node = left;
    else if (isProduct && right >= 0 && graph.isNumber(left))
      node = right;
    else
      return node;
  }
}

/// True for a product of a value with itself, scaled or not.
bool GradientProver::isGram(Node source) const {
  Operation *op = graph.getOp(source);
  if (!op || !isProduct(op))
    return false;
  SmallVector<Node> operands = graph.getOperands(source);
  return operands[0] >= 0 && operands[1] >= 0 &&
         stripScales(operands[0]) == stripScales(operands[1]);
}

bool GradientProver::multipliesProducts(Node node) const {
  return graph.is(node, guest::kMultiply) &&
         llvm::all_of(graph.getOperands(node), [&](Node factor) {
           return factor >= 0 && holdsProduct[factor];
         });
}

bool GradientProver::tryWays(ArrayRef<std::pair<Node, Node>> ways,
                             bool isToldApart, Partner &partner) {
  const Use *found = nullptr;
  Node foundContracted = -1;
  bool isOnlyFound = false;
  for (const auto &way : ways) {
    Node contracted = way.first, other = way.second;
    bool isOnly = false;
    const Use *use = findPartner(
        contracted, other,
        [&](const Use &use) {
          bool isEnough = isToldApart || isDerivative(use, contracted, other);
          partner.lacksDerivative |= !isEnough;
          return isEnough;
        },
        isOnly);
    // The derivative of a loss has both signs. What has one says how much a
    // row belongs to a class, a codebook's entry or a position. Where weights
    // are adapted first, the rows may follow from earlier assignments, as if
    // they were their derivative.
    if ((use || partner.lacksDerivative) && isNeverNegative(other)) {
      partner.assigns = true;
      return false;
    }
    if (use && !found) {
      found = use;
      foundContracted = contracted;
      isOnlyFound = isOnly;
    }
  }
  if (!found)
    return false;
  partner.use = found;
  partner.contracted = foundContracted;
  partner.isOnly = isOnlyFound;
  return true;
}

GradientProver::Partner GradientProver::searchPartner(ArrayRef<Node> mixing,
                                                      bool isToldApart) {
  Partner partner;
  partner.isGramAlone = !mixing.empty();
  for (Node source : mixing) {
    Operation *op = graph.getOp(source);
    bool isOfItself = isGram(source);
    partner.isGramAlone &= isOfItself;
    if (!op || isOfItself)
      continue;
    SmallVector<Node> operands = graph.getOperands(source);
    SmallVector<std::pair<Node, Node>, 2> ways;
    if (isProduct(op))
      ways = {{operands[0], operands[1]}, {operands[1], operands[0]}};
    else if (isScatter(op))
      ways = {{operands[1], operands[2]}};
    else if (!partner.reduced && isNamed(op, guest::kReduce) &&
             !isNeverNegative(source))
      partner.reduced = findReduced(source);
    partner.contracts |= !ways.empty();
    if (tryWays(ways, isToldApart, partner))
      break;
  }
  return partner;
}

const char *GradientProver::Partner::getWhyNone() const {
  if (assigns)
    return "what follows from the product with a weight has no negative "
           "element, as assignments and probabilities have none";
  if (lacksDerivative)
    return "what follows from the product with a weight may be no derivative: "
           "no weight is moved against the sum, no target is subtracted, and "
           "it does not come back through a later layer";
  if (contracts)
    return "no product with a weight has contracted one of its operands such "
           "that the other one follows from that product's result";
  return "what it reduces follows from no use of a weight of its size";
}

GradientProof GradientProver::prove(Operation *sum) {
  GradientProof proof;
  std::optional<Node> result = graph.find(sum->getResult(0));
  std::optional<Node> operand = graph.find(sum->getOperand(0));
  if (!result || !operand) {
    proof.why = "the step does not reach it";
    return proof;
  }
  auto refute = [&](const char *why) {
    proof.kind = GradientProof::Kind::Statistic;
    proof.why = why;
    return proof;
  };
  SmallVector<Node> path, mixing;
  bool isRounded = findWays(*operand, path, mixing);
  proof.followsAutodiff = isAfterAutodiff[*operand];
  if (isRounded && llvm::none_of(mixing, [&](Node node) {
        return addsUp(graph.getOp(node));
      }))
    return refute(
        "the step has rounded its operand itself, or made signs of it");
  if (llvm::any_of(path, [&](Node node) { return multipliesProducts(node); }))
    return refute("its operand is a product of two contractions, element by "
                  "element");
  Partner partner =
      searchPartner(mixing, graph.hasTransposed() || isDescent(*result));
  if (partner.isGramAlone)
    return refute("its operand is the product of a value with itself");
  if (partner.use) {
    proof.kind = GradientProof::Kind::Partner;
    proof.isOfProduct = partner.isOnly;
    if (isCertain(*partner.use, partner.contracted))
      setWeights(proof, *partner.use);
  } else if (partner.reduced && !partner.contracts) {
    proof.kind = GradientProof::Kind::Reduced;
    setWeights(proof, *partner.reduced);
  }
  if (isTransposed(*result) ||
      llvm::any_of(path, [&](Node node) { return isTransposed(node); }))
    proof.kind = GradientProof::Kind::Name;
  if (proof.kind == GradientProof::Kind::None)
    proof.why = partner.getWhyNone();
  return proof;
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

SmallVector<BlockArgument> GradientProver::getReturnedSources(Value value) {
  if (!asTheyCame) {
    asTheyCame = NumberSets::kEmpty;
    for (const ValueGraph::Result &result : graph.getResults())
      if (Node passed = graph.getPassed(result.node);
          isa<BlockArgument>(graph.getValue(passed)))
        asTheyCame = sets.unite(*asTheyCame, sets.getSingle(passed));
  }
  std::optional<Node> node = graph.find(value);
  SmallVector<BlockArgument> inputs;
  if (!node || !isWeight[*node] || !sets.isSubset(leavesOf[*node], *asTheyCame))
    return inputs;
  for (Node leaf : sets.getNumbers(leavesOf[*node]))
    inputs.push_back(cast<BlockArgument>(graph.getValue(leaf)));
  return inputs;
}

BlockArgument GradientProver::getOnlyInput(Value value) {
  std::optional<Node> node = graph.find(value);
  if (!node)
    return {};
  SmallVector<size_t> leaves = sets.getNumbers(leavesOf[*node]);
  return leaves.size() == 1
             ? dyn_cast<BlockArgument>(graph.getValue(leaves.front()))
             : BlockArgument();
}
