//===- StepTime.cpp - How long a step takes -------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Cost/StepTime.h"

#include "ComputeCosts.h"
#include "HostTasks.h"
#include "PeakMemory.h"
#include "ProblemBuilder.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace zpp;

namespace {

class StepScheduler {
public:
  StepScheduler(ModuleOp module, const Mesh &mesh,
                ArrayRef<StepCollective> collectives, const LinkModel &links,
                const DeviceModel &device, double scale, StepTime &time)
      : module(module), mesh(mesh), links(links), time(time),
        timeline(time.timeline), streams(time.timeline, mesh),
        host(mesh, links, streams), problem(time.problem), reader(mesh),
        costs(device, scale, mesh.numDevices()) {
    for (const StepCollective &collective : collectives)
      addLabel(collective);
  }

  void run() {
    for (auto function : module.getOps<FunctionOpInterface>())
      if (function.isPublic() && !function.isExternal()) {
        Block &block = function.getFunctionBody().front();
        placeEarlyHops(block);
        runBlock(block);
      }
    // The step ends when everything that was started is there.
    timeline.wait(streams.compute, timeline.getEnd());
    time.usec = timeline.getEnd();
    problem.addRest(timeline);
    time.computeUsec = timeline.getBusy(streams.compute);
    time.exposedUsec = timeline.getWaited(streams.compute);
    for (size_t stream : streams.tiers)
      time.busyUsec.push_back(timeline.getBusy(stream));
    time.numUnknownLoops = unknownLoops.size();
  }

private:
  using Maker = ProblemBuilder::Maker;

  void addLabel(const StepCollective &collective) {
    Operation *site = collective.start ? collective.start : collective.op;
    SmallVector<Origin> origins = getOrigins(collective);
    std::optional<Role> role = collective.role;
    std::optional<Phase> phase = collective.phase;
    if (!origins.empty()) {
      role = origins.front().role;
      phase = origins.front().phase;
    }
    if (role == Role::Weight && phase == Phase::Forward)
      forwardWeights.insert(site);
    std::string label = getRoleName(role).str();
    if (role == Role::Weight && phase)
      label = getPhaseName(*phase).str() + " " + label;
    labels.try_emplace(site, std::move(label));
  }

  double getReady(ValueRange values) const { return problem.getReady(values); }

  void runBlock(Block &block) {
    for (Operation &op : block)
      runOp(&op);
  }

  void runOp(Operation *op) {
    if (isStart(op))
      return runStart(op);
    if (isWait(op))
      return runWait(op);
    if (isCollective(op)) {
      if (!hops.contains(op))
        runCollective(op);
      return;
    }
    if (isWhile(op))
      return runLoop(op);
    if (isManualComputation(op)) {
      Block &block = ManualView(op).getBody();
      for (auto [operand, argument] :
           llvm::zip(op->getOperands(), block.getArguments()))
        problem.passOn(operand, argument);
      runBlock(block);
      for (auto [result, yielded] :
           llvm::zip(op->getResults(), block.back().getOperands()))
        problem.passOn(yielded, result);
      return;
    }
    // The longest branch counts.
    if (isNamed(op, guest::kCase) || isNamed(op, guest::kIf))
      return runBranches(op);
    runCompute(op);
  }

  /// Places a task on the timeline, and adds it to the problem after the tasks
  /// `after`. Returns its end, and the task.
  std::pair<double, Maker> place(const std::vector<size_t> &used, double when,
                                 double usec, const std::string &label,
                                 ArrayRef<Maker> after) {
    double end = timeline.place(used, when, usec, label);
    return {end, problem.addTask(used, usec, after)};
  }

  void runCompute(Operation *op) {
    double when = getReady(op->getOperands());
    if (isBarrier(op))
      return problem.passTies(op, op->getResults(), when);
    double usec = costs.getUsec(op);
    if (usec == 0)
      return problem.set(op->getResults(), when,
                         problem.getMaker(op->getOperands()));
    time.flops += costs.getFlops(op) * trips;
    if (when > 0 && isPending(op->getOperands()))
      lastUse = std::max(when, timeline.getFree(streams.compute));
    timeline.wait(streams.compute, when);
    bool isProduct = costs.getFlops(op) > 0;
    auto [end, task] = place({streams.compute}, 0, usec, "compute",
                             {problem.getMaker(op->getOperands()),
                              isProduct ? lastProduct : std::nullopt});
    // What needs nothing but the step's inputs can be there when it is needed.
    bool isEarly =
        when == 0 && !isProduct && (isFusible(op) || isa<func::CallOp>(op));
    if (isProduct)
      lastProduct = task;
    problem.set(op->getResults(), isEarly ? 0 : end,
                isEarly ? std::nullopt : task);
  }

  /// True if one of `values` was gathered and is taken up for the first time.
  bool isPending(ValueRange values) {
    bool found = false;
    for (Value value : values)
      found |= pending.erase(getStoredSource(value));
    return found;
  }

