//===- GradientProver.h - What shows that a sum is a gradient ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A shape proves nothing: a covariance of activations has that of a square
// weight. Two things tell a gradient from a statistic: its partner, and its
// name (docs/rules.md, R9 and R10).
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_GRADIENTPROVER_H
#define ZPP_LIB_ANALYSIS_ROLES_GRADIENTPROVER_H

#include "zpp/Analysis/Roles/NumberSets.h"
#include "zpp/Analysis/Roles/ValueGraph.h"
#include "llvm/ADT/DenseMap.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace zpp {

/// True for ops that contract their first two operands.
bool isProduct(mlir::Operation *op);

/// Returns the products that autodiff's transposition made.
NodeSet getTransposedProducts(const ValueGraph &graph);

/// True for ops that take rows of their first operand by number.
bool isLookup(mlir::Operation *op);

/// True for products and lookups; false for null.
bool isContraction(mlir::Operation *op);

/// True for ops that add rows by number: the transposes of lookups.
bool isScatter(mlir::Operation *op);

/// True for ops whose result changes in the direction in which an operand does:
/// sums, bounds, choices, moves and `tanh`.
bool keepsOrder(mlir::Operation *op);

/// True if a result of `op` is linear in its operands of these numbers
/// together.
bool isLinearIn(mlir::Operation *op, llvm::ArrayRef<int64_t> numbers);

/// Findings about one sum.
struct GradientProof {
  enum class Kind {
    /// No step of a proof holds; `why` says which one failed.
    None,
    /// It cannot be a gradient, whatever else is known; `why` says why.
    Statistic,
    /// It reduces what follows from a use of a weight of its size. Activations
    /// do so too, so a weight must be updated with it.
    Reduced,
    /// It contracts what a product with a weight has contracted with what
    /// follows from that product.
    Partner,
    /// Autodiff has made it, by its name.
    Name
  };
  Kind kind = Kind::None;
  std::string why;
  /// True if what it sums follows from something that autodiff has transposed.
  bool followsAutodiff = false;
  /// True if its partner is a product or a lookup, which tells weights from
  /// what is only added to activations or scales them, and no product with
  /// another weight could be it.
  bool isOfProduct = false;
  /// The gathers and inputs of the step of which the weight is made that the
  /// partner takes; empty without a partner. And those of them of which it
  /// holds elements: not a vector that only the norm of the weight follows
  /// from.
  llvm::SmallVector<mlir::Value> weights, direct;
};

/// A difference of sums, or of sums and inputs that are made of earlier ones.
struct GradientDifference {
  /// The numbers of the sums, also of those that update the inputs.
  llvm::SmallVector<size_t> sums;
  /// True if one of the two is an input.
  bool isToState;
  /// Results of the gathers that each of the two depends on, where both are of
  /// this step.
  std::array<llvm::SmallVector<mlir::Value>, 2> points;
  /// If both are rows of one sum, which are computed from rows of weights that
  /// are gathered together: the number of rows. 0 otherwise.
  int64_t rows = 0;
  /// True if both are single numbers, at different points or none.
  bool isOfNumbers = false;
};

/// A gathered value, and the dim along which devices have parts of it.
struct GatheredValue {
  mlir::Value whole;
  int64_t dim;
};

/// Proves what sums are. Valid while the graph is.
class GradientProver {
public:
  /// `isData` is true for inputs of the step of which devices have different
  /// parts; `mayBeData` for those that are data if a device computes products
  /// with its own part, and parts of a weight otherwise.
  GradientProver(const ValueGraph &graph,
                 llvm::function_ref<bool(mlir::BlockArgument)> isData,
                 llvm::function_ref<bool(mlir::BlockArgument)> mayBeData);

  /// True if any op of the module has a name that autodiff gave it.
  bool hasNames() const { return graph.hasTransposed(); }

  GradientProof prove(mlir::Operation *sum);

  /// True if no element of `value` can be negative: a square, a count, a
  /// probability, or what sums, products and quotients make of such.
  bool isNeverNegative(mlir::Value value) const {
    std::optional<ValueGraph::Node> node = graph.find(value);
    return node && isNeverNegative(*node);
  }

  /// Returns the differences of `sums`: elements of one are subtracted from
  /// those of another one, or of an input that is made of earlier ones, before
  /// either is added to another input of the step. Weights are told apart by
  /// the way to sums for which `isGradient` is true, and through the others,
  /// such as those of activations.
  llvm::SmallVector<GradientDifference>
  getDifferences(llvm::ArrayRef<mlir::Operation *> sums,
                 llvm::function_ref<bool(mlir::Operation *)> isGradient);

