//===- StepFlow.cpp - Where values of a step go ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/StepFlow.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/MapVector.h"

#include <set>

using namespace mlir;
using namespace zpp;

/// The number of elements of a tensor, or nullopt if it is not known.
static std::optional<int64_t> getNumElements(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasStaticShape())
    return std::nullopt;
  return shaped.getNumElements();
}

static bool isFloat(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && isa<FloatType>(shaped.getElementType());
}

//===----------------------------------------------------------------------===//
// The graph
//===----------------------------------------------------------------------===//

class StepFlow::Graph {
public:
  enum class Kind : uint8_t { Moved, Divided, Computed, Carried };
  /// True for the kinds that keep elements apart within an iteration.
  static bool isMoved(Kind kind) {
    return kind == Kind::Moved || kind == Kind::Divided;
  }
  /// A path from an argument of a function to one of its results, and its
  /// kinds of edges.
  struct Summary {
    unsigned argument, result;
    Kind kind;
  };
  using Summaries = llvm::DenseMap<Operation *, std::vector<Summary>>;

  explicit Graph(Summaries &summaries) : summaries(summaries) {}

  void addBlock(Block &block) {
    for (Value argument : block.getArguments())
      (void)getNumber(argument);
    for (Operation &op : block)
      addOp(&op);
  }

  /// To be called once, when all blocks have been added.
  void sortEdges() {
    sort(in, [](const Edge &edge) { return edge.target; });
    sort(out, [](const Edge &edge) { return edge.source; });
  }

  size_t size() const { return numbers.size(); }

  Value getValue(int64_t number) const { return values[number]; }

  int64_t getNumber(Value value) {
    auto [it, isNew] = numbers.try_emplace(value, numbers.size());
    if (isNew)
      values.push_back(value);
    return it->second;
  }

  std::optional<int64_t> findNumber(Value value) const {
    auto it = numbers.find(value);
    if (it == numbers.end())
      return std::nullopt;
    return it->second;
  }

  /// Calls `visit` for each neighbor along edges (`forward`) or against them.
  void forEachNeighbor(
      int64_t value, bool forward,
      llvm::function_ref<void(int64_t neighbor, Kind kind)> visit) const {
    const Index &index = forward ? out : in;
    for (int64_t i = index.begin[value]; i < index.begin[value + 1]; ++i) {
      const Edge &edge = edges[index.edges[i]];
      visit(forward ? edge.target : edge.source, edge.kind);
    }
  }

  /// Marks in `found` all values that can be reached from marked ones by edges
  /// of the kinds that `follows` accepts.
  void mark(std::vector<char> &found, bool forward,
            llvm::function_ref<bool(Kind)> follows) const {
    SmallVector<int64_t> worklist;
    for (size_t value = 0; value < found.size(); ++value)
      if (found[value])
        worklist.push_back(value);
    while (!worklist.empty())
      forEachNeighbor(worklist.pop_back_val(), forward,
                      [&](int64_t neighbor, Kind kind) {
                        if (follows(kind) && !found[neighbor]) {
                          found[neighbor] = true;
                          worklist.push_back(neighbor);
                        }
                      });
  }

  /// Makes products with activations Computed. Activations are values that
  /// depend on `data`, which is marked by value, unless a sum or a gather over
  /// devices makes them the same everywhere.
  void cutActivations(std::vector<char> data);

  /// Results that are not constant but depend on something other than operands:
  /// for instance, random numbers.
  SmallVector<int64_t> unknown;

private:
  struct Edge {
    int64_t source, target;
    Kind kind;
  };
  /// The edges of value i are edges[begin[i]] to edges[begin[i + 1] - 1].
  struct Index {
    std::vector<int64_t> begin, edges;
  };

  template <typename KeyT> void sort(Index &index, KeyT getKey) {
    index.begin.assign(numbers.size() + 1, 0);
    for (const Edge &edge : edges)
      ++index.begin[getKey(edge) + 1];
    for (size_t i = 1; i < index.begin.size(); ++i)
      index.begin[i] += index.begin[i - 1];
    std::vector<int64_t> next = index.begin;
    index.edges.resize(edges.size());
    for (auto [number, edge] : llvm::enumerate(edges))
      index.edges[next[getKey(edge)]++] = number;
  }

  void addEdge(Value source, Value target, Kind kind) {
    int64_t from = getNumber(source);
    edges.push_back({from, getNumber(target), kind});
  }

  void addOp(Operation *op);
  void addCall(func::CallOp call);
  ArrayRef<Summary> getSummary(func::FuncOp function);

