//===- ExternalTest.cpp - Exchanges of the caller -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The arguments of the functions of zpp_rt_exchanges, and the effects of their
// results. ConformanceTest checks that numbers are those of other back ends.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

using namespace zpp;

namespace {

/// One rank of a world without the others: the functions answer for them.
class External : public testing::TestWithParam<std::string> {
protected:
  zpp_rt_status create(const zpp_rt_world_desc &desc, zpp_rt_world **world) {
    return zpp_rt_world_create(&desc, world, message, sizeof(message));
  }

  zpp_rt_world_desc makeWorldDesc() {
    exchanges = makeDesc<zpp_rt_exchanges>();
    exchanges.context = this;
    exchanges.all_to_all = exchanges.all_gather =
        [](void *self, const zpp_rt_exchange *exchange, const void *input,
           void *output, char *message, size_t messageBytes) {
          auto &test = *static_cast<External *>(self);
          ++test.calls;
          test.name = exchange->name;
          test.position = exchange->position;
          test.members.assign(exchange->members,
                              exchange->members + exchange->num_members);
          EXPECT_EQ(exchange->struct_size, sizeof(zpp_rt_exchange));
          EXPECT_EQ(exchange->rank, 5);
          EXPECT_EQ(exchange->chunk_bytes, kChunkBytes);
          EXPECT_NE(input, nullptr);
          EXPECT_NE(output, nullptr);
          std::snprintf(message, messageBytes, "%s", test.answerText.c_str());
          return test.answer;
        };
    auto desc = makeDesc<zpp_rt_world_desc>();
    desc.backend = backend.c_str();
    desc.mesh = "node:2,gpu:4";
    desc.exchanges = &exchanges;
    return desc;
  }

  /// Rank 5 of node:2,gpu:4.
  void SetUp() override {
    zpp_rt_world_desc desc = makeWorldDesc();
    ASSERT_EQ(create(desc, &world), ZPP_RT_OK) << message;
    auto rankDesc = makeDesc<zpp_rt_rank_desc>();
    rankDesc.index = 5;
    rankDesc.device = -1;
    ASSERT_EQ(
        zpp_rt_rank_create(world, &rankDesc, &rank, message, sizeof(message)),
        ZPP_RT_OK)
        << message;
  }
  void TearDown() override {
    zpp_rt_rank_destroy(rank);
    zpp_rt_world_destroy(world);
  }

  zpp_rt_status exchange(std::vector<zpp_rt_axis> axes, bool isGather = false,
                         int64_t chunkBytes = kChunkBytes) {
    auto desc = makeDesc<zpp_rt_exchange_desc>();
    desc.name = "layer";
    desc.axes = axes.data();
    desc.num_axes = axes.size();
    desc.chunk_bytes = chunkBytes;
    DeviceBuffer input(rank, Bytes(8 * kChunkBytes, 7));
    DeviceBuffer output(rank, Bytes(8 * kChunkBytes, 1));
    return (isGather ? zpp_rt_all_gather_chunks : zpp_rt_all_to_all)(
        rank, &desc, input.data(), output.data());
  }

  static constexpr int64_t kChunkBytes = 16;
  const std::string backend = GetParam();
  char message[256] = "";
  zpp_rt_exchanges exchanges;
  zpp_rt_world *world = nullptr;
  zpp_rt_rank *rank = nullptr;

