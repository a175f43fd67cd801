//===- StepFlow.cpp - Where values of a step go ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepGraph.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/MapVector.h"

#include <functional>
#include <set>

using namespace mlir;
using namespace zpp;

/// Returns the number of elements of a tensor, or nullopt if it is not known.
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

/// Finds for each input a result of its type that holds its elements, and that
/// no other input has: a buffer that rows of a batch are written into is
/// returned, but the batch is not.
void StepFlow::findReturnedInputs(
    llvm::function_ref<bool(BlockArgument)> isData) {
  llvm::MapVector<Type, SmallVector<BlockArgument>> ofTypes;
  // Data comes last, whatever the order of the arguments.
  for (bool ofData : {false, true})
    for (BlockArgument input : inputs)
      if (reached[graph->getNumber(input)] >= 0 && isFloat(input.getType()) &&
          isData(input) == ofData)
        ofTypes[input.getType()].push_back(input);
  for (auto &[type, ofType] : ofTypes) {
    llvm::DenseMap<int64_t, SmallVector<size_t, 1>> places;
    for (auto [index, value] : llvm::enumerate(returned))
      if (value.getType() == type)
        places[graph->getNumber(value)].push_back(index);
    std::vector<SmallVector<size_t>> held;
    for (BlockArgument input : ofType) {
      SmallVector<size_t> &found = held.emplace_back();
      llvm::DenseSet<int64_t> seen{graph->getNumber(input)};
      SmallVector<int64_t> worklist{graph->getNumber(input)};
      while (!worklist.empty()) {
        int64_t value = worklist.pop_back_val();
        if (auto place = places.find(value); place != places.end())
          llvm::append_range(found, place->second);
        graph->forEachNeighbor(
            value, /*forward=*/true, [&](int64_t target, Graph::Kind kind) {
              if (kind != Graph::Kind::Computed && reached[target] >= 0 &&
                  seen.insert(target).second)
                worklist.push_back(target);
            });
      }
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
        returnedInputs.insert(ofType[index].getAsOpaquePointer());
    }
  }
}

StepFlow::StepFlow(ModuleOp module,
                   llvm::function_ref<bool(BlockArgument)> isNamedWeight,
                   llvm::function_ref<bool(BlockArgument)> isData) {
  using Kind = Graph::Kind;
  Graph::Summaries summaries;
  graph = std::make_unique<Graph>(summaries);
  size_t ops = 0;
  module.walk([&](Operation *) { ++ops; });
  graph->reserve(ops);
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
  findReturnedInputs(isData);

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

  // The cotangents of a layer, by contrast, follow from those of the layer
  // behind it, which the iteration before has made.
  std::vector<char> ofDevice(graph->size()), held(graph->size());
  for (int64_t number : otherSources)
    ofDevice[number] = getNumElements(graph->getValue(number).getType()) != 1;
  for (BlockArgument input : inputs)
    held[graph->getNumber(input)] = fromWeight[graph->getNumber(input)];
  graph->mark(held, /*forward=*/true,
              [](Kind kind) { return kind != Kind::Computed; });
  graph->passOn(
      std::move(ofDevice),
      [&](int64_t value) { return held[value] && reached[value] >= 0; },
      // Weights that are gathered for the next iteration, and no state. Weights
      // that a loop trains follow from data.
      [&](int64_t value) {
        return fromWeight[value] && !fromOther[value] && reached[value] < 0;
      });
}

