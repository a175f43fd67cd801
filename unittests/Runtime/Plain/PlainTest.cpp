//===- PlainTest.cpp - Collectives of the communication library -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plain/Plain.h"
#include "../Reference.h"

using namespace zpp;

namespace {

class Plain : public testing::TestWithParam<std::string> {};

/// With integers, so that the order of a sum does not matter.
TEST_P(Plain, Collectives) {
  for (const char *text : getMeshes(GetParam())) {
    Mesh mesh = parseMesh(text);
    TestWorld world(GetParam(), text);
    world.runAll([&](zpp_rt_rank *rank, int64_t index) {
      std::vector<AxisRef> all;
      for (size_t i = 0; i < mesh.getAxes().size(); ++i)
        all.push_back(mesh.getAxis(i));
      std::vector<std::vector<AxisRef>> groupings = {all, {all.back()}};
      for (const std::vector<AxisRef> &grouping : groupings)
        for (ElementType type : kTypes)
          for (int64_t part : {0, 1, 40}) {
            int64_t size = numDevices(grouping);
            std::vector<std::vector<int64_t>> groups = mesh.getGroups(grouping);
            const std::vector<int64_t> &group = *std::find_if(
                groups.begin(), groups.end(), [&](const auto &members) {
                  return std::count(members.begin(), members.end(), index) > 0;
                });
            int64_t self =
                std::find(group.begin(), group.end(), index) - group.begin();
            auto run = [&](rt::PlainCollective::Kind kind, const Bytes &input,
                           const Bytes &output) {
              DeviceBuffer source(rank, input), dest(rank, output);
              rt::PlainCollective collective = {kind, grouping, type,
                                                part * size};
              EXPECT_EQ(
                  rt::runPlain(rank, collective, source.data(), dest.data()),
                  ZPP_RT_OK)
                  << zpp_rt_rank_message(rank);
              EXPECT_EQ(source.read(), input) << "the input was written";
              return dest.read();
            };
            auto makeInput = [&](int64_t rank, int64_t elements) {
              Bytes data(elements * elementBytes(type));
              for (int64_t i = 0; i < elements; ++i)
                writeElement(type, rank + i % 7, data.data(), i);
              return data;
            };
            Bytes sum(part * elementBytes(type)), gathered;
            Bytes reduced(part * size * elementBytes(type));
            for (int64_t i = 0; i < part * size; ++i) {
              float value = 0;
              for (int64_t member : group)
                value += member + i % 7;
              writeElement(type, value, reduced.data(), i);
            }
            for (int64_t i = 0; i < part; ++i) {
              float value = 0;
              for (int64_t member : group)
                value += member + (self * part + i) % 7;
              writeElement(type, value, sum.data(), i);
            }
            for (int64_t member : group) {
              Bytes input = makeInput(member, part);
              gathered.insert(gathered.end(), input.begin(), input.end());
            }
            EXPECT_EQ(run(rt::PlainCollective::ReduceScatter,
                          makeInput(index, part * size), fill(sum.size())),
                      sum);
            EXPECT_EQ(run(rt::PlainCollective::AllGather,
                          makeInput(index, part), fill(gathered.size())),
                      gathered);
            EXPECT_EQ(run(rt::PlainCollective::AllReduce,
                          makeInput(index, part * size), fill(reduced.size())),
                      reduced);
          }
    });
  }
}

/// Ranks that call different ones learn of it, as of any other operation.
TEST_P(Plain, Disagreement) {
  if (getMaxRanks(GetParam()) < 2)
    GTEST_SKIP() << "needs two ranks";
  Mesh mesh = parseMesh("gpu:2");
  TestWorld world(GetParam(), "gpu:2");
  std::vector<TestWorld::Outcome> outcomes =
      world.run([&](zpp_rt_rank *rank, int64_t index) {
        DeviceBuffer source(rank, 64), dest(rank, 64);
        rt::runPlain(rank,
                     {index == 0 ? rt::PlainCollective::AllReduce
                                 : rt::PlainCollective::ReduceScatter,
                      {mesh.getAxis(0)},
                      ElementType::F32,
                      /*elements=*/16},
                     source.data(), dest.data());
      });
  for (const TestWorld::Outcome &outcome : outcomes) {
    EXPECT_NE(outcome.status, ZPP_RT_OK);
    EXPECT_NE(outcome.message.find("plain_"), std::string::npos)
        << outcome.message;
  }
}

INSTANTIATE_TEST_SUITE_P(, Plain, testing::ValuesIn(getBackends()),
                         [](const auto &info) { return info.param; });

} // namespace
