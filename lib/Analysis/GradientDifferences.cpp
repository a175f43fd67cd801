//===- GradientDifferences.cpp - Which gradients are subtracted -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What two gradients differ by has the errors of both, however little is left
// of them. One of the two may be of an earlier step: an input that is a
// gradient, or an average of gradients, such as the last gradient of L-BFGS or
// the momentum of AdaBelief. A momentum may also be kept negated, so signs
// tell a difference from a sum: `b * m - rate * g` adds up where `m` has been
// made of `-g`.
//
//===----------------------------------------------------------------------===//

#include "GradientSearch.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;

namespace {

/// Parts of a value: gradients, negated ones, and the same of their squares and
/// absolute values.
enum : char { kUp = 1, kDown = 2, kSquareUp = 4, kSquareDown = 8 };

char flip(char signs) {
  return ((signs & (kUp | kSquareUp)) << 1) |
         ((signs & (kDown | kSquareDown)) >> 1);
}

/// The product of two such values: squares have a sign of their own.
char getProduct(char left, char right) {
  auto has = [](char signs, char sign) { return (signs & sign) != 0; };
  if (((left | right) & (kSquareUp | kSquareDown)) != 0)
    return 0;
  bool isUp = (has(left, kUp) && has(right, kUp)) ||
              (has(left, kDown) && has(right, kDown));
  bool isDown = (has(left, kUp) && has(right, kDown)) ||
                (has(left, kDown) && has(right, kUp));
  return (isUp ? kSquareUp : 0) | (isDown ? kSquareDown : 0);
}

/// True if something of `left` is taken away by `right`.
bool areOpposed(char left, char right) { return (left & flip(right)) != 0; }

} // namespace

/// Finds the differences of one step.
class GradientProver::Search::Differences {
public:
  Differences(const Search &search, ArrayRef<Operation *> sums)
      : search(search), graph(search.graph), words(search.words),
        holdsSum(graph.size()) {
    for (auto [index, sum] : llvm::enumerate(sums))
      if (std::optional<Node> node = graph.find(sum->getResult(0))) {
        numbers[*node] = index;
        holdsSum[*node] = true;
        operands.push_back(graph.find(sum->getOperand(0)).value_or(*node));
      }
    graph.markForward(holdsSum, [&](const Edge &edge, Node target) {
      return isMoved(edge, target);
    });
    findHeld();
    findMemories();
  }

  SmallVector<GradientDifference> find() {
    SmallVector<GradientDifference> found;
    for (Node node = 0; node < graph.size(); ++node)
      if (std::optional<GradientDifference> difference = getAt(node))
        found.push_back(std::move(*difference));
    return found;
  }

private:
  /// Sums and inputs of the step, by number or leaf.
  struct Terms {
    SmallVector<size_t> sums;
    SmallVector<size_t> leaves;
  };

  bool isMoved(const Edge &edge, Node target) const {
    return edge.isMoved && isDifferentiable(graph.getValue(target).getType());
  }

  bool has(const std::vector<uint64_t> &bits, Node node, size_t index) const {
    return bits[node * words + index / 64] >> (index % 64) & 1;
  }

  bool isInput(Node leaf) const {
    auto input = dyn_cast<BlockArgument>(graph.getValue(leaf));
    return input && isDifferentiable(input.getType()) &&
           getCount(input.getType()) != 1;
  }

  /// Passes bits of leaves on along edges that `follows` accepts.
  void passOn(std::vector<uint64_t> &bits,
              llvm::function_ref<bool(const Edge &, Node)> follows) const {
    for (bool isChanged = words > 0; isChanged;) {
      isChanged = false;
      for (Node node = 0; node < graph.size(); ++node)
        for (const Edge &edge : graph.getSources(node))
          if (follows(edge, node))
            for (size_t word = 0; word < words; ++word) {
              uint64_t &own = bits[node * words + word];
              uint64_t more = own | bits[edge.node * words + word];
              isChanged |= more != own;
              own = more;
            }
    }
  }

