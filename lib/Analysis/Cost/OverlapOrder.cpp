//===- OverlapOrder.cpp - The order in which XLA runs ops -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// XLA's latency hiding scheduler places ops from the end of a computation on
// (X3). Of those that nothing unplaced reads it takes, in this order:
//
// 1. the end of a collective, if no other one is in flight;
// 2. the start of the collective in flight, if its time is over and others
//    wait for the links;
// 3. what need not wait for what reads it;
// 4. what comes after more collectives;
// 5. what is last in the order before.
//
// Before that, XLA joins collectives. So scatters run one after the other
// towards the end of a step, and gradients wait for them. Products for
// gradients are what hides scatters, and keep what they read until then.
//
//===----------------------------------------------------------------------===//

#include "PeakMemory.h"

#include "zpp/Analysis/Collectives.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/Limits.h"

#include <queue>

using namespace mlir;
using namespace zpp;

/// The rate at which XLA assumes collectives to run, whatever the machine: that
/// of its own table of rings within a node.
static constexpr double kBytesPerUsec = 250e3;
/// The most result bytes of a collective that XLA combines (X13).
static constexpr int64_t kJoinedBytes = 30 * 1024 * 1024 + 7;
/// The least time of a kernel.
static constexpr double kLaunchUsec = 2;
/// The time that XLA adds between the op of a value and those that read it.
static constexpr double kEdgeUsec = 1;

namespace {

/// A thing to place: an op that stores results, or the start or the end of
/// collectives that XLA joins. All else moves or fuses what a node stores.
struct Node {
  enum Kind { Kernel, Barrier, Loop, Start, Done };

  SmallVector<Operation *, 1> ops;
  Kind kind;
  /// For the end of a collective, the time since its start.
  double usec;
  /// Nodes that come before this one, and after it.
  SmallVector<unsigned> before = {}, after = {};
  /// Bytes that the ops store.
  int64_t bytes = 0;
  /// Collectives on the longest way to this node.
  unsigned depth = 0;
  /// The place in the order of the memory scheduler.
  unsigned position = 0;
  /// How many nodes of `after` have not been placed.
  unsigned numOpen = 0;
  /// When this node need not wait for these any more, in microseconds before
  /// the end.
  double ready = 0;
  bool isPlaced = false;
};

class OverlapScheduler {
public:
  OverlapScheduler(Block &block, ComputeCosts &costs, StoredValues &stored)
      : block(block), costs(costs), stored(stored) {
    for (Operation &op : block)
      addOp(&op);
  }

  SmallVector<Operation *> run();

private:
  using Key = std::tuple<unsigned, unsigned, unsigned>;

  void addOp(Operation *op);
  unsigned addNode(Operation *op, Node::Kind kind, double usec,
                   ArrayRef<unsigned> before);
  void addBefore(unsigned index, unsigned other);
  unsigned addCollective(Operation *op, ArrayRef<unsigned> before);
  void setPositions();
  void keepReductions();
  bool freesMemory(unsigned index, ArrayRef<unsigned> numReaders) const;

  Key getKey(unsigned index) const {
    return {nodes[index].depth, nodes[index].position, index};
  }
  SmallVector<unsigned> placeBackwards();
  void place(unsigned index);
  void release(unsigned index);

  Block &block;
  ComputeCosts &costs;
  StoredValues &stored;
  std::vector<Node> nodes;
  /// The node that an op is, or those that it moves or fuses the results of.
  llvm::DenseMap<Operation *, SmallVector<unsigned, 2>> sources;
  /// The end of the last collectives of one kind after as many others, to which
  /// more can be joined, and the bytes of their results.
  llvm::DenseMap<std::pair<unsigned, Attribute>, std::pair<unsigned, int64_t>>
      joined;

  /// Nodes that can be placed, the next one on top.
  std::priority_queue<Key> kernels, loops, dones;
  SmallVector<unsigned> barriers;
  /// Nodes that can be placed from a time on, after its negative.
  std::priority_queue<std::pair<double, Key>> waiting;
  /// Microseconds before the end of the block.
  double now = 0;
  /// The start of the collective whose end has been placed.
  std::optional<unsigned> inFlight;
  SmallVector<unsigned> placed;
};

} // namespace

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

void OverlapScheduler::addBefore(unsigned index, unsigned other) {
  if (llvm::is_contained(nodes[index].before, other))
    return;
  nodes[index].before.push_back(other);
  nodes[other].after.push_back(index);
  nodes[index].depth = std::max(nodes[index].depth, nodes[other].depth);
}

unsigned OverlapScheduler::addNode(Operation *op, Node::Kind kind, double usec,
                                   ArrayRef<unsigned> before) {
  unsigned index = nodes.size();
  nodes.push_back({{op}, kind, usec});
  for (unsigned other : before)
    addBefore(index, other);
  if (kind == Node::Start)
    return index;
  for (OpResult result : op->getResults())
    if (stored.isStored(result))
      nodes[index].bytes =
          addSaturating(nodes[index].bytes, stored.getStoredBytes(result));
  return index;
}

