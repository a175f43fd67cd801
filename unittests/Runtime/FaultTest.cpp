//===- FaultTest.cpp - Ranks that die, stay away or disagree --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every surviving rank ends with a status and a message that names its
// collective. No rank hangs, and none writes its output.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <chrono>
#include <future>

using namespace zpp;

/// Sanitizers stop a program that asks for too much, unless told otherwise.
extern "C" ZPP_RT_EXPORT const char *__asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" ZPP_RT_EXPORT const char *__tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace {

/// A time limit that is reached only if the test fails.
constexpr int64_t kLateUsec = 120'000'000;
constexpr int64_t kChunkBytes = 1024;

constexpr zpp_rt_axis kNode = {"node", 1, 2};
constexpr zpp_rt_axis kGpu = {"gpu", 1, 2};
constexpr zpp_rt_axis kBoth[] = {kNode, kGpu};

class Fault : public testing::TestWithParam<std::string> {
protected:
  using Outcome = TestWorld::Outcome;

  void SetUp() override {
    if (getMaxRanks(GetParam()) < 4)
      GTEST_SKIP() << "expected 4 ranks, but got " << getMaxRanks(GetParam());
  }

  /// A time limit that tests wait for, long enough to create a world.
  static int64_t getSoonUsec() {
    if (const char *given = std::getenv("ZPP_TEST_SOON_USEC"))
      return std::atoll(given);
    return isSynchronous(GetParam()) ? 200'000 : 15'000'000;
  }

  static zpp_rt_exchange_desc makeExchange(const char *name,
                                           const zpp_rt_axis *axes,
                                           int64_t numAxes,
                                           int64_t chunkBytes = kChunkBytes) {
    auto desc = makeDesc<zpp_rt_exchange_desc>();
    desc.name = name;
    desc.axes = axes;
    desc.num_axes = numAxes;
    desc.chunk_bytes = chunkBytes;
    return desc;
  }

  /// All ranks together.
  static zpp_rt_status exchange(zpp_rt_rank *rank, const char *name,
                                int64_t chunkBytes = kChunkBytes) {
    DeviceBuffer input(rank, 4 * chunkBytes), output(rank, 4 * chunkBytes);
    zpp_rt_exchange_desc desc = makeExchange(name, kBoth, 2, chunkBytes);
    zpp_rt_all_to_all(rank, &desc, input.data(), output.data());
    return zpp_rt_rank_synchronize(rank);
  }

  /// Use a rank that has failed and allocates nothing.
  static zpp_rt_status exchangeNothing(zpp_rt_rank *rank) {
    zpp_rt_exchange_desc desc = makeExchange("not read", kBoth, 2, 0);
    return zpp_rt_all_to_all(rank, &desc, nullptr, nullptr);
  }

  static void expectMentions(const Outcome &outcome, const char *text) {
    EXPECT_NE(outcome.message.find(text), std::string::npos)
        << "expected " << text << " in: " << outcome.message;
  }
};

class Timer {
public:
  int64_t usec() const {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now() - start)
        .count();
  }

private:
  std::chrono::steady_clock::time_point start =
      std::chrono::steady_clock::now();
};

TEST_P(Fault, RankNeverJoins) {
  constexpr int64_t kSoonUsec = 200'000;
  TestWorld world(GetParam(), "node:2,gpu:2", kSoonUsec);
  Timer timer;
  if (!isSynchronous(GetParam())) {
    // Joining is a collective itself.
    zpp_rt_rank *rank;
    char message[256];
    EXPECT_EQ(createRank(world.get(), 1, &rank, message, sizeof(message)),
              ZPP_RT_TIMEOUT);
    EXPECT_GE(timer.usec(), kSoonUsec);
    EXPECT_STREQ(message, "expected 4 ranks within 200000 usec, but ranks 0, "
                          "2, 3 did not arrive");
    return;
  }
  zpp_rt_rank *rank = world.join(1);
  EXPECT_EQ(exchange(rank, "gradients"), ZPP_RT_TIMEOUT);
  EXPECT_GE(timer.usec(), kSoonUsec);
  EXPECT_STREQ(zpp_rt_rank_message(rank),
               "all_to_all 'gradients' along node, gpu: expected 4 ranks "
               "within 200000 usec, but ranks 0, 2, 3 did not arrive");
  zpp_rt_rank_destroy(rank);
}

