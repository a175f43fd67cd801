//===- Exchanges.cpp - Rows that travel to experts and back ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A mixture of experts sends the row of each token to the devices that have its
// experts, and back. An all-to-all of rows is known by the experts: on one side
// of it, a product contracts the elements of a row with a weight, or makes them
// with one, and each device of the group has a weight of its own for that. The
// same holds for the cotangents of a backward pass. Masks, gates, tables of
// positions and what sequence parallelism exchanges have no such product.
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/Roles/Divisions.h"
#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;
using Direction = ValueGraph::Direction;

/// The longest way between an exchange and its expert.
static constexpr int64_t kMostMoves = 256;

/// True for what makes probabilities or gates.
static bool isExponential(Operation *op) {
  return op && (isNamed(op, guest::kExponential) ||
                op->getName().stripDialect() == "logistic");
}

/// True if `op` bears what has been rounded: it moves, adds up or scales its
/// operand.
static bool bearsRounding(Operation *op, unsigned operand) {
  return (isLinearIn(op, {operand}) || isScatter(op)) &&
         !op->getName().stripDialect().starts_with("bitcast");
}

/// Proves that all-to-alls move rows of activations, or of their cotangents, to
/// experts or from them.
class RoleFinder::ExchangeChoice {
public:
  ExchangeChoice(RoleFinder &finder, const NodeSet &ancestors)
      : finder(finder), graph(finder.graph), flow(finder.flow),
        ancestors(ancestors) {
    for (const StepCollective &collective : finder.collectives) {
      if (collective.kind == CollectiveKind::AllGather)
        gathers[collective.op] = &collective;
      hasDifferences |= collective.rule == Rule::Difference;
    }
    findWeights();
    hasDifferences =
        hasDifferences || !finder.atPoints.empty() ||
        subtractsOwnGradients(graph, flow,
                              llvm::to_vector(llvm::make_first_range(weights)));
  }

  std::optional<Objection> check(StepCollective &exchange) {
    Operation *op = exchange.op;
    auto concatenated = op->getAttrOfType<IntegerAttr>("concat_dimension");
    auto type = op->getNumOperands() == 1 && op->getNumResults() == 1
                    ? dyn_cast<RankedTensorType>(op->getOperand(0).getType())
                    : RankedTensorType();
    if (!concatenated || !type || !isFloatTensor(type) ||
        !isFloatTensor(op->getResult(0).getType()))
      return Objection{Rule::Form,
                       "it exchanges no single tensor of f32, bf16 or f16"};
    // What is near the largest number may become infinite.
    if (type.getElementType().isF16())
      return Objection{Rule::Exchange, "its rows are f16, and large elements "
                                       "could become infinite"};
    int64_t dim = getRowDim(type);
    if (exchange.dim >= dim || concatenated.getInt() >= dim)
      return Objection{Rule::Exchange, "it cuts along its last dim, or puts "
                                       "together along it: it moves no whole "
                                       "rows"};
    if (const ValueGraph::Result *reached =
            flow.getReachedResult(op->getResult(0)))
      return Objection{Rule::State,
                       "it exchanges state: result " + reached->describe() +
                           " of the step holds it, element by element"};
    if (flow.holdsStepInput(op->getOperand(0)))
      return Objection{Rule::Input, "it exchanges what the step takes: data, "
                                    "state or weights"};
    if (!ancestors.contains(op->getResult(0)))
      return Objection{Rule::Use,
                       "no gradient is computed from what it exchanges"};
    if (hasDifferences)
      return Objection{Rule::Difference,
                       "the step subtracts gradients from each other, or "
                       "losses, and may compute them with what it exchanges"};
    if (std::optional<std::string> bits =
            finder.getBits().explain(op->getOperand(0), op->getResult(0)))
      return Objection{Rule::Bits,
                       "its elements are bits, not numbers: " + *bits};
    if (std::optional<Objection> objection = checkRows(exchange, dim))
      return objection;
    return chooseRowBlock(exchange, type.getDimSize(dim), Rule::Exchange);
  }

private:
  /// A value, and the dim of it along which rows have their elements.
  using Rows = std::pair<Node, int64_t>;

