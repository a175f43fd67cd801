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
        host(mesh, links, streams), reader(mesh),
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
    time.computeUsec = timeline.getBusy(streams.compute);
    time.exposedUsec = timeline.getWaited(streams.compute);
    for (size_t stream : streams.tiers)
      time.busyUsec.push_back(timeline.getBusy(stream));
    time.numUnknownLoops = unknownLoops.size();
  }

private:
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

  double getReady(Value value) const { return ready.lookup(value); }
  double getReady(ValueRange values) const {
    double latest = 0;
    for (Value value : values)
      latest = std::max(latest, getReady(value));
    return latest;
  }
  void setReady(ValueRange values, double when) {
    for (Value value : values) {
      if (when > 0)
        ready[value] = when;
      else
        ready.erase(value);
    }
  }

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
        setReady(ValueRange(argument), getReady(operand));
      runBlock(block);
      for (auto [result, yielded] :
           llvm::zip(op->getResults(), block.back().getOperands()))
        setReady(ValueRange(result), getReady(yielded));
      return;
    }
    // The longest branch counts.
    if (isNamed(op, guest::kCase) || isNamed(op, guest::kIf))
      return runBranches(op);
    runCompute(op);
  }

  void runCompute(Operation *op) {
    double when = getReady(op->getOperands());
    if (isBarrier(op))
      return setReady(op->getResults(), when);
    double usec = costs.getUsec(op);
    if (usec == 0)
      return setReady(op->getResults(), when);
    time.flops += costs.getFlops(op) * trips;
    if (when > 0 && isPending(op->getOperands()))
      lastUse = std::max(when, timeline.getFree(streams.compute));
    timeline.wait(streams.compute, when);
    double end = timeline.place({streams.compute}, 0, usec, "compute");
    // What needs nothing but the step's inputs can be there when it is needed.
    bool isEarly = when == 0 && !costs.getFlops(op) &&
                   (isFusible(op) || isa<func::CallOp>(op));
    setReady(op->getResults(), isEarly ? 0 : end);
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
    setReady(op->getResults(),
             timeline.place({streams.compute}, 0, most, "compute"));
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
      setReady(ValueRange(argument), getReady(operand));
    // Operations are counted where they are seen first.
    int64_t outer = std::exchange(trips, 0);
    bool isFirst = true;
    double shift = timeline.repeat(count, [&] {
      trips = isFirst ? outer * count : 0;
      isFirst = false;
      runBlock(body);
      SmallVector<double> next;
      for (Value value : body.back().getOperands())
        next.push_back(getReady(value));
      for (auto [argument, when] : llvm::zip(body.getArguments(), next))
        setReady(ValueRange(argument), when);
    });
    trips = outer;
    for (auto [result, argument] :
         llvm::zip(op->getResults(), body.getArguments())) {
      double when = getReady(argument);
      setReady(ValueRange(result), when > 0 ? when + shift : 0);
    }
  }

  //===--------------------------------------------------------------------===//
  // Starts and waits
  //===--------------------------------------------------------------------===//

  static bool isWait(Operation *op) {
    return isa<zero::WaitOp>(op) || getCallTarget(op) == kWaitTarget;
  }

  void runStart(Operation *op) {
    double begin = std::max(timeline.getFree(streams.compute),
                            getReady(op->getOperands()));
    double end = begin;
    if (FunctionOpInterface function = getStartedFunction(op)) {
      const std::string &label = labels[op];
      SmallVector<double> ends;
      for (const HostTask &task : host.get(function)) {
        double when = begin;
        for (unsigned before : task.after)
          when = std::max(when, ends[before]);
        ends.push_back(timeline.place(task.streams, when, task.usec,
                                      task.isKernel ? "kernel" : label));
        end = std::max(end, ends.back());
      }
    }
    // Ties and the token pass through.
    setReady(op->getResults(), timeline.getFree(streams.compute));
    setReady(getOutputs(op), end);
  }

  void runWait(Operation *op) {
    timeline.wait(streams.compute, getReady(op->getOperands()));
    setReady(op->getResults(), timeline.getFree(streams.compute));
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

  double placeCollective(const CollectiveView &view, double when) {
    // XLA has one stream for all of its collectives (X12).
    when = std::max(when, communicationFree);
    std::vector<size_t> used = getStreams(view);
    if (used.empty())
      used.push_back(streams.tiers.front());
    communicationFree =
        timeline.place(used, when, getUsec(view), labels[view.op]);
    return communicationFree;
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
      setReady(op->getResults(), placeCollective(*view, 0));
    });
    if (!hops.empty())
      timeline.wait(streams.compute, communicationFree);
  }

  void runCollective(Operation *op) {
    std::optional<CollectiveView> view = reader.read(op);
    double when = getReady(op->getOperands());
    if (!view)
      return setReady(op->getResults(), when);
    bool isGather = view->kind == CollectiveKind::AllGather;
    if (view->kind == CollectiveKind::AllToAll && op->hasAttr(kOriginAttr)) {
      // XLA starts it where it stands and needs it at once.
      when = std::max(when, timeline.getFree(streams.compute));
      timeline.wait(streams.compute, placeCollective(*view, when));
      return setReady(op->getResults(), timeline.getFree(streams.compute));
    }
    if (isGather) {
      when = std::max(when, lastUse);
      for (Value result : op->getResults())
        pending.insert(result);
    }
    setReady(op->getResults(), placeCollective(*view, when));
  }

  ModuleOp module;
  const Mesh &mesh;
  const LinkModel &links;
  StepTime &time;
  Timeline &timeline;
  Streams streams;
  HostFunctions host;
  CollectiveReader reader;
  ComputeCosts costs;
  ProvenanceAnalysis provenances;
  /// Labels of collectives and starts in the picture.
  llvm::DenseMap<Operation *, std::string> labels;
  /// Collectives and starts that gather weights for the forward pass.
  llvm::DenseSet<Operation *> forwardWeights;
  /// When values are there; all others are when the step begins.
  llvm::DenseMap<Value, double> ready;
  /// Gathered by XLA and not used yet; when the last of them was.
  llvm::DenseSet<Value> pending;
  double lastUse = 0, communicationFree = 0;
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
