//===- ValueGraph.cpp - A step as a graph, with calls expanded ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles/ValueGraph.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Dialect/Guest/Branches.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

Operation *zpp::findSilentReader(Value value) {
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

bool zpp::isStepFunction(Operation *op) {
  static const llvm::StringSet<> names = {
      "ceil", "floor", "is_finite", "round_nearest_afz", "round_nearest_even",
      "sign"};
  return names.contains(op->getName().stripDialect());
}

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

namespace {
/// The part of autodiff that made an op, by the name in its location. Where a
/// location has several names, the last of these counts.
enum class AutodiffName { None, Transposed, Recomputed };

/// Reads names. Ops share most of what their locations are made of, so each
/// part is read once.
class AutodiffNames {
public:
  /// JAX writes `transpose(jvp(...))` where it transposes, and
  /// `rematted_computation` where it computes a forward value again.
  AutodiffName read(LocationAttr loc) {
    if (auto it = known.find(loc); it != known.end())
      return it->second;
    AutodiffName found = AutodiffName::None;
    if (auto name = dyn_cast<NameLoc>(loc))
      found = read(name.getName());
    loc.walkImmediateSubElements(
        [&](Attribute part) {
          if (auto nested = dyn_cast<LocationAttr>(part))
            found = std::max(found, read(nested));
        },
        [](Type) {});
    return known[loc] = found;
  }

private:
  AutodiffName read(StringAttr name) {
    auto [it, isNew] = known.try_emplace(name, AutodiffName::None);
    if (isNew && name.getValue().contains("rematted_computation"))
      it->second = AutodiffName::Recomputed;
    else if (isNew && name.getValue().contains("transpose("))
      it->second = AutodiffName::Transposed;
    return it->second;
  }

  /// The locations, and names in them, that have been read.
  llvm::DenseMap<Attribute, AutodiffName> known;
};
} // namespace

//===----------------------------------------------------------------------===//
// Nodes and edges
//===----------------------------------------------------------------------===//

class ValueGraph::Builder {
public:
  /// As many values as `largestSize`, or more, end the expansion of calls.
  Builder(ValueGraph &graph, Node largestSize)
      : graph(graph), largestSize(largestSize) {}

  void addStep(func::FuncOp function) {
    Scope scope;
    scope.reserve(graph.nodes.capacity());
    Block &body = function.getBody().front();
    for (BlockArgument argument : body.getArguments()) {
      graph.leaves.push_back(add(argument, scope));
      // Another function of the step may have called this one before.
      graph.first[argument] = graph.leaves.back();
    }
    addOps(body, scope);
    if (body.empty())
      return;
    for (auto [index, value] : llvm::enumerate(body.back().getOperands()))
      if (Node node = find(value, scope); node >= 0)
        graph.results.push_back({function, static_cast<unsigned>(index), node});
  }

private:
  /// The nodes of values in one call of their function.
  using Scope = llvm::DenseMap<Value, Node>;
  /// The facts about a value that follow from its type, which many share.
  struct TypeFacts {
    bool isDifferentiable;
    int64_t count;
  };

  TypeFacts getFacts(Type type) {
    auto [it, isNew] = facts.try_emplace(type);
    if (isNew) {
      auto shaped = dyn_cast<ShapedType>(type);
      it->second = {isa<FloatType, ComplexType>(getElementTypeOrSelf(type)),
                    shaped && shaped.hasStaticShape() ? shaped.getNumElements()
                                                      : -1};
    }
    return it->second;
  }

  Node add(Value value, Scope &scope) {
    auto [isDifferentiable, count] = getFacts(value.getType());
    graph.nodes.push_back(
        {value, value.getDefiningOp(), count, isDifferentiable, isTransposed});
    scope[value] = graph.size() - 1;
    graph.first.try_emplace(value, graph.size() - 1);
    return graph.size() - 1;
  }

  /// Returns -1 for what is not in `scope`.
  static Node find(Value value, const Scope &scope) {
    auto known = scope.find(value);
    return known == scope.end() ? -1 : known->second;
  }

  /// A derivative passes only between numbers that have one.
  void connect(Edge edge) {
    if (edge.source < 0)
      return;
    graph.hasCarried |= edge.isCarried;
    edge.isDifferentiable &= graph.isDifferentiable(edge.source) &&
                             graph.isDifferentiable(edge.target);
    graph.edges.push_back(edge);
  }

  void pass(Node source, Node target, bool isCarried = false) {
    connect({source, target, /*operand=*/-1, /*isMoved=*/true,
             /*isDivisor=*/false, isCarried, /*isDifferentiable=*/true});
  }

  void addOps(Block &block, Scope &scope) {
    for (Operation &op : block)
      addOp(&op, scope);
  }

  void addLoop(WhileView loop, Scope &scope) {
    for (unsigned index : llvm::seq(loop.getNumCarried()))
      for (Value argument : {Value(loop.getConditionArgument(index)),
                             Value(loop.getCarried(index))})
        pass(find(loop.getInit(index), scope), add(argument, scope));
    addOps(loop.getCondition(), scope);
    addOps(loop.getBody(), scope);
    for (unsigned index : llvm::seq(loop.getNumCarried())) {
      Node result = add(loop.getResult(index), scope);
      Node next = find(loop.getNext(index), scope);
      pass(find(loop.getInit(index), scope), result);
      pass(next, result);
      pass(next, find(loop.getCarried(index), scope), /*isCarried=*/true);
    }
  }

  void addBranches(Operation *op, const BranchesView &branches, Scope &scope) {
    auto passOn = [&](Value source, Value target) {
      pass(find(source, scope), find(target, scope));
    };
    for (Block *body : branches.getBodies())
      for (Value argument : body->getArguments())
        add(argument, scope);
    branches.forEachEntry(passOn);
    for (Block *body : branches.getBodies())
      addOps(*body, scope);
    for (Value result : op->getResults())
      add(result, scope);
    branches.forEachExit(passOn);
  }

  bool addCall(func::CallOp call, Scope &scope) {
    func::FuncOp callee = getCallee(call);
    // A recursive function ends the graph, and so do functions whose calls of
    // each other would be too many.
    if (!callee || llvm::is_contained(callees, callee) ||
        graph.size() >= largestSize)
      return false;
    Block &body = callee.getBody().front();
    if (body.getNumArguments() != call.getNumOperands() ||
        body.back().getNumOperands() != call.getNumResults())
      return false;
    callees.push_back(callee);
    Scope inner;
    for (auto [argument, operand] :
         llvm::zip_equal(body.getArguments(), call.getOperands()))
      if (Node node = find(operand, scope); node >= 0) {
        inner[argument] = node;
        graph.first.try_emplace(argument, node);
      }
    addOps(body, inner);
    for (auto [value, result] :
         llvm::zip_equal(body.back().getOperands(), call.getResults()))
      pass(find(value, inner), add(result, scope));
    callees.pop_back();
    return true;
  }

  void addOp(Operation *op, Scope &scope) {
    if (isHostModule(op))
      return;
    AutodiffName name = names.read(op->getLoc());
    bool isAround = std::exchange(
        isTransposed, name == AutodiffName::Transposed ||
                          (isTransposed && name == AutodiffName::None));
    graph.hasNames |= name == AutodiffName::Transposed;
    auto call = dyn_cast<func::CallOp>(op);
    if (WhileView loop = WhileView::get(op))
      addLoop(loop, scope);
    else if (std::optional<BranchesView> branches = BranchesView::get(op))
      addBranches(op, *branches, scope);
    else if (!call || !addCall(call, scope))
      addOther(op, scope);
    isTransposed = isAround;
  }

  void addOther(Operation *op, Scope &scope) {
    // Zero ops move what they quantize and exchange.
    bool isZero = isa_and_present<zero::ZeroDialect>(op->getDialect());
    bool passesDerivative = !isStepFunction(op);
    ElementFlow flow(op);
    for (OpResult result : op->getResults()) {
      Node node = add(result, scope);
      if (op->getNumOperands() == 0 && !isKnownSource(op))
        graph.leaves.push_back(node);
      for (OpOperand &operand : op->getOpOperands()) {
        unsigned index = operand.getOperandNumber();
        if (flow.isPosition(index) ||
            (flow.isBarrier() && index != result.getResultNumber()))
          continue;
        bool isMoved =
            isZero || flow.movesElements(index, result.getResultNumber());
        connect({find(operand.get(), scope), node, index, isMoved,
                 isMoved && flow.isDivisor(index), /*isCarried=*/false,
                 passesDerivative});
      }
    }
  }

  ValueGraph &graph;
  const Node largestSize;
  llvm::DenseMap<Type, TypeFacts> facts;
  AutodiffNames names;
  SmallVector<Operation *> callees;
  /// Whether autodiff's transposition made what is added.
  bool isTransposed = false;
};

void ValueGraph::sortEdges() {
  // Counts the edges of each node, at the place after its own.
  auto count = [&](Node Edge::*end) {
    std::vector<size_t> places(size() + 1);
    for (const Edge &edge : edges)
      ++places[edge.*end + 1];
    for (Node node = 0; node < size(); ++node)
      places[node + 1] += places[node];
    return places;
  };
  firstSource = count(&Edge::target);
  std::vector<Edge> sorted(edges.size());
  std::vector<size_t> next = firstSource;
  for (const Edge &edge : edges)
    sorted[next[edge.target]++] = edge;
  edges = std::move(sorted);
  firstReader = next = count(&Edge::source);
  readers.resize(edges.size());
  for (auto [number, edge] : llvm::enumerate(edges))
    readers[next[edge.source]++] = number;
}

ValueGraph::ValueGraph(ModuleOp module) {
  // Calls are expanded up to many times as many values as a step has that is
  // written out, and no fewer than a large model's step has.
  constexpr int64_t kFactor = 8, kSmallest = 1 << 18;
  int64_t ops = 0;
  module.walk([&](Operation *) { ++ops; });
  Builder builder(*this, std::max(kFactor * ops, kSmallest));
  nodes.reserve(ops);
  first.reserve(ops);
  // Private functions are part of the graph where they are called.
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal() && function.isPublic() &&
        function.getBody().hasOneBlock())
      builder.addStep(function);
  sortEdges();
}

