//===- StreamPlanTest.cpp - Which stream an operation goes to -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cuda/StreamPlan.h"
#include "gtest/gtest.h"

using namespace zpp::rt;

namespace {

// Streams of a mesh of two tiers.
enum : size_t { AfterNode, AfterGpu, Kernels, Node, Gpu };

/// The number of the last operation of every stream.
constexpr int64_t kLast = 10;

StreamPlan makePlan() { return StreamPlan({"node", "gpu"}); }

/// Ten operations on every stream, none from before the caller's stream was
/// entered; the kernel depends on none of them.
StreamPlan::Situation makeSituation() {
  StreamPlan::Situation situation;
  situation.last.fill(kLast);
  return situation;
}

/// The kernel reads what operation `number` of `stream` has written.
void read(StreamPlan::Situation &situation, size_t stream, int64_t number) {
  situation.conflicts.producers[stream] = number;
  situation.conflicts.operations[stream] = number;
}

/// The kernel overwrites what operation `number` of `stream` has read.
void overwrite(StreamPlan::Situation &situation, size_t stream,
               int64_t number) {
  situation.conflicts.operations[stream] = number;
}

size_t choose(const StreamPlan::Situation &situation, bool isGpuFast = true) {
  return makePlan().chooseForKernel(situation, {false, isGpuFast});
}

TEST(StreamPlan, Names) {
  EXPECT_EQ(makePlan().getNames(),
            (std::vector<std::string>{"kernels after node", "kernels after gpu",
                                      "kernels", "node", "gpu"}));
  EXPECT_EQ(makePlan().getExchanges(0), Node);
  EXPECT_EQ(makePlan().getExchanges(1), Gpu);
}

/// More tiers than streams: the fastest share one.
TEST(StreamPlan, ManyTiers) {
  StreamPlan plan({"a", "b", "c", "d", "e"});
  EXPECT_EQ(plan.numTiers(), StreamPlan::kMaxTiers);
  EXPECT_LE(plan.getNames().size(), Hazards::kMaxStreams);
  EXPECT_EQ(plan.getExchanges(4), plan.getExchanges(2));
  EXPECT_NE(plan.getExchanges(1), plan.getExchanges(2));
}

TEST(StreamPlan, KernelsThatNeedNoExchange) {
  StreamPlan::Situation situation = makeSituation();
  EXPECT_EQ(choose(situation), Kernels);
  read(situation, Kernels, kLast);
  EXPECT_EQ(choose(situation), Kernels);
  // Any kernel may overwrite the input of an exchange.
  overwrite(situation, Node, kLast);
  EXPECT_EQ(choose(situation), Kernels);
}

TEST(StreamPlan, KernelsGoBehindTheSlowestTierTheyNeed) {
  StreamPlan::Situation situation = makeSituation();
  read(situation, Gpu, kLast - 1);
  EXPECT_EQ(choose(situation), AfterGpu);
  read(situation, Node, 3);
  EXPECT_EQ(choose(situation), AfterNode);
  situation = makeSituation();
  read(situation, AfterNode, 1);
  EXPECT_EQ(choose(situation), AfterNode);
}

TEST(StreamPlan, KernelsFollowTheLastExchangeOfAFastTier) {
  StreamPlan::Situation situation = makeSituation();
  read(situation, Gpu, kLast);
  EXPECT_EQ(choose(situation), Gpu);
  EXPECT_EQ(choose(situation, /*isGpuFast=*/false), AfterGpu);
  // Not where the kernel would make the next exchange wait for a slower tier.
  overwrite(situation, Node, 2);
  EXPECT_EQ(choose(situation), AfterGpu);
}

TEST(StreamPlan, ABatchBehindAnExchangeIsJoined) {
  StreamPlan::Situation situation = makeSituation();
  read(situation, Gpu, kLast - 1);
  EXPECT_EQ(choose(situation), AfterGpu);
  situation.batch = Gpu;
  EXPECT_EQ(choose(situation), Gpu);
  situation.batch = AfterGpu;
  EXPECT_EQ(choose(situation), AfterGpu);
}

TEST(StreamPlan, WhatIsOlderThanTheEntryDecidesNothing) {
  StreamPlan::Situation situation = makeSituation();
  read(situation, Node, 4);
  read(situation, Gpu, kLast);
  situation.lastBeforeEntry.fill(4);
  EXPECT_EQ(choose(situation), Gpu);
  situation.lastBeforeEntry.fill(kLast);
  EXPECT_EQ(choose(situation), Kernels);
}

} // namespace