  /// Finds the inputs whose elements each value holds, other than through
  /// sums, and those that the sums are computed from.
  void findHeld() {
    held.assign(words * graph.size(), 0);
    std::vector<uint64_t> before(words * graph.size());
    for (auto [index, leaf] : llvm::enumerate(graph.getLeaves()))
      if (isInput(leaf)) {
        held[leaf * words + index / 64] |= uint64_t(1) << (index % 64);
        before[leaf * words + index / 64] |= uint64_t(1) << (index % 64);
      }
    passOn(held, [&](const Edge &edge, Node target) {
      return isMoved(edge, target) && !numbers.contains(target);
    });
    // Another network may be trained with weights that the step has updated:
    // its gradients follow from their momenta.
    llvm::DenseSet<Node> results;
    for (Node node : graph.getReturned())
      for (Node passed : {node, graph.getPassed(node)})
        if (!graph.getSources(passed).empty())
          results.insert(passed);
    passOn(before, [&](const Edge &edge, Node) {
      return !results.contains(edge.node);
    });
    weights.assign(words, 0);
    for (Node operand : operands)
      for (size_t word = 0; word < words; ++word)
        weights[word] |= before[operand * words + word];
  }

  /// True if `node` holds elements of an input that `bits` lacks.
  bool holdsOther(Node node, ArrayRef<uint64_t> bits) const {
    for (size_t word = 0; word < words; ++word)
      if (held[node * words + word] & ~bits[word])
        return true;
    return false;
  }

  static bool contains(ArrayRef<uint64_t> bits, size_t index) {
    return bits[index / 64] >> (index % 64) & 1;
  }

  bool isWeight(size_t index) const { return contains(weights, index); }

  /// Returns the inputs of which the step makes weights of another type:
  /// masters in f32, or the parts that a device has of them. Updates add up in
  /// these as in a weight.
  std::vector<uint64_t> getMasters() const {
    ArrayRef<Node> leaves = graph.getLeaves();
    llvm::DenseSet<Type> weightTypes;
    for (auto [index, leaf] : llvm::enumerate(leaves))
      if (isWeight(index))
        weightTypes.insert(graph.getValue(leaf).getType());
    std::vector<uint64_t> masters(words), others(words);
    for (size_t word = 0; word < words; ++word)
      others[word] = ~weights[word];
    for (Node result : graph.getReturned()) {
      Type type = graph.getValue(result).getType();
      if (!weightTypes.contains(type) || holdsOther(result, others))
        continue;
      for (auto [index, leaf] : llvm::enumerate(leaves))
        if (has(held, result, index) && graph.getValue(leaf).getType() != type)
          masters[index / 64] |= uint64_t(1) << (index % 64);
    }
    return masters;
  }

  /// Finds the inputs that are made of earlier gradients: none from which
  /// gradients are computed, no masters of weights, and for which the step
  /// returns something that is made of gradients and such inputs alone.
  void findMemories() {
    std::vector<uint64_t> candidates(words), masters = getMasters();
    for (auto [index, leaf] : llvm::enumerate(graph.getLeaves()))
      if (isInput(leaf) && !isWeight(index) && !contains(masters, index))
        candidates[index / 64] |= uint64_t(1) << (index % 64);
    signs = getSigns({});
    memories.assign(words, 0);
    SmallVector<std::pair<Node, char>> known;
    for (auto [index, leaf] : llvm::enumerate(graph.getLeaves())) {
      if (!contains(candidates, index))
        continue;
      Type type = graph.getValue(leaf).getType();
      SmallVector<Node> updated, fresh;
      for (Node result : graph.getReturned())
        if (graph.getValue(result).getType() == type && holdsSum[result] &&
            !holdsOther(result, candidates))
          (has(held, result, index) ? updated : fresh).push_back(result);
      char sign = 0;
      SmallVector<size_t> sums;
      for (Node result : updated.empty() ? fresh : updated) {
        sign |= signs[result];
        llvm::append_range(sums, getTerms(result).sums);
      }
      if (!sign)
        continue;
      memories[index / 64] |= uint64_t(1) << (index % 64);
      known.push_back({leaf, sign});
      sumsOf[index] = std::move(sums);
    }
    if (known.empty())
      return;
    signs = getSigns(known);
    findHarmless();
    signs = getSigns(known);
  }

