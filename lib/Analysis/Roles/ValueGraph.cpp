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
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

AutodiffName AutodiffNames::read(StringAttr name) {
  auto [it, isNew] = known.try_emplace(name, AutodiffName::None);
  if (!isNew)
    return it->second;
  StringRef text = name.getValue();
  if (text.contains("rematted_computation"))
    it->second = AutodiffName::Recomputed;
  else if (text.contains("transpose("))
    it->second = AutodiffName::Transposed;
  return it->second;
}

AutodiffName AutodiffNames::read(LocationAttr loc) {
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
  known[loc] = found;
  return found;
}

bool zpp::isStepFunction(Operation *op) {
  static const llvm::StringSet<> names = {
      "ceil", "floor", "is_finite", "round_nearest_afz", "round_nearest_even",
      "sign"};
  return names.contains(op->getName().stripDialect());
}

//===----------------------------------------------------------------------===//
// Nodes and edges
//===----------------------------------------------------------------------===//

ValueGraph::Node ValueGraph::add(Value value, bool isTransposed, Scope &scope) {
  Node node = size();
  auto [isDifferentiable, count] = getFacts(value.getType());
  nodes.push_back(
      {value, value.getDefiningOp(), count, isDifferentiable, isTransposed});
  scope[value] = node;
  first.try_emplace(value, node);
  return node;
}

ValueGraph::TypeFacts ValueGraph::getFacts(Type type) {
  auto [it, isNew] = facts.try_emplace(type);
  if (isNew) {
    auto shaped = dyn_cast<ShapedType>(type);
    it->second = {isa<FloatType, ComplexType>(getElementTypeOrSelf(type)),
                  shaped && shaped.hasStaticShape() ? shaped.getNumElements()
                                                    : -1};
  }
  return it->second;
}

/// A derivative passes only between numbers that have one.
void ValueGraph::connect(Edge edge) {
  hasCarried |= edge.isCarried;
  edge.isDifferentiable &=
      isDifferentiable(edge.source) && isDifferentiable(edge.target);
  edges.push_back(edge);
}

void ValueGraph::pass(Value source, Value target, Scope &scope,
                      bool isCarried) {
  auto from = scope.find(source), to = scope.find(target);
  if (from != scope.end() && to != scope.end())
    connect({from->second, to->second, /*operand=*/-1, /*isMoved=*/true,
             /*isDivisor=*/false, isCarried, /*isDifferentiable=*/true});
}

void ValueGraph::addLoop(Operation *op, Scope &scope, bool isTransposed) {
  WhileView loop = WhileView::get(op);
  for (auto [index, init] : llvm::enumerate(op->getOperands()))
    for (Value argument : {Value(loop.getConditionArgument(index)),
                           Value(loop.getCarried(index))}) {
      add(argument, isTransposed, scope);
      pass(init, argument, scope);
    }
  for (Region &region : op->getRegions())
    for (Operation &nested : region.front())
      addOp(&nested, scope, isTransposed);
  for (auto [index, init] : llvm::enumerate(op->getOperands())) {
    add(loop.getResult(index), isTransposed, scope);
    pass(init, loop.getResult(index), scope);
    pass(loop.getNext(index), loop.getResult(index), scope);
    pass(loop.getNext(index), loop.getCarried(index), scope,
         /*isCarried=*/true);
  }
}

void ValueGraph::addBranches(Operation *op, const BranchesView &branches,
                             Scope &scope, bool isTransposed) {
  auto passOn = [&](Value source, Value target) {
    pass(source, target, scope);
  };
  for (Block *body : branches.getBodies())
    for (Value argument : body->getArguments())
      add(argument, isTransposed, scope);
  branches.forEachEntry(passOn);
  for (Block *body : branches.getBodies())
    for (Operation &nested : *body)
      addOp(&nested, scope, isTransposed);
  for (Value result : op->getResults())
    add(result, isTransposed, scope);
  branches.forEachExit(passOn);
}