TEST_P(Fault, RankNeverArrives) {
  TestWorld world(GetParam(), "node:2,gpu:2", getSoonUsec());
  Timer timer;
  std::vector<Outcome> outcomes = world.run([&](zpp_rt_rank *rank,
                                                int64_t index) {
    if (index == 2) {
      // The rank lives, but is busy with something else for too long.
      std::this_thread::sleep_for(std::chrono::microseconds(2 * getSoonUsec()));
      return;
    }
    exchange(rank, "gradients");
  });
  EXPECT_LT(timer.usec(), kLateUsec);
  for (int64_t index : {0, 1, 3}) {
    EXPECT_TRUE(outcomes[index].status == ZPP_RT_TIMEOUT ||
                outcomes[index].status == ZPP_RT_ABORTED)
        << outcomes[index].status;
    expectMentions(outcomes[index], "all_to_all 'gradients'");
    expectMentions(outcomes[index], "rank 2 did not arrive");
  }
  EXPECT_NE(outcomes[2].status, ZPP_RT_TIMEOUT);
}

TEST_P(Fault, LateRankIsToldWhy) {
  TestWorld world(GetParam(), "node:2,gpu:2", getSoonUsec());
  std::vector<Outcome> outcomes = world.run([&](zpp_rt_rank *rank,
                                                int64_t index) {
    if (index == 2) {
      std::this_thread::sleep_for(std::chrono::microseconds(2 * getSoonUsec()));
      EXPECT_EQ(exchangeNothing(rank), ZPP_RT_ABORTED);
      return;
    }
    exchange(rank, "gradients");
  });
  EXPECT_EQ(outcomes[2].status, ZPP_RT_ABORTED);
  expectMentions(outcomes[2], "rank 2 did not arrive");
}

TEST_P(Fault, RankLeaves) {
  TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec);
  Timer timer;
  std::vector<Outcome> outcomes =
      world.run([&](zpp_rt_rank *rank, int64_t index) {
        EXPECT_EQ(exchange(rank, "first"), ZPP_RT_OK);
        // A rank may see that another has left before it looks at its device.
        world.meet();
        if (index != 3)
          exchange(rank, "second");
      });
  EXPECT_LT(timer.usec(), kLateUsec);
  for (int64_t index : {0, 1, 2}) {
    EXPECT_TRUE(outcomes[index].status == ZPP_RT_RANK_LOST ||
                outcomes[index].status == ZPP_RT_ABORTED)
        << outcomes[index].status;
    expectMentions(outcomes[index], "all_to_all 'second' along node, gpu:");
    expectMentions(outcomes[index], "expected 4 ranks, but rank 3 left");
  }
  EXPECT_NE(outcomes[3].status, ZPP_RT_RANK_LOST);
}

TEST_P(Fault, RankAborts) {
  TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec);
  std::vector<Outcome> outcomes =
      world.run([&](zpp_rt_rank *rank, int64_t index) {
        EXPECT_EQ(exchange(rank, "first"), ZPP_RT_OK);
        // A rank may see an abort before it looks at its device.
        world.meet();
        if (index == 1) {
          zpp_rt_rank_abort(rank, "lost its GPU");
          EXPECT_EQ(exchangeNothing(rank), ZPP_RT_ABORTED);
          return;
        }
        EXPECT_EQ(exchange(rank, "gradients"), ZPP_RT_ABORTED);
      });
  EXPECT_EQ(outcomes[1].message, "aborted: lost its GPU");
  for (int64_t index : {0, 2, 3}) {
    EXPECT_EQ(outcomes[index].status, ZPP_RT_ABORTED);
    expectMentions(outcomes[index], "rank 1 failed: aborted: lost its GPU");
    if (isSynchronous(GetParam()))
      expectMentions(outcomes[index],
                     "all_to_all 'gradients' along node, gpu: ");
  }
}