  /// The parts that the edge to `target` passes on, by those of all nodes.
  char pass(Node target, const Edge &edge, ArrayRef<char> found) const {
    char signs = found[edge.node];
    Operation *op = graph.getOp(target);
    if (!signs || !edge.isMoved || !edge.isDifferentiable)
      return 0;
    if (!op || edge.operand < 0)
      return signs;
    SmallVector<Node> operands = graph.getOperands(target);
    auto getTimes = [&](Node factor) {
      return factor >= 0 && search.getSign(factor) < 0 ? flip(signs) : signs;
    };
    if (isNamed(op, guest::kNegate))
      return flip(signs);
    if (isNamed(op, guest::kSubtract))
      return edge.operand == 1 ? flip(signs) : signs;
    if (isNamed(op, guest::kMultiply)) {
      Node factor = operands[1 - edge.operand];
      char other = factor < 0 ? 0 : found[factor];
      return other ? getProduct(signs, other) : getTimes(factor);
    }
    if (isNamed(op, guest::kAbs))
      return kSquareUp;
    if (isNamed(op, guest::kDivide))
      return edge.operand == 0 ? getTimes(operands[1]) : 0;
    return keepsOrder(op) || op->getName().stripDialect() == "sqrt" ? signs : 0;
  }

  /// The parts that each value has of the sums, and of `known` inputs.
  std::vector<char> getSigns(ArrayRef<std::pair<Node, char>> known) const {
    std::vector<char> found(graph.size());
    for (auto [node, number] : numbers)
      found[node] = kUp;
    for (auto [node, sign] : known)
      found[node] = sign;
    for (bool isChanged = true; isChanged;) {
      isChanged = false;
      for (Node node = 0; node < graph.size(); ++node) {
        if (numbers.contains(node) || harmless.contains(node))
          continue;
        for (const Edge &edge : graph.getSources(node))
          if (char more = found[node] | pass(node, edge, found);
              more != found[node]) {
            found[node] = more;
            isChanged = true;
          }
      }
    }
    return found;
  }

  /// The sums whose elements `node` holds, and the inputs.
  Terms getTerms(Node node) const {
    Terms terms;
    llvm::DenseSet<Node> seen{node};
    SmallVector<Node> pending{node};
    while (!pending.empty()) {
      Node next = pending.pop_back_val();
      if (auto number = numbers.find(next); number != numbers.end()) {
        terms.sums.push_back(number->second);
        continue;
      }
      for (const Edge &edge : graph.getSources(next))
        if (edge.isMoved && !edge.isCarried && holdsSum[edge.node] &&
            seen.insert(edge.node).second)
          pending.push_back(edge.node);
    }
    llvm::sort(terms.sums);
    for (size_t index = 0; index < graph.getLeaves().size(); ++index)
      if (has(held, node, index))
        terms.leaves.push_back(index);
    return terms;
  }

  std::optional<GradientDifference> getAt(Node node) {
    Operation *op = graph.getOp(node);
    if (!op || !holdsSum[node] || harmless.contains(node) ||
        !(isNamed(op, guest::kSubtract) || isNamed(op, guest::kAdd)))
      return std::nullopt;
    SmallVector<Node> operands = graph.getOperands(node);
    if (operands[0] < 0 || operands[1] < 0 ||
        holdsOther(operands[0], memories) || holdsOther(operands[1], memories))
      return std::nullopt;
    bool subtracts = isNamed(op, guest::kSubtract);
    auto isNegated = [&](Node operand) {
      Operation *from = graph.getOp(operand);
      return from && isNamed(from, guest::kNegate);
    };
    // Sums of this step alone, whatever factors they have.
    bool isOfStep =
        (subtracts || isNegated(operands[0]) != isNegated(operands[1])) &&
        llvm::all_of(operands, [&](Node operand) {
          return holdsSum[operand] &&
                 !holdsOther(operand, SmallVector<uint64_t>(words));
        });
    char right = signs[operands[1]];
    if (!isOfStep &&
        !areOpposed(signs[operands[0]], subtracts ? flip(right) : right))
      return std::nullopt;
    Terms left = getTerms(operands[0]), other = getTerms(operands[1]);
    if (left.sums == other.sums && left.leaves == other.leaves)
      return std::nullopt;
    GradientDifference difference{
        std::move(left.sums), !left.leaves.empty() || !other.leaves.empty()};
    llvm::append_range(difference.sums, other.sums);
    for (size_t leaf : llvm::concat<size_t>(left.leaves, other.leaves))
      llvm::append_range(difference.sums, sumsOf[leaf]);
    return difference;
  }

