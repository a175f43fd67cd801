//===- HostTasks.cpp - What starts do on a device -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostTasks.h"

#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;

namespace {
/// The bytes of a buffer that an op reads or writes: of an argument all, of a
/// workspace those of one view.
struct Span {
  Value root;
  int64_t begin, end;

  bool overlaps(const Span &other) const {
    return root == other.root && begin < other.end && other.begin < end;
  }
};
} // namespace

/// Views of one buffer that cut it further count as all of that view.
static Span getSpan(Value value) {
  int64_t size = std::max<int64_t>(getBytes(value.getType()), 1);
  while (Operation *op = value.getDefiningOp()) {
    StringRef name = op->getName().getStringRef();
    if (name == "memref.view") {
      int64_t begin = 0;
      if (auto constant = op->getOperand(1).getDefiningOp())
        if (auto attr = constant->getAttrOfType<IntegerAttr>("value"))
          begin = std::max<int64_t>(attr.getInt(), 0);
      return {op->getOperand(0), begin,
              addSaturating(begin, getBytes(value.getType()))};
    }
    if (op->getNumOperands() == 0 || name == "memref.alloc" ||
        name == "tensor.empty")
      break;
    // Destination-passing ops on tensors yield what they overwrite.
    if (auto local = dyn_cast<zero::DecomposedOpInterface>(op))
      value = op->getOperand(1);
    else
      value = op->getOperand(0);
    size = std::max<int64_t>(getBytes(value.getType()), 1);
  }
  return {value, 0, size};
}

namespace {
/// Reads the tasks of one function.
class TaskReader {
public:
  TaskReader(const Mesh &mesh, const LinkModel &links, const Streams &streams,
             CollectiveReader &reader, std::vector<HostTask> &tasks)
      : mesh(mesh), links(links), streams(streams), reader(reader),
        tasks(tasks) {}

  void run(FunctionOpInterface function) {
    for (Operation &op : function.getFunctionBody().front()) {
      bool isExchange = isa<zero::CollectiveOpInterface>(op);
      bool isCopy = op.getName().getStringRef() == "memref.copy" ||
                    op.getName().getStringRef() == "linalg.copy";
      if (!isExchange && !isCopy && !isa<zero::DecomposedOpInterface>(op))
        continue;
      Span input = getSpan(op.getOperand(0)),
           output = getSpan(op.getOperand(1));
      HostTask task;
      int64_t tier = -1;
      for (auto [index, other] : llvm::enumerate(spans))
        if (output.overlaps(other.first) || output.overlaps(other.second) ||
            input.overlaps(other.second)) {
          task.after.push_back(index);
          tier = std::max(tier, tiers[index]);
        }
      if (!isExchange) {
        task.isKernel = true;
        task.streams = {tier < 0 ? streams.kernels : streams.after[tier]};
        task.usec = LinkModel::getKernelUsec(getBytes(op.getOperandTypes()));
        add(std::move(task), {input, output}, tier);
        continue;
      }
      addExchange(&op, task, {input, output});
    }
  }

private:
  void add(HostTask task, std::pair<Span, Span> span, int64_t tier) {
    tasks.push_back(std::move(task));
    spans.push_back(span);
    tiers.push_back(tier);
  }

  /// A gather over several tiers takes a hop for each, an all-to-all sends to
  /// all at once.
  void addExchange(Operation *op, HostTask task, std::pair<Span, Span> span) {
    std::optional<CollectiveView> view = reader.read(op);
    if (!view || view->axes.empty())
      return;
    std::vector<int64_t> sent = view->getSentBytes(mesh);
    bool isHops = view->kind == CollectiveKind::AllGather;
    std::vector<int64_t> together(sent.size(), 0);
    int64_t last = -1;
    for (size_t axis = 0; axis < sent.size(); ++axis) {
      if (sent[axis] == 0)
        continue;
      together[axis] = sent[axis];
      last = axis;
      task.streams.push_back(streams.tiers[axis]);
      if (!isHops)
        continue;
      std::vector<int64_t> sizes(sent.size(), 1);
      sizes[axis] = mesh.getSizes(view->axes)[axis];
      task.usec = links.getRingUsec(sizes, sent[axis] / (sizes[axis] - 1));
      together[axis] = 0;
      unsigned index = tasks.size();
      add(std::move(task), span, last);
      task = HostTask();
      task.after.push_back(index);
    }
    if (isHops || last < 0)
      return;
    task.usec = links.getExchangeUsec(together);
    add(std::move(task), span, last);
  }

  const Mesh &mesh;
  const LinkModel &links;
  const Streams &streams;
  CollectiveReader &reader;
  std::vector<HostTask> &tasks;
  /// The bytes that each task reads and writes, and the slowest tier whose
  /// exchange it needs; -1 for none.
  SmallVector<std::pair<Span, Span>> spans;
  SmallVector<int64_t> tiers;
};
} // namespace

const std::vector<HostTask> &HostFunctions::get(FunctionOpInterface function) {
  auto [it, isNew] = known.try_emplace(function);
  if (isNew && !function.isExternal())
    TaskReader(mesh, links, streams, reader, it->second).run(function);
  return it->second;
}
