//===- PipelineChunks.cpp - Hops of one stage under those of others -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Transforms/Passes.h"

#include <set>

namespace zpp {
#define GEN_PASS_DEF_PIPELINECHUNKSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// Puts the ops of a block in the order in which they would start. Takes
/// O(n log n) time.
class Issue {
public:
  Issue(Block &block, const Mesh &mesh, const LinkModel &model)
      : block(block), mesh(mesh), model(model),
        queues(mesh.getAxes().size() + 1) {}

  void run() {
    addNodes();
    SmallVector<Node *> roots;
    for (Node &node : nodes)
      if (node.numPending == 0)
        roots.push_back(&node);
    for (Node *root : roots)
      makeReady(*root);
    while (Queue *queue = findNextQueue()) {
      auto [start, tail, position] = *queue->getNext();
      queue->pop();
      Node &node = nodes[position];
      queue->free = start + node.usec;
      finish(node, queue->free);
      bring(node.op);
    }
  }

private:
  /// An op of the block. Tensor ops between zero ops take no time.
  struct Node {
    Operation *op;
    bool isZeroOp;
    double usec = 0;
    /// The time from its start to the end of the last op that depends on it.
    double tail = 0;
    /// The time at which its operands are available.
    double ready = 0;
    /// The number of its operands that are not available yet.
    unsigned numPending = 0;
  };

  /// The start of an op, its negative tail and its position: the op that can
  /// start earliest comes first, then the one with the longest tail. Equal ones
  /// keep their order.
  using Priority = std::tuple<double, double, size_t>;

  /// Ops that run one after the other and whose operands are known.
  struct Queue {
    /// The end of the last op.
    double free = 0;
    /// Ops that could start before `free`, with 0 as their start.
    std::set<Priority> available;
    std::set<Priority> later;

    std::optional<Priority> getNext() {
      while (!later.empty() && std::get<0>(*later.begin()) <= free) {
        auto [ready, tail, position] = *later.begin();
        available.insert({0, tail, position});
        later.erase(later.begin());
      }
      if (!available.empty()) {
        auto [unused, tail, position] = *available.begin();
        return Priority(free, tail, position);
      }
      if (!later.empty())
        return *later.begin();
      return std::nullopt;
    }

    /// Removes what getNext() has returned.
    void pop() {
      std::set<Priority> &ops = available.empty() ? later : available;
      ops.erase(ops.begin());
    }
  };

  void addNodes() {
    for (Operation &op : block.without_terminator()) {
      Node node{&op, isa<ZeroDialect>(op.getDialect())};
      if (node.isZeroOp)
        node.usec = getUsec(&op);
      for (Value operand : op.getOperands())
        node.numPending += positions.contains(operand.getDefiningOp());
      positions[&op] = nodes.size();
      nodes.push_back(node);
    }
    // Readers come before the ops that they read.
    for (Node &node : llvm::reverse(nodes)) {
      forEachReader(node, [&](Node &reader) {
        node.tail = std::max(node.tail, reader.tail);
      });
      node.tail += node.usec;
    }
  }

  /// Calls `visit` once for each operand that is a result of `node`.
  void forEachReader(Node &node, llvm::function_ref<void(Node &)> visit) {
    for (Operation *user : node.op->getUsers())
      if (auto it = positions.find(user); it != positions.end())
        visit(nodes[it->second]);
  }

  /// Kernels share one queue; the exchanges over each tier have their own.
  Queue &getQueue(Operation *op) {
    auto exchange = dyn_cast<CollectiveOpInterface>(op);
    if (!exchange)
      return queues.back();
    return queues[mesh.findSlowest(exchange.getAxisRefs())];
  }

  double getUsec(Operation *op) const {
    std::optional<CollectiveView> view = getCollective(op, mesh);
    if (view && view->kind == CollectiveKind::AllGather)
      return model.getHopsUsec(mesh, view->axes,
                               getBytes(op->getOperand(0).getType()));
    if (view)
      return model.getExchangeUsec(view->getSentBytes(mesh));
    return LinkModel::getKernelUsec(getBytes(op->getOperandTypes()));
  }

  /// Called when all operands of `node` are known.
  void makeReady(Node &node) {
    if (!node.isZeroOp)
      return finish(node, node.ready);
    size_t position = &node - nodes.data();
    getQueue(node.op).later.insert({node.ready, -node.tail, position});
  }

