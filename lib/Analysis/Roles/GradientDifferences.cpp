//===- GradientDifferences.cpp - Which gradients are subtracted -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What two gradients differ by has the errors of both. One may be of an earlier
// step, such as the last gradient of L-BFGS or the momentum of AdaBelief. A
// momentum may be kept negated, so signs tell a difference from a sum:
// `b * m - rate * g` adds up where `m` has been made of `-g`.
//
//===----------------------------------------------------------------------===//

#include "GradientPoints.h"
#include "GradientProver.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;
using Direction = ValueGraph::Direction;

namespace {

/// Parts of a value: gradients, negated ones, and the same of their squares and
/// absolute values.
enum : char { kUp = 1, kDown = 2, kSquareUp = 4, kSquareDown = 8 };

char flip(char signs) {
  return ((signs & (kUp | kSquareUp)) << 1) |
         ((signs & (kDown | kSquareDown)) >> 1);
}

/// True if something of `left` is taken away by `right`.
bool areOpposed(char left, char right) { return (left & flip(right)) != 0; }

/// Returns the product of two such values: squares have a sign of their own.
char getProduct(char left, char right) {
  if (((left | right) & (kSquareUp | kSquareDown)) != 0)
    return 0;
  return ((left & right) != 0 ? kSquareUp : 0) |
         (areOpposed(left, right) ? kSquareDown : 0);
}

} // namespace

/// Finds the differences of one step.
class GradientProver::Differences {
public:
  Differences(GradientProver &search, ArrayRef<Operation *> sums,
              llvm::function_ref<bool(Operation *)> isGradient)
      : search(search), graph(search.graph), sets(search.sets),
        isGradient(isGradient), holdsSum(graph) {
    for (auto [index, sum] : llvm::enumerate(sums))
      if (std::optional<Node> node = graph.find(sum->getResult(0))) {
        numbers[*node] = index;
        holdsSum[*node] = true;
        operands.push_back(graph.find(sum->getOperand(0)).value_or(*node));
        operandOf[index] = operands.back();
      }
    graph.mark(holdsSum, Direction::ToReaders,
               [&](const Edge &edge) { return isMoved(edge); });
    findHeld();
    findWeights();
    findMemories();
  }

  SmallVector<GradientDifference> find() {
    SmallVector<GradientDifference> found;
    for (Node node = 0; node < graph.size(); ++node)
      if (std::optional<GradientDifference> difference = getAt(node))
        found.push_back(std::move(*difference));
      else if (auto ofNumbers = getOfNumbers(node))
        found.push_back(std::move(*ofNumbers));
    for (Node operand : operands)
      findInOperand(operand, found);
    return found;
  }

private:
  /// The numbers of sums, and inputs of the step.
  struct Terms {
    SmallVector<size_t> sums;
    Set leaves;
  };

  bool isMoved(const Edge &edge) const {
    return edge.isMoved && graph.isDifferentiable(edge.target);
  }

  /// Nothing has verified the op.
  bool is(Node node, StringRef name) const {
    return graph.is(node, name) && graph.getOp(node)->getNumOperands() ==
                                       (name == guest::kNegate ? 1 : 2);
  }

  bool isInput(Node leaf) const {
    return graph.getInput(leaf) && graph.isDifferentiable(leaf) &&
           graph.getCount(leaf) != 1;
  }

  /// Finds the inputs whose elements each value holds, other than through sums.
  void findHeld() {
    held.assign(graph.size(), NumberSets::kEmpty);
    for (Node leaf : graph.getLeaves())
      if (isInput(leaf)) {
        held[leaf] = sets.getSingle(leaf);
        Set &ofType = inputsOf[graph.getType(leaf)];
        ofType = sets.unite(ofType, held[leaf]);
        inputs = sets.unite(inputs, held[leaf]);
      }
    graph.settle(Direction::ToReaders, [&](Node node) {
      if (numbers.contains(node))
        return false;
      Set known = held[node];
      for (const Edge &edge : graph.getSources(node))
        if (isMoved(edge))
          held[node] = sets.unite(held[node], held[edge.source]);
      return held[node] != known;
    });
  }

  Set getGathers(Node node) {
    if (!points)
      points.emplace(graph, sets, [&](Node sum) {
        return numbers.contains(sum) && isGradient(graph.getOp(sum));
      });
    return points->getGathers(node);
  }

