//===- StepTime.h - How long a step takes -----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A prediction of the time and the memory of a step, from its ops, a model of
// the links and a model of the device.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_COST_STEPTIME_H
#define ZPP_ANALYSIS_COST_STEPTIME_H

#include "zpp/Analysis/Roles/Roles.h"
#include "zpp/Support/DeviceModel.h"
#include "zpp/Support/LinkModel.h"
#include "zpp/Support/ScheduleProblem.h"
#include "zpp/Support/Timeline.h"

namespace zpp {

struct StepTime {
  /// Times of one step, in microseconds: all of it, the work of the device, and
  /// the time for which this work stands still for communication.
  double usec = 0, computeUsec = 0, exposedUsec = 0;
  /// Operations of products and convolutions, on one device.
  double flops = 0;
  /// For each axis of the mesh, how long its links are busy.
  std::vector<double> busyUsec;
  /// Bytes of the step's arguments on one device; and with them the most
  /// that is alive at one time, an estimate.
  int64_t stateBytes = 0, peakBytes = 0;
  /// Loops whose number of iterations is not a constant, which count once.
  int64_t numUnknownLoops = 0;
  /// When work happens. Its streams are the resources of `problem`.
  Timeline timeline;
  /// Tasks of the step; the last ones are work that the timeline has not placed
  /// one by one.
  ScheduleProblem problem;
};

/// Schedules the ops of `module`, as it is written or rewritten, on a stream
/// for compute and streams for each tier.
///
/// - Starts and waits are where the compiler put them. The exchanges and the
///   kernels of a start run on the streams of their tiers, in the order of
///   starts.
/// - XLA's collectives run one after the other, as NCCL's rings. A gather
///   starts when the device takes up what the gather before it brought, or
///   earlier if its operand is there and the links are free; a scatter when its
///   operand is computed. What needs them waits.
/// - Hops that a rewrite to portable StableHLO left to XLA are as XLA has been
///   seen to place them (docs/performance.md): gathers between nodes of what is
///   there when the step begins before all else, all-to-alls where they stand.
/// - Chains of element-wise ops are one kernel each, which reads and writes
///   what other ops computed or need.
///
/// The bound keeps what depends on what, which collectives travel together, and
/// the order of products. Where starts and waits stand is free in it, and so is
/// where other compute does, such as updates of weights.
/// Iterations that the timeline does not place one by one are work that depends
/// on nothing.
///
/// `collectives` are those of the module. `scale` multiplies the time of
/// compute.
StepTime predictStepTime(mlir::ModuleOp module, const Mesh &mesh,
                         llvm::ArrayRef<StepCollective> collectives,
                         const LinkModel &links, const DeviceModel &device,
                         double scale);

} // namespace zpp

#endif // ZPP_ANALYSIS_COST_STEPTIME_H
