//===- Moments.cpp - Momenta that are orthogonalized ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Muon gathers a momentum, or sends its parts to the device that owns it. It
// begins with the product of it and its transpose, and goes on with products
// and sums of what this makes (Newton-Schulz). An owner sends the update back.
// Optimizers that multiply a momentum by something else, such as the roots of
// Shampoo and the projections of Dion, or that keep anything of the result,
// need it as it is.
//
//===----------------------------------------------------------------------===//

#include "MomentElements.h"
#include "RoleFinder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

using Direction = ValueGraph::Direction;

static bool isFloat(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value));
}

namespace {

/// Proves that collectives move momenta which an optimizer orthogonalizes, as
/// Muon does, or their updates (docs/rules.md, R19). Valid while the module
/// does not change.
class Moments {
  using Node = ValueGraph::Node;
  using Edge = ValueGraph::Edge;
  /// The parts of which a value is made, element by element.
  struct Contents {
    SmallVector<const StepCollective *> gradients;
    SmallVector<BlockArgument> state;
    bool hasWeight = false, hasOther = false;
  };

public:
  /// `ancestors` are the values from which gradients are computed.
  Moments(const ValueGraph &graph, const StepFlow &flow,
          const NodeSet &ancestors, ArrayRef<StepCollective> collectives)
      : graph(graph), flow(flow), ancestors(ancestors), isOfWeight(graph),
        elements(graph, [this](Node node) {
          return gradients.contains(this->graph.getValue(node)) ||
                 arrived.contains(node);
        }) {
    SmallVector<const StepCollective *> gathers;
    SmallVector<Value> gathered;
    for (const StepCollective &collective : collectives) {
      if (collective.role == Role::Gradient)
        gradients[collective.op->getResult(0)] = &collective;
      if (collective.role == Role::Weight) {
        gathers.push_back(&collective);
        gathered.push_back(collective.op->getOperand(0));
      }
    }
    for (auto [gather, weight] :
         llvm::zip_equal(gathers, flow.getHeldInputs(gathered, ancestors)))
      if (weight)
        for (const std::string &key : getMirrorKeys(*gather))
          weightsOf[key].insert(weight);

    for (Node leaf : graph.getLeaves())
      if (BlockArgument input = graph.getInput(leaf))
        isOfWeight[leaf] = graph.getCount(leaf) != 1 &&
                           flow.isReturned(input) && ancestors.contains(input);
    graph.mark(isOfWeight, Direction::ToReaders, [&](const Edge &edge) {
      return edge.isMoved && !graph.isSumOverDevices(edge.target);
    });

    SmallVector<Value> values = llvm::map_to_vector(
        graph.getResults(), [&](const ValueGraph::Result &result) {
          return graph.getValue(result.node);
        });
    for (auto [value, input] :
         llvm::zip_equal(values, flow.getHeldInputs(values, ancestors))) {
      bool isWeight =
          input && flow.isReturned(input) && input.getType() == value.getType();
      updated.push_back(isWeight ? input : BlockArgument());
      ++resultsOf[updated.back()];
    }
    findMomenta();
    for (const StepCollective &collective : collectives)
      if (collective.role == Role::Other &&
          (collective.kind == CollectiveKind::AllGather ||
           collective.kind == CollectiveKind::AllToAll))
        addCandidate(collective.op);
  }

  /// A gradient or a momentum that products contract and a collective moves, or
  /// what such products have made of it.
  struct Contracted {
    SmallVector<const StepCollective *> gradients;
    /// The tensor that is sent, and that arrives.
    Node operand, whole;
    /// The products of it with itself. An update is one of them.
    SmallVector<Node> grams;
    /// The momenta that an update is made of, where they arrive.
    SmallVector<Node> momenta;
    bool isUpdate() const { return !momenta.empty(); }
  };

  /// Returns nullopt if `moved` moves something else.
  std::optional<Contracted> find(const StepCollective &moved) {
    std::optional<Node> operand = graph.find(moved.op->getOperand(0));
    std::optional<Node> whole = graph.find(moved.op->getResult(0));
    if (!operand || !whole)
      return std::nullopt;
    if (std::optional<Contracted> update = findUpdate(*operand, *whole))
      return update;
    Contents contents = read(*operand);
    if (!isMomentum(contents, *operand))
      return std::nullopt;
    // What has its elements, and nothing of a weight, as what a momentum is
    // scaled to before it is orthogonalized.
    NodeSet held = getReached(*whole, [&](const Edge &edge) {
      return isKnownMove(graph.getOp(edge.target), edge) &&
             !isOfWeight[edge.target];
    });
    SmallVector<Node> grams;
    bool isContracted = elements.findProducts(held, grams);
    // A statistic that is kept is contracted by other things.
    if (!isContracted || (grams.empty() && contents.gradients.empty()))
      return std::nullopt;
    return Contracted{
        std::move(contents.gradients), *operand, *whole, std::move(grams), {}};
  }

