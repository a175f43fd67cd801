//===- Plan.h - When transfers start and end --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decisions of zero-overlap-collectives, without the IR. An op is
// represented by its position in the block, from 0.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_PLAN_H
#define ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_PLAN_H

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace zpp {

/// The value of `prefetch-bytes` with which each block has what suits it.
constexpr int64_t kChooseBudget = -1;

/// The least that such a block has: small tensors fill a link only together.
constexpr int64_t kLeastBudget = 256 << 20;

/// The most bytes of two layers that are gathered at a time, one between nodes
/// and the one before within them. Larger layers compute for longer than they
/// travel.
constexpr int64_t kMostOfTwo = 1 << 30;

/// The transfers and heavy ops of a block.
struct OverlapProblem {
  /// A start and its wait.
  struct Transfer {
    bool isGather = false;
    /// The memory that it takes while it is in flight.
    int64_t bytes = 0;
    int64_t start = 0;
    /// The last op that must be done before its inputs are available; -1 for
    /// none.
    int64_t ready = -1;
    /// The first op that needs its results.
    int64_t need = 0;
  };
  /// Compute that transfers hide under.
  struct HeavyOp {
    static constexpr int64_t kNoTie = std::numeric_limits<int64_t>::max();
    int64_t position = 0;
    /// The first op that computes an operand to which a start can be tied.
    int64_t firstTie = kNoTie;
  };

  std::vector<Transfer> transfers;
  /// In ascending order.
  std::vector<HeavyOp> heavy;
  /// For each op of the block, whether it stays where it is, so that others can
  /// be placed before it. The last op of the block must.
  std::vector<bool> stays;
  /// The bytes of gathers, and separately of scatters, that may be in flight.
  int64_t budget = 0;
};

/// Returns the bytes that `problem`, a loop's body if `isLoop`, may have in
/// flight: one layer, or two small ones that are gathered. Less keeps a link
/// waiting for compute, more only takes memory. Where no layers follow each
/// other, the body of a loop is one.
int64_t chooseBudget(const OverlapProblem &problem, bool isLoop);

/// The places of starts and waits.
struct OverlapPlan {
  /// The reason why a transfer has no heavy op to hide under.
  enum class Exposure { None, Budget, NoCompute };

  struct Placement {
    size_t transfer = 0;
    int64_t startBefore = 0, waitBefore = 0;
    /// Bytes in flight once it has started.
    int64_t bytesInFlight = 0;
    /// Heavy ops between start and wait.
    int64_t numHeavy = 0;
    Exposure exposure = Exposure::None;
  };

  /// A start or a wait. Before one op, waits that make room come first, then
  /// starts, then waits for what that op needs.
  struct Call {
    enum Kind { Room, Start, Wait } kind = Start;
    size_t transfer = 0;
    int64_t before = 0;
  };

  /// Gathers in the order in which they are needed, then scatters in the order
  /// in which their gradients become available.
  std::vector<Placement> placements;
  /// In the order in which they are executed.
  std::vector<Call> calls;
};

/// Starts gathers in the order in which they are needed, as early as inputs and
/// budget allow, and scatters once their gradients are available. Waits come
/// where a result is needed; only the oldest scatters are waited for earlier,
/// if another one would exceed the budget. Takes O(n log n) time.
OverlapPlan planOverlap(const OverlapProblem &problem);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_PLAN_H