/// Returns the end of `op`. Of two collectives after as many others, neither
/// depends on the other.
unsigned OverlapScheduler::addCollective(Operation *op,
                                         ArrayRef<unsigned> before) {
  int64_t bytes = getBytes(op->getResultTypes());
  double usec =
      static_cast<double>(std::max(getBytes(op->getOperandTypes()), bytes)) /
      kBytesPerUsec;
  unsigned depth = 0;
  for (unsigned other : before)
    depth = std::max(depth, nodes[other].depth);
  // Nothing has verified the op.
  SmallVector<Attribute> parts{op->getName().getIdentifier()};
  if (Attribute groups = op->getAttr("replica_groups"))
    parts.push_back(groups);
  if (op->getNumOperands() > 0)
    parts.push_back(TypeAttr::get(getElementTypeOrSelf(op->getOperand(0))));
  Attribute kind = ArrayAttr::get(op->getContext(), parts);
  auto [it, isNew] = joined.try_emplace({depth, kind}, 0, 0);
  auto &[end, sum] = it->second;
  if (!isNew && addSaturating(sum, bytes) <= kJoinedBytes) {
    sum += bytes;
    nodes[end].ops.push_back(op);
    nodes[end].usec += usec;
    nodes[end].bytes += bytes;
    unsigned start = nodes[end].before.front();
    nodes[start].ops.push_back(op);
    for (unsigned other : before)
      addBefore(start, other);
    return end;
  }
  unsigned start = addNode(op, Node::Start, 0, before);
  unsigned done = addNode(op, Node::Done, usec, start);
  ++nodes[done].depth;
  it->second = {done, bytes};
  return done;
}

void OverlapScheduler::addOp(Operation *op) {
  SmallVector<unsigned, 2> before;
  auto read = [&](Operation *reader) {
    for (Value operand : reader->getOperands())
      if (Operation *source = operand.getDefiningOp())
        if (source->getBlock() == &block)
          llvm::append_range(before, sources[source]);
  };
  read(op);
  for (Region &region : op->getRegions())
    region.walk(read);
  llvm::sort(before);
  before.erase(llvm::unique(before), before.end());

  SmallVector<unsigned, 2> &own = sources[op];
  if (isCollective(op)) {
    own = {addCollective(op, before)};
  } else if (isBarrier(op)) {
    own = {addNode(op, Node::Barrier, 0, before)};
  } else if (op->getNumResults() == 0 || stored.storesAny(op)) {
    Node::Kind kind =
        isWhile(op) && containsOp(op, isCollective) ? Node::Loop : Node::Kernel;
    own = {addNode(op, kind, kLaunchUsec + costs.getUsec(op), before)};
  } else {
    own = std::move(before);
  }
}

//===----------------------------------------------------------------------===//
// The order before
//===----------------------------------------------------------------------===//

/// True if `index` can be placed for the memory that this frees.
bool OverlapScheduler::freesMemory(unsigned index,
                                   ArrayRef<unsigned> numReaders) const {
  const Node &node = nodes[index];
  Operation *op = node.ops.front();
  if (node.kind != Node::Kernel || op->getNumResults() != 1 ||
      (!isFusible(op) && !isNamed(op, guest::kReduce) &&
       getProductFlops(op) == 0))
    return false;
  // The results of a block have the memory of its arguments.
  if (llvm::all_of(op->getUsers(),
                   [&](Operation *user) { return user == &block.back(); }))
    return true;
  int64_t freed = 0;
  for (unsigned source : node.before)
    if (numReaders[source] == 1)
      freed = addSaturating(freed, nodes[source].bytes);
  return freed > 0 && freed >= node.bytes;
}

/// The order of the ops, but for those that free memory: these come as soon as
/// what they read is there.
void OverlapScheduler::setPositions() {
  std::vector<unsigned> numReaders, numSources;
  for (const Node &node : nodes) {
    numReaders.push_back(node.after.size());
    numSources.push_back(node.before.size());
  }
  // Nodes whose sources have positions: in the order of the ops, and those that
  // may free memory now.
  std::priority_queue<unsigned, std::vector<unsigned>, std::greater<>> next;
  for (unsigned index = 0; index < nodes.size(); ++index)
    if (numSources[index] == 0)
      next.push(index);
  SmallVector<unsigned> candidates;
  std::vector<char> hasPosition(nodes.size());
  unsigned position = 0;
  while (!candidates.empty() || !next.empty()) {
    unsigned index;
    if (!candidates.empty()) {
      index = candidates.pop_back_val();
      if (numSources[index] > 0 || !freesMemory(index, numReaders))
        continue;
    } else {
      index = next.top();
      next.pop();
    }
    if (std::exchange(hasPosition[index], true))
      continue;
    nodes[index].position = position++;
    for (unsigned after : nodes[index].after)
      if (--numSources[after] == 0) {
        next.push(after);
        candidates.push_back(after);
      }
    for (unsigned before : nodes[index].before)
      if (--numReaders[before] == 1)
        llvm::append_range(candidates, nodes[before].after);
  }
}

