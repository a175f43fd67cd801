//===- StepFlow.cpp - Where values of a step go ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles/StepFlow.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/MapVector.h"

#include <functional>
#include <set>

using namespace mlir;
using namespace zpp;

using Direction = ValueGraph::Direction;

static bool isFloat(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && isa<FloatType>(shaped.getElementType());
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

StepFlow::StepFlow(const ValueGraph &graph,
                   llvm::function_ref<bool(BlockArgument)> isNamedWeight,
                   llvm::function_ref<bool(BlockArgument)> isData)
    : graph(graph), fromInput(graph), fromWeight(graph), fromOther(graph) {
  for (const Edge &edge : graph.getEdges())
    kinds.push_back(edge.isCarried   ? Kind::Carried
                    : !edge.isMoved  ? Kind::Computed
                    : edge.isDivisor ? Kind::Divided
                                     : Kind::Moved);
  for (Node leaf : graph.getLeaves())
    if (BlockArgument input = graph.getInput(leaf))
      inputs.push_back(input);

  // A mask or a rate of each weight has the type of a result. A batch may be
  // part of a result too, before products with it are cut: of the gradient of a
  // bias that is added to one sequence.
  llvm::DenseSet<Type> returnedTypes;
  for (const ValueGraph::Result &result : graph.getResults())
    returnedTypes.insert(graph.getType(result.node));
  NodeSet data(graph), ofDevice(graph), weights(graph);
  for (BlockArgument input : inputs)
    if (!returnedTypes.contains(input.getType()) && isData(input))
      data[*graph.find(input)] = true;
  findReached();
  cutActivations(std::move(data));
  findReached();
  findReturnedInputs(isData);

  for (Node leaf : graph.getLeaves()) {
    BlockArgument input = graph.getInput(leaf);
    bool isOfFloats = input && isFloat(input.getType());
    // A scalar only scales other values.
    fromInput[leaf] =
        isOfFloats && graph.getCount(leaf) != 1 && graph.getCount(leaf) != 0;
    weights[leaf] = isOfFloats && (isReturned(input) || isNamedWeight(input));
    ofDevice[leaf] = !weights[leaf] && graph.getCount(leaf) != 1;
    if (!weights[leaf])
      otherSources.push_back(leaf);
    fromWeight[leaf] = weights[leaf];
    fromOther[leaf] = !weights[leaf];
  }
  fromInput = getKept(std::move(fromInput), Direction::ToReaders);
  // A weight that a loop updates from iteration to iteration is still that
  // weight.
  for (NodeSet *from : {&fromWeight, &fromOther})
    graph.mark(*from, Direction::ToReaders,
               [&](const Edge &edge) { return leads(edge); });
  passOn(std::move(ofDevice),
         getKept(std::move(weights), Direction::ToReaders));
}

NodeSet StepFlow::getKept(NodeSet nodes, Direction direction) const {
  graph.mark(nodes, direction, [&](const Edge &edge) { return keeps(edge); });
  return nodes;
}

void StepFlow::findReached() {
  ArrayRef<ValueGraph::Result> results = graph.getResults();
  reached.assign(graph.size(), results.size());
  for (size_t index = results.size(); index-- > 0;)
    reached[results[index].node] = index;
  graph.settle(Direction::ToSources, [&](Node node) {
    size_t known = reached[node];
    for (const Edge &edge : graph.getReaders(node))
      if (keeps(edge))
        reached[node] = std::min(reached[node], reached[edge.target]);
    return reached[node] != known;
  });
}

void StepFlow::spreadData(NodeSet &data) const {
  graph.mark(data, Direction::ToReaders, [&](const Edge &edge) {
    // All devices have these alike, whatever data they follow from; and a
    // scalar scales all elements alike.
    return graph.getCount(edge.target) != 1 &&
           !graph.isSumOverDevices(edge.target) &&
           graph.getCollective(edge.target) != CollectiveKind::AllGather;
  });
}

/// Makes products with activations Computed. Activations are values that depend
/// on `data`, unless a sum or a gather over devices makes them the same
/// everywhere.
void StepFlow::cutActivations(NodeSet data) {
  spreadData(data);
  for (const Edge &edge : graph.getEdges()) {
    if (!moves(edge) || !(graph.is(edge.target, guest::kMultiply) ||
                          graph.is(edge.target, guest::kDivide)))
      continue;
    Node factor = graph.getOperand(edge.target, 1 - edge.operand);
    if (factor >= 0 && data[factor])
      kinds[graph.getNumber(edge)] = Kind::Computed;
  }
}

/// Makes what loops carry Moved where it is activations or their cotangents,
/// and no state: the cotangents of a layer follow from those of the layer
/// behind it, which the iteration before has made. They follow from `data`, and
/// hold no weight in `held` that the step returns. And where it is weights that
/// are gathered for the next iteration. Weights that a loop trains follow from
/// data.
void StepFlow::passOn(NodeSet data, const NodeSet &held) {
  spreadData(data);
  auto isReturned = [&](Node node) {
    return reached[node] < graph.getResults().size();
  };
  for (const Edge &edge : graph.getEdges())
    if (edge.isCarried &&
        ((data[edge.target] &&
          !(held[edge.target] && isReturned(edge.target))) ||
         (fromWeight[edge.source] && !fromOther[edge.source] &&
          !isReturned(edge.source))))
      kinds[graph.getNumber(edge)] = Kind::Moved;
}

/// Finds for each input a result of its type that holds its elements, and that
/// no other input has: a buffer that rows of a batch are written into is
/// returned, but the batch is not.
void StepFlow::findReturnedInputs(
    llvm::function_ref<bool(BlockArgument)> isData) {
  size_t none = graph.getResults().size();
  llvm::MapVector<Type, SmallVector<BlockArgument>> ofTypes;
  // Data comes last, whatever the order of the arguments.
  for (bool ofData : {false, true})
    for (BlockArgument input : inputs)
      if (reached[*graph.find(input)] < none && isFloat(input.getType()) &&
          isData(input) == ofData)
        ofTypes[input.getType()].push_back(input);
  for (auto &[type, ofType] : ofTypes) {
    llvm::DenseMap<Node, SmallVector<size_t, 1>> places;
    for (auto [index, result] : llvm::enumerate(graph.getResults()))
      if (graph.getType(result.node) == type)
        places[result.node].push_back(index);
    std::vector<SmallVector<size_t>> held;
    for (BlockArgument input : ofType) {
      SmallVector<size_t> &found = held.emplace_back();
      graph.walk(
          *graph.find(input), Direction::ToReaders,
          [&](const Edge &edge) {
            return keeps(edge) && reached[edge.target] < none;
          },
          [&](Node node) {
            if (auto place = places.find(node); place != places.end())
              llvm::append_range(found, place->second);
            return false;
          });
      llvm::sort(found);
    }
    // A maximum matching, by paths along which inputs exchange their results.
    llvm::DenseMap<size_t, size_t> owners;
    for (size_t index = 0; index < ofType.size(); ++index) {
      llvm::DenseSet<size_t> asked;
      std::function<bool(size_t)> match = [&](size_t input) {
        return llvm::any_of(held[input], [&](size_t result) {
          if (!asked.insert(result).second)
            return false;
          auto owner = owners.find(result);
          if (owner != owners.end() && !match(owner->second))
            return false;
          owners[result] = input;
          return true;
        });
      };
      if (match(index))
        returnedInputs.insert(ofType[index]);
    }
  }
}

//===----------------------------------------------------------------------===//
// Questions about one value
//===----------------------------------------------------------------------===//

const ValueGraph::Result *StepFlow::getReachedResult(Value value) const {
  std::optional<Node> node = graph.find(value);
  ArrayRef<ValueGraph::Result> results = graph.getResults();
  return node && reached[*node] < results.size() ? &results[reached[*node]]
                                                 : nullptr;
}

bool StepFlow::isReturned(BlockArgument input) const {
  return returnedInputs.contains(input);
}

bool StepFlow::holdsStepInput(Value value) const {
  return fromInput.contains(value);
}

bool StepFlow::isMadeOfWeights(Value value) const {
  return fromWeight.contains(value) && !fromOther.contains(value);
}

bool StepFlow::isUpdatedFrom(BlockArgument input, Value value) const {
  return getAncestors(getUpdated(input)).contains(value);
}

//===----------------------------------------------------------------------===//
// What is computed from what
//===----------------------------------------------------------------------===//

/// Returns the values computed from, or computing, `values`: over what holds
/// their elements, one Computed edge, and then any but Carried ones. No way
/// leads over edges that are not open.
NodeSet StepFlow::getComputed(ArrayRef<Value> values, Direction direction,
                              ValueGraph::Follows isOpen) const {
  NodeSet moved(graph, values), found(graph);
  graph.mark(moved, direction,
             [&](const Edge &edge) { return moves(edge) && isOpen(edge); });
  for (const Edge &edge : graph.getEdges()) {
    bool isForward = direction == Direction::ToReaders;
    if (!keeps(edge) && moved[isForward ? edge.source : edge.target] &&
        isOpen(edge))
      found[isForward ? edge.target : edge.source] = true;
  }
  graph.mark(found, direction,
             [&](const Edge &edge) { return leads(edge) && isOpen(edge); });
  return found;
}

NodeSet StepFlow::getAncestors(ArrayRef<Value> values) const {
  return getComputed(values, Direction::ToSources,
                     [](const Edge &) { return true; });
}

NodeSet StepFlow::getAncestorsBeside(ArrayRef<Value> values,
                                     const NodeSet &ancestors) const {
  NodeSet stops(graph);
  for (BlockArgument weight : getInputsIn(ancestors))
    stops[*graph.find(weight)] = true;
  stops = getKept(std::move(stops), Direction::ToReaders);
  return getComputed(values, Direction::ToSources, [&](const Edge &edge) {
    return !stops[edge.target] && !graph.isSumOverDevices(edge.target);
  });
}

NodeSet StepFlow::getDescendants(ArrayRef<Value> values) const {
  return getComputed(values, Direction::ToReaders,
                     [](const Edge &) { return true; });
}

NodeSet StepFlow::getDependents(ArrayRef<Value> cuts) const {
  return getDependents(cuts, otherSources);
}

NodeSet StepFlow::getDependents(ArrayRef<Value> cuts,
                                ArrayRef<Node> sources) const {
  NodeSet isCut(graph, cuts), found(graph);
  for (Node source : sources)
    found[source] = true;
  graph.mark(found, Direction::ToReaders, [&](const Edge &edge) {
    return leads(edge) && !isCut[edge.target];
  });
  return found;
}

//===----------------------------------------------------------------------===//
// Inputs and results
//===----------------------------------------------------------------------===//

SmallVector<BlockArgument>
StepFlow::getInputsIn(const NodeSet &ancestors) const {
  return llvm::filter_to_vector(inputs, [&](BlockArgument input) {
    auto type = dyn_cast<ShapedType>(input.getType());
    return isFloat(input.getType()) && type.hasStaticShape() &&
           type.getRank() > 0 && ancestors.contains(input);
  });
}

SmallVector<Value> StepFlow::getUpdated(ArrayRef<BlockArgument> inputs) const {
  llvm::MapVector<Type, SmallVector<Value>> ofTypes;
  for (BlockArgument input : inputs)
    ofTypes[input.getType()].push_back(input);
  llvm::DenseMap<Type, NodeSet> held;
  for (auto &[type, ofType] : ofTypes)
    held[type] = getKept(NodeSet(graph, ofType), Direction::ToReaders);
  SmallVector<Value> updated;
  for (const ValueGraph::Result &result : graph.getResults())
    if (auto ofType = held.find(graph.getType(result.node));
        ofType != held.end() && ofType->second[result.node])
      updated.push_back(graph.getValue(result.node));
  return updated;
}

StepFlow::Updates StepFlow::getUpdates(const NodeSet &ancestors,
                                       ArrayRef<Value> inFlight) const {
  SmallVector<BlockArgument> weights = getInputsIn(ancestors);
  std::set<ArrayRef<int64_t>> shapes;
  for (BlockArgument weight : weights)
    shapes.insert(cast<ShapedType>(weight.getType()).getShape());
  SmallVector<Value> updated = getUpdated(weights), accumulated, fresh;
  NodeSet isUpdated(graph, updated);
  for (const ValueGraph::Result &result : graph.getResults()) {
    auto type = dyn_cast<ShapedType>(graph.getType(result.node));
    if (!isUpdated[result.node] && type && type.hasStaticShape() &&
        type.getRank() > 1 && shapes.count(type.getShape()))
      (fromInput[result.node] ? accumulated : fresh)
          .push_back(graph.getValue(result.node));
  }
  auto markBack = [&](ArrayRef<Value> values, ValueGraph::Follows follows) {
    NodeSet found(graph, values);
    graph.mark(found, Direction::ToSources, follows);
    return found;
  };
  auto isKept = [&](const Edge &edge) { return keeps(edge); };
  Updates updates;
  updates.hasUpdates = !updated.empty();
  updates.contributing = markBack(updated, [](const Edge &) { return true; });
  llvm::append_range(updated, inFlight);
  updates.moved = markBack(updated, [&](const Edge &edge) {
    return keeps(edge) && getKind(edge) != Kind::Divided;
  });
  updates.movedOrDivided = markBack(updated, isKept);
  updates.accumulated = markBack(accumulated, isKept);
  updates.returned = markBack(fresh, isKept);
  return updates;
}

NodeSet
StepFlow::getUpdatesOf(llvm::function_ref<bool(BlockArgument)> isWanted) const {
  SmallVector<Value> updated =
      getUpdated(llvm::filter_to_vector(inputs, [&](BlockArgument input) {
        return isFloat(input.getType()) && isWanted(input);
      }));
  return getKept(NodeSet(graph, updated), Direction::ToSources);
}

llvm::DenseSet<Value>
StepFlow::getInputsHeldBy(llvm::function_ref<bool(Value)> isWanted) const {
  llvm::MapVector<Type, SmallVector<Value>> wanted;
  for (const ValueGraph::Result &result : graph.getResults())
    if (Value value = graph.getValue(result.node);
        isFloat(value.getType()) && isWanted(value))
      wanted[value.getType()].push_back(value);
  llvm::DenseSet<Value> found;
  for (auto &[type, ofType] : wanted) {
    NodeSet held = getKept(NodeSet(graph, ofType), Direction::ToSources);
    for (BlockArgument input : inputs)
      if (input.getType() == type && held.contains(input))
        found.insert(input);
  }
  return found;
}

llvm::DenseSet<Value> StepFlow::getUpdatedBy(ArrayRef<Value> values) const {
  NodeSet found = getKept(NodeSet(graph, values), Direction::ToReaders);
  return getInputsHeldBy([&](Value value) { return found.contains(value); });
}

llvm::DenseSet<Value> StepFlow::getUpdatedOnlyBy(ArrayRef<Value> cuts) const {
  // Rates and counters move all elements alike.
  NodeSet dependents = getDependents(
      cuts, llvm::filter_to_vector(otherSources, [&](Node source) {
        return graph.getCount(source) < 0 || graph.getCount(source) > 1;
      }));
  return getInputsHeldBy([&](Value value) {
    return cast<ShapedType>(value.getType()).getRank() > 1 &&
           !dependents.contains(value);
  });
}

SmallVector<BlockArgument>
StepFlow::getHeldInputs(ArrayRef<Value> values,
                        const NodeSet &ancestors) const {
  // The node of an input, or one of these.
  constexpr Node kNone = -1, kSeveral = -2;
  std::vector<Node> held(graph.size(), kNone);
  for (BlockArgument input : getInputsIn(ancestors))
    held[*graph.find(input)] = *graph.find(input);
  graph.settle(Direction::ToReaders, [&](Node node) {
    Node known = held[node];
    for (const Edge &edge : graph.getSources(node))
      if (Node more = held[edge.source]; more != kNone && moves(edge))
        held[node] =
            held[node] == kNone || held[node] == more ? more : kSeveral;
    return held[node] != known;
  });
  return llvm::map_to_vector(values, [&](Value value) {
    std::optional<Node> node = graph.find(value);
    return node && held[*node] >= 0 ? graph.getInput(held[*node])
                                    : BlockArgument();
  });
}