TEST_P(Fault, TheCallerIsToldOnce) {
  std::mutex mutex;
  std::vector<std::string> messages;
  auto call = [&](const char *message) {
    std::lock_guard<std::mutex> lock(mutex);
    messages.push_back(message);
  };
  TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec, /*isTraced=*/false,
                  call);
  world.run([&](zpp_rt_rank *rank, int64_t index) {
    if (index == 2)
      zpp_rt_rank_abort(rank, "lost its GPU");
    else
      EXPECT_EQ(exchange(rank, "gradients"), ZPP_RT_ABORTED);
  });
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0], "rank 2 failed: aborted: lost its GPU");
}

TEST_P(Fault, WaitingRankIsAborted) {
  TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec);
  std::promise<void> isOver;
  std::shared_future<void> over = isOver.get_future().share();
  std::vector<Outcome> outcomes =
      world.run([&](zpp_rt_rank *rank, int64_t index) {
        if (index != 0) {
          over.wait();
          return;
        }
        std::thread watchdog([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          zpp_rt_rank_abort(rank, "canceled by the user");
        });
        EXPECT_EQ(exchange(rank, "gradients"), ZPP_RT_ABORTED);
        watchdog.join();
        isOver.set_value();
      });
  EXPECT_EQ(outcomes[0].message, "aborted: canceled by the user");
}

TEST_P(Fault, SizesDisagree) {
  TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec);
  std::vector<Outcome> outcomes =
      world.run([&](zpp_rt_rank *rank, int64_t index) {
        exchange(rank, index == 2 ? "other" : "gradients",
                 index == 2 ? kChunkBytes / 2 : kChunkBytes);
      });
  for (int64_t index = 0; index < 4; ++index) {
    EXPECT_EQ(outcomes[index].status, ZPP_RT_MISMATCH);
    expectMentions(outcomes[index], index == 2
                                        ? "all_to_all 'other' along"
                                        : "all_to_all 'gradients' along");
    expectMentions(outcomes[index],
                   ": expected chunks of 1024 bytes on all ranks, as on rank 0 "
                   "in all_to_all 'gradients' along node, gpu, but got 512 on "
                   "rank 2 in all_to_all 'other' along node, gpu");
  }
}

TEST_P(Fault, KindsDisagree) {
  TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec);
  std::vector<Outcome> outcomes =
      world.run([&](zpp_rt_rank *rank, int64_t index) {
        if (index != 1) {
          exchange(rank, "gradients");
          return;
        }
        DeviceBuffer input(rank, kChunkBytes), output(rank, 4 * kChunkBytes);
        zpp_rt_exchange_desc desc = makeExchange("weights", kBoth, 2);
        zpp_rt_all_gather_chunks(rank, &desc, input.data(), output.data());
      });
  for (const Outcome &outcome : outcomes) {
    EXPECT_EQ(outcome.status, ZPP_RT_MISMATCH);
    expectMentions(outcome, "expected all_to_all on all ranks, as on rank 0");
    expectMentions(outcome, "but got all_gather_chunks on rank 1");
  }
}

TEST_P(Fault, OutputIsNotWritten) {
  TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec);
  Bytes marked(4 * kChunkBytes, 0x77);
  world.run([&](zpp_rt_rank *rank, int64_t index) {
    void *memory;
    EXPECT_EQ(zpp_rt_alloc(rank, marked.size(), &memory), ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_copy(rank, memory, marked.data(), marked.size()),
              ZPP_RT_OK);
    {
      DeviceBuffer input(rank, Bytes(4 * kChunkBytes, 0x11));
      zpp_rt_exchange_desc desc =
          makeExchange("gradients", kBoth, 2, kChunkBytes - (index == 0));
      world.meet();
      zpp_rt_all_to_all(rank, &desc, input.data(), memory);
      EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_MISMATCH);
    }
    // If the call has returned before the failure, the output may be written,
    // but must not be used.
    if (isSynchronous(GetParam())) {
      EXPECT_EQ(std::memcmp(memory, marked.data(), marked.size()), 0);
    }
    zpp_rt_free(rank, memory);
  });
}

