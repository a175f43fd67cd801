//===- PipelineChunks.cpp - Hops of one stage under those of others -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_PIPELINECHUNKSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// The order in which the ops of a block start.
class Issue {
public:
  Issue(Block &block, const Mesh &mesh, const LinkModel &model)
      : block(block), mesh(mesh), model(model) {}

  void run() {
    SmallVector<Operation *> left;
    for (Operation &op : block.without_terminator())
      if (isa<ZeroDialect>(op.getDialect()))
        left.push_back(&op);
    for (Operation *op : llvm::reverse(left))
      setTail(op);
    while (!left.empty()) {
      Operation **next = llvm::min_element(left, [&](auto *a, auto *b) {
        return getPriority(a) < getPriority(b);
      });
      issue(*next);
      left.erase(next);
    }
  }

private:
  /// All kernels share one queue; the exchanges over each tier have their own.
  size_t getQueue(Operation *op) const {
    auto exchange = dyn_cast<CollectiveOpInterface>(op);
    if (!exchange)
      return mesh.getAxes().size();
    SmallVector<AxisRef> refs = exchange.getAxisRefs();
    return mesh.findSlowest({refs.begin(), refs.end()});
  }

  double getUsec(Operation *op) const {
    if (std::optional<CollectiveView> view = getCollective(op, mesh))
      return model.getExchangeUsec(view->getSentBytes(mesh));
    return LinkModel::getKernelUsec(getBytes(op->getOperand(0).getType()) +
                                    getBytes(op->getOperand(1).getType()));
  }

  /// The zero ops whose results `op` reads, through tensor ops.
  void forEachSource(Operation *op,
                     llvm::function_ref<void(Operation *)> visit) const {
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (!source || source->getBlock() != &block)
        continue;
      if (isa<ZeroDialect>(source->getDialect()))
        visit(source);
      else
        forEachSource(source, visit);
    }
  }

  /// Adds `op` to the remaining time after its start. Its readers must be done.
  void setTail(Operation *op) {
    tail[op] += getUsec(op);
    forEachSource(op, [&](Operation *source) {
      tail[source] = std::max(tail[source], tail[op]);
    });
  }

  /// The time at which `op` could start, or infinity if one of its operands has
  /// not been issued.
  double getStart(Operation *op) const {
    auto free = queues.find(getQueue(op));
    double start = free == queues.end() ? 0 : free->second;
    forEachSource(op, [&](Operation *source) {
      auto it = done.find(source);
      start = it == done.end() ? std::numeric_limits<double>::infinity()
                               : std::max(start, it->second);
    });
    return start;
  }

  /// The op that can start earliest comes first, then the one with the longest
  /// remaining time. Equal ones keep their order.
  std::pair<double, double> getPriority(Operation *op) const {
    return {getStart(op), -tail.lookup(op)};
  }

  void issue(Operation *op) {
    double end = getStart(op) + getUsec(op);
    queues[getQueue(op)] = end;
    done[op] = end;
    bring(op);
  }

  /// Moves `op`, and before it the tensor ops that it reads, behind the ops
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
  llvm::DenseMap<Operation *, double> done, tail;
  llvm::DenseMap<size_t, double> queues;
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
    LinksOption linksOption(getOperation(), links);
    for (auto function : host.getOps<func::FuncOp>()) {
      CollectiveOpInterface first;
      function.walk([&](CollectiveOpInterface exchange) {
        first = exchange;
        return WalkResult::interrupt();
      });
      // After bufferization the order of ops is also that of memory accesses.
      if (!first || first->getNumResults() == 0 ||
          !function.getBody().hasOneBlock())
        continue;
      Mesh mesh = first.getMeshAttr().getMesh();
      FailureOr<std::optional<LinkModel>> model = linksOption.getModel(mesh);
      if (failed(model))
        return signalPassFailure();
      Issue(function.getBody().front(), mesh,
            *model ? **model : LinkModel(mesh))
          .run();
    }
  }
};
} // namespace
