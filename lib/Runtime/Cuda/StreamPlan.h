//===- StreamPlan.h - Which stream an operation goes to ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each tier of the mesh has one stream for its exchanges and one for the
// kernels that need their results. All other kernels share one more stream. So
// a kernel never waits for a slower tier than the one that its data come from.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_STREAMPLAN_H
#define ZPP_LIB_RUNTIME_CUDA_STREAMPLAN_H

#include "Hazards.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace zpp::rt {

/// The streams of a rank by number: kernels after each tier, other kernels,
/// exchanges of each tier.
class StreamPlan {
public:
  /// `axes` are the names of the mesh axes, from the slowest to the fastest.
  explicit StreamPlan(const std::vector<std::string> &axes)
      : axes(axes), tiers(std::min(axes.size(), kMaxTiers)) {}

  /// Tiers that have streams of their own; faster ones share the last one's.
  static constexpr size_t kMaxTiers = (Hazards::kMaxStreams - 1) / 2;
  size_t numTiers() const { return tiers; }

  /// Returns the names of the streams in traces.
  std::vector<std::string> getNames() const;

  size_t getKernelsAfter(size_t tier) const { return tier; }
  size_t getKernels() const { return tiers; }
  /// The stream for exchanges whose slowest axis is number `axis`.
  size_t getExchanges(size_t axis) const {
    return tiers + 1 + std::min(axis, tiers - 1);
  }

  /// The facts that the choice of a stream for a kernel depends on.
  struct Situation {
    /// The operations that the kernel must come after.
    Hazards::Conflicts conflicts;
    /// For each stream the last operation, and the last one before the caller's
    /// stream was entered. Older operations are not considered: the caller may
    /// have changed their results by now.
    Hazards::Numbers last{};
    Hazards::Numbers lastBeforeEntry{};
    /// The stream of the kernels that wait to be launched together.
    std::optional<size_t> batch;
  };

  /// Returns the stream for a kernel: that of the kernels after the slowest
  /// tier that its data come from. If that tier is fast and the kernel needs
  /// its last exchange and nothing of a slower tier, the stream of the
  /// exchanges itself: switching to another stream would take longer than the
  /// next exchange has to wait. `isFast` says of each tier whether its
  /// exchanges stay within a host.
  size_t chooseForKernel(const Situation &situation,
                         const std::vector<bool> &isFast) const;

private:
  const std::vector<std::string> axes;
  const size_t tiers;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_STREAMPLAN_H