std::string StepFlow::StepResult::describe() const {
  std::string text = std::to_string(index);
  auto name =
      const_cast<func::FuncOp &>(function).getResultAttrOfType<StringAttr>(
          index, guest::kResultInfo);
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
/// No way leads on from `stops`, if there are any.
template <typename GraphT>
static std::vector<char> markComputed(const GraphT &graph,
                                      ArrayRef<Value> values, bool forward,
                                      std::vector<char> stops = {}) {
  using Kind = typename GraphT::Kind;
  auto isStop = [&](size_t value) { return !stops.empty() && stops[value]; };
  std::vector<char> moved = markValues(graph, values);
  graph.mark(moved, forward, GraphT::isMoved, isStop);
  std::vector<char> found(graph.size());
  for (size_t value = 0; value < moved.size(); ++value)
    if (moved[value] && !isStop(value))
      graph.forEachNeighbor(value, forward, [&](int64_t next, Kind kind) {
        if (kind == Kind::Computed)
          found[next] = true;
      });
  graph.mark(
      found, forward, [](Kind kind) { return kind != Kind::Carried; }, isStop);
  return found;
}

StepFlow::ValueSet StepFlow::getAncestors(ArrayRef<Value> values) const {
  return getSet(markComputed(*graph, values, /*forward=*/false));
}

StepFlow::ValueSet
StepFlow::getAncestorsBeside(ArrayRef<Value> values,
                             const ValueSet &ancestors) const {
  std::vector<char> stops(graph->size());
  for (BlockArgument weight : getInputsIn(ancestors))
    stops[graph->getNumber(weight)] = true;
  graph->mark(stops, /*forward=*/true,
              [](Graph::Kind kind) { return kind != Graph::Kind::Computed; });
  for (size_t value = 0; value < stops.size(); ++value)
    if (Operation *op = graph->getValue(value).getDefiningOp())
      stops[value] |= getGuestCollective(op) == CollectiveKind::AllReduce ||
                      getGuestCollective(op) == CollectiveKind::ReduceScatter;
  return getSet(
      markComputed(*graph, values, /*forward=*/false, std::move(stops)));
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

StepFlow::ValueSet
StepFlow::getUpdatesOf(llvm::function_ref<bool(BlockArgument)> isWanted) const {
  auto isElementwise = [](Graph::Kind kind) {
    return kind != Graph::Kind::Computed;
  };
  llvm::MapVector<Type, SmallVector<Value>> wanted;
  for (BlockArgument input : inputs)
    if (isFloat(input.getType()) && isWanted(input))
      wanted[input.getType()].push_back(input);
  std::vector<char> found(graph->size());
  for (auto &[type, ofType] : wanted) {
    std::vector<char> held = markValues(*graph, ofType);
    graph->mark(held, /*forward=*/true, isElementwise);
    for (Value value : returned)
      if (value.getType() == type && held[graph->getNumber(value)])
        found[graph->getNumber(value)] = true;
  }
  graph->mark(found, /*forward=*/false, isElementwise);
  return getSet(std::move(found));
}

llvm::DenseSet<Value>
StepFlow::getInputsHeldBy(llvm::function_ref<bool(Value)> isWanted) const {
  llvm::MapVector<Type, SmallVector<Value>> wanted;
  for (Value value : returned)
    if (isFloat(value.getType()) && isWanted(value))
      wanted[value.getType()].push_back(value);
  llvm::DenseSet<Value> found;
  for (auto &[type, ofType] : wanted) {
    std::vector<char> held = markValues(*graph, ofType);
    graph->mark(held, /*forward=*/false,
                [](Graph::Kind kind) { return kind != Graph::Kind::Computed; });
    for (BlockArgument input : inputs)
      if (input.getType() == type && held[graph->getNumber(input)])
        found.insert(input);
  }
  return found;
}

llvm::DenseSet<Value> StepFlow::getUpdatedBy(ArrayRef<Value> values) const {
  std::vector<char> reached = markValues(*graph, values);
  graph->mark(reached, /*forward=*/true,
              [](Graph::Kind kind) { return kind != Graph::Kind::Computed; });
  return getInputsHeldBy(
      [&](Value value) { return reached[graph->getNumber(value)]; });
}

llvm::DenseSet<Value> StepFlow::getUpdatedOnlyBy(ArrayRef<Value> cuts) const {
  // Rates and counters move all elements alike.
  auto isArray = [&](int64_t source) {
    std::optional<int64_t> count =
        getNumElements(graph->getValue(source).getType());
    return !count || *count > 1;
  };
  ValueSet dependents =
      getDependents(cuts, llvm::filter_to_vector(otherSources, isArray));
  return getInputsHeldBy([&](Value value) {
    return cast<ShapedType>(value.getType()).getRank() > 1 &&
           !dependents.contains(value);
  });
}

bool StepFlow::isUpdatedFrom(BlockArgument input, Value value) const {
  std::vector<char> held = markValues(*graph, Value(input));
  graph->mark(held, /*forward=*/true,
              [](Graph::Kind kind) { return kind != Graph::Kind::Computed; });
  return getAncestors(llvm::filter_to_vector(
                          returned,
                          [&](Value result) {
                            return result.getType() == input.getType() &&
                                   held[graph->getNumber(result)];
                          }))
      .contains(value);
}

StepFlow::ValueSet StepFlow::getDependents(ArrayRef<Value> cuts) const {
  return getDependents(cuts, otherSources);
}

StepFlow::ValueSet StepFlow::getDependents(ArrayRef<Value> cuts,
                                           ArrayRef<int64_t> sources) const {
  std::vector<char> isCut = markValues(*graph, cuts);
  std::vector<char> found(graph->size());
  SmallVector<int64_t> worklist(sources);
  for (int64_t source : sources)
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