  /// Returns what has been gathered to compute these sums.
  SmallVector<Value> getPoint(ArrayRef<size_t> sums) {
    Set gathers = NumberSets::kEmpty;
    for (size_t sum : sums)
      gathers = sets.unite(gathers, getGathers(operandOf.at(sum)));
    return points->getValues(gathers);
  }

  /// Returns the difference of `terms`, at points that these gathers tell.
  GradientDifference getBetween(ArrayRef<Node> terms, Set left, Set right) {
    int64_t rows = getStackedRows(graph, terms[0], terms[1]);
    return {
        {}, false, {points->getValues(left), points->getValues(right)}, rows};
  }

  /// Returns the difference of `node` if it subtracts or compares two numbers
  /// that are taken at two points of one weight: losses, or what is made of
  /// gradients.
  std::optional<GradientDifference> getOfNumbers(Node node) {
    SmallVector<Node> terms = graph.getOperands(node);
    if (!(is(node, guest::kSubtract) || is(node, guest::kCompare)) ||
        graph.getCount(node) != 1 || terms[0] < 0 || terms[1] < 0)
      return std::nullopt;
    getGathers(node);
    auto apart = points->findApart(terms[0], terms[1], held);
    if (!apart)
      return std::nullopt;
    auto difference = getBetween(terms, apart->first, apart->second);
    difference.isOfNumbers = true;
    for (Node term : terms)
      for (Node sum : sets.getNumbers(points->getSums(term)))
        difference.sums.push_back(numbers.at(sum));
    return difference;
  }

  /// Finds gradients that a device subtracts from each other before it sums
  /// them.
  void findInOperand(Node operand, SmallVectorImpl<GradientDifference> &found) {
    SmallVector<Node> path, mixing;
    search.findWays(operand, path, mixing);
    llvm::DenseSet<Node> onPath(path.begin(), path.end());
    for (Node node : path) {
      SmallVector<Node> terms = graph.getOperands(node);
      if (is(node, guest::kSubtract) &&
          llvm::all_of(terms, [&](Node term) { return onPath.contains(term); }))
        found.push_back(
            getBetween(terms, getGathers(terms[0]), getGathers(terms[1])));
    }
  }

  /// Finds the inputs that the sums are computed from.
  void findWeights() {
    // Another network may be trained with weights that the step has updated:
    // its gradients follow from their momenta.
    llvm::DenseSet<Node> results;
    for (const ValueGraph::Result &result : graph.getResults())
      for (Node passed : {result.node, graph.getPassed(result.node)})
        if (!graph.getSources(passed).empty())
          results.insert(passed);
    NodeSet isBefore(graph);
    for (Node operand : operands)
      isBefore[operand] = true;
    graph.mark(isBefore, Direction::ToSources, [&](const Edge &edge) {
      return !results.contains(edge.source);
    });
    for (Node leaf : graph.getLeaves())
      if (isBefore[leaf] && isInput(leaf))
        weights = sets.unite(weights, sets.getSingle(leaf));
  }

  /// Returns the inputs of which the step makes weights of another type:
  /// masters in f32, or the parts that a device has of them. Updates add up in
  /// these as in a weight.
  Set getMasters() {
    llvm::DenseSet<Type> weightTypes;
    for (Node leaf : sets.getNumbers(weights))
      weightTypes.insert(graph.getType(leaf));
    Set masters = NumberSets::kEmpty;
    for (const ValueGraph::Result &result : graph.getResults())
      if (Type type = graph.getType(result.node);
          weightTypes.contains(type) &&
          !sets.haveCommon(held[result.node], weights))
        masters = sets.unite(
            masters, sets.subtract(held[result.node], inputsOf.lookup(type)));
    return masters;
  }

  /// Results, of one type, that are made of sums and earlier gradients alone.
  struct Updates {
    /// All of them.
    SmallVector<Node> results;
    /// Those that hold elements of an input of that type, by the input.
    llvm::DenseMap<Node, SmallVector<Node>> ofInput;
    /// The number of the sums of all results in `sumLists`.
    std::optional<size_t> all;
  };

  llvm::DenseMap<Type, Updates> findUpdates(Set candidates) {
    llvm::DenseMap<Type, Updates> updates;
    for (const ValueGraph::Result &returned : graph.getResults()) {
      Node result = returned.node;
      if (!holdsSum[result] || !sets.isSubset(held[result], candidates))
        continue;
      Type type = graph.getType(result);
      Updates &ofType = updates[type];
      ofType.results.push_back(result);
      Set own = sets.intersect(held[result], inputsOf.lookup(type));
      for (Node leaf : sets.getNumbers(own))
        ofType.ofInput[leaf].push_back(result);
    }
    return updates;
  }