  /// The results of `first` are available at `time`.
  void finish(Node &first, double time) {
    first.ready = time;
    SmallVector<Node *> finished{&first};
    while (!finished.empty()) {
      Node *node = finished.pop_back_val();
      forEachReader(*node, [&](Node &reader) {
        reader.ready = std::max(reader.ready, node->ready);
        if (--reader.numPending > 0)
          return;
        if (reader.isZeroOp)
          makeReady(reader);
        else
          finished.push_back(&reader);
      });
    }
  }

  /// Returns the queue whose next op comes first, or null.
  Queue *findNextQueue() {
    Queue *best = nullptr;
    std::optional<Priority> first;
    for (Queue &queue : queues) {
      std::optional<Priority> next = queue.getNext();
      if (next && (!first || *next < *first)) {
        first = next;
        best = &queue;
      }
    }
    return best;
  }

  /// Moves `op`, and before it the tensor ops that it reads, after the ops
  /// that have been issued.
  void bring(Operation *op) {
    for (Value operand : op->getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && source->getBlock() == &block &&
          !isa<ZeroDialect>(source->getDialect()) && !brought.contains(source))
        bring(source);
    brought.insert(op);
    if (last)
      op->moveAfter(last);
    else
      op->moveBefore(&block, block.begin());
    last = op;
  }

  Block &block;
  const Mesh &mesh;
  const LinkModel &model;
  /// In the original order of the block.
  std::vector<Node> nodes;
  llvm::DenseMap<Operation *, size_t> positions;
  std::vector<Queue> queues;
  llvm::DenseSet<Operation *> brought;
  Operation *last = nullptr;
};

class PipelineChunksPass
    : public zpp::impl::PipelineChunksPassBase<PipelineChunksPass> {
public:
  using PipelineChunksPassBase::PipelineChunksPassBase;

  void runOnOperation() override {
    auto host = getOperation().lookupSymbol<ModuleOp>(kHostModule);
    if (!host)
      return;
    FailureOr<Machine> machine = Machine::get(getOperation());
    if (failed(machine))
      return signalPassFailure();
    llvm::DenseMap<Operation *, SmallVector<Operation *>> exchangesBefore;
    for (auto function : host.getOps<func::FuncOp>()) {
      CollectiveOpInterface first;
      bool hasOneMesh = true;
      function.walk([&](CollectiveOpInterface exchange) {
        if (!first)
          first = exchange;
        hasOneMesh &= exchange.getMeshAttr() == first.getMeshAttr();
      });
      // After bufferization the order of ops is also that of memory accesses.
      if (!first || first->getNumResults() == 0 ||
          !function.getBody().hasOneBlock())
        continue;
      if (!hasOneMesh) {
        remarkMissed(function, getArgument(), "not-ordered")
            << "its exchanges stay in their order: they are on several meshes";
        continue;
      }
      Mesh mesh = first.getMeshAttr().getMesh();
      exchangesBefore[function] = getExchanges(function);
      LinkModel links = machine->getLinks(mesh);
      Issue(function.getBody().front(), mesh, links).run();
    }
    getOperation().walk([&](StartOp start) {
      FunctionOpInterface function = getStartedFunction(start);
      auto found = exchangesBefore.find(function);
      if (found != exchangesBefore.end())
        reorderOrigins(start, found->second, getExchanges(function));
    });
  }

private:
  static SmallVector<Operation *> getExchanges(Operation *function) {
    SmallVector<Operation *> exchanges;
    function->walk(
        [&](CollectiveOpInterface exchange) { exchanges.push_back(exchange); });
    return exchanges;
  }

  /// The origins of a start are in the order of the exchanges that it runs.
  static void reorderOrigins(StartOp start, ArrayRef<Operation *> before,
                             ArrayRef<Operation *> after) {
    ArrayAttr origins = start.getOriginsAttr();
    if (!origins || origins.size() != before.size() || before == after)
      return;
    llvm::DenseMap<Operation *, Attribute> known;
    for (auto [exchange, origin] : llvm::zip_equal(before, origins))
      known[exchange] = origin;
    SmallVector<Attribute> ordered;
    for (Operation *exchange : after)
      ordered.push_back(known.lookup(exchange));
    start.setOriginsAttr(ArrayAttr::get(start.getContext(), ordered));
  }
};
} // namespace