  /// Finds the differences to inputs that are no loss.
  void findHarmless() {
    for (Node node = 0; node < graph.size(); ++node) {
      Operation *op = graph.getOp(node);
      if (!op || !holdsSum[node] || !isNamed(op, guest::kSubtract))
        continue;
      SmallVector<Node> operands = graph.getOperands(node);
      if (operands[0] >= 0 && operands[1] >= 0 &&
          areOpposed(signs[operands[0]], flip(signs[operands[1]])) &&
          isHarmless(node, operands[0], operands[1]))
        harmless.insert(node);
    }
  }

  /// True if `left - right` is only a step of an average from one to the
  /// other, `right + c * (left - right)`, or if only its signs count.
  bool isHarmless(Node difference, Node left, Node right) {
    if (targets.empty()) {
      targets.resize(graph.size());
      for (Node node = 0; node < graph.size(); ++node)
        for (const Edge &edge : graph.getSources(node))
          targets[edge.node].push_back({node, &edge});
    }
    auto isSame = [&](Node a, Node b) {
      return a >= 0 && search.strip(a) == search.strip(b);
    };
    llvm::DenseSet<Node> seen{difference};
    SmallVector<Node> pending{difference};
    while (!pending.empty()) {
      Node next = pending.pop_back_val();
      if (llvm::is_contained(graph.getReturned(), next))
        return false;
      for (auto [target, edge] : targets[next]) {
        if (!edge->isDifferentiable)
          continue;
        Operation *op = graph.getOp(target);
        SmallVector<Node> operands = graph.getOperands(target);
        if (op && isNamed(op, guest::kAdd) &&
            isSame(operands[1 - edge->operand], right))
          continue;
        if (op && isNamed(op, guest::kSubtract) && edge->operand == 1 &&
            isSame(operands[0], left))
          continue;
        bool isScaled = op && edge->operand >= 0 &&
                        ((isNamed(op, guest::kMultiply) &&
                          search.isNumber(operands[1 - edge->operand])) ||
                         (isNamed(op, guest::kDivide) && edge->operand == 0 &&
                          search.isNumber(operands[1])));
        if (edge->operand >= 0 && !isScaled && !(op && isDataMovement(op)))
          return false;
        if (seen.insert(target).second)
          pending.push_back(target);
      }
    }
    return true;
  }

  const Search &search;
  const ValueGraph &graph;
  size_t words;
  /// The number of each sum, by the node of its result, and their operands.
  llvm::DenseMap<Node, size_t> numbers;
  SmallVector<Node> operands;
  /// Values that hold elements of a sum.
  std::vector<char> holdsSum;
  /// For each node, the inputs of which it holds elements: a bit per leaf.
  std::vector<uint64_t> held;
  /// The inputs that gradients are computed from, and those made of gradients.
  std::vector<uint64_t> weights, memories;
  /// The sums that update such an input.
  llvm::DenseMap<size_t, SmallVector<size_t>> sumsOf;
  std::vector<char> signs;
  /// Differences by which an average only moves.
  llvm::DenseSet<Node> harmless;
  /// The edges that leave each node.
  std::vector<SmallVector<std::pair<Node, const Edge *>, 2>> targets;
};

SmallVector<GradientDifference>
GradientProver::Search::getDifferences(ArrayRef<Operation *> sums) {
  return Differences(*this, sums).find();
}