  llvm::DenseMap<Value, int64_t> numbers;
  std::vector<Value> values;
  std::vector<Edge> edges;
  Index in, out;
  Summaries &summaries;
};

void StepFlow::Graph::addOp(Operation *op) {
  if (isHostModule(op))
    return;
  for (Value result : op->getResults())
    (void)getNumber(result);
  for (Region &region : op->getRegions())
    for (Block &block : region)
      addBlock(block);
  if (op->getNumOperands() == 0 && op->getNumRegions() == 0 &&
      !isKnownSource(op))
    for (Value result : op->getResults())
      unknown.push_back(getNumber(result));

  if (WhileView loop = WhileView::get(op)) {
    for (auto [index, init] : llvm::enumerate(op->getOperands())) {
      Value next = loop.getNext(index);
      addEdge(init, loop.getConditionArgument(index), Kind::Moved);
      addEdge(init, loop.getCarried(index), Kind::Moved);
      addEdge(init, loop.getResult(index), Kind::Moved);
      addEdge(next, loop.getCarried(index), Kind::Carried);
      addEdge(next, loop.getResult(index), Kind::Moved);
    }
    return;
  }
  if (auto call = dyn_cast<func::CallOp>(op))
    return addCall(call);
  // Regions whose terminator has the results.
  StringRef name = op->getName().getStringRef();
  bool isManual = name == guest::kSdyManualComputation;
  if (isManual || name == guest::kCase || name == guest::kIf) {
    for (Region &region : op->getRegions()) {
      if (!region.hasOneBlock() || region.front().empty())
        continue;
      Block &body = region.front();
      if (isManual)
        for (auto [operand, argument] :
             llvm::zip(op->getOperands(), body.getArguments()))
          addEdge(operand, argument, Kind::Moved);
      for (auto [value, result] :
           llvm::zip(body.back().getOperands(), op->getResults()))
        addEdge(value, result, Kind::Moved);
    }
    return;
  }
  // Zero ops move what they quantize and exchange.
  bool isZero = isa_and_present<zero::ZeroDialect>(op->getDialect());
  for (OpOperand &operand : op->getOpOperands()) {
    if (isPosition(operand))
      continue;
    // A barrier orders its operands but does not mix them.
    if (isBarrier(op)) {
      addEdge(operand.get(), op->getResult(operand.getOperandNumber()),
              Kind::Moved);
      continue;
    }
    for (OpResult result : op->getResults())
      addEdge(operand.get(), result,
              !isZero && !movesElements(operand, result) ? Kind::Computed
              : isDivisor(operand)                       ? Kind::Divided
                                                         : Kind::Moved);
  }
}

void StepFlow::Graph::cutActivations(std::vector<char> data) {
  auto isShared = [&](int64_t value) {
    Operation *op = values[value].getDefiningOp();
    std::optional<CollectiveKind> kind =
        op ? getGuestCollective(op) : std::nullopt;
    // A scalar scales all elements alike.
    return getNumElements(values[value].getType()) == 1 ||
           kind == CollectiveKind::AllReduce ||
           kind == CollectiveKind::ReduceScatter ||
           kind == CollectiveKind::AllGather;
  };
  SmallVector<int64_t> worklist;
  for (size_t value = 0; value < data.size(); ++value)
    if (data[value])
      worklist.push_back(value);
  while (!worklist.empty())
    forEachNeighbor(worklist.pop_back_val(), /*forward=*/true,
                    [&](int64_t target, Kind) {
                      if (data[target] || isShared(target))
                        return;
                      data[target] = true;
                      worklist.push_back(target);
                    });
  for (Edge &edge : edges) {
    Operation *op = values[edge.target].getDefiningOp();
    if (!isMoved(edge.kind) || !op || op->getNumOperands() != 2 ||
        !(isNamed(op, guest::kMultiply) || isNamed(op, guest::kDivide)))
      continue;
    bool isFirst = op->getOperand(0) == values[edge.source];
    if (data[getNumber(op->getOperand(isFirst ? 1 : 0))])
      edge.kind = Kind::Computed;
  }
}

void StepFlow::Graph::addCall(func::CallOp call) {
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
      call, call.getCalleeAttr());
  // Nothing is known about a function without a body.
  if (!callee || callee.isExternal() || !callee.getBody().hasOneBlock() ||
      callee.getBody().front().empty()) {
    for (Value operand : call.getOperands())
      for (Value result : call.getResults())
        addEdge(operand, result, Kind::Moved);
    return;
  }
  for (const Summary &entry : getSummary(callee))
    if (entry.argument < call.getNumOperands() &&
        entry.result < call.getNumResults())
      addEdge(call.getOperand(entry.argument), call.getResult(entry.result),
              entry.kind);
}

