//===- Moments.cpp - Momenta that are orthogonalized ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Muon gathers a momentum, begins with the product of it and its transpose, and
// goes on with products and sums of what this makes (Newton-Schulz). Optimizers
// that multiply a momentum by something else, such as the roots of Shampoo and
// the projections of Dion, or that keep anything of the result, need it as it
// is.
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

using Direction = ValueGraph::Direction;

static bool isFloat(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value));
}

/// True if `op`, or null for what passes values on, is known to take elements
/// along an edge that moves them.
static bool isKnownMove(Operation *op, const ValueGraph::Edge &edge) {
  return edge.isMoved &&
         (edge.operand < 0 || isDataMovement(op) || isElementwise(op) ||
          isNamed(op, guest::kSelect) || isNamed(op, guest::kClamp) ||
          isNamed(op, guest::kDynamicUpdateSlice) ||
          getGuestCollective(op) == CollectiveKind::AllGather);
}

static bool isMatrixProduct(Operation *op) {
  return isNamed(op, guest::kDotGeneral) || isNamed(op, guest::kDot);
}

/// True if `node`, or -1 for none, is one of `nodes`.
static bool contains(const NodeSet &nodes, ValueGraph::Node node) {
  return node >= 0 && nodes[node];
}

/// Returns an op that reads `value` and has no results, such as a callback: it
/// is no node. Null if there is none.
static Operation *findSilentReader(Value value) {
  llvm::SetVector<Value> read;
  read.insert(value);
  for (size_t i = 0; i < read.size(); ++i)
    for (OpOperand &use : read[i].getUses()) {
      Operation *user = use.getOwner();
      if (user->getNumResults() == 0 && user != &user->getBlock()->back())
        return user;
      // The argument of a function has the node of what is passed to it.
      auto call = dyn_cast<func::CallOp>(user);
      func::FuncOp callee = call ? getCallee(call) : func::FuncOp();
      if (callee && use.getOperandNumber() < callee.getNumArguments())
        read.insert(callee.getArgument(use.getOperandNumber()));
    }
  return nullptr;
}

namespace {

/// Proves that gathers are of momenta which an optimizer orthogonalizes, as
/// Muon does (docs/rules.md, R19). Valid while the module does not change.
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
      : graph(graph), flow(flow), ancestors(ancestors), isOfWeight(graph) {
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
  }

  /// A gather of a gradient or a momentum that products contract.
  struct Contracted {
    SmallVector<const StepCollective *> gradients;
    Node whole;
    /// The products of it with itself.
    SmallVector<Node> grams;
  };

  /// Returns nullopt if `gather` gathers something else.
  std::optional<Contracted> find(const StepCollective &gather) {
    std::optional<Node> operand = graph.find(gather.op->getOperand(0));
    std::optional<Node> whole = graph.find(gather.op->getResult(0));
    if (!operand || !whole)
      return std::nullopt;
    Contents contents = read(*operand);
    // A weight that is moved and orthogonalized is no momentum.
    if (contents.hasOther || contents.hasWeight ||
        (contents.gradients.empty() && contents.state.empty()) ||
        llvm::any_of(contents.state, [&](BlockArgument input) {
          return !momenta.contains(input);
        }))
      return std::nullopt;
    // What has its elements, and nothing of a weight, as what a momentum is
    // scaled to before it is orthogonalized.
    NodeSet held = getReached(*whole, [&](const Edge &edge) {
      return isKnownMove(graph.getOp(edge.target), edge) &&
             !isOfWeight[edge.target];
    });
    SmallVector<Node> grams;
    bool isContracted = findProducts(held, grams);
    // A statistic that is kept is contracted by other things.
    if (!isContracted || (grams.empty() && contents.gradients.empty()))
      return std::nullopt;
    return Contracted{std::move(contents.gradients), *whole, std::move(grams)};
  }