  void runBranches(Operation *op) {
    double most = 0;
    for (Region &region : op->getRegions()) {
      double usec = 0;
      for (Block &block : region)
        for (Operation &nested : block)
          usec += costs.getUsec(&nested);
      most = std::max(most, usec);
    }
    timeline.wait(streams.compute, getReady(op->getOperands()));
    auto [end, task] = place({streams.compute}, 0, most, "compute",
                             problem.getMaker(op->getOperands()));
    problem.set(op->getResults(), end, task);
  }

  void runLoop(Operation *op) {
    Block &body = WhileView(op).getBody();
    std::optional<int64_t> all = getTripCount(&body.front(), provenances);
    std::optional<int64_t> outside = getTripCount(op, provenances);
    int64_t count = 1;
    if (all && outside && *outside > 0)
      count = *all / *outside;
    else if (outside)
      unknownLoops.insert(op);
    for (auto [operand, argument] :
         llvm::zip(op->getOperands(), body.getArguments()))
      problem.passOn(operand, argument);
    // Operations are counted where they are seen first.
    int64_t outer = std::exchange(trips, 0);
    bool isFirst = true;
    double shift = timeline.repeat(count, [&] {
      trips = isFirst ? outer * count : 0;
      isFirst = false;
      runBlock(body);
      SmallVector<std::pair<double, Maker>> next;
      for (Value value : body.back().getOperands())
        next.emplace_back(getReady(ValueRange(value)),
                          problem.getMaker(ValueRange(value)));
      for (auto [argument, yielded] : llvm::zip(body.getArguments(), next))
        problem.set(ValueRange(argument), yielded.first, yielded.second);
    });
    trips = outer;
    for (auto [result, argument] :
         llvm::zip(op->getResults(), body.getArguments())) {
      double when = getReady(ValueRange(argument));
      problem.set(ValueRange(result), when > 0 ? when + shift : 0,
                  problem.getMaker(ValueRange(argument)));
    }
  }

  //===--------------------------------------------------------------------===//
  // Starts and waits
  //===--------------------------------------------------------------------===//

  /// Returns the outputs of its start that a wait reads. Before them, a custom
  /// call has the inputs.
  static ValueRange getStarted(Operation *op) {
    if (auto wait = dyn_cast<zero::WaitOp>(op))
      return wait.getStarted();
    return ValueRange(op->getOperands())
        .drop_front(
            std::min<size_t>(getInputs(op).size(), op->getNumOperands()))
        .take_front(getOutputs(op).size());
  }

  void runStart(Operation *op) {
    double begin = std::max(timeline.getFree(streams.compute),
                            getReady(op->getOperands()));
    double end = begin;
    Maker after = problem.getMaker(getInputs(op));
    SmallVector<Maker> tasks;
    if (FunctionOpInterface function = getStartedFunction(op)) {
      const std::string &label = labels[op];
      SmallVector<double> ends;
      for (const HostTask &task : host.get(function)) {
        double when = begin;
        SmallVector<Maker> before;
        for (unsigned other : task.after) {
          when = std::max(when, ends[other]);
          before.push_back(tasks[other]);
        }
        if (before.empty())
          before.push_back(after);
        auto [ended, placed] = place(task.streams, when, task.usec,
                                     task.isKernel ? "kernel" : label, before);
        ends.push_back(ended);
        tasks.push_back(placed);
        end = std::max(end, ended);
      }
    }
    // Ties and the token pass through.
    problem.passTies(op, op->getResults().drop_front(getOutputs(op).size()),
                     timeline.getFree(streams.compute));
    problem.set(getOutputs(op), end,
                tasks.empty() ? after : problem.join(tasks));
  }

  void runWait(Operation *op) {
    timeline.wait(streams.compute, getReady(op->getOperands()));
    double when = timeline.getFree(streams.compute);
    ValueRange outputs = getOutputs(op);
    for (auto [started, output] : llvm::zip(getStarted(op), outputs))
      problem.set(ValueRange(output), when,
                  problem.getMaker(ValueRange(started)));
    problem.passTies(op, op->getResults().drop_front(outputs.size()), when);
  }

  //===--------------------------------------------------------------------===//
  // Collectives of XLA
  //===--------------------------------------------------------------------===//

  /// True if a rewrite made this hop of a collective over more tiers.
  bool isHop(const CollectiveView &view) {
    int64_t tiers = llvm::count_if(
        mesh.getAxes(), [](const MeshAxis &axis) { return axis.size > 1; });
    return view.op->hasAttr(kOriginAttr) && view.axes.size() == 1 && tiers > 1;
  }

  std::vector<size_t> getStreams(const CollectiveView &view) {
    std::vector<size_t> used;
    for (size_t axis = 0; axis < mesh.getAxes().size(); ++axis)
      if (llvm::any_of(view.axes, [&](const AxisRef &ref) {
            return ref.name == mesh.getAxes()[axis].name && ref.size > 1;
          }))
        used.push_back(streams.tiers[axis]);
    return used;
  }