  /// Returns the inputs of the step that `value` depends on, if it is made of
  /// inputs alone that the step returns as they came; empty otherwise.
  llvm::SmallVector<mlir::BlockArgument> getReturnedSources(mlir::Value value);

  /// Returns the only input of the step that `value` depends on, or null.
  mlir::BlockArgument getOnlyInput(mlir::Value value);

  /// For each of `inputs`, which has the values that gather it: whether the
  /// step takes it as a layer takes its weight (docs/rules.md, R16), though
  /// there may be no gradient of it.
  std::vector<bool>
  areLayerWeights(llvm::ArrayRef<llvm::SmallVector<GatheredValue>> inputs);

private:
  using Node = ValueGraph::Node;
  using Edge = ValueGraph::Edge;
  class Layers;
  class Differences;
  using Set = NumberSets::Set;

  /// A product, or another op, that takes a weight: in node `result`.
  struct Use {
    Node result, weight;
    /// The operand that it takes the weight with; -1 where none matters.
    Node other;
    /// The elements of the weight before it is broadcast.
    int64_t count;
  };

  /// Findings of the search for the partner of a sum: the use of a weight that
  /// shows that the sum is its gradient.
  struct Partner {
    /// The use, and what the sum contracts as this has; null without a partner.
    const Use *use = nullptr;
    Node contracted = -1;
    /// True if the use of no other weight could be it.
    bool isOnly = false;
    /// The use of a weight of the sum's size that what is reduced follows from;
    /// null if there is none.
    const Use *reduced = nullptr;
    /// True if nothing is mixed but products of values with themselves.
    bool isGramAlone = false;
    /// True if something else is contracted, or rows are added by number.
    bool contracts = false;
    /// Objections to uses that were found: what follows from one has no
    /// negative element, or may be no derivative.
    bool assigns = false, lacksDerivative = false;

    /// The reason why there is neither a use nor anything reduced.
    const char *getWhyNone() const;
  };

  bool isNeverNegative(Node node) const;
  void findLeaves();
  void findWeights(llvm::function_ref<bool(mlir::BlockArgument)> isData,
                   llvm::function_ref<bool(mlir::BlockArgument)> mayBeData);
  /// Returns the values that are moved into products with other weights,
  /// without collectives on the way.
  NodeSet findContracted();
  void findUses();
  void findAutodiff();
  /// True if autodiff has transposed the op of `node`. XLA shares constants, so
  /// that a statistic may start with zeros of the backward pass.
  bool isTransposed(Node node) const;

  /// Returns the leaves that may be weights and that `node` depends on.
  Set getWeightLeaves(Node node) {
    return sets.intersect(leavesOf[node], weightLeaves);
  }
  /// `node` before it was moved: cast, transposed, sliced, passed through a
  /// loop.
  Node strip(Node node) const;
  /// `node` before it was moved or multiplied with a number for all elements.
  Node stripScales(Node node) const;
  /// True if `from` depends on `on`. With `byDerivative`, over edges that a
  /// derivative passes. Not from iteration to iteration.
  bool depends(Node from, Node on, bool byDerivative) const;
  /// Calls `visit` for each node that `from` depends on by derivatives, and
  /// whose number is `first` at least, until it returns true.
  bool visitAncestors(Node from, Node first,
                      llvm::function_ref<bool(Node)> visit) const;
  /// The nodes that an element of `operand` is moved from, and those among
  /// them where elements are mixed. Returns true if one is a sign or rounded:
  /// no way leads further back from there.
  bool findWays(Node operand, llvm::SmallVectorImpl<Node> &path,
                llvm::SmallVectorImpl<Node> &mixing) const;

