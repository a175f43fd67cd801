//===- TimelineTest.cpp - Tests of the list schedule ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/Timeline.h"

#include "gtest/gtest.h"

using namespace zpp;

namespace {

TEST(TimelineTest, AStreamKeepsTheOrderOfItsTasks) {
  Timeline timeline;
  size_t stream = timeline.addStream("node");
  EXPECT_EQ(timeline.place({stream}, 5, 10, "first"), 15);
  // It could begin earlier, but stands after the first.
  EXPECT_EQ(timeline.place({stream}, 0, 10, "second"), 25);
  EXPECT_EQ(timeline.getBusy(stream), 20);
  EXPECT_EQ(timeline.getEnd(), 25);
}

TEST(TimelineTest, StreamsWorkAtTheSameTime) {
  Timeline timeline;
  size_t compute = timeline.addStream("compute");
  size_t node = timeline.addStream("node");
  double gathered = timeline.place({node}, 0, 30, "gather");
  timeline.place({compute}, 0, 20, "product");
  timeline.wait(compute, gathered);
  EXPECT_EQ(timeline.place({compute}, 0, 20, "product"), 50);
  EXPECT_EQ(timeline.getWaited(compute), 10);
  EXPECT_EQ(timeline.getBusy(compute), 40);
  // What is there already costs nothing.
  timeline.wait(compute, gathered);
  EXPECT_EQ(timeline.getWaited(compute), 10);
}

TEST(TimelineTest, ATaskMayNeedSeveralStreams) {
  Timeline timeline;
  size_t node = timeline.addStream("node"), gpu = timeline.addStream("gpu");
  timeline.place({gpu}, 0, 7, "hop");
  EXPECT_EQ(timeline.place({node, gpu}, 0, 3, "both"), 10);
  EXPECT_EQ(timeline.getFree(node), 10);
  EXPECT_EQ(timeline.getFree(gpu), 10);
  ASSERT_EQ(timeline.getTasks().size(), 2u);
  EXPECT_EQ(timeline.getTasks()[1].stream, node);
}

TEST(TimelineTest, LongLoopsTakeAsLongAsIfTheyWerePlaced) {
  // The gather of an iteration runs under the product of the one before.
  auto run = [](int64_t times, Timeline &timeline) {
    size_t compute = timeline.addStream("compute");
    size_t node = timeline.addStream("node");
    return timeline.repeat(times, [&] {
      double gathered = timeline.place({node}, 0, 12, "gather");
      timeline.wait(compute, gathered);
      timeline.place({compute}, 0, 10, "product");
    });
  };
  Timeline few, many, none;
  EXPECT_EQ(run(Timeline::kMaxIterations, few), 0);
  EXPECT_EQ(few.getEnd(), 12 * Timeline::kMaxIterations + 10);
  EXPECT_EQ(run(1000000, many), 12.0 * (1000000 - Timeline::kMaxIterations));
  EXPECT_EQ(many.getEnd(), 12 * 1000000 + 10);
  EXPECT_EQ(many.getBusy(0), 10 * 1000000);
  EXPECT_EQ(many.getWaited(0), 12 + 2 * 999999.0);
  EXPECT_EQ(many.getTasks().size(), 2u * Timeline::kMaxIterations);
  EXPECT_EQ(run(0, none), 0);
  EXPECT_EQ(none.getEnd(), 0);
}

} // namespace