  // The arguments of the last call, and the result for it.
  int calls = 0;
  std::string name;
  int64_t position = -1;
  std::vector<int64_t> members;
  zpp_rt_status answer = ZPP_RT_OK;
  std::string answerText;
};

TEST_P(External, Group) {
  EXPECT_EQ(exchange({{"gpu", 1, 4}}), ZPP_RT_OK);
  EXPECT_EQ(name, "all_to_all 'layer' along gpu");
  EXPECT_EQ(members, (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(position, 1);
  EXPECT_EQ(exchange({{"node", 1, 2}}, /*isGather=*/true), ZPP_RT_OK);
  EXPECT_EQ(name, "all_gather_chunks 'layer' along node");
  EXPECT_EQ(members, (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(position, 1);
  EXPECT_EQ(exchange({{"gpu", 1, 4}, {"node", 1, 2}}), ZPP_RT_OK);
  EXPECT_EQ(members, (std::vector<int64_t>{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(position, 3);
  EXPECT_EQ(exchange({{"gpu", 2, 2}}), ZPP_RT_OK);
  EXPECT_EQ(members, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(calls, 4);
}

/// The functions are not called if no other rank takes part.
TEST_P(External, Alone) {
  EXPECT_EQ(exchange({{"gpu", 1, 4}}, /*isGather=*/false, /*chunkBytes=*/0),
            ZPP_RT_OK);
  auto desc = makeDesc<zpp_rt_exchange_desc>();
  zpp_rt_axis axis{"gpu", 4, 1};
  desc.axes = &axis;
  desc.num_axes = 1;
  desc.chunk_bytes = kChunkBytes;
  EXPECT_EQ(runLocal(rank, zpp_rt_all_to_all, desc, Bytes(kChunkBytes, 7),
                     Bytes(kChunkBytes, 1)),
            Bytes(kChunkBytes, 7));
  EXPECT_EQ(calls, 0);
}

TEST_P(External, Failure) {
  answer = ZPP_RT_RANK_LOST;
  answerText = "rank 3 is gone";
  EXPECT_EQ(exchange({{"gpu", 1, 4}}), ZPP_RT_RANK_LOST);
  EXPECT_STREQ(zpp_rt_rank_message(rank),
               "all_to_all 'layer' along gpu: rank 3 is gone");
  // It stays.
  answer = ZPP_RT_OK;
  auto desc = makeDesc<zpp_rt_exchange_desc>();
  zpp_rt_axis axis{"gpu", 1, 4};
  desc.axes = &axis;
  desc.num_axes = 1;
  desc.chunk_bytes = kChunkBytes;
  char data[8 * kChunkBytes] = {};
  EXPECT_EQ(zpp_rt_all_to_all(rank, &desc, data, data), ZPP_RT_RANK_LOST);
  EXPECT_EQ(calls, 1);

  // Another rank of the process learns it in its next collective.
  auto other = makeDesc<zpp_rt_rank_desc>();
  other.index = 4;
  other.device = -1;
  zpp_rt_rank *second;
  ASSERT_EQ(
      zpp_rt_rank_create(world, &other, &second, message, sizeof(message)),
      ZPP_RT_OK);
  EXPECT_EQ(zpp_rt_all_to_all(second, &desc, data, data), ZPP_RT_ABORTED);
  EXPECT_STREQ(zpp_rt_rank_message(second),
               "all_to_all along gpu: rank 5 failed: all_to_all 'layer' along "
               "gpu: rank 3 is gone");
  EXPECT_EQ(calls, 1);
  zpp_rt_rank_destroy(second);
}

TEST_P(External, UnknownStatus) {
  answer = 1234;
  EXPECT_EQ(exchange({{"gpu", 1, 4}}), ZPP_RT_SYSTEM_ERROR);
  EXPECT_STREQ(zpp_rt_rank_message(rank),
               "all_to_all 'layer' along gpu: the caller's exchange failed "
               "(expected a zpp_rt_status, but got 1234)");
}

TEST_P(External, Descriptors) {
  zpp_rt_world *refused;
  auto expectError = [&](const zpp_rt_world_desc &desc, const char *text,
                         zpp_rt_status status = ZPP_RT_INVALID_ARGUMENT) {
    EXPECT_EQ(create(desc, &refused), status);
    EXPECT_STREQ(message, text);
    EXPECT_EQ(refused, nullptr);
  };
  zpp_rt_world_desc desc = makeWorldDesc();
  desc.rendezvous = "localhost:1234";
  expectError(desc, "exchanges: expected no rendezvous beside them, but got "
                    "'localhost:1234'");
  desc = makeWorldDesc();
  exchanges.all_gather = nullptr;
  expectError(desc, "exchanges: expected a function all_gather, but got NULL");
  desc = makeWorldDesc();
  exchanges.all_to_all = nullptr;
  expectError(desc, "exchanges: expected a function all_to_all, but got NULL");
  desc = makeWorldDesc();
  exchanges.struct_size = 8;
  expectError(desc,
              "exchanges: expected a struct_size of at least 32, but got 8");
}

TEST_P(External, Trace) {
  zpp_rt_world_desc desc = makeWorldDesc();
  desc.trace = 1;
  zpp_rt_world *traced;
  if (backend == "cpu") {
    EXPECT_EQ(create(desc, &traced), ZPP_RT_OK) << message;
  } else {
    EXPECT_EQ(create(desc, &traced), ZPP_RT_UNSUPPORTED);
    EXPECT_STREQ(message, "expected no trace of a world of 'cuda' with "
                          "exchanges of the caller, but got one");
  }
  zpp_rt_world_destroy(traced);
}

INSTANTIATE_TEST_SUITE_P(, External, testing::ValuesIn(getBackends()),
                         [](const auto &info) { return info.param; });

} // namespace
