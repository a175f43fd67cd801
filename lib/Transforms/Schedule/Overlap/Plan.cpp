//===- Plan.cpp - When transfers start and end ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plan.h"

#include "zpp/Support/Limits.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

using namespace zpp;

namespace {
using Transfer = OverlapProblem::Transfer;
using HeavyOp = OverlapProblem::HeavyOp;
using Placement = OverlapPlan::Placement;
using Call = OverlapPlan::Call;

/// Scatters that have started, by their numbers, until they are waited for.
class ScattersInFlight {
public:
  explicit ScattersInFlight(size_t numScatters)
      : sizes(numScatters), isWaitedFor(numScatters) {}

  int64_t getBytes() const { return bytes; }

  void start(size_t number, int64_t need, int64_t size) {
    bytes = addSaturating(bytes, size);
    sizes[number] = size;
    byAge.push_back(number);
    byNeed.push({need, number});
  }

  void wait(size_t number) {
    if (!isWaitedFor[number])
      bytes -= sizes[number];
    isWaitedFor[number] = true;
  }

  /// Waits for those that are needed before `position`.
  void waitBefore(int64_t position) {
    for (; !byNeed.empty() && byNeed.top().first < position; byNeed.pop())
      wait(byNeed.top().second);
  }

  /// Returns the one that has been in flight for the longest, if there is any.
  std::optional<size_t> getOldest() {
    while (!byAge.empty() && isWaitedFor[byAge.front()])
      byAge.pop_front();
    return byAge.empty() ? std::nullopt : std::optional(byAge.front());
  }

private:
  using NeedAndNumber = std::pair<int64_t, size_t>;

  std::vector<int64_t> sizes;
  std::vector<bool> isWaitedFor;
  int64_t bytes = 0;
  /// Those that have been waited for are removed once they come first.
  std::deque<size_t> byAge;
  std::priority_queue<NeedAndNumber, std::vector<NeedAndNumber>, std::greater<>>
      byNeed;
};

class Planner {
public:
  explicit Planner(const OverlapProblem &problem) : problem(problem) {
    // The positions worth considering: those of heavy ops and of ops that need
    // a result.
    for (const HeavyOp &op : problem.heavy)
      slots.push_back(op.position);
    for (const Transfer &transfer : problem.transfers)
      slots.push_back(transfer.need);
    int64_t end = static_cast<int64_t>(problem.stays.size()) - 1;
    slots.push_back(end);
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    nextInPlace.resize(problem.stays.size());
    for (int64_t position = end, next = end; position >= 0; --position) {
      if (problem.stays[position])
        next = position;
      nextInPlace[position] = next;
    }
  }

  OverlapPlan run() {
    planGathers();
    planScatters();
    std::vector<int64_t> starts(problem.transfers.size());
    for (const Placement &placement : plan.placements)
      starts[placement.transfer] = placement.startBefore;
    // Calls at the same place keep the order in which they were planned.
    std::vector<std::pair<Call, size_t>> calls;
    for (const Call &call : plan.calls)
      calls.emplace_back(call, calls.size());
    auto getOrder = [&](const std::pair<Call, size_t> &numbered) {
      const auto &[call, number] = numbered;
      // A wait comes after its start at the same place.
      bool isAfterStart =
          call.kind == Call::Room && starts[call.transfer] == call.before;
      return std::make_tuple(call.before,
                             isAfterStart ? Call::Start : call.kind, number);
    };
    std::sort(calls.begin(), calls.end(), [&](const auto &a, const auto &b) {
      return getOrder(a) < getOrder(b);
    });
    for (size_t number = 0; number < calls.size(); ++number)
      plan.calls[number] = calls[number].first;
    for (Placement &placement : plan.placements) {
      placement.numHeavy =
          countHeavy(placement.waitBefore) - countHeavy(placement.startBefore);
      if (placement.numHeavy > 0)
        placement.exposure = OverlapPlan::Exposure::None;
    }
    return std::move(plan);
  }

private:
  /// Returns the transfers of one kind, ordered by `getKey` and then by their
  /// starts.
  template <typename GetKey>
  std::vector<size_t> getOrdered(bool isGather, GetKey getKey) const {
    std::vector<size_t> ordered;
    for (size_t index = 0; index < problem.transfers.size(); ++index)
      if (problem.transfers[index].isGather == isGather)
        ordered.push_back(index);
    auto getOrder = [&](size_t index) {
      const Transfer &transfer = problem.transfers[index];
      return std::make_pair(getKey(transfer), transfer.start);
    };
    std::sort(ordered.begin(), ordered.end(),
              [&](size_t a, size_t b) { return getOrder(a) < getOrder(b); });
    return ordered;
  }