  /// R20: `exchange` moves rows along dim `dim` to experts, or from them.
  std::optional<Objection> checkRows(const StepCollective &exchange,
                                     int64_t dim) {
    std::optional<Node> operand = graph.find(exchange.op->getOperand(0));
    std::optional<Node> result = graph.find(exchange.op->getResult(0));
    if (!operand || !result)
      return Objection{Rule::Exchange, "nothing is known of what it moves"};
    if (isOfWeights(*operand))
      return Objection{Rule::Exchange,
                       "it moves what is made of weights alone"};
    made.clear();
    hasProduct = false;
    bool isMade = areMade({*operand, dim}, exchange.axes, 0) && hasProduct;
    bool isCut = false;
    if (!areTaken({*result, dim}, exchange.axes, isCut) && !isMade)
      return Objection{
          Rule::Exchange,
          "it moves no rows of experts: no product with a weight that each "
          "device has for itself takes or makes them; weights-of names "
          "weights"};
    if (!isMade && !isActivation(*operand))
      return Objection{Rule::Exchange,
                       "it moves masks, numbers or probabilities, not "
                       "activations"};
    Operation *reader = findOtherReader(*result);
    if (!(isMade && reader) && (isCut || areJoined({*operand, dim}, isMade)))
      return Objection{Rule::Exchange,
                       "its rows have parts that are used in different ways"};
    if (reader)
      return Objection{Rule::Exchange,
                       "what arrives is not only moved, added up and "
                       "scaled, but read by " +
                           reader->getName().getStringRef().str()};
    return {};
  }

  //===--------------------------------------------------------------------===//
  // Weights
  //===--------------------------------------------------------------------===//

  /// Finds the inputs of the step that hold weights which it updates with what
  /// autodiff has made, or that the user names, where devices have parts of
  /// them: no codebooks, which it moves towards activations.
  void findWeights() {
    NodeSet follows = getTransposedProducts(graph);
    graph.mark(follows, Direction::ToReaders,
               [](const Edge &) { return true; });
    SmallVector<Value> results = llvm::map_to_vector(
        graph.getResults(), [&](const ValueGraph::Result &result) {
          return graph.getValue(result.node);
        });
    llvm::DenseSet<Value> trained;
    for (auto [result, input] :
         llvm::zip_equal(results, flow.getHeldInputs(results, ancestors)))
      if (input && follows.contains(result) &&
          input.getType() == result.getType())
        trained.insert(input);
    for (auto &[input, axes] : finder.splitInputs)
      if (trained.contains(input) ||
          (isFloatTensor(input.getType()) &&
           finder.declared.weights.contains(cast<BlockArgument>(input))))
        weights[input] = axes;
  }

  /// True if rows are taken along `edge` as they are, or each element by
  /// itself.
  bool movesRows(const Edge &edge) const {
    Operation *op = graph.getOp(edge.target);
    return !op || edge.operand < 0 || edge.isMoved ||
           (isLookup(op) && edge.operand == 0) ||
           (isScatter(op) && edge.operand != 1);
  }

  bool isProductOfTwo(Node node) const {
    return graph.is(node, guest::kDotGeneral);
  }

  bool isOfWeights(Node node) const {
    return node >= 0 && flow.isMadeOfWeights(graph.getValue(node));
  }

  /// True if `node` is made of weights, moved and changed element by element,
  /// of which each device along `axes` has parts of its own: nothing has
  /// gathered them along any.
  bool isOwn(Node node, ArrayRef<AxisRef> axes) {
    if (node < 0)
      return false;
    for (const auto &[known, nodes] : own)
      if (ArrayRef(known) == axes)
        return nodes[node];
    NodeSet found(graph);
    for (Node leaf : graph.getLeaves()) {
      const auto *weight = weights.find(graph.getValue(leaf));
      found[leaf] = weight != weights.end() &&
                    llvm::all_of(axes, [&](const AxisRef &axis) {
                      return covers(weight->second, axis);
                    });
    }
    auto staysOwn = [&](Operation *op) {
      std::optional<CollectiveKind> kind =
          op ? getGuestCollective(op) : std::nullopt;
      const StepCollective *gather = gathers.lookup(op);
      return !kind || (gather && gather->groupError.empty() &&
                       llvm::none_of(gather->axes, [&](const AxisRef &axis) {
                         return llvm::any_of(axes, [&](const AxisRef &other) {
                           return other.name == axis.name;
                         });
                       }));
    };
    graph.mark(found, Direction::ToReaders, [&](const Edge &edge) {
      return edge.isMoved && isOfWeights(edge.target) &&
             staysOwn(graph.getOp(edge.target));
    });
    own.emplace_back(std::vector<AxisRef>(axes), std::move(found));
    return own.back().second[node];
  }

  //===----------------------------------------------------------------------===//
  // Rows from experts
  //===----------------------------------------------------------------------===//

  /// True if a product with a weight that each device along `axes` has for
  /// itself makes all elements of `rows` that are no constants, each changed by
  /// itself.
  bool areMade(Rows rows, ArrayRef<AxisRef> axes, int64_t depth) {
    auto [it, isNew] = made.try_emplace(rows, true);
    // What a loop carries is made if all else is that it is made of.
    if (!isNew)
      return it->second;
    bool isMade = depth < kMostMoves &&
                  areMadeByAll(rows.first, rows.second, axes, depth + 1);
    made[rows] = isMade;
    return isMade;
  }