//===----------------------------------------------------------------------===//
// Questions about one node
//===----------------------------------------------------------------------===//

std::string ValueGraph::Result::describe() const {
  std::string text = std::to_string(index);
  auto name =
      const_cast<func::FuncOp &>(function).getResultAttrOfType<StringAttr>(
          index, guest::kResultInfo);
  if (name && !name.getValue().empty())
    text += " (" + name.str() + ")";
  return text;
}

BlockArgument ValueGraph::getInput(Node node) const {
  return getSources(node).empty() ? dyn_cast<BlockArgument>(getValue(node))
                                  : BlockArgument();
}

ValueGraph::Node ValueGraph::getPassed(Node node) const {
  while (true) {
    Value value = nodes[node].value;
    Operation *op = value.getDefiningOp();
    ArrayRef<Edge> in = getSources(node);
    // A loop passes its operand on first.
    Operation *loop = op;
    unsigned index = 0;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      loop = argument.getOwner()->getParentOp();
      index = argument.getArgNumber();
    } else {
      index = cast<OpResult>(value).getResultNumber();
    }
    bool isUnchanged = loop && isWhile(loop) && isLoopInvariant(loop, index);
    if (in.empty() ||
        !(isUnchanged || (in.size() == 1 &&
                          (in.front().operand < 0 || (op && isBarrier(op))))))
      return node;
    node = in.front().source;
  }
}