  double getUsec(const CollectiveView &view) {
    int64_t bytes = getBytes(view.op->getOperandTypes());
    switch (view.kind) {
    case CollectiveKind::AllGather:
    case CollectiveKind::AllReduce:
      return links.getCollectiveUsec(mesh, view.kind, view.axes, bytes);
    case CollectiveKind::ReduceScatter:
      return links.getCollectiveUsec(mesh, view.kind, view.axes,
                                     bytes / numDevices(view.axes));
    default:
      return links.getExchangeUsec(view.getSentBytes(mesh));
    }
  }

  /// Places a collective after the task `after`. Returns when its results are
  /// there.
  double placeCollective(const CollectiveView &view, double when, Maker after) {
    // XLA has one stream for all of its collectives (X12).
    when = std::max(when, communicationFree);
    std::vector<size_t> used = getStreams(view);
    if (used.empty())
      used.push_back(streams.tiers.front());
    auto [end, task] = place(used, when, getUsec(view), labels[view.op], after);
    problem.set(view.op->getResults(), end, task);
    return communicationFree = end;
  }

  /// Gathers between nodes that need nothing but the step's inputs.
  void placeEarlyHops(Block &block) {
    block.getParentOp()->walk([&](Operation *op) {
      if (!isCollective(op) || isInLoop(op) || !forwardWeights.contains(op))
        return;
      std::optional<CollectiveView> view = reader.read(op);
      if (!view || view->kind != CollectiveKind::AllGather || !isHop(*view) ||
          mesh.findSlowest(view->axes) + 1 ==
              static_cast<int64_t>(mesh.getAxes().size()))
        return;
      hops.insert(op);
      placeCollective(*view, 0, std::nullopt);
    });
    if (!hops.empty())
      timeline.wait(streams.compute, communicationFree);
  }

  void runCollective(Operation *op) {
    std::optional<CollectiveView> view = reader.read(op);
    double when = getReady(op->getOperands());
    Maker after = problem.getMaker(op->getOperands());
    if (!view)
      return problem.set(op->getResults(), when, after);
    bool isGather = view->kind == CollectiveKind::AllGather;
    if (view->kind == CollectiveKind::AllToAll && op->hasAttr(kOriginAttr)) {
      // XLA starts it where it stands and needs it at once.
      when = std::max(when, timeline.getFree(streams.compute));
      timeline.wait(streams.compute, placeCollective(*view, when, after));
      return problem.set(op->getResults(), timeline.getFree(streams.compute),
                         problem.getMaker(op->getResults()));
    }
    if (isGather) {
      when = std::max(when, lastUse);
      for (Value result : op->getResults())
        pending.insert(result);
    }
    placeCollective(*view, when, after);
  }

  ModuleOp module;
  const Mesh &mesh;
  const LinkModel &links;
  StepTime &time;
  Timeline &timeline;
  Streams streams;
  HostFunctions host;
  ProblemBuilder problem;
  CollectiveReader reader;
  ComputeCosts costs;
  ProvenanceAnalysis provenances;
  /// Labels of collectives and starts in the picture.
  llvm::DenseMap<Operation *, std::string> labels;
  /// Collectives and starts that gather weights for the forward pass.
  llvm::DenseSet<Operation *> forwardWeights;
  /// Gathered by XLA and not used yet; when the last of them was.
  llvm::DenseSet<Value> pending;
  double lastUse = 0, communicationFree = 0;
  /// Products keep their order in the problem. Without a limit of memory, what
  /// the backward pass computes again could otherwise be done while the forward
  /// pass waits.
  Maker lastProduct;
  /// Collectives that are placed before the others.
  llvm::SmallPtrSet<Operation *, 16> hops;
  llvm::SmallPtrSet<Operation *, 4> unknownLoops;
  /// How often the block that runs counts.
  int64_t trips = 1;
};

} // namespace

StepTime zpp::predictStepTime(ModuleOp module, const Mesh &mesh,
                              ArrayRef<StepCollective> collectives,
                              const LinkModel &links, const DeviceModel &device,
                              double scale) {
  StepTime time;
  StepScheduler(module, mesh, collectives, links, device, scale, time).run();
  // XLA's order does not follow from what was measured.
  ComputeCosts costs(device, 1, mesh.numDevices());
  StoredValues stored;
  for (auto function : module.getOps<FunctionOpInterface>()) {
    if (!function.isPublic() || function.isExternal())
      continue;
    int64_t state = getStateBytes(function, mesh.numDevices());
    time.stateBytes = addSaturating(time.stateBytes, state);
    time.peakBytes = std::max(
        time.peakBytes,
        addSaturating(state, getPeakBytes(function.getFunctionBody().front(),
                                          costs, stored)));
  }
  return time;
}