  bool areMadeByAll(Node node, int64_t dim, ArrayRef<AxisRef> axes,
                    int64_t depth) {
    Operation *op = graph.getOp(node);
    if (isProductOfTwo(node)) {
      for (unsigned operand : {0, 1}) {
        Node weight = graph.getOperand(node, operand);
        std::optional<int64_t> source = getSourceDim(op, operand, dim);
        std::optional<ProductDims> dims = getProductDims(op, operand);
        if (source && dims && !llvm::is_contained(dims->batching, *source) &&
            isOwn(weight, axes) &&
            !isOfWeights(graph.getOperand(node, 1 - operand)))
          return hasProduct = true;
      }
      return false;
    }
    // Padding, and what a buffer begins with.
    if (isZeros(graph.getValue(graph.getPassed(node))))
      return true;
    if (graph.getSources(node).empty() || !graph.isDifferentiable(node) ||
        (op && isStepFunction(op)) || isExponential(op))
      return false;
    bool addsBias =
        op && (isNamed(op, guest::kAdd) || isNamed(op, guest::kSubtract));
    bool isScaled =
        op && (isNamed(op, guest::kMultiply) || isNamed(op, guest::kDivide));
    bool isAny = false;
    for (const Edge &edge : graph.getSources(node)) {
      // Conditions and positions choose rows.
      if (!graph.isDifferentiable(edge.source))
        continue;
      // Biases.
      if (addsBias &&
          (getSplat(graph.getValue(edge.source)) || isOfWeights(edge.source)))
        continue;
      std::optional<int64_t> from =
          !op || edge.operand < 0 ? dim : getSourceDim(op, edge.operand, dim);
      bool isMade =
          from && movesRows(edge) && areMade({edge.source, *from}, axes, depth);
      if (!isMade && !isScaled)
        return false;
      isAny |= isMade;
    }
    return isAny || !isScaled;
  }

  //===----------------------------------------------------------------------===//
  // Rows to experts
  //===----------------------------------------------------------------------===//

  /// True if a product contracts the elements of `rows` with a weight that each
  /// device along `axes` has for itself. Sets `isCut` if parts of rows are
  /// taken.
  bool areTaken(Rows rows, ArrayRef<AxisRef> axes, bool &isCut) {
    bool isTaken = false;
    llvm::DenseSet<Rows> seen{rows};
    SmallVector<Rows> pending{rows};
    while (!pending.empty()) {
      auto [node, dim] = pending.pop_back_val();
      for (const Edge &edge : graph.getReaders(node)) {
        Node target = edge.target;
        Operation *op = graph.getOp(target);
        if (isProductOfTwo(target) && edge.operand >= 0 && edge.operand < 2) {
          std::optional<ProductDims> dims = getProductDims(op, edge.operand);
          isTaken |= dims && llvm::is_contained(dims->summed, dim) &&
                     isOwn(graph.getOperand(target, 1 - edge.operand), axes);
          continue;
        }
        if (!movesRows(edge) || !graph.isDifferentiable(target))
          continue;
        std::optional<int64_t> moved =
            !op || edge.operand < 0 ? dim : getMovedDim(op, edge.operand, dim);
        isCut |= !moved;
        if (Rows next{target, moved.value_or(dim)}; seen.insert(next).second)
          pending.push_back(next);
      }
    }
    return isTaken;
  }

  /// True if a row of `rows` has elements of several tensors, as a token beside
  /// its gate. What products make of weights is one. Factors of what experts
  /// have made are no part of it.
  bool areJoined(Rows rows, bool areOfExperts) const {
    bool isJoined = false;
    llvm::DenseSet<Rows> seen{rows};
    // Whether a product has made the rows from there on.
    SmallVector<std::pair<Rows, bool>> pending{{rows, false}};
    while (!pending.empty() && !isJoined) {
      auto [next, isBehind] = pending.pop_back_val();
      auto [node, dim] = next;
      Operation *op = graph.getOp(node);
      if (graph.getCollective(node) == CollectiveKind::AllGather)
        continue;
      isJoined |= !isBehind && addsOthers(node);
      isBehind |= isProductOfTwo(node);
      for (const Edge &edge : graph.getSources(node)) {
        if (!graph.isDifferentiable(edge.source) ||
            graph.getCount(edge.source) == 1 || isOfWeights(edge.source) ||
            !(movesRows(edge) || isProductOfTwo(node)))
          continue;
        std::optional<int64_t> from =
            !op || edge.operand < 0 ? dim : getSourceDim(op, edge.operand, dim);
        if (areOfExperts && from &&
            (graph.is(node, guest::kMultiply) ||
             graph.is(node, guest::kDivide)) &&
            !made.lookup({edge.source, *from}))
          continue;
        // A part of a row may be taken.
        if (!from && op &&
            (isNamed(op, guest::kSlice) || isNamed(op, guest::kDynamicSlice)))
          from = dim;
        isJoined |= !from && movesRows(edge);
        if (Rows source{edge.source, from.value_or(-1)};
            from && seen.insert(source).second)
          pending.push_back({source, isBehind});
      }
    }
    return isJoined;
  }

