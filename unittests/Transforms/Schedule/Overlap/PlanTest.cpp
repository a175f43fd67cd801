//===- PlanTest.cpp - When transfers start and end ------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedule/Overlap/Plan.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>

using namespace zpp;

namespace {

using Call = OverlapPlan::Call;
using Exposure = OverlapPlan::Exposure;

/// A block of `size` ops that all stay, those at `heavy` with operands that
/// nothing can be tied to.
OverlapProblem getProblem(int64_t size, std::vector<int64_t> heavy,
                          int64_t budget) {
  OverlapProblem problem;
  problem.stays.assign(size, true);
  problem.budget = budget;
  for (int64_t position : heavy)
    problem.heavy.push_back({position, OverlapProblem::HeavyOp::kNoTie});
  return problem;
}

/// Adds a transfer whose start does not stay where it is.
void addTransfer(OverlapProblem &problem, bool isGather, int64_t bytes,
                 int64_t start, int64_t ready, int64_t need) {
  problem.transfers.push_back({isGather, bytes, start, ready, need});
  problem.stays[start] = false;
}

std::string str(const std::vector<Call> &calls) {
  std::string text;
  for (const Call &call : calls)
    text += (text.empty() ? "" : " ") +
            std::string(call.kind == Call::Room    ? "room "
                        : call.kind == Call::Start ? "start "
                                                   : "wait ") +
            std::to_string(call.transfer) + "@" + std::to_string(call.before);
  return text;
}

TEST(OverlapPlanTest, NothingToDo) {
  OverlapPlan plan = planOverlap(getProblem(3, {1}, 100));
  EXPECT_TRUE(plan.calls.empty());
  EXPECT_TRUE(plan.placements.empty());
}

TEST(OverlapPlanTest, GatherStartsAsEarlyAsItsInputAllows) {
  // Products at 1, 4 and 7; the weight is needed by the last one.
  OverlapProblem problem = getProblem(9, {1, 4, 7}, 100);
  addTransfer(problem, true, 10, 6, 2, 7);
  OverlapPlan plan = planOverlap(problem);
  EXPECT_EQ(str(plan.calls), "start 0@4 wait 0@7");
  ASSERT_EQ(plan.placements.size(), 1u);
  EXPECT_EQ(plan.placements[0].numHeavy, 1);
  EXPECT_EQ(plan.placements[0].bytesInFlight, 10);
  EXPECT_EQ(plan.placements[0].exposure, Exposure::None);
}

TEST(OverlapPlanTest, GathersStayInTheBudget) {
  OverlapProblem problem = getProblem(10, {1, 4, 7}, 20);
  addTransfer(problem, true, 20, 6, -1, 7);
  addTransfer(problem, true, 20, 3, -1, 4);
  addTransfer(problem, true, 30, 8, -1, 9);
  OverlapPlan plan = planOverlap(problem);
  // In the order of their needs; the last one never fits.
  EXPECT_EQ(str(plan.calls),
            "start 1@1 start 0@4 wait 1@4 wait 0@7 start 2@9 wait 2@9");
  EXPECT_EQ(plan.placements[2].exposure, Exposure::Budget);
  EXPECT_EQ(plan.placements[2].bytesInFlight, 30);
}

TEST(OverlapPlanTest, WithoutBudgetGathersAreWhereTheyAreNeeded) {
  OverlapProblem problem = getProblem(5, {1, 3}, 0);
  addTransfer(problem, true, 1, 2, -1, 3);
  OverlapPlan plan = planOverlap(problem);
  EXPECT_EQ(str(plan.calls), "start 0@3 wait 0@3");
  EXPECT_EQ(plan.placements[0].exposure, Exposure::Budget);
}

TEST(OverlapPlanTest, GatherWithNothingToHideUnder) {
  OverlapProblem problem = getProblem(5, {1}, 100);
  addTransfer(problem, true, 1, 2, 1, 3);
  OverlapPlan plan = planOverlap(problem);
  EXPECT_EQ(plan.placements[0].exposure, Exposure::NoCompute);
}

TEST(OverlapPlanTest, ScatterStartsAtOnceOrBeforeTheNextProduct) {
  OverlapProblem problem = getProblem(10, {1, 6}, 100);
  addTransfer(problem, false, 10, 3, 2, 9);
  // Op 3 is the start itself.
  EXPECT_EQ(str(planOverlap(problem).calls), "start 0@6 wait 0@9");
  problem.heavy[1].firstTie = 1;
  EXPECT_EQ(str(planOverlap(problem).calls), "start 0@4 wait 0@9");
  // A value that is computed only then does not help.
  problem.heavy[1].firstTie = 4;
  EXPECT_EQ(str(planOverlap(problem).calls), "start 0@6 wait 0@9");
  // Nor does a product after the need.
  problem.transfers[0].need = 5;
  EXPECT_EQ(str(planOverlap(problem).calls), "start 0@4 wait 0@5");
}

TEST(OverlapPlanTest, OldestScattersMakeRoom) {
  OverlapProblem problem = getProblem(14, {4, 8, 12}, 20);
  addTransfer(problem, false, 10, 2, 1, 13);
  addTransfer(problem, false, 10, 6, 5, 13);
  addTransfer(problem, false, 15, 10, 9, 13);
  OverlapPlan plan = planOverlap(problem);
  EXPECT_EQ(str(plan.calls), "start 0@4 start 1@8 room 0@12 room 1@12 start "
                             "2@12 wait 2@13");
  EXPECT_EQ(plan.placements[0].numHeavy, 2);
  EXPECT_EQ(plan.placements[1].numHeavy, 1);
  EXPECT_EQ(plan.placements[1].bytesInFlight, 20);
  EXPECT_EQ(plan.placements[2].bytesInFlight, 15);
}

TEST(OverlapPlanTest, WhatMakesRoomHasStarted) {
  // Both are there before the same product, one of them fits.
  OverlapProblem problem = getProblem(10, {5}, 10);
  addTransfer(problem, false, 10, 2, 1, 9);
  addTransfer(problem, false, 10, 3, 1, 9);
  EXPECT_EQ(str(planOverlap(problem).calls),
            "start 0@5 room 0@5 start 1@5 wait 1@9");
  // The second one could be tied to an operand that is computed since.
  problem = getProblem(12, {8}, 10);
  addTransfer(problem, false, 10, 2, 1, 11);
  addTransfer(problem, false, 10, 6, 5, 11);
  problem.heavy[0].firstTie = 4;
  EXPECT_EQ(str(planOverlap(problem).calls),
            "start 0@8 room 0@8 start 1@8 wait 1@11");
}

TEST(OverlapPlanTest, LargestSizesDoNotOverflow) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (int64_t budget : {int64_t(0), int64_t(1), kMost}) {
    OverlapProblem problem = getProblem(12, {1, 10}, budget);
    for (int64_t start = 2; start < 8; ++start)
      addTransfer(problem, start % 2 == 0, kMost, start, start - 1, 11);
    OverlapPlan plan = planOverlap(problem);
    EXPECT_EQ(plan.calls.size(), 12u);
    for (const OverlapPlan::Placement &placement : plan.placements)
      EXPECT_EQ(placement.bytesInFlight, kMost);
  }
}