bool ValueGraph::addCall(func::CallOp call, Scope &scope, bool isTransposed) {
  func::FuncOp callee = getCallee(call);
  // A recursive function ends the graph, and so do functions whose calls of
  // each other would be too many.
  if (!callee || llvm::is_contained(callees, callee) || size() >= largestSize)
    return false;
  Block &body = callee.getBody().front();
  if (body.getNumArguments() != call.getNumOperands() ||
      body.back().getNumOperands() != call.getNumResults())
    return false;
  callees.push_back(callee);
  Scope inner;
  for (auto [argument, operand] :
       llvm::zip_equal(body.getArguments(), call.getOperands())) {
    auto known = scope.find(operand);
    if (known == scope.end())
      continue;
    inner[argument] = known->second;
    first.try_emplace(argument, known->second);
  }
  for (Operation &nested : body)
    addOp(&nested, inner, isTransposed);
  for (auto [value, result] :
       llvm::zip_equal(body.back().getOperands(), call.getResults())) {
    auto known = inner.find(value);
    Node node = add(result, isTransposed, scope);
    if (known != inner.end())
      connect({known->second, node, /*operand=*/-1, /*isMoved=*/true,
               /*isDivisor=*/false, /*isCarried=*/false,
               /*isDifferentiable=*/true});
  }
  callees.pop_back();
  return true;
}

void ValueGraph::addOp(Operation *op, Scope &scope, bool isTransposed) {
  if (isHostModule(op))
    return;
  switch (names.read(op->getLoc())) {
  case AutodiffName::Transposed:
    isTransposed = hasNames = true;
    break;
  case AutodiffName::Recomputed:
    isTransposed = false;
    break;
  case AutodiffName::None:
    break;
  }
  if (WhileView::get(op))
    return addLoop(op, scope, isTransposed);
  if (auto call = dyn_cast<func::CallOp>(op))
    if (addCall(call, scope, isTransposed))
      return;
  if (std::optional<BranchesView> branches = BranchesView::get(op))
    return addBranches(op, *branches, scope, isTransposed);
  bool isZero = isa_and_present<zero::ZeroDialect>(op->getDialect());
  bool passesDerivative = !isStepFunction(op);
  ElementFlow flow(op);
  for (OpResult result : op->getResults()) {
    Node node = add(result, isTransposed, scope);
    if (op->getNumOperands() == 0 && !isKnownSource(op))
      leaves.push_back(node);
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      auto source = scope.find(operand);
      if (source == scope.end() || flow.isPosition(index) ||
          (flow.isBarrier() && index != result.getResultNumber()))
        continue;
      // Zero ops move what they quantize and exchange.
      bool isMoved =
          isZero || flow.movesElements(index, result.getResultNumber());
      connect({source->second, node, static_cast<int64_t>(index), isMoved,
               isMoved && flow.isDivisor(index), /*isCarried=*/false,
               passesDerivative});
    }
  }
}

void ValueGraph::addStep(func::FuncOp function) {
  Scope scope;
  scope.reserve(nodes.capacity());
  Block &body = function.getBody().front();
  for (BlockArgument argument : body.getArguments())
    leaves.push_back(add(argument, /*isTransposed=*/false, scope));
  for (Operation &op : body)
    addOp(&op, scope, /*isTransposed=*/false);
  if (body.empty())
    return;
  for (auto [index, value] : llvm::enumerate(body.back().getOperands()))
    if (auto known = scope.find(value); known != scope.end())
      results.push_back(
          {function, static_cast<unsigned>(index), known->second});
}

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
  largestSize = std::max(kFactor * ops, kSmallest);
  nodes.reserve(ops);
  first.reserve(ops);
  // Private functions are part of the graph where they are called.
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal() && function.isPublic() &&
        function.getBody().hasOneBlock())
      addStep(function);
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