TEST_P(Fault, FailureIsStickyAndSpreads) {
  TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec);
  std::vector<Outcome> outcomes =
      world.run([&](zpp_rt_rank *rank, int64_t index) {
        // Ranks 2 and 3 never meet rank 0, which fails in a local operation.
        if (index == 0) {
          auto desc = makeDesc<zpp_rt_reduce_desc>();
          desc.name = "sum of gradients";
          desc.elements = 1;
          EXPECT_EQ(zpp_rt_reduce(rank, &desc, &desc, &desc),
                    ZPP_RT_INVALID_ARGUMENT);
          EXPECT_EQ(exchangeNothing(rank), ZPP_RT_INVALID_ARGUMENT);
          return;
        }
        zpp_rt_exchange_desc desc = makeExchange("weights", &kGpu, 1);
        DeviceBuffer input(rank, 2 * kChunkBytes),
            output(rank, 2 * kChunkBytes);
        for (int64_t i = 0; i < 1000000; ++i)
          if (zpp_rt_all_to_all(rank, &desc, input.data(), output.data()) !=
              ZPP_RT_OK)
            break;
      });
  EXPECT_EQ(outcomes[0].message, "reduce 'sum of gradients': expected at least "
                                 "1 source, but got 0");
  for (int64_t index : {1, 2, 3}) {
    EXPECT_EQ(outcomes[index].status, ZPP_RT_ABORTED);
    expectMentions(outcomes[index],
                   "rank 0 failed: reduce 'sum of gradients': expected at "
                   "least 1 source, but got 0");
    if (isSynchronous(GetParam()))
      expectMentions(outcomes[index], "all_to_all 'weights' along gpu: ");
  }
}

/// The others end, no matter when a rank dies.
TEST_P(Fault, RanksDieAtAnyMoment) {
  // Creating a world of GPUs takes a second or more.
  int64_t rounds = isSynchronous(GetParam()) ? 50 : 6;
  for (int64_t round = 0; round < rounds; ++round) {
    TestWorld world(GetParam(), "node:2,gpu:2", kLateUsec);
    std::vector<Outcome> outcomes =
        world.run([&](zpp_rt_rank *rank, int64_t index) {
          for (int64_t i = 0; index != round % 4 || i < round; ++i)
            if (exchange(rank, "gradients") != ZPP_RT_OK)
              break;
        });
    for (int64_t index = 0; index < 4; ++index) {
      if (index == round % 4) {
        EXPECT_NE(outcomes[index].status, ZPP_RT_RANK_LOST);
      } else {
        EXPECT_NE(outcomes[index].status, ZPP_RT_OK);
        if (isSynchronous(GetParam()))
          expectMentions(outcomes[index], "all_to_all 'gradients' along");
      }
    }
  }
}

TEST_P(Fault, OutOfMemory) {
  TestWorld world(GetParam(), "gpu:1");
  zpp_rt_rank *rank = world.join(0);
  void *data = &data;
  EXPECT_EQ(zpp_rt_alloc(rank, INT64_C(1) << 60, &data), ZPP_RT_OUT_OF_MEMORY);
  EXPECT_EQ(data, nullptr);
  std::string message = zpp_rt_rank_message(rank);
  EXPECT_NE(message.find("1152921504606846976 bytes"), std::string::npos)
      << message;
  zpp_rt_rank_destroy(rank);
}

TEST_P(Fault, WorldMayGoFirst) {
  auto world = std::make_unique<TestWorld>(GetParam(), "gpu:1");
  zpp_rt_rank *rank = world->join(0);
  world.reset();
  EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
  zpp_rt_rank_destroy(rank);
}

INSTANTIATE_TEST_SUITE_P(, Fault, testing::ValuesIn(getBackends()),
                         [](const auto &info) { return info.param; });

} // namespace