ValueGraph::Node ValueGraph::getMoved(Node node) const {
  ArrayRef<Edge> in = getSources(node);
  bool isMoved = in.size() == 1 &&
                 (in.front().operand < 0 || isDataMovement(getOp(node)) ||
                  is(node, guest::kBroadcastInDim));
  return isMoved ? in.front().source : -1;
}

bool ValueGraph::isNumber(Node node) const {
  while (node >= 0 && getCount(node) != 1 && !getSplat(getValue(node)))
    node = getMoved(node);
  return node >= 0;
}

SmallVector<ValueGraph::Node> ValueGraph::getOperands(Node node) const {
  Operation *op = getOp(node);
  SmallVector<Node> operands(op ? op->getNumOperands() : 0, -1);
  for (const Edge &edge : getSources(node))
    if (edge.operand >= 0 &&
        edge.operand < static_cast<int64_t>(operands.size()))
      operands[edge.operand] = edge.source;
  return operands;
}

ValueGraph::Node ValueGraph::getOperand(Node node, int64_t operand) const {
  // The last one counts, as in getOperands().
  for (const Edge &edge : llvm::reverse(getSources(node)))
    if (edge.operand == operand)
      return edge.source;
  return -1;
}

std::optional<ValueGraph::Node> ValueGraph::find(Value value) const {
  auto known = first.find(value);
  if (known == first.end())
    return std::nullopt;
  return known->second;
}