/// Keeps reductions before the next op that reads the same, with which XLA
/// fuses them, or before what reads the op before.
void OverlapScheduler::keepReductions() {
  auto isBefore = [&](unsigned one, unsigned other) {
    return nodes[one].position < nodes[other].position;
  };
  for (const Node &node : nodes) {
    SmallVector<unsigned> readers = node.after;
    llvm::sort(readers, isBefore);
    for (size_t i = 0; i < readers.size(); ++i) {
      if (!isNamed(nodes[readers[i]].ops.front(), guest::kReduce))
        continue;
      if (i + 1 < readers.size()) {
        addBefore(readers[i + 1], readers[i]);
      } else if (i > 0) {
        SmallVector<unsigned> others = nodes[readers[i - 1]].after;
        for (unsigned other : others)
          if (isBefore(readers[i], other))
            addBefore(other, readers[i]);
      }
    }
  }
}

//===----------------------------------------------------------------------===//
// The order
//===----------------------------------------------------------------------===//

/// Adds a node to those that can be placed.
void OverlapScheduler::release(unsigned index) {
  const Node &node = nodes[index];
  if (node.kind == Node::Barrier)
    barriers.push_back(index);
  else if (node.kind == Node::Done)
    dones.push(getKey(index));
  else if (node.kind == Node::Loop)
    loops.push(getKey(index));
  else
    waiting.push({-node.ready, getKey(index)});
}

void OverlapScheduler::place(unsigned index) {
  Node &node = nodes[index];
  if (std::exchange(node.isPlaced, true))
    return;
  placed.push_back(index);
  now = std::max(now, node.ready);
  double ready = now + node.usec;
  if (node.kind == Node::Done)
    inFlight = node.before.front();
  else
    now = ready;
  if (node.kind == Node::Start)
    inFlight = std::nullopt;
  if (node.kind != Node::Barrier)
    ready += kEdgeUsec;
  for (unsigned other : node.before) {
    nodes[other].ready = std::max(nodes[other].ready, ready);
    if (--nodes[other].numOpen == 0)
      release(other);
  }
}

SmallVector<unsigned> OverlapScheduler::placeBackwards() {
  for (unsigned index = 0; index < nodes.size(); ++index) {
    nodes[index].numOpen = nodes[index].after.size();
    if (nodes[index].numOpen == 0)
      release(index);
  }
  auto placeTop = [&](std::priority_queue<Key> &queue) {
    unsigned index = std::get<2>(queue.top());
    queue.pop();
    place(index);
  };
  while (true) {
    while (!waiting.empty() && -waiting.top().first <= now) {
      kernels.push(waiting.top().second);
      waiting.pop();
    }
    if (!barriers.empty()) {
      place(barriers.pop_back_val());
    } else if (!dones.empty() && !inFlight) {
      placeTop(dones);
    } else if (!dones.empty() && nodes[*inFlight].ready <= now) {
      place(*inFlight);
    } else if (!loops.empty() && !inFlight &&
               (kernels.empty() || kernels.top() < loops.top())) {
      // Nothing is in flight while a loop communicates.
      placeTop(loops);
    } else if (!kernels.empty()) {
      placeTop(kernels);
    } else if (!waiting.empty()) {
      kernels.push(waiting.top().second);
      waiting.pop();
      placeTop(kernels);
    } else {
      return std::move(placed);
    }
  }
}

SmallVector<Operation *> OverlapScheduler::run() {
  setPositions();
  keepReductions();
  SmallVector<unsigned> order;
  if (llvm::any_of(nodes, [](Node &node) { return node.kind == Node::Done; })) {
    order = placeBackwards();
    std::reverse(order.begin(), order.end());
  } else {
    order.resize(nodes.size());
    for (auto [index, node] : llvm::enumerate(nodes))
      order[node.position] = index;
  }
  // What is no node comes after the last one that it needs.
  std::vector<unsigned> ranks(nodes.size());
  for (auto [rank, index] : llvm::enumerate(order))
    ranks[index] = rank + 1;
  std::vector<SmallVector<Operation *, 2>> others(nodes.size() + 1);
  for (Operation &op : block) {
    ArrayRef<unsigned> own = sources[&op];
    if (own.size() == 1 && llvm::is_contained(nodes[own.front()].ops, &op))
      continue;
    unsigned rank = 0;
    for (unsigned source : own)
      rank = std::max(rank, ranks[source]);
    others[rank].push_back(&op);
  }
  SmallVector<Operation *> ops(others.front().begin(), others.front().end());
  for (auto [rank, index] : llvm::enumerate(order)) {
    llvm::append_range(ops, nodes[index].ops);
    llvm::append_range(ops, others[rank + 1]);
  }
  return ops;
}

SmallVector<Operation *> zpp::getOverlapOrder(Block &block, ComputeCosts &costs,
                                              StoredValues &stored) {
  return OverlapScheduler(block, costs, stored).run();
}
