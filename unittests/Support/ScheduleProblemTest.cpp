//===- ScheduleProblemTest.cpp - Tests of the bound of a schedule ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/ScheduleProblem.h"

#include "Random.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <numeric>

using namespace zpp;

namespace {

constexpr size_t kCompute = 0, kLink = 1;

double sum(const std::vector<double> &values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// Adds four products of 4, each of which needs the one before and a gather of
/// 10. Returns the last one.
size_t addForward(ScheduleProblem &problem) {
  size_t product = problem.add({}, 0, {});
  for (int layer = 0; layer < 4; ++layer) {
    size_t gather = problem.add({kLink}, 10, {});
    product = problem.add({kCompute}, 4, {gather, product});
  }
  return product;
}

TEST(ScheduleProblemTest, NothingTakesNoTime) {
  ScheduleProblem problem;
  EXPECT_EQ(problem.getBound().usec, 0);
}

TEST(ScheduleProblemTest, AChainIsItsOwnBound) {
  ScheduleProblem problem;
  size_t gather = problem.add({kLink}, 5, {});
  size_t join = problem.add({}, 0, {gather});
  problem.add({kCompute}, 3, {join});
  ScheduleBound bound = problem.getBound();
  EXPECT_EQ(bound.usec, 8);
  EXPECT_EQ(bound.byResource, (std::vector<double>{3, 5}));
}

TEST(ScheduleProblemTest, ABusyLinkIsTheBound) {
  // Each product needs its weight, and is shorter than the next gather.
  ScheduleProblem problem;
  addForward(problem);
  ScheduleBound bound = problem.getBound();
  EXPECT_EQ(bound.usec, 44);
  EXPECT_EQ(bound.byResource, (std::vector<double>{4, 40}));
}

TEST(ScheduleProblemTest, TwoPartsOfAStepAddUp) {
  // A link that is idle at the end of the first part cannot begin the second:
  // gathers take 40 and their products 4 each, then products of 20 each have
  // gradients of 10. The link is busy for 80, compute for 96.
  ScheduleProblem problem;
  size_t product = addForward(problem);
  for (int layer = 0; layer < 4; ++layer) {
    product = problem.add({kCompute}, 20, {product});
    problem.add({kLink}, 10, {product});
  }
  EXPECT_EQ(problem.getBusy(kLink), 80);
  EXPECT_EQ(problem.getBusy(kCompute), 96);
  // 4 gathers, the last product of the first part, 80 of compute, one gradient.
  ScheduleBound bound = problem.getBound();
  EXPECT_EQ(bound.usec, 40 + 4 + 80 + 10);
  EXPECT_EQ(bound.byResource, (std::vector<double>{84, 50}));
}

/// A random problem of few tasks.
ScheduleProblem makeProblem(Random &random, size_t count,
                            std::vector<std::vector<size_t>> &after,
                            std::vector<std::vector<size_t>> &resources,
                            std::vector<double> &usec) {
  ScheduleProblem problem;
  for (size_t i = 0; i < count; ++i) {
    after.emplace_back();
    for (size_t before = 0; before < i; ++before)
      if (random.bits() % 3 == 0)
        after.back().push_back(before);
    resources.emplace_back();
    for (size_t resource = 0; resource < 3; ++resource)
      if (random.bits() % 2 == 0)
        resources.back().push_back(resource);
    usec.push_back(static_cast<double>(random.bits() % 10));
    problem.add(resources.back(), usec.back(), after.back());
  }
  return problem;
}

TEST(ScheduleProblemTest, NoScheduleIsBelowTheBound) {
  Random random(7);
  int numTight = 0, numAboveBusy = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<size_t>> after, resources;
    std::vector<double> usec;
    size_t count = 1 + random.bits() % 7;
    ScheduleProblem problem =
        makeProblem(random, count, after, resources, usec);
    ScheduleBound bound = problem.getBound();

    // All orders, each task as early as it can be: one of them is the best.
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    double best = 1e9;
    do {
      std::vector<double> begins(count, -1), free(3, 0);
      double end = 0;
      bool isOrdered = true;
      for (size_t task : order) {
        double begin = 0;
        for (size_t before : after[task]) {
          isOrdered &= begins[before] >= 0;
          begin = std::max(begin, begins[before] + usec[before]);
        }
        for (size_t resource : resources[task])
          begin = std::max(begin, free[resource]);
        for (size_t resource : resources[task])
          free[resource] = begin + usec[task];
        begins[task] = begin;
        end = std::max(end, begin + usec[task]);
      }
      if (!isOrdered)
        continue;
      best = std::min(best, end);
    } while (std::next_permutation(order.begin(), order.end()));

    double busy = 0;
    for (size_t resource = 0; resource < 3; ++resource)
      busy = std::max(busy, problem.getBusy(resource));
    EXPECT_LE(bound.usec, best);
    EXPECT_GE(bound.usec, busy);
    // What occupies nothing has no resource to be counted under.
    EXPECT_LE(sum(bound.byResource), bound.usec + 1e-9);
    numTight += bound.usec == best;
    numAboveBusy += bound.usec > busy;
  }
  // It is the optimum in most of them, also where no resource is busy all the
  // time.
  EXPECT_GT(numTight, 250);
  EXPECT_GT(numAboveBusy, 80);
}

} // namespace