//===----------------------------------------------------------------------===//
// Walks
//===----------------------------------------------------------------------===//

NodeSet::NodeSet(const ValueGraph &graph)
    : graph(&graph), marks(graph.size()) {}

NodeSet::NodeSet(const ValueGraph &graph, ArrayRef<Value> values)
    : NodeSet(graph) {
  for (Value value : values)
    if (std::optional<ValueGraph::Node> node = graph.find(value))
      marks[*node] = true;
}

bool NodeSet::contains(Value value) const {
  std::optional<ValueGraph::Node> node =
      graph ? graph->find(value) : std::nullopt;
  return node && marks[*node];
}

/// Calls `enter` for the nodes behind the edges of `node` that `follows`
/// accepts.
static void followEdges(const ValueGraph &graph, ValueGraph::Node node,
                        ValueGraph::Direction direction,
                        ValueGraph::Follows follows,
                        llvm::function_ref<void(ValueGraph::Node)> enter) {
  if (direction == ValueGraph::Direction::ToSources) {
    for (const ValueGraph::Edge &edge : graph.getSources(node))
      if (follows(edge))
        enter(edge.source);
  } else {
    for (const ValueGraph::Edge &edge : graph.getReaders(node))
      if (follows(edge))
        enter(edge.target);
  }
}

void ValueGraph::mark(NodeSet &found, Direction direction,
                      Follows follows) const {
  SmallVector<Node> pending;
  for (Node node = 0; node < size(); ++node)
    if (found[node])
      pending.push_back(node);
  while (!pending.empty())
    followEdges(*this, pending.pop_back_val(), direction, follows,
                [&](Node next) {
                  if (!std::exchange(found[next], true))
                    pending.push_back(next);
                });
}

bool ValueGraph::walk(ArrayRef<Node> starts, Direction direction,
                      Follows follows,
                      llvm::function_ref<bool(Node)> visit) const {
  llvm::DenseSet<Node> seen;
  SmallVector<Node> pending;
  auto enter = [&](Node node) {
    if (seen.insert(node).second)
      pending.push_back(node);
  };
  llvm::for_each(starts, enter);
  for (size_t index = 0; index < pending.size(); ++index) {
    if (visit(pending[index]))
      return true;
    followEdges(*this, pending[index], direction, follows, enter);
  }
  return false;
}

void ValueGraph::settle(Direction towards,
                        llvm::function_ref<bool(Node)> update) const {
  // One pass is enough but for edges between iterations.
  for (bool isChanged = true; isChanged;) {
    isChanged = false;
    for (Node index = 0; index < size(); ++index)
      isChanged |=
          update(towards == Direction::ToReaders ? index : size() - 1 - index);
    if (!hasCarried)
      break;
  }
}