/// The demands of budget and order, checked op by op.
void check(const OverlapProblem &problem, const OverlapPlan &plan) {
  size_t numTransfers = problem.transfers.size();
  ASSERT_EQ(plan.placements.size(), numTransfers);
  ASSERT_EQ(plan.calls.size(), 2 * numTransfers);
  std::map<size_t, OverlapPlan::Placement> placements;
  for (const OverlapPlan::Placement &placement : plan.placements)
    placements[placement.transfer] = placement;
  std::vector<bool> hasStarted(numTransfers), isDone(numTransfers);
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    const Call &call = plan.calls[i];
    const OverlapProblem::Transfer &transfer = problem.transfers[call.transfer];
    ASSERT_TRUE(problem.stays[call.before]);
    if (i > 0) {
      ASSERT_LE(plan.calls[i - 1].before, call.before);
    }
    if (call.kind != Call::Start) {
      ASSERT_TRUE(hasStarted[call.transfer] && !isDone[call.transfer]);
      isDone[call.transfer] = true;
      ASSERT_LE(call.before, transfer.need);
      continue;
    }
    ASSERT_FALSE(hasStarted[call.transfer]);
    hasStarted[call.transfer] = true;
    // Unless it is needed no later than its input is there.
    if (transfer.ready < transfer.need) {
      ASSERT_GT(call.before, transfer.ready);
    }
    ASSERT_EQ(call.before, placements[call.transfer].startBefore);
  }
  // Under each heavy op, gathers above the budget do not exist, and there is at
  // most one scatter above it.
  for (const OverlapProblem::HeavyOp &op : problem.heavy) {
    int64_t gathered = 0, scattered = 0, numScatters = 0;
    for (const auto &[index, placement] : placements) {
      if (placement.startBefore > op.position ||
          placement.waitBefore <= op.position)
        continue;
      if (problem.transfers[index].isGather) {
        gathered += problem.transfers[index].bytes;
      } else {
        scattered += problem.transfers[index].bytes;
        ++numScatters;
      }
    }
    ASSERT_LE(gathered, problem.budget);
    ASSERT_TRUE(scattered <= problem.budget || numScatters == 1);
  }
}