  /// Returns what speaks against its being a momentum that is orthogonalized.
  std::optional<Objection> check(const Contracted &found) {
    NodeSet all = getReached(found.whole, [](const Edge &) { return true; });
    std::optional<std::string> why = findOtherReader(all);
    if (!why && found.grams.empty())
      why = "no product contracts it with itself, as an orthogonalization "
            "begins";
    if (!why)
      why = checkResults(found, all);
    if (!why)
      return std::nullopt;
    return Objection{Rule::Moment,
                     "it gathers a gradient or momentum that products "
                     "contract, and needs it as it is: " +
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
                        !contents.gradients.empty();
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

  /// The products of two of `held` that are no single numbers, in `grams`.
  /// Returns whether any product reads one.
  bool findProducts(const NodeSet &held, SmallVectorImpl<Node> &grams) {
    // Products with a vector, or of vectors, are norms.
    auto isMatrix = [](Operation *op, unsigned operand) {
      auto type = dyn_cast<RankedTensorType>(op->getOperand(operand).getType());
      std::optional<ProductDims> dims = getProductDims(op, operand);
      if (!type || !type.hasStaticShape() || !dims)
        return false;
      for (int64_t dim = 0; dim < type.getRank(); ++dim)
        if (type.getDimSize(dim) > 1 &&
            !llvm::is_contained(dims->summed, dim) &&
            !llvm::is_contained(dims->batching, dim))
          return true;
      return false;
    };
    bool isContracted = false;
    for (Node node = 0; node < graph.size(); ++node) {
      Operation *op = graph.getOp(node);
      if (!op || !isMatrixProduct(op))
        continue;
      SmallVector<Node> operands = graph.getOperands(node);
      auto isHeld = [&](Node operand) { return contains(held, operand); };
      if (llvm::none_of(operands, isHeld))
        continue;
      isContracted = true;
      if (llvm::all_of(operands, isHeld) &&
          llvm::all_of(llvm::seq<unsigned>(0, op->getNumOperands()),
                       [&](unsigned operand) { return isMatrix(op, operand); }))
        grams.push_back(node);
    }
    return isContracted;
  }

  /// Why a reader among `all`, the values that follow from a momentum, needs it
  /// as it is.
  std::optional<std::string> findOtherReader(const NodeSet &all) const {
    auto tellReader = [](Operation *op) {
      return op->getName().getStringRef().str() +
             " reads what follows from it, and only products, reductions and "
             "elementwise ops are known to bear it";
    };
    for (Node node = 0; node < graph.size(); ++node) {
      if (!all[node])
        continue;
      Value value = graph.getValue(node);
      if (Operation *reader = findSilentReader(value))
        return tellReader(reader);
      Operation *op = graph.getOp(node);
      for (const Edge &edge : graph.getSources(node)) {
        if (!all[edge.source] || !op || edge.operand < 0)
          continue;
        if (isStepFunction(op) || op->getName().stripDialect() == "remainder" ||
            (getElementTypeOrSelf(value).isIntOrIndex() &&
             !op->getName().stripDialect().starts_with("bitcast")))
          return "the step chooses by it, as it compares it or makes whole "
                 "numbers of it";
        if (!isFloat(value))
          return tellReader(op);
        if (isMatrixProduct(op)) {
          if (llvm::any_of(graph.getOperands(node), [&](Node operand) {
                return !contains(all, operand);
              }))
            return "a product contracts it with something else: a root, a "
                   "projection, or a device's part, where products are split, "
                   "which moments=i8 joins, or says in a remark why not";
        } else if (!getGuestCollective(op) && !isKnownMove(op, edge) &&
                   !isElementwise(op) && !isNamed(op, guest::kReduce) &&
                   !isNamed(op, guest::kBroadcastInDim)) {
          return tellReader(op);
        }
      }
    }
    return std::nullopt;
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
      if (!undivided[result.node])
        return "weights are updated only with what is divided by its products";
      isUpdate = true;
    }
    if (isUpdate)
      return std::nullopt;
    return "no weight is updated with what follows from it";
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
  /// Nodes that hold elements of a weight.
  NodeSet isOfWeight;
};

} // namespace

//===----------------------------------------------------------------------===//
// The choice
//===----------------------------------------------------------------------===//

void RoleFinder::chooseMoments(const NodeSet &ancestors) {
  std::optional<Moments> moments;
  for (StepCollective &gather : collectives) {
    Operation *op = gather.op;
    if (gather.kind != CollectiveKind::AllGather ||
        gather.role != Role::Other || isRewritten(gather) ||
        op->getNumOperands() != 1 || op->getNumResults() != 1 ||
        !isFloatTensor(op->getOperand(0).getType()) ||
        !isFloatTensor(op->getResult(0).getType()))
      continue;
    // What a step gathers without a gradient is no momentum.
    if (!moments) {
      if (llvm::none_of(collectives, [](const StepCollective &collective) {
            return collective.role == Role::Gradient;
          }))
        return;
      moments.emplace(graph, flow, ancestors, collectives);
    }
    std::optional<Moments::Contracted> found = moments->find(gather);
    if (!found)
      continue;
    std::optional<Objection> objection = moments->check(*found);
    if (!objection)
      objection = checkAxes(gather, "it gathers");
    if (!objection && getProver().isNeverNegative(op->getOperand(0)))
      objection = {Rule::Sign, "it gathers a statistic, no element of which "
                               "can be negative"};
    object(gather, objection);
    if (objection)
      continue;
    gather.role = Role::Moment;
    gather.rule = Rule::Moment;
    gather.isState = false;
  }
}