  /// Notes that `found` is rounded.
  void add(const Contracted &found) { arrived[found.whole] = found.gradients; }

  /// Returns what speaks against its being a momentum that is orthogonalized,
  /// or its update.
  std::optional<Objection> check(const Contracted &found) {
    NodeSet all = getAll(found);
    std::optional<std::string> why = elements.findOtherReader(all);
    if (!why && found.grams.empty())
      why = "no product contracts it with itself, as an orthogonalization "
            "begins";
    if (!why)
      why = checkResults(found, all);
    if (!why && isUsedBeside(found, all))
      why = "devices update weights with what they send, too, and copies of a "
            "weight could differ";
    if (!why && getElementTypeOrSelf(graph.getType(found.whole)).isF16())
      why = "it is f16, and large elements could become infinite";
    if (!why && elements.divides(found.grams, all))
      why = "the step divides by its elements, or takes their root or "
            "logarithm, and rounding may make them zero";
    if (!why && isSubtracted(found, all))
      why = "it is subtracted from another one, and the difference would have "
            "the errors of both";
    if (!why)
      return std::nullopt;
    return Objection{Rule::Moment,
                     "it moves a gradient or momentum that products contract, "
                     "or its update, and needs it as it is: " +
                         *why};
  }

private:
  //===----------------------------------------------------------------------===//
  // The operand
  //===----------------------------------------------------------------------===//

  /// Reads what `whole` is made of: state, gradients, weights and other things.
  /// Single numbers may scale it.
  Contents read(Node whole) const {
    Contents contents;
    auto isGradient = [&](Node node) {
      return gradients.contains(graph.getValue(node));
    };
    graph.walk(
        whole, Direction::ToSources,
        [&](const Edge &edge) {
          // A single number scales all elements alike, or is the value of all.
          if (!isFloat(graph.getValue(edge.target)) ||
              isGradient(edge.target) || graph.getCount(edge.source) == 1)
            return false;
          bool isMoved = isKnownMove(graph.getOp(edge.target), edge);
          contents.hasOther |= !isMoved;
          return isMoved;
        },
        [&](Node node) {
          Value value = graph.getValue(node);
          BlockArgument input = graph.getInput(node);
          Operation *op = graph.getOp(node);
          if (!isFloat(value))
            contents.hasOther = true;
          else if (isGradient(node))
            contents.gradients.push_back(gradients.lookup(value));
          else if (input && flow.isReturned(input) && ancestors.contains(input))
            contents.hasWeight = true;
          else if (input && flow.isReturned(input))
            contents.state.push_back(input);
          else if (graph.getSources(node).empty() && !(op && isKnownSource(op)))
            contents.hasOther = true;
          return false;
        });
    return contents;
  }

  /// Notes where `moved` brings what is made of momenta or gradients.
  void addCandidate(Operation *moved) {
    std::optional<Node> operand = graph.find(moved->getOperand(0));
    std::optional<Node> whole = graph.find(moved->getResult(0));
    if (!operand || !whole)
      return;
    Contents contents = read(*operand);
    if (!contents.gradients.empty() ||
        llvm::any_of(contents.state, [&](BlockArgument input) {
          return momenta.contains(input);
        }))
      candidates.push_back(*whole);
  }

  /// True if `contents`, those of `operand`, are of momenta and gradients, and
  /// of nothing else: a weight that is moved and orthogonalized is no momentum.
  bool isMomentum(const Contents &contents, Node operand) const {
    return !contents.hasOther && !contents.hasWeight &&
           !(contents.gradients.empty() && contents.state.empty()) &&
           llvm::all_of(
               contents.state,
               [&](BlockArgument input) { return momenta.contains(input); }) &&
           elements.isPlain(operand);
  }