/// Moving a gather one slot up would exceed the budget, or place it before its
/// input or before the start of the previous gather.
void checkGathersAreEarly(const OverlapProblem &problem,
                          const OverlapPlan &plan) {
  std::vector<int64_t> slots{static_cast<int64_t>(problem.stays.size()) - 1};
  for (const OverlapProblem::HeavyOp &op : problem.heavy)
    slots.push_back(op.position);
  for (const OverlapProblem::Transfer &transfer : problem.transfers)
    slots.push_back(transfer.need);
  std::sort(slots.begin(), slots.end());
  const OverlapPlan::Placement *previous = nullptr;
  for (const OverlapPlan::Placement &placement : plan.placements) {
    const OverlapProblem::Transfer &gather =
        problem.transfers[placement.transfer];
    if (!gather.isGather)
      break;
    auto slot =
        std::lower_bound(slots.begin(), slots.end(), placement.startBefore);
    bool isFirst = slot == slots.begin() || *(slot - 1) <= gather.ready ||
                   (previous && *(slot - 1) < previous->startBefore);
    if (!isFirst) {
      int64_t bytes = gather.bytes;
      for (const OverlapPlan::Placement &other : plan.placements) {
        if (&other == &placement)
          break;
        if (other.startBefore <= *(slot - 1) && other.waitBefore > *(slot - 1))
          bytes += problem.transfers[other.transfer].bytes;
      }
      EXPECT_GT(bytes, problem.budget);
    }
    previous = &placement;
  }
}

TEST(OverlapPlanTest, RandomBlocks) {
  std::mt19937 random(1);
  auto draw = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    int64_t size = draw(8, 40);
    OverlapProblem problem = getProblem(size, {}, draw(0, 40));
    for (int64_t count = draw(0, 6); count > 0; --count) {
      int64_t start = draw(1, size - 2);
      if (!problem.stays[start])
        continue;
      bool isGather = draw(0, 1);
      addTransfer(problem, isGather, draw(1, 20), start, draw(-1, start - 1),
                  draw(start + 1, size - 1));
    }
    // Needs stay in place.
    for (OverlapProblem::Transfer &transfer : problem.transfers)
      while (!problem.stays[transfer.need])
        ++transfer.need;
    for (int64_t position = 0; position < size - 1; ++position)
      if (problem.stays[position] && draw(0, 3) == 0)
        problem.heavy.push_back({position, draw(0, position)});
    OverlapPlan plan = planOverlap(problem);
    check(problem, plan);
    checkGathersAreEarly(problem, plan);
    if (HasFailure()) {
      ADD_FAILURE() << "in round " << round;
      return;
    }
  }
}

/// The bytes that gathers of `sizes` MiB, or scatters, may have in flight.
int64_t getBudget(const std::vector<int64_t> &sizes, bool isGather,
                  bool isLoop = false) {
  OverlapProblem problem = getProblem(sizes.size() + 1, {}, 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t at = static_cast<int64_t>(i);
    addTransfer(problem, isGather, sizes[i] << 20, at, at, at + 1);
  }
  return chooseBudget(problem, isLoop) >> 20;
}

TEST(BudgetTest, NothingRepeats) {
  EXPECT_EQ(getBudget({}, true), 256);
  EXPECT_EQ(getBudget({5}, false), 256);
  EXPECT_EQ(getBudget({0, 0, 0}, true), 256);
  // A loop's body is a layer, other ops are not.
  EXPECT_EQ(getBudget({300, 100, 200}, false, true), 600);
  EXPECT_EQ(getBudget({300, 100, 200}, false), 300);
  int64_t most = std::numeric_limits<int64_t>::max() >> 20;
  EXPECT_EQ(getBudget({most, most - 1}, false, true), most);
  // Small ones that repeat are no layers.
  EXPECT_EQ(getBudget({300, 1, 1, 1}, false, true), 303);
}