  /// Returns the first slot after `position`.
  size_t getSlotAfter(int64_t position) const {
    return std::upper_bound(slots.begin(), slots.end(), position) -
           slots.begin();
  }

  /// Returns the first heavy op at or after `position`.
  std::vector<HeavyOp>::const_iterator findHeavy(int64_t position) const {
    return std::partition_point(
        problem.heavy.begin(), problem.heavy.end(),
        [&](const HeavyOp &op) { return op.position < position; });
  }

  int64_t countHeavy(int64_t before) const {
    return findHeavy(before) - problem.heavy.begin();
  }

  void planGathers() {
    // The gathers in flight at `slot`: the slot where each is needed, and its
    // bytes. Starts and needs never go back from one gather to the next, so
    // from `slot` on the bytes of these only decrease.
    std::deque<std::pair<size_t, int64_t>> inFlight;
    int64_t bytes = 0;
    size_t slot = 0;
    for (size_t index :
         getOrdered(true, [](const Transfer &gather) { return gather.need; })) {
      const Transfer &gather = problem.transfers[index];
      size_t need = getSlotAfter(gather.need - 1);
      // Its operand may become available only where the result is needed.
      size_t first = std::min(std::max(slot, getSlotAfter(gather.ready)), need);
      slot = first;
      auto land = [&] {
        for (; !inFlight.empty() && inFlight.front().first <= slot;
             inFlight.pop_front())
          bytes -= inFlight.front().second;
      };
      for (land(); slot < need && gather.bytes > problem.budget - bytes; land())
        slot = inFlight.empty() ? need : inFlight.front().first;
      if (slot < need) {
        inFlight.push_back({need, gather.bytes});
        bytes += gather.bytes;
      }
      Placement placement;
      placement.transfer = index;
      placement.startBefore = slots[slot];
      placement.waitBefore = gather.need;
      placement.bytesInFlight = slot < need ? bytes : gather.bytes;
      placement.exposure = slot > first && need > 0
                               ? OverlapPlan::Exposure::Budget
                               : OverlapPlan::Exposure::NoCompute;
      plan.placements.push_back(placement);
      plan.calls.push_back({Call::Start, index, placement.startBefore});
      plan.calls.push_back({Call::Wait, index, placement.waitBefore});
    }
  }

  /// Returns the position before which a scatter starts: as soon as it is ready
  /// if the next heavy op has an operand that can be tied there, otherwise that
  /// heavy op.
  int64_t getScatterPlace(const Transfer &scatter) const {
    int64_t before = nextInPlace[scatter.ready + 1];
    auto next = findHeavy(before);
    if (next == problem.heavy.end() || next->position > scatter.need ||
        next->firstTie < before)
      return before;
    return next->position;
  }

  void planScatters() {
    std::vector<size_t> scatters = getOrdered(
        false, [](const Transfer &scatter) { return scatter.ready; });
    size_t firstPlacement = plan.placements.size();
    // Those that are waited for early, to make room for others.
    std::vector<bool> isEarly(scatters.size(), false);
    ScattersInFlight inFlight(scatters.size());
    int64_t latest = 0;
    for (size_t number = 0; number < scatters.size(); ++number) {
      const Transfer &scatter = problem.transfers[scatters[number]];
      // Scatters start in the order of their gradients, unless one is needed
      // earlier.
      int64_t before =
          std::min(std::max(latest, getScatterPlace(scatter)), scatter.need);
      latest = std::max(latest, before);
      Placement placement;
      placement.transfer = scatters[number];
      placement.startBefore = before;
      placement.waitBefore = scatter.need;
      placement.exposure = OverlapPlan::Exposure::NoCompute;
      inFlight.waitBefore(before);
      // When all is computed, memory is free, and a wait would keep updates
      // waiting.
      int64_t budget = findHeavy(before) == problem.heavy.end()
                           ? multiplySaturating(problem.budget, 2)
                           : problem.budget;
      while (std::optional<size_t> oldest = inFlight.getOldest()) {
        Placement &placement = plan.placements[firstPlacement + *oldest];
        if (scatter.bytes <= budget - inFlight.getBytes() ||
            placement.startBefore > before)
          break;
        inFlight.wait(*oldest);
        placement.waitBefore = before;
        plan.calls.push_back({Call::Room, placement.transfer, before});
        isEarly[*oldest] = true;
      }
      inFlight.start(number, scatter.need, scatter.bytes);
      placement.bytesInFlight = inFlight.getBytes();
      plan.placements.push_back(placement);
      plan.calls.push_back({Call::Start, scatters[number], before});
    }
    for (size_t number = 0; number < scatters.size(); ++number)
      if (!isEarly[number])
        plan.calls.push_back({Call::Wait, scatters[number],
                              problem.transfers[scatters[number]].need});
  }