  /// The update of momenta that have arrived, if `operand` is made of what
  /// follows from them and of single numbers alone, and no product contracts it
  /// later.
  std::optional<Contracted> findUpdate(Node operand, Node whole) const {
    Contracted update{{}, operand, whole, {whole}, {}};
    bool isOfOthers = graph.walk(
        operand, Direction::ToSources,
        [&](const Edge &edge) {
          bool chooses =
              edge.operand == 0 && graph.is(edge.target, guest::kSelect);
          return !arrived.contains(edge.target) && !chooses &&
                 graph.getCount(edge.source) != 1;
        },
        [&](Node node) {
          Operation *op = graph.getOp(node);
          if (auto moment = arrived.find(node); moment != arrived.end()) {
            update.momenta.push_back(node);
            llvm::append_range(update.gradients, moment->second);
          }
          return graph.getSources(node).empty() && !(op && isKnownSource(op));
        });
    if (isOfOthers || !update.isUpdate() ||
        elements.walk(operand,
                      [&](Node node) { return elements.addsNumber(node); }))
      return std::nullopt;
    NodeSet all = getAll(update);
    for (Node node = 0; node < graph.size(); ++node)
      if (all[node] && graph.getOp(node) && isMatrixProduct(graph.getOp(node)))
        return std::nullopt;
    return update;
  }

  /// Finds the state whose next value, and all else of its type that the step
  /// returns and that holds it, is made of gradients: no statistic of a batch,
  /// and nothing that stays as it is, such as a mask.
  void findMomenta() {
    llvm::DenseSet<Value> others;
    for (auto [result, weight] : llvm::zip_equal(graph.getResults(), updated)) {
      if (weight)
        continue;
      Contents contents = read(result.node);
      bool isMomentum = !contents.hasOther && !contents.hasWeight &&
                        !contents.gradients.empty() &&
                        elements.isPlain(result.node);
      for (BlockArgument input : contents.state)
        if (input.getType() == graph.getType(result.node))
          (isMomentum ? momenta : others).insert(input);
    }
    for (Value other : others)
      momenta.erase(other);
  }

  //===----------------------------------------------------------------------===//
  // Readers
  //===----------------------------------------------------------------------===//

  /// Returns the nodes that follow from `found` in any way.
  NodeSet getAll(const Contracted &found) const {
    return getReached(found.whole, [](const Edge &) { return true; });
  }

  /// Returns the nodes that follow from `sources` over edges that `follows`
  /// accepts.
  NodeSet getReached(ArrayRef<Node> sources,
                     ValueGraph::Follows follows) const {
    NodeSet found(graph);
    for (Node source : sources)
      found[source] = true;
    graph.mark(found, Direction::ToReaders, follows);
    return found;
  }

  //===----------------------------------------------------------------------===//
  // Results
  //===----------------------------------------------------------------------===//

  /// Why `all`, which follows from a momentum, is not the update of weights of
  /// the shapes of the gradients that it is made of, alone.
  std::optional<std::string> checkResults(const Contracted &found,
                                          const NodeSet &all) {
    llvm::DenseSet<Value> weights;
    for (const StepCollective *sum : found.gradients) {
      weights.insert(sum->argument);
      // In a backward pass that computes activations again, products are
      // missing that tell weights of one shape apart.
      for (const std::string &key : getMirrorKeys(*sum))
        weights.insert_range(weightsOf.lookup(key));
    }
    // Norms of updates may scale them as well.
    NodeSet beside = getReached(found.whole, [&](const Edge &edge) {
      return graph.getCount(edge.target) != 1;
    });
    NodeSet contracted =
        getReached(found.grams, [](const Edge &) { return true; });
    NodeSet undivided = getReached(
        found.grams, [](const Edge &edge) { return !edge.isDivisor; });
    bool isUpdate = false;
    for (auto [result, weight] : llvm::zip_equal(graph.getResults(), updated)) {
      if (!all[result.node])
        continue;
      // An average of weights, and a square of a change, hold that weight, too.
      if (!weight || resultsOf.lookup(weight) != 1)
        return "result " + result.describe() +
               " of the step is made of it, and is not known to be the one "
               "updated weight of a gradient";
      if (!weights.contains(weight))
        return "result " + result.describe() +
               " is updated with it, and it is not known to be made of a "
               "gradient of that weight";
      if (!beside[result.node])
        continue;
      if (!contracted[result.node])
        return "result " + result.describe() +
               " is updated with it without any of its products";
      if (!undivided[result.node])
        return "weights are updated only with what is divided by its products";
      isUpdate = true;
    }
    if (isUpdate)
      return std::nullopt;
    return "no weight is updated with what follows from it";
  }