  /// Finds the inputs that are made of earlier gradients: none from which
  /// gradients are computed, no masters of weights, and for which the step
  /// returns something that is made of gradients and such inputs alone.
  void findMemories() {
    Set candidates =
        sets.subtract(sets.subtract(inputs, weights), getMasters());
    signs = getSigns({});
    SmallVector<std::pair<Node, char>> known;
    llvm::DenseMap<Type, Updates> updates = findUpdates(candidates);
    auto addSums = [&](ArrayRef<Node> results) {
      SmallVector<size_t> &sums = sumLists.emplace_back();
      for (Node result : results)
        llvm::append_range(sums, getTerms(result).sums);
      return sumLists.size() - 1;
    };
    for (Node leaf : sets.getNumbers(candidates)) {
      auto ofType = updates.find(graph.getType(leaf));
      if (ofType == updates.end())
        continue;
      Updates &update = ofType->second;
      auto own = update.ofInput.find(leaf);
      bool isOwn = own != update.ofInput.end();
      ArrayRef<Node> results(isOwn ? own->second : update.results);
      char sign = 0;
      // A result that is made of another one has an input of its own.
      for (Node result : results)
        if (!isOwn || llvm::none_of(results, [&](Node other) {
              return held[other] != held[result] &&
                     sets.isSubset(held[other], held[result]);
            }))
          sign |= signs[result];
      if (!sign)
        continue;
      memories = sets.unite(memories, sets.getSingle(leaf));
      known.push_back({leaf, sign});
      if (!isOwn && !update.all)
        update.all = addSums(results);
      sumsOf[leaf] = isOwn ? addSums(results) : *update.all;
    }
    if (known.empty())
      return;
    signs = getSigns(known);
    findHarmless();
    if (!harmless.empty())
      signs = getSigns(known);
  }

  /// The parts that an edge passes on, by those of all nodes.
  char pass(const Edge &edge, ArrayRef<char> found) const {
    char signs = found[edge.source];
    if (!signs || !edge.isMoved || !edge.isDifferentiable)
      return 0;
    Operation *op = graph.getOp(edge.target);
    if (!op || edge.operand < 0 || op->getName().stripDialect() == "sqrt")
      return signs;
    if (isNamed(op, guest::kAbs))
      return kSquareUp;
    int direction = 0;
    if (isNamed(op, guest::kMultiply)) {
      Node factor = graph.getOperand(edge.target, 1 - edge.operand);
      if (factor >= 0 && found[factor])
        return getProduct(signs, found[factor]);
      direction = factor >= 0 && search.getSign(factor) < 0 ? -1 : 1;
    } else {
      direction = search.getDirection(edge);
    }
    return direction < 0 ? flip(signs) : direction > 0 ? signs : 0;
  }

  /// Returns the parts that each value has of the sums, and of `known` inputs.
  std::vector<char> getSigns(ArrayRef<std::pair<Node, char>> known) const {
    std::vector<char> found(graph.size());
    for (auto [node, number] : numbers)
      found[node] = kUp;
    for (auto [node, sign] : known)
      found[node] = sign;
    graph.settle(Direction::ToReaders, [&](Node node) {
      if (numbers.contains(node) || harmless.contains(node))
        return false;
      char before = found[node];
      for (const Edge &edge : graph.getSources(node))
        found[node] |= pass(edge, found);
      return found[node] != before;
    });
    return found;
  }

  /// The sums whose elements `node` holds, and the inputs.
  Terms getTerms(Node node) const {
    Terms terms{{}, held[node]};
    graph.walk(
        node, Direction::ToSources,
        [&](const Edge &edge) {
          return edge.isMoved && !edge.isCarried && holdsSum[edge.source] &&
                 !numbers.contains(edge.target);
        },
        [&](Node next) {
          if (auto number = numbers.find(next); number != numbers.end())
            terms.sums.push_back(number->second);
          return false;
        });
    llvm::sort(terms.sums);
    return terms;
  }

