//===- StepGraph.cpp - The graph of StepFlow ------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepGraph.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Dialect/Guest/Branches.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace zpp;

/// True for a tensor of one element.
static bool isScalar(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && shaped.hasStaticShape() && shaped.getNumElements() == 1;
}

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
  if (std::optional<BranchesView> branches = BranchesView::get(op)) {
    auto pass = [&](Value source, Value target) {
      addEdge(source, target, Kind::Moved);
    };
    branches->forEachEntry(pass);
    branches->forEachExit(pass);
    return;
  }
  // Zero ops move what they quantize and exchange.
  bool isZero = isa_and_present<zero::ZeroDialect>(op->getDialect());
  ElementFlow flow(op);
  for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
    if (flow.isPosition(index))
      continue;
    if (flow.isBarrier()) {
      addEdge(operand, op->getResult(index), Kind::Moved);
      continue;
    }
    for (OpResult result : op->getResults())
      addEdge(operand, result,
              !isZero && !flow.movesElements(index, result.getResultNumber())
                  ? Kind::Computed
              : flow.isDivisor(index) ? Kind::Divided
                                      : Kind::Moved);
  }
}

/// True for values that all devices have alike, whatever data they follow
/// from, and for scalars, which scale all elements alike.
static bool isShared(Value value) {
  Operation *op = value.getDefiningOp();
  std::optional<CollectiveKind> kind =
      op ? getGuestCollective(op) : std::nullopt;
  return isScalar(value.getType()) || kind == CollectiveKind::AllReduce ||
         kind == CollectiveKind::ReduceScatter ||
         kind == CollectiveKind::AllGather;
}

SmallVector<Value> StepFlow::Graph::getFactors(size_t index) const {
  const Edge &edge = edges[index];
  if (auto ofCall = factors.find(index); ofCall != factors.end())
    return ofCall->second;
  Operation *op = values[edge.target].getDefiningOp();
  if (!isMoved(edge.kind) || !op || op->getNumOperands() != 2 ||
      !(isNamed(op, guest::kMultiply) || isNamed(op, guest::kDivide)))
    return {};
  bool isFirst = op->getOperand(0) == values[edge.source];
  return {op->getOperand(isFirst ? 1 : 0)};
}

void StepFlow::Graph::spreadData(std::vector<char> &data) const {
  SmallVector<int64_t> worklist;
  for (size_t value = 0; value < data.size(); ++value)
    if (data[value])
      worklist.push_back(value);
  while (!worklist.empty())
    forEachNeighbor(worklist.pop_back_val(), /*forward=*/true,
                    [&](int64_t target, Kind) {
                      if (data[target] || isShared(values[target]))
                        return;
                      data[target] = true;
                      worklist.push_back(target);
                    });
}

void StepFlow::Graph::cutActivations(std::vector<char> data) {
  spreadData(data);
  for (auto [index, edge] : llvm::enumerate(edges))
    if (llvm::any_of(getFactors(index),
                     [&](Value factor) { return data[getNumber(factor)]; }))
      edge.kind = Kind::Computed;
}

void StepFlow::Graph::passOn(std::vector<char> data,
                             llvm::function_ref<bool(int64_t)> isState,
                             llvm::function_ref<bool(int64_t)> isWaiting) {
  spreadData(data);
  for (Edge &edge : edges)
    if (edge.kind == Kind::Carried &&
        ((data[edge.target] && !isState(edge.target)) ||
         isWaiting(edge.source)))
      edge.kind = Kind::Moved;
}

void StepFlow::Graph::addCall(func::CallOp call) {
  func::FuncOp callee = getCallee(call);
  // Nothing is known about a function without a body.
  if (!callee) {
    for (Value operand : call.getOperands())
      for (Value result : call.getResults())
        addEdge(operand, result, Kind::Moved);
    return;
  }
  for (const Summary &entry : getSummary(callee))
    if (entry.argument < call.getNumOperands() &&
        entry.result < call.getNumResults()) {
      if (!entry.factors.empty())
        factors[edges.size()] =
            llvm::map_to_vector(entry.factors, [&](unsigned factor) -> Value {
              return call.getOperand(factor);
            });
      addEdge(call.getOperand(entry.argument), call.getResult(entry.result),
              entry.kind);
    }
}

bool StepFlow::Graph::isMovedUnscaled(
    int64_t from, int64_t to, llvm::function_ref<bool(Value)> scales) const {
  llvm::DenseSet<int64_t> found{from};
  SmallVector<int64_t> worklist{from};
  while (!worklist.empty() && !found.contains(to)) {
    int64_t value = worklist.pop_back_val();
    for (int64_t i = out.begin[value]; i < out.begin[value + 1]; ++i) {
      const Edge &edge = edges[out.edges[i]];
      if (edge.kind != Kind::Computed && !found.contains(edge.target) &&
          llvm::none_of(getFactors(out.edges[i]), scales)) {
        found.insert(edge.target);
        worklist.push_back(edge.target);
      }
    }
  }
  return found.contains(to);
}

SmallVector<unsigned> StepFlow::Graph::getFactorArguments(Block &body,
                                                          unsigned argument,
                                                          Value result) const {
  // Functions in which the search would take long are left alone.
  constexpr size_t kMostSteps = 1 << 20;
  int64_t from = *findNumber(body.getArgument(argument)),
          to = *findNumber(result);
  llvm::DenseSet<int64_t> scaling;
  SmallVector<int64_t> worklist;
  auto add = [&](Value value) {
    if (!isShared(value) && scaling.insert(*findNumber(value)).second)
      worklist.push_back(*findNumber(value));
  };
  if (isMovedUnscaled(from, to, [&](Value factor) {
        add(factor);
        return !isShared(factor);
      }))
    return {};
  while (!worklist.empty())
    forEachNeighbor(worklist.pop_back_val(), /*forward=*/false,
                    [&](int64_t source, Kind) { add(values[source]); });
  SmallVector<unsigned> found;
  if (scaling.size() * body.getNumArguments() > kMostSteps)
    return found;
  for (BlockArgument other : body.getArguments()) {
    int64_t number = *findNumber(other);
    if (other.getArgNumber() == argument || !scaling.contains(number))
      continue;
    llvm::DenseSet<int64_t> data{number};
    worklist.push_back(number);
    while (!worklist.empty())
      forEachNeighbor(
          worklist.pop_back_val(), /*forward=*/true, [&](int64_t target, Kind) {
            if (scaling.contains(target) && data.insert(target).second)
              worklist.push_back(target);
          });
    if (!isMovedUnscaled(from, to, [&](Value factor) {
          return data.contains(*findNumber(factor));
        }))
      found.push_back(other.getArgNumber());
  }
  return found;
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
      if (!any[number])
        continue;
      summary.push_back({argument.getArgNumber(),
                         static_cast<unsigned>(index),
                         moved[number]     ? Kind::Moved
                         : divided[number] ? Kind::Divided
                                           : Kind::Computed,
                         {}});
      if (divided[number])
        summary.back().factors =
            graph.getFactorArguments(body, argument.getArgNumber(), value);
    }
  }
  return summaries[function] = std::move(summary);
}