ArrayRef<StepFlow::Graph::Summary>
StepFlow::Graph::getSummary(func::FuncOp function) {
  // A recursive call finds the empty summary.
  auto [known, isNew] = summaries.try_emplace(function);
  if (!isNew)
    return known->second;
  Block &body = function.getBody().front();
  Graph graph(summaries);
  graph.addBlock(body);
  graph.sortEdges();
  std::vector<Summary> summary;
  for (auto [index, value] : llvm::enumerate(body.back().getOperands())) {
    std::vector<char> moved(graph.size()), divided(graph.size()),
        any(graph.size());
    int64_t last = graph.getNumber(value);
    moved[last] = divided[last] = any[last] = true;
    graph.mark(moved, /*forward=*/false, [](Kind kind) {
      return kind == Kind::Moved || kind == Kind::Carried;
    });
    graph.mark(divided, /*forward=*/false,
               [](Kind kind) { return kind != Kind::Computed; });
    graph.mark(any, /*forward=*/false, [](Kind) { return true; });
    for (BlockArgument argument : body.getArguments()) {
      int64_t number = graph.getNumber(argument);
      if (any[number])
        summary.push_back({argument.getArgNumber(),
                           static_cast<unsigned>(index),
                           moved[number]     ? Kind::Moved
                           : divided[number] ? Kind::Divided
                                             : Kind::Computed});
    }
  }
  return summaries[function] = std::move(summary);
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

StepFlow::~StepFlow() = default;

std::vector<int64_t> StepFlow::findReached(ArrayRef<Value> returned) const {
  std::vector<int64_t> reached(graph->size(), -1);
  for (size_t index = 0; index < returned.size(); ++index) {
    SmallVector<int64_t> worklist;
    auto reach = [&](int64_t number) {
      if (reached[number] >= 0)
        return;
      reached[number] = index;
      worklist.push_back(number);
    };
    reach(graph->getNumber(returned[index]));
    while (!worklist.empty())
      graph->forEachNeighbor(worklist.pop_back_val(), /*forward=*/false,
                             [&](int64_t source, Graph::Kind kind) {
                               if (kind != Graph::Kind::Computed)
                                 reach(source);
                             });
  }
  return reached;
}

StepFlow::StepFlow(ModuleOp module,
                   llvm::function_ref<bool(BlockArgument)> isNamedWeight,
                   llvm::function_ref<bool(BlockArgument)> isData) {
  using Kind = Graph::Kind;
  Graph::Summaries summaries;
  graph = std::make_unique<Graph>(summaries);
  for (auto function : module.getOps<func::FuncOp>()) {
    // Private functions are included where they are called.
    if (function.isExternal() || !function.isPublic() ||
        !function.getBody().hasOneBlock() || function.getBody().front().empty())
      continue;
    Block &body = function.getBody().front();
    llvm::append_range(inputs, body.getArguments());
    graph->addBlock(body);
    for (auto [index, value] : llvm::enumerate(body.back().getOperands())) {
      results.push_back({function, static_cast<unsigned>(index)});
      returned.push_back(value);
    }
  }
  graph->sortEdges();

  reached = findReached(returned);
  // A mask or a rate of each weight has the type of a result. A batch may be
  // part of a result too, before products with it are cut: of the gradient of a
  // bias that is added to one sequence.
  llvm::DenseSet<Type> returnedTypes;
  for (Value value : returned)
    returnedTypes.insert(value.getType());
  std::vector<char> data(graph->size());
  for (BlockArgument input : inputs)
    if (!returnedTypes.contains(input.getType()))
      data[graph->getNumber(input)] = isData(input);
  graph->cutActivations(std::move(data));
  reached = findReached(returned);
  // Usually the first result of the input's type belongs to it; otherwise try
  // the others.
  llvm::MapVector<Type, SmallVector<BlockArgument>> undecided;
  for (BlockArgument input : inputs) {
    int64_t result = reached[graph->getNumber(input)];
    if (result < 0 || !isFloat(input.getType()))
      continue;
    if (returned[result].getType() == input.getType())
      returnedInputs.insert(input.getAsOpaquePointer());
    else
      undecided[input.getType()].push_back(input);
  }
  for (auto &[type, ofType] : undecided) {
    std::vector<char> found(graph->size());
    for (Value value : returned)
      if (value.getType() == type)
        found[graph->getNumber(value)] = true;
    graph->mark(found, /*forward=*/false,
                [](Kind kind) { return kind != Kind::Computed; });
    for (BlockArgument input : ofType)
      if (found[graph->getNumber(input)])
        returnedInputs.insert(input.getAsOpaquePointer());
  }

  fromInput.assign(graph->size(), false);
  fromWeight.assign(graph->size(), false);
  fromOther.assign(graph->size(), false);
  for (BlockArgument input : inputs) {
    int64_t number = graph->getNumber(input);
    // A scalar only scales other values.
    std::optional<int64_t> count = getNumElements(input.getType());
    if (isFloat(input.getType()) && (!count || *count > 1))
      fromInput[number] = true;
    bool isWeight =
        isFloat(input.getType()) && (isReturned(input) || isNamedWeight(input));
    if (isWeight)
      fromWeight[number] = true;
    else
      otherSources.push_back(number);
  }
  llvm::append_range(otherSources, graph->unknown);
  for (int64_t number : otherSources)
    fromOther[number] = true;
  graph->mark(fromInput, /*forward=*/true,
              [](Kind kind) { return kind != Kind::Computed; });
  // A weight that a loop updates from iteration to iteration is still that
  // weight.
  auto isNotCarried = [](Kind kind) { return kind != Kind::Carried; };
  graph->mark(fromWeight, /*forward=*/true, isNotCarried);
  graph->mark(fromOther, /*forward=*/true, isNotCarried);
}

std::string StepFlow::StepResult::describe() const {
  std::string text = std::to_string(index);
  auto name =
      const_cast<func::FuncOp &>(function).getResultAttrOfType<StringAttr>(
          index, "jax.result_info");
  if (name && !name.getValue().empty())
    text += " (" + name.str() + ")";
  return text;
}

std::optional<StepFlow::StepResult>
StepFlow::getReachedResult(Value value) const {
  std::optional<int64_t> number = graph->findNumber(value);
  if (!number || reached[*number] < 0)
    return std::nullopt;
  return results[reached[*number]];
}

bool StepFlow::isReturned(BlockArgument input) const {
  return returnedInputs.contains(input.getAsOpaquePointer());
}

bool StepFlow::holdsStepInput(Value value) const {
  std::optional<int64_t> number = graph->findNumber(value);
  return number && fromInput[*number];
}

bool StepFlow::isMadeOfWeights(Value value) const {
  std::optional<int64_t> number = graph->findNumber(value);
  return number && fromWeight[*number] && !fromOther[*number];
}

bool StepFlow::ValueSet::contains(Value value) const {
  std::optional<int64_t> number =
      flow ? flow->graph->findNumber(value) : std::nullopt;
  return number && found[*number];
}

StepFlow::ValueSet StepFlow::getSet(std::vector<char> found) const {
  ValueSet set;
  set.flow = this;
  set.found = std::move(found);
  return set;
}

/// Those of `values` that `graph` has.
template <typename GraphT>
static std::vector<char> markValues(const GraphT &graph,
                                    ArrayRef<Value> values) {
  std::vector<char> found(graph.size());
  for (Value value : values)
    if (std::optional<int64_t> number = graph.findNumber(value))
      found[*number] = true;
  return found;
}

/// Marks the values computed from, or (not `forward`) computing, `values`: over
/// what holds their elements, one Computed edge, and then any but Carried ones.
template <typename GraphT>
static std::vector<char> markComputed(const GraphT &graph,
                                      ArrayRef<Value> values, bool forward) {
  using Kind = typename GraphT::Kind;
  std::vector<char> moved = markValues(graph, values);
  graph.mark(moved, forward, GraphT::isMoved);
  std::vector<char> found(graph.size());
  for (size_t value = 0; value < moved.size(); ++value)
    if (moved[value])
      graph.forEachNeighbor(value, forward, [&](int64_t next, Kind kind) {
        if (kind == Kind::Computed)
          found[next] = true;
      });
  graph.mark(found, forward, [](Kind kind) { return kind != Kind::Carried; });
  return found;
}

StepFlow::ValueSet StepFlow::getAncestors(ArrayRef<Value> values) const {
  return getSet(markComputed(*graph, values, /*forward=*/false));
}

StepFlow::ValueSet StepFlow::getDescendants(ArrayRef<Value> values) const {
  return getSet(markComputed(*graph, values, /*forward=*/true));
}

SmallVector<BlockArgument>
StepFlow::getInputsIn(const ValueSet &ancestors) const {
  return llvm::filter_to_vector(inputs, [&](BlockArgument input) {
    auto type = dyn_cast<ShapedType>(input.getType());
    return isFloat(input.getType()) && type.hasStaticShape() &&
           type.getRank() > 0 && ancestors.contains(input);
  });
}

StepFlow::Updates StepFlow::getUpdates(const ValueSet &ancestors,
                                       ArrayRef<Value> inFlight) const {
  auto isElementwise = [](Graph::Kind kind) {
    return kind != Graph::Kind::Computed;
  };
  llvm::MapVector<Type, SmallVector<Value>> weights;
  std::set<std::vector<int64_t>> shapes;
  for (BlockArgument weight : getInputsIn(ancestors)) {
    weights[weight.getType()].push_back(weight);
    shapes.insert(cast<ShapedType>(weight.getType()).getShape().vec());
  }
  std::vector<char> isUpdated(returned.size());
  for (auto &[type, ofType] : weights) {
    std::vector<char> held = markValues(*graph, ofType);
    graph->mark(held, /*forward=*/true, isElementwise);
    for (auto [index, value] : llvm::enumerate(returned))
      isUpdated[index] |=
          value.getType() == type && held[graph->getNumber(value)];
  }
  SmallVector<Value> updated, accumulated, fresh;
  for (auto [index, value] : llvm::enumerate(returned)) {
    auto type = dyn_cast<ShapedType>(value.getType());
    if (isUpdated[index])
      updated.push_back(value);
    else if (type && type.hasStaticShape() && type.getRank() > 1 &&
             shapes.count(type.getShape().vec()))
      (fromInput[graph->getNumber(value)] ? accumulated : fresh)
          .push_back(value);
  }
  Updates updates;
  updates.hasUpdates = !updated.empty();
  auto markBack = [&](ArrayRef<Value> values,
                      llvm::function_ref<bool(Graph::Kind)> follows) {
    std::vector<char> found = markValues(*graph, values);
    graph->mark(found, /*forward=*/false, follows);
    return getSet(std::move(found));
  };
  updates.contributing = markBack(updated, [](Graph::Kind) { return true; });
  llvm::append_range(updated, inFlight);
  updates.moved = markBack(updated, [&](Graph::Kind kind) {
    return isElementwise(kind) && kind != Graph::Kind::Divided;
  });
  updates.movedOrDivided = markBack(updated, isElementwise);
  updates.accumulated = markBack(accumulated, isElementwise);
  updates.returned = markBack(fresh, isElementwise);
  return updates;
}

StepFlow::ValueSet StepFlow::getDependents(ArrayRef<Value> cuts) const {
  std::vector<char> isCut = markValues(*graph, cuts);
  std::vector<char> found(graph->size());
  SmallVector<int64_t> worklist(otherSources);
  for (int64_t source : otherSources)
    found[source] = true;
  while (!worklist.empty())
    graph->forEachNeighbor(worklist.pop_back_val(), /*forward=*/true,
                           [&](int64_t target, Graph::Kind kind) {
                             if (found[target] || isCut[target] ||
                                 kind == Graph::Kind::Carried)
                               return;
                             found[target] = true;
                             worklist.push_back(target);
                           });
  return getSet(std::move(found));
}

SmallVector<BlockArgument>
StepFlow::getHeldInputs(ArrayRef<Value> values,
                        const ValueSet &ancestors) const {
  // The number of an input, or one of these.
  constexpr int64_t kNone = -1, kSeveral = -2;
  std::vector<int64_t> held(graph->size(), kNone);
  SmallVector<int64_t> worklist;
  auto add = [&](int64_t value, int64_t input) {
    if (held[value] == input || held[value] == kSeveral)
      return;
    held[value] = held[value] == kNone ? input : kSeveral;
    worklist.push_back(value);
  };
  for (BlockArgument input : getInputsIn(ancestors))
    add(graph->getNumber(input), graph->getNumber(input));
  while (!worklist.empty()) {
    int64_t value = worklist.pop_back_val();
    graph->forEachNeighbor(value, /*forward=*/true,
                           [&](int64_t target, Graph::Kind kind) {
                             if (Graph::isMoved(kind))
                               add(target, held[value]);
                           });
  }
  return llvm::map_to_vector(values, [&](Value value) {
    std::optional<int64_t> number = graph->findNumber(value);
    return number && held[*number] >= 0
               ? cast<BlockArgument>(graph->getValue(held[*number]))
               : BlockArgument();
  });
}