  std::optional<GradientDifference> getAt(Node node) {
    bool subtracts = is(node, guest::kSubtract);
    if (!holdsSum[node] || harmless.contains(node) ||
        !(subtracts || is(node, guest::kAdd)))
      return std::nullopt;
    SmallVector<Node> operands = graph.getOperands(node);
    if (llvm::any_of(operands, [&](Node operand) {
          return operand < 0 || !sets.isSubset(held[operand], memories);
        }))
      return std::nullopt;
    // Sums of this step alone, whatever factors they have.
    bool isOfStep =
        (subtracts ||
         is(operands[0], guest::kNegate) != is(operands[1], guest::kNegate)) &&
        llvm::all_of(operands, [&](Node operand) {
          return holdsSum[operand] && held[operand] == NumberSets::kEmpty;
        });
    char right = signs[operands[1]];
    if (!isOfStep &&
        !areOpposed(signs[operands[0]], subtracts ? flip(right) : right))
      return std::nullopt;
    Terms left = getTerms(operands[0]), other = getTerms(operands[1]);
    bool isSame = left.sums == other.sums && left.leaves == other.leaves;
    int64_t rows = isSame ? getStackedRows(graph, operands[0], operands[1]) : 0;
    if (isSame && rows == 0)
      return std::nullopt;
    Set leaves = sets.unite(left.leaves, other.leaves);
    GradientDifference difference{
        left.sums, leaves != NumberSets::kEmpty, {}, rows};
    llvm::append_range(difference.sums, other.sums);
    if (!left.sums.empty() && !other.sums.empty())
      difference.points = {getPoint(left.sums), getPoint(other.sums)};
    for (Node leaf : sets.getNumbers(leaves))
      llvm::append_range(difference.sums, sumLists[sumsOf.at(leaf)]);
    return difference;
  }

  /// Finds the differences to inputs that are no loss.
  void findHarmless() {
    for (Node node = 0; node < graph.size(); ++node) {
      if (!holdsSum[node] || !is(node, guest::kSubtract))
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
    auto isSame = [&](Node a, Node b) {
      return a >= 0 && search.strip(a) == search.strip(b);
    };
    // True for what scales or moves the difference.
    auto leadsOn = [&](const Edge &edge) {
      Operation *op = graph.getOp(edge.target);
      return edge.operand < 0 || isDataMovement(op) ||
             ((isNamed(op, guest::kMultiply) ||
               (isNamed(op, guest::kDivide) && edge.operand == 0)) &&
              graph.isNumber(graph.getOperand(edge.target, 1 - edge.operand)));
    };
    // True where a step from one to the other ends.
    auto ends = [&](const Edge &edge) {
      Node other = graph.getOperand(edge.target, 1 - edge.operand);
      return !edge.isDifferentiable ||
             (graph.is(edge.target, guest::kAdd) && isSame(other, right)) ||
             (graph.is(edge.target, guest::kSubtract) && edge.operand == 1 &&
              isSame(other, left));
    };
    auto isReturned = [&](Node node) {
      return llvm::any_of(graph.getResults(),
                          [&](const ValueGraph::Result &result) {
                            return result.node == node;
                          });
    };
    return !graph.walk(
        difference, Direction::ToReaders,
        [&](const Edge &edge) { return !ends(edge); },
        [&](Node node) {
          return isReturned(node) ||
                 llvm::any_of(graph.getReaders(node), [&](const Edge &edge) {
                   return !ends(edge) && !leadsOn(edge);
                 });
        });
  }

  GradientProver &search;
  const ValueGraph &graph;
  NumberSets &sets;
  llvm::function_ref<bool(Operation *)> isGradient;
  /// The number of each sum, by the node of its result, and their operands.
  llvm::DenseMap<Node, size_t> numbers;
  SmallVector<Node> operands;
  llvm::DenseMap<size_t, Node> operandOf;
  std::optional<GradientPoints> points;
  /// Values that hold elements of a sum.
  NodeSet holdsSum;
  /// The inputs of which each node holds elements.
  std::vector<Set> held;
  /// All inputs of floating-point numbers, also by type; those that gradients
  /// are computed from; and those made of gradients.
  Set inputs = NumberSets::kEmpty, weights = NumberSets::kEmpty,
      memories = NumberSets::kEmpty;
  llvm::DenseMap<Type, Set> inputsOf;
  /// The sums that update such an input, as an index of `sumLists`.
  llvm::DenseMap<Node, size_t> sumsOf;
  SmallVector<SmallVector<size_t>> sumLists;
  std::vector<char> signs;
  /// Differences by which an average only moves.
  llvm::DenseSet<Node> harmless;
};

SmallVector<GradientDifference> GradientProver::getDifferences(
    ArrayRef<Operation *> sums,
    llvm::function_ref<bool(Operation *)> isGradient) {
  return Differences(*this, sums, isGradient).find();
}