  const OverlapProblem &problem;
  OverlapPlan plan;
  std::vector<int64_t> slots;
  /// For each position, the first one from there on whose op stays in place.
  std::vector<int64_t> nextInPlace;
};
} // namespace

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

static int64_t addUpAll(llvm::ArrayRef<int64_t> sizes) {
  int64_t sum = 0;
  for (int64_t size : sizes)
    sum = addSaturating(sum, size);
  return sum;
}

/// Returns the sums from each of `places` in `sizes` to the next one.
static std::vector<int64_t> addUpBetween(llvm::ArrayRef<int64_t> sizes,
                                         llvm::ArrayRef<size_t> places) {
  std::vector<int64_t> sums;
  for (size_t i = 1; i < places.size(); ++i)
    sums.push_back(
        addUpAll(sizes.slice(places[i - 1], places[i] - places[i - 1])));
  return sums;
}

/// The part of a transfer that small tensors of other layers may add to it.
static constexpr int64_t kPartOfOthers = 64;

/// Adds `index` to those of about the same size.
static void addAlike(std::map<int64_t, std::vector<size_t>> &bySize,
                     int64_t size, size_t index) {
  int64_t part = size / kPartOfOthers;
  auto it = bySize.lower_bound(size - part);
  if (it == bySize.end() || it->first - size > part)
    it = bySize.try_emplace(size).first;
  it->second.push_back(index);
}

/// Returns the bytes of a layer: what comes from a transfer to the next one of
/// its kind, if those are three or more and have most of the bytes. Transfers
/// of about one size are of one kind. A layer may have several of them: then it
/// goes from the longest way to the next one to the next such way.
static std::optional<int64_t> findLayerBytes(llvm::ArrayRef<int64_t> sizes) {
  constexpr size_t kMostOfLayer = 8;
  std::map<int64_t, std::vector<size_t>> kinds;
  for (size_t i = 0; i < sizes.size(); ++i)
    addAlike(kinds, sizes[i], i);
  const auto &places =
      std::max_element(kinds.begin(), kinds.end(), [](auto &a, auto &b) {
        return static_cast<double>(a.first) * a.second.size() <
               static_cast<double>(b.first) * b.second.size();
      })->second;
  if (places.size() < 3 ||
      addUpAll(sizes.slice(places.front(), places.back() - places.front())) <
          addUpAll(sizes) / 2)
    return std::nullopt;
  std::vector<int64_t> ways = addUpBetween(sizes, places);
  std::map<int64_t, std::vector<size_t>> byLength;
  for (size_t i = 0; i < ways.size(); ++i)
    addAlike(byLength, ways[i], places[i]);
  for (const auto &[length, begins] : llvm::reverse(byLength))
    if (begins.size() > 1 && begins.size() * kMostOfLayer >= ways.size()) {
      std::vector<int64_t> layers = addUpBetween(sizes, begins);
      auto middle = layers.begin() + layers.size() / 2;
      std::nth_element(layers.begin(), middle, layers.end());
      // Two layers next to each other may be larger than two of that size.
      auto [least, most] = std::minmax_element(
          places.begin(), places.end(),
          [&](size_t a, size_t b) { return sizes[a] < sizes[b]; });
      return addUpAll({*middle, sizes[*most] - sizes[*least]});
    }
  return std::nullopt;
}

int64_t zpp::chooseBudget(const OverlapProblem &problem, bool isLoop) {
  int64_t budget = kLeastBudget;
  for (bool isGather : {true, false}) {
    // Those of one time keep their order, which is that of their addresses.
    std::vector<std::pair<int64_t, const Transfer *>> ordered;
    for (const Transfer &transfer : problem.transfers)
      if (transfer.isGather == isGather)
        ordered.emplace_back(isGather ? transfer.need : transfer.ready,
                             &transfer);
    if (ordered.empty())
      continue;
    llvm::sort(ordered);
    std::vector<int64_t> sizes;
    for (auto [time, transfer] : ordered)
      sizes.push_back(transfer->bytes);
    budget = std::max(budget, *std::max_element(sizes.begin(), sizes.end()));
    if (std::optional<int64_t> layer = findLayerBytes(sizes)) {
      budget = std::max(budget, *layer);
      if (isGather)
        budget =
            std::max(budget, std::min(addUpAll({*layer, *layer}), kMostOfTwo));
    } else if (isLoop) {
      budget = std::max(budget, addUpAll(sizes));
    }
  }
  return budget;
}

OverlapPlan zpp::planOverlap(const OverlapProblem &problem) {
  return Planner(problem).run();
}