TEST(BudgetTest, LayersRepeat) {
  // Between an embedding and a head; as a loop over micro-batches, too.
  std::vector<int64_t> sizes{90};
  for (int layer = 0; layer < 12; ++layer)
    for (int64_t size : {40, 40, 40, 40, 100, 100, 100, 10})
      sizes.push_back(size);
  sizes.push_back(90);
  EXPECT_EQ(getBudget(sizes, false), 470);
  EXPECT_EQ(getBudget(sizes, false, true), 470);
  // Two layers may be gathered at a time, unless they are large.
  EXPECT_EQ(getBudget(sizes, true), 940);
  EXPECT_EQ(getBudget(std::vector<int64_t>(40, 600), true), 1024);
  EXPECT_EQ(getBudget(std::vector<int64_t>(40, 1100), true), 1100);
  // Small tensors travel with one of the layers.
  std::vector<int64_t> alike(3, 6400);
  alike[1] = 6401;
  alike.push_back(6400);
  EXPECT_EQ(getBudget(alike, false), 6402);
  // A tensor that is larger than a layer.
  sizes.back() = 1000;
  EXPECT_EQ(getBudget(sizes, false), 1000);
  // Backward, the layers come in the other order.
  std::vector<int64_t> both;
  for (int layer = 0; layer < 4; ++layer)
    both.insert(both.end(), {700, 200, 300});
  for (int layer = 0; layer < 4; ++layer)
    both.insert(both.end(), {300, 200, 700});
  EXPECT_EQ(getBudget(both, false), 1200);
  // Layers of three, and then of four.
  std::vector<int64_t> longer;
  for (int layer = 0; layer < 16; ++layer)
    longer.insert(longer.end(), {900, 800, 700});
  for (int layer = 0; layer < 16; ++layer)
    longer.insert(longer.end(), {900, 800, 700, 300});
  EXPECT_EQ(getBudget(longer, false), 2700);
  // The same on the way back, with some transfers less, and an embedding.
  std::vector<int64_t> passes{3000};
  for (int layer = 0; layer < 16; ++layer)
    passes.insert(passes.end(), {100, 600, 200, 100, 800, 100, 900, 100});
  passes.push_back(3000);
  for (int layer = 0; layer < 16; ++layer)
    passes.insert(passes.end(), {300, 900, 200, 800, 700});
  EXPECT_EQ(getBudget(passes, false), 3000);
  passes.front() = passes[1 + 16 * 8] = 100;
  EXPECT_EQ(getBudget(passes, false), 2900);
  EXPECT_EQ(getBudget(passes, false, true), 2900);
  // A table that is looked up in each pass is no layer, whatever its size.
  std::vector<int64_t> looked;
  for (int pass = 0; pass < 4; ++pass) {
    looked.push_back(2000);
    looked.insert(looked.end(), 32, 300);
  }
  EXPECT_EQ(getBudget(looked, false), 2000);
  // All alike: one at a time.
  EXPECT_EQ(getBudget(std::vector<int64_t>(40, 800), false), 800);
}

TEST(BudgetTest, IsForTheLargerKind) {
  OverlapProblem problem = getProblem(100, {}, 0);
  addTransfer(problem, true, kLeastBudget, 1, 0, 9);
  addTransfer(problem, true, 1, 2, 0, 8);
  addTransfer(problem, false, kLeastBudget, 3, 0, 9);
  EXPECT_EQ(chooseBudget(problem, false), kLeastBudget);
  EXPECT_EQ(chooseBudget(problem, true), kLeastBudget + 1);
  addTransfer(problem, false, 7, 4, 0, 9);
  EXPECT_EQ(chooseBudget(problem, true), kLeastBudget + 7);
}

TEST(OverlapPlanTest, ManyTransfers) {
  constexpr int64_t kCount = 100000;
  OverlapProblem problem = getProblem(4 * kCount + 1, {}, kCount / 2);
  for (int64_t i = 0; i < kCount; ++i) {
    problem.heavy.push_back({4 * i + 2, 4 * i});
    addTransfer(problem, i % 2 == 0, 1, 4 * i + 1, 4 * i,
                i % 2 == 0 ? 4 * i + 2 : 4 * kCount);
  }
  OverlapPlan plan = planOverlap(problem);
  EXPECT_EQ(plan.calls.size(), static_cast<size_t>(2 * kCount));
}

} // namespace