  /// True if a result of the step follows from the momenta of an update without
  /// being sent; or elements that are sent are put beside those that arrive.
  bool isUsedBeside(const Contracted &found, const NodeSet &all) const {
    if (found.isUpdate()) {
      NodeSet here = getReached(found.momenta, [&](const Edge &edge) {
        return !graph.getCollective(edge.target);
      });
      return llvm::any_of(graph.getResults(), [&](const auto &result) {
        return here[result.node];
      });
    }
    NodeSet sent(graph);
    elements.walk(found.operand, [&](Node node) {
      sent[node] = true;
      return false;
    });
    graph.mark(sent, Direction::ToReaders, [&](const Edge &edge) {
      return (isKnownMove(graph.getOp(edge.target), edge) ||
              graph.is(edge.target, guest::kBroadcastInDim)) &&
             !graph.getCollective(edge.target) && !all[edge.source] &&
             graph.getCount(edge.source) != 1;
    });
    // What a device has of a product stands beside its own slice.
    return llvm::any_of(llvm::seq<Node>(0, graph.size()), [&](Node node) {
      return all[node] && sent[node] &&
             graph.getCount(node) > graph.getCount(found.operand);
    });
  }

  /// True if something among `all`, which follows from `found`, and something
  /// that follows from another momentum are subtracted.
  bool isSubtracted(const Contracted &found, const NodeSet &all) const {
    SmallVector<Node> beside;
    for (Node node = 0; node < graph.size(); ++node) {
      if (!all[node] || !graph.is(node, guest::kSubtract))
        continue;
      // One of both is among `all`.
      for (Node operand : graph.getOperands(node))
        if (operand >= 0 && !all[operand] && !isOfWeight[operand])
          beside.push_back(operand);
    }
    if (beside.empty())
      return false;
    SmallVector<Node> others(candidates);
    llvm::erase(others, found.whole);
    NodeSet reached = getReached(others, [](const Edge &) { return true; });
    return llvm::any_of(beside, [&](Node operand) { return reached[operand]; });
  }

  const ValueGraph &graph;
  const StepFlow &flow;
  const NodeSet &ancestors;
  /// Sums of gradients, by their results.
  llvm::DenseMap<Value, const StepCollective *> gradients;
  /// For each result of the step the weight that it is, updated; null for
  /// others.
  SmallVector<BlockArgument> updated;
  /// How many results hold each weight; null stands for no weight.
  llvm::DenseMap<Value, int64_t> resultsOf;
  /// The weights that are gathered in each shape, by its mirror keys.
  llvm::StringMap<llvm::SmallDenseSet<Value>> weightsOf;
  /// State that is made of gradients, from step to step.
  llvm::DenseSet<Value> momenta;
  /// The values in which momenta and gradients arrive.
  SmallVector<Node> candidates;
  /// Nodes that hold elements of a weight.
  NodeSet isOfWeight;
  /// The gradients of momenta, and of updates, where these arrive rounded.
  llvm::DenseMap<Node, SmallVector<const StepCollective *>> arrived;
  /// Walks end at sums of gradients, and where something has arrived.
  MomentElements elements;
};

} // namespace

//===----------------------------------------------------------------------===//
// The choice
//===----------------------------------------------------------------------===//

void RoleFinder::chooseMoments(const NodeSet &ancestors) {
  std::optional<Moments> moments;
  for (StepCollective &moved : collectives) {
    Operation *op = moved.op;
    bool isGather = moved.kind == CollectiveKind::AllGather;
    bool isExchange =
        moved.kind == CollectiveKind::AllToAll && moved.groupError.empty();
    if ((!isGather && !isExchange) || moved.role != Role::Other ||
        isRewritten(moved) || op->getNumOperands() != 1 ||
        op->getNumResults() != 1 ||
        !isFloatTensor(op->getOperand(0).getType()) ||
        !isFloatTensor(op->getResult(0).getType()))
      continue;
    // What a step moves without a gradient is no momentum.
    if (!moments) {
      if (llvm::none_of(collectives, [](const StepCollective &collective) {
            return collective.role == Role::Gradient;
          }))
        return;
      moments.emplace(graph, flow, ancestors, collectives);
    }
    std::optional<Moments::Contracted> found = moments->find(moved);
    if (!found)
      continue;
    std::optional<Objection> objection = moments->check(*found);
    if (!objection)
      objection = checkAxes(moved, isGather ? "it gathers" : "it exchanges");
    if (!objection && getProver().isNeverNegative(op->getOperand(0)))
      objection = {Rule::Sign, "it moves a statistic, no element of which "
                               "can be negative"};
    // Gathers of stacks of momenta have blocks of their own.
    if (!objection) {
      MatrixRow row = getMatrixRow(graph, moved);
      if (isExchange || found->isUpdate() || row.isCut)
        objection = chooseRowBlock(moved, row.size, Rule::Stack);
    }
    object(moved, objection);
    if (objection)
      continue;
    moments->add(*found);
    moved.role = Role::Moment;
    moved.rule = Rule::Moment;
    moved.isState = false;
  }
}