  //===----------------------------------------------------------------------===//
  // The decision
  //===----------------------------------------------------------------------===//

  /// True if a derivative leads from `node` to an input of the step, so that it
  /// has no ones of a mask, and if its elements are no probabilities.
  bool isActivation(Node node) const {
    bool isProbability = graph.walk(
        node, Direction::ToSources,
        // Gates scale rows, and sums of exponential functions divide them.
        [&](const Edge &edge) {
          return edge.isDifferentiable && movesRows(edge) &&
                 !graph.is(edge.target, guest::kMultiply) &&
                 !(graph.is(edge.target, guest::kDivide) && edge.operand == 1);
        },
        [&](Node found) { return isExponential(graph.getOp(found)); });
    return !isProbability &&
           graph.walk(
               node, Direction::ToSources,
               [](const Edge &edge) { return edge.isDifferentiable; },
               [&](Node found) { return graph.getInput(found) != nullptr; });
  }

  /// Returns what reads elements of `node`, moved, added to others or scaled,
  /// and is not linear in them; null if nothing does. What sums and products
  /// make of many elements is another value.
  Operation *findOtherReader(Node node) const {
    Operation *other = nullptr;
    graph.walk(
        node, Direction::ToReaders,
        [&](const Edge &edge) {
          Operation *op = graph.getOp(edge.target);
          bool isOfOp = op && edge.operand >= 0;
          if (isOfOp && (!graph.isDifferentiable(edge.target) ||
                         !bearsRounding(op, edge.operand)))
            other = op;
          return movesRows(edge) ||
                 (isOfOp && isNamed(op, guest::kBroadcastInDim));
        },
        [&](Node) { return other != nullptr; });
    return other;
  }

  /// True if `node` puts elements of another kind beside those of rows: chosen
  /// by a condition or a mask of constants, written over some, or concatenated.
  /// Zeros are none.
  bool addsOthers(Node node) const {
    Operation *op = graph.getOp(node);
    if (!op)
      return false;
    SmallVector<Node> operands = graph.getOperands(node);
    auto isZero = [&](unsigned operand) {
      Node source = operands[operand];
      return source >= 0 && isZeros(graph.getValue(graph.getPassed(source)));
    };
    // What a loop fills slice by slice.
    auto isCarried = [&](unsigned operand) {
      return operands[operand] >= 0 &&
             isa<BlockArgument>(graph.getValue(operands[operand]));
    };
    StringRef name = op->getName().stripDialect();
    if (name == "concatenate")
      return llvm::count_if(
                 llvm::seq<unsigned>(0, operands.size()),
                 [&](unsigned operand) { return !isZero(operand); }) > 1;
    if (name == "multiply")
      return llvm::any_of(
          operands, [&](Node source) { return isPattern(graph, source); });
    if (name == "pad")
      return !isZero(1);
    if (name == "select")
      return !isZero(1) && !isZero(2);
    if (name == "dynamic_update_slice")
      return !isZero(0) && !isCarried(0);
    if (name == "scatter")
      return !isZero(0) && !isSum(op);
    return name == "clamp";
  }

  RoleFinder &finder;
  const ValueGraph &graph;
  const StepFlow &flow;
  const NodeSet &ancestors;
  bool hasDifferences = false;
  SplitInputs weights;
  /// The axes of gathers, by their ops.
  llvm::DenseMap<Operation *, const StepCollective *> gathers;
  /// For the axes of an exchange, whether each node is made of weights of which
  /// each device along them has parts of its own.
  std::vector<std::pair<std::vector<AxisRef>, NodeSet>> own;
  /// Rows of which it is known, or asked, whether experts make them, and
  /// whether a product has been found.
  llvm::DenseMap<Rows, bool> made;
  bool hasProduct = false;
};

void RoleFinder::chooseExchanges(const NodeSet &ancestors) {
  std::optional<ExchangeChoice> choice;
  for (StepCollective &exchange : collectives) {
    if (exchange.kind != CollectiveKind::AllToAll ||
        exchange.role != Role::Other || isRewritten(exchange) ||
        !exchange.groupError.empty() || !exchange.reason.empty())
      continue;
    if (!choice)
      choice.emplace(*this, ancestors);
    std::optional<Objection> objection = choice->check(exchange);
    object(exchange, objection);
    if (objection)
      continue;
    exchange.role = Role::Exchange;
    exchange.rule = Rule::Exchange;
  }
}