  /// A use that has contracted what `contracted` is, and from which `other`
  /// follows. `isEnough` may ask for more; `isOnly` is set if no other weight
  /// has such a use.
  const Use *findPartner(Node contracted, Node other,
                         llvm::function_ref<bool(const Use &)> isEnough,
                         bool &isOnly);
  /// Returns the uses among which findPartner() chooses, but for what
  /// `isEnough` says.
  llvm::SmallVector<size_t, 4> getCandidates(Node contracted, Node other);
  /// How certain it is that `use` is the one whose weight has a gradient that
  /// contracts `contracted`, from 0 to kHighestRank.
  int getRank(const Use &use, Node contracted) const;
  static constexpr int kHighestRank = 4;
  bool isCertain(const Use &use, Node contracted) const;
  /// Finds for each node the products with weights whose results it follows
  /// from by derivatives, not from iteration to iteration.
  void findProductsBefore();
  /// True if `node` multiplies two products of activations, element by element.
  bool multipliesProducts(Node node) const;
  /// Searches for the partner of a sum with elements that are mixed in the
  /// nodes `mixing`. With `isToldApart`, it is known otherwise what is a
  /// derivative.
  Partner searchPartner(llvm::ArrayRef<Node> mixing, bool isToldApart);
  /// Searches for it among the `ways` in which a node contracts: one operand
  /// each, with the other one. Returns whether it has been found.
  bool tryWays(llvm::ArrayRef<std::pair<Node, Node>> ways, bool isToldApart,
               Partner &partner);

  /// True if `other` follows from the result of `use` as a derivative does:
  /// over the difference to a target, or back through the weight of a later
  /// layer.
  bool isDerivative(const Use &use, Node contracted, Node other);
  /// True if a target is added to what follows from the first of `between`, and
  /// all that follows from this is linear in it.
  bool meetsTarget(llvm::ArrayRef<Node> between, Node contracted);
  /// True if one weight is multiplied with what follows from the first of
  /// `between` and then with what follows from that, and the rest is linear in
  /// it.
  bool comesBack(llvm::ArrayRef<Node> between);
  /// True if `node` depends on data of the batch that is not what the layer has
  /// computed `contracted` from.
  bool isTarget(Node node, Node contracted);
  /// True if the last of `between`, sorted nodes, is linear in `from`.
  bool isLinear(llvm::ArrayRef<Node> between, Node from) const;
  /// True if the step moves a tensor that it returns against the sum `result`,
  /// and not, as averages are, towards it.
  bool isDescent(Node result);
  /// Finds all such sums.
  Set findDescents();
  /// The collectives, by their results, whose elements a value grows with, and
  /// those that it shrinks with.
  struct Directions {
    Set up = NumberSets::kEmpty, down = NumberSets::kEmpty;
  };
  std::vector<Directions> findDirections();
  /// 1 if elements of `target` grow with those of the source of `edge`, -1 if
  /// they shrink with them; 0 if neither is known.
  int getDirection(const Edge &edge);
  /// Returns the sign of a factor that is a constant or a rate, or 0.
  int getSign(Node factor);
  int findSign(Node factor);

  const Use *findReduced(Node source);
  /// x of `(x - y) + y` or `(x + y) - y`, or -1 for other values.
  Node getKept(Node node) const;
  /// Returns the gathers and inputs that the weight of `use` is made of; with
  /// `isDirect`, those of which it holds elements.
  llvm::SmallVector<mlir::Value> getWeights(const Use &use,
                                            bool isDirect) const;
  void setWeights(GradientProof &proof, const Use &use) const;
  bool isGram(Node source) const;

  const ValueGraph &graph;
  /// Sets of nodes.
  NumberSets sets;
  /// The leaves that each node depends on, and all that may be weights, that
  /// devices have different parts of, or that hold integers of a batch.
  std::vector<Set> leavesOf;
  Set weightLeaves = NumberSets::kEmpty;
  Set batchLeaves = NumberSets::kEmpty, integerLeaves = NumberSets::kEmpty;
  /// The findings of findProductsBefore(), once it has been called.
  std::vector<Set> productsBefore;
  /// The findings of findDescents(), and the leaves that the step returns as
  /// they came, once they have been asked for.
  std::optional<Set> descents, asTheyCame;
  /// The signs of factors that have been asked for.
  llvm::DenseMap<Node, int> knownSigns;
  /// Values that depend on data; those made of weights without any; those that
  /// hold elements of a weight, also where a device has moved it by itself.
  NodeSet hasData, isWeight, isHeld;
  /// Values that hold elements of a product of activations, or that follow from
  /// what autodiff has transposed.
  NodeSet holdsProduct, isAfterAutodiff;
  std::vector<Use> uses;
  /// The uses at each result, and the results of those that contract, by the
  /// leaves that the other operand depends on.
  llvm::DenseMap<Node, llvm::SmallVector<size_t, 2>> usesAt;
  llvm::DenseMap<Set, Set> contractions;
  Node firstUse = -1;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_GRADIENTPROVER_H
