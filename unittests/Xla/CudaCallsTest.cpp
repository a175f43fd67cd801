//===- CudaCallsTest.cpp - zpp.start and zpp.wait on streams --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The handlers for platform CUDA on simulated GPUs, with a thread and a stream
// per device, as XLA calls them. The host functions are those of
// test/python/Inputs/collectives.c, for 2 nodes of 4.
//
//===----------------------------------------------------------------------===//

#include "FakeXla.h"
#include "zpp/Xla/zpp_xla.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cuda_runtime_api.h>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>
#include <thread>
#include <unistd.h>

using namespace zpp;

namespace {

/// Rank r is on device 7 - r.
class CudaWorld : public TestWorld {
public:
  CudaWorld() : TestWorld("cuda", {7, 6, 5, 4, 3, 2, 1, 0}, true) {}
};

/// The state of a program on one device.
struct Device {
  explicit Device(int rank) : rank(rank), ordinal(kRanks - 1 - rank) {
    EXPECT_EQ(cudaSetDevice(ordinal), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              cudaSuccess);
  }
  ~Device() {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (void *data : allocations)
      EXPECT_EQ(cudaFree(data), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }

  FakeBuffer allocate(int64_t elements) {
    void *data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, elements * sizeof(float)), cudaSuccess);
    allocations.push_back(data);
    return {data, elements};
  }
  void write(const FakeBuffer &buffer, const std::vector<float> &values) {
    EXPECT_EQ(cudaMemcpyAsync(buffer.data, values.data(),
                              values.size() * sizeof(float),
                              cudaMemcpyHostToDevice, stream),
              cudaSuccess);
  }
  std::vector<float> read(const FakeBuffer &buffer) {
    std::vector<float> values(buffer.elements);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), buffer.data,
                              values.size() * sizeof(float),
                              cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return values;
  }

  std::string start(const std::string &function, const FakeBuffer &x,
                    const FakeBuffer &y, bool isDeferrable = true) {
    return FakeCall{ordinal, stream, "test", function, 1,
                    1,       0,      {x},    {y},      isDeferrable}
        .run(zpp_xla_start_cuda);
  }
  std::string wait(const std::string &function, const FakeBuffer &x,
                   const FakeBuffer &y) {
    return FakeCall{ordinal, stream, "test", function, 1,
                    1,       0,      {x, y}, {y},      std::nullopt}
        .run(zpp_xla_wait_cuda);
  }

  const int rank;
  const int ordinal;
  cudaStream_t stream = nullptr;

private:
  std::vector<void *> allocations;
};

void runAll(const std::function<void(Device &)> &program) {
  runAllRanks([&](int rank) {
    Device device(rank);
    program(device);
  });
}

TEST(CudaCalls, RunOnTheirStreams) {
  CudaWorld world;
  runAll([](Device &device) {
    FakeBuffer x = device.allocate(16), y = device.allocate(128);
    for (int step = 0; step < 3; ++step) {
      auto value = [&](int i) { return static_cast<float>(i + 1000 * step); };
      std::vector<float> mine;
      for (int i = 0; i < 16; ++i)
        mine.push_back(value(device.rank * 16 + i));
      // Everything is queued; the simulator reports what is not in order.
      device.write(x, mine);
      EXPECT_EQ(device.start("gather_16", x, y), "");
      EXPECT_EQ(device.wait("gather_16", x, y), "");
      std::vector<float> all = device.read(y);
      for (int i = 0; i < 128; ++i)
        ASSERT_EQ(all[i], value(i)) << "rank " << device.rank;
    }
  });
}

TEST(CudaCalls, WhatIsNotInPlaceIsCopied) {
  CudaWorld world;
  testing::internal::CaptureStderr();
  runAll([](Device &device) {
    FakeBuffer x = device.allocate(16), y = device.allocate(128),
               whole = device.allocate(128), tie = device.allocate(20),
               passed = device.allocate(20), last = device.allocate(20);
    for (int step = 0; step < 3; ++step) {
      device.write(x, std::vector<float>(16, device.rank + step));
      device.write(tie, std::vector<float>(20, step));
      FakeCall start{
          device.ordinal, device.stream, "test", "gather_16", 1, 1, 0,
          {x, tie},       {y, passed},   true};
      EXPECT_EQ(start.run(zpp_xla_start_cuda), "");
      FakeCall wait{
          device.ordinal, device.stream, "test",      "gather_16", 1, 1, 0,
          {x, y, passed}, {whole, last}, std::nullopt};
      EXPECT_EQ(wait.run(zpp_xla_wait_cuda), "");
      EXPECT_EQ(device.read(whole)[127], 7 + step);
      EXPECT_EQ(device.read(last)[19], step);
    }
  });
  // One rank may say it of the wait before another one has said it of the
  // start.
  std::istringstream text(testing::internal::GetCapturedStderr());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(
      lines,
      (std::vector<std::string>{
          "zpp: zpp.start gather_16: copies 80 bytes in every step, because "
          "XLA has not left 1 of its results in the memory of their "
          "operands",
          "zpp: zpp.wait gather_16: copies 592 bytes in every step, because "
          "XLA has not left 2 of its results in the memory of their "
          "operands"}));
}

TEST(CudaCalls, SeveralAtATime) {
  CudaWorld world;
  runAll([](Device &device) {
    FakeBuffer x = device.allocate(16), y = device.allocate(128);
    FakeBuffer x2 = device.allocate(32), y2 = device.allocate(256);
    device.write(x, std::vector<float>(16, device.rank));
    device.write(x2, std::vector<float>(32, device.rank + 100));
    EXPECT_EQ(device.start("gather_16", x, y), "");
    EXPECT_EQ(device.start("gather_32", x2, y2), "");
    EXPECT_EQ(device.wait("gather_32", x2, y2), "");
    EXPECT_EQ(device.wait("gather_16", x, y), "");
    EXPECT_EQ(device.read(y)[127], 7);
    EXPECT_EQ(device.read(y2)[255], 107);
  });
}

/// A file that host functions wait for.
struct Gate {
  Gate()
      : path(testing::TempDir() + "zpp-xla-gate-" + std::to_string(getpid())) {
    std::remove(path.c_str());
    setenv("ZPP_TEST_ALL_STARTED", path.c_str(), 1);
  }
  ~Gate() {
    std::remove(path.c_str());
    unsetenv("ZPP_TEST_ALL_STARTED");
  }
  void open() { std::ofstream(path) << "all started"; }
  bool isOpen() { return access(path.c_str(), F_OK) == 0; }

  const std::string path;
};

TEST(CudaCalls, ADeferrableStartReturnsBeforeItsFunction) {
  CudaWorld world;
  Gate gate;
  std::atomic<int> started{0};
  runAll([&](Device &device) {
    FakeBuffer x = device.allocate(16), y = device.allocate(128);
    device.write(x, std::vector<float>(16, device.rank));
    EXPECT_EQ(device.start("gather_16_after_all", x, y), "");
    EXPECT_FALSE(gate.isOpen());
    if (++started == kRanks)
      gate.open();
    EXPECT_EQ(device.wait("gather_16_after_all", x, y), "");
    EXPECT_EQ(device.read(y)[127], 7);
  });
}

TEST(CudaCalls, AnotherStartReturnsAfterItsFunction) {
  CudaWorld world;
  Gate gate;
  std::atomic<int> entered{0};
  runAll([&](Device &device) {
    FakeBuffer x = device.allocate(16), y = device.allocate(128);
    FakeBuffer x2 = device.allocate(16), y2 = device.allocate(128);
    device.write(x, std::vector<float>(16, device.rank));
    device.write(x2, std::vector<float>(16, device.rank + 1));
    // Also after a start whose function has not run yet.
    EXPECT_EQ(device.start("gather_16_after_all", x, y), "");
    std::thread opener;
    if (++entered == kRanks)
      opener = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        gate.open();
      });
    EXPECT_EQ(device.start("gather_16", x2, y2, /*isDeferrable=*/false), "");
    EXPECT_TRUE(gate.isOpen());
    if (opener.joinable())
      opener.join();
    EXPECT_EQ(device.wait("gather_16", x2, y2), "");
    EXPECT_EQ(device.wait("gather_16_after_all", x, y), "");
    EXPECT_EQ(device.read(y)[127], 7);
    EXPECT_EQ(device.read(y2)[127], 8);
  });
}

TEST(CudaCalls, TracesHaveStreams) {
  CudaWorld world;
  runAll([](Device &device) {
    FakeBuffer x = device.allocate(16), y = device.allocate(128);
    device.write(x, std::vector<float>(16, 1));
    EXPECT_EQ(device.start("gather_16", x, y), "");
    EXPECT_EQ(device.wait("gather_16", x, y), "");
  });
  std::string path =
      testing::TempDir() + "zpp-xla-" + std::to_string(getpid()) + ".json";
  char message[256] = "";
  zpp_xla_world_synchronize(world.world, nullptr, 0);
  EXPECT_EQ(zpp_rt_world_write_trace(zpp_xla_world_get_runtime(world.world),
                                     path.c_str(), message, sizeof(message)),
            ZPP_RT_OK)
      << message;
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  EXPECT_NE(text.str().find("all_gather_chunks model.py:16"),
            std::string::npos);
  EXPECT_NE(text.str().find("rank 7 (node 1, gpu 3): "), std::string::npos);
  // How long the caller's stream stood still.
  EXPECT_NE(text.str().find("\"cat\": \"stall\""), std::string::npos);
}

TEST(CudaCalls, ACopiedOutputFailsAllRanks) {
  CudaWorld world;
  std::atomic<int> started{0};
  runAll([&](Device &device) {
    FakeBuffer x = device.allocate(16), y = device.allocate(128),
               copy = device.allocate(128);
    device.write(x, std::vector<float>(16, 1));
    EXPECT_EQ(device.start("gather_16", x, y), "");
    // The first failure would fail the starts of others.
    for (++started; started < kRanks;)
      std::this_thread::yield();
    std::string error = device.wait("gather_16", x, copy);
    EXPECT_EQ(error.find("zpp.wait gather_16: expected the output that "
                         "zpp.start was given, but got a copy of it"),
              0u)
        << error;
    // The rank has failed.
    error = device.start("gather_16", x, y);
    EXPECT_EQ(error.find("zpp.start gather_16: "), 0u) << error;
  });
  char message[512] = "";
  EXPECT_NE(zpp_xla_world_synchronize(world.world, message, sizeof(message)),
            ZPP_RT_OK);
  EXPECT_NE(message[0], 0);
}

TEST(CudaCalls, ErrorsOfWorlds) {
  zpp_xla_world *world = nullptr;
  char message[512] = "";
  zpp_xla_world_desc desc{};
  EXPECT_EQ(zpp_xla_world_create(&desc, &world, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(message), "expected a struct_size of at least " +
                                      std::to_string(sizeof(desc)) +
                                      ", but got 0");
  EXPECT_EQ(zpp_xla_world_create(nullptr, &world, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected a descriptor, but got NULL");
  EXPECT_EQ(zpp_xla_take_host_times(nullptr), ZPP_RT_INVALID_ARGUMENT);
  desc.struct_size = sizeof(desc);
  desc.backend = "cuda";
  desc.mesh = "gpu:2";
  desc.num_ranks = 2;
  EXPECT_EQ(zpp_xla_world_create(&desc, &world, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected ranks and device ordinals, but got NULL");
  int64_t ranks[] = {0, 2}, ordinals[] = {0, 1};
  desc.ranks = ranks;
  desc.device_ordinals = ordinals;
  desc.time_limit_usec = 200'000;
  EXPECT_NE(zpp_xla_world_create(&desc, &world, message, sizeof(message)),
            ZPP_RT_OK);
  EXPECT_NE(std::string(message).find("rank "), std::string::npos) << message;
  EXPECT_EQ(world, nullptr);
  ranks[1] = 1;
  ordinals[1] = 0;
  EXPECT_EQ(zpp_xla_world_create(&desc, &world, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected a device for each rank, but got device 0 "
                        "twice");
}

/// Two processes, of which the second is told where the first listens. Here
/// they are threads.
TEST(CudaCalls, SaysWhereItListens) {
  std::promise<std::string> endpoint;
  auto join = [&](int64_t rank, const std::string &rendezvous) {
    zpp_xla_world_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.backend = "cuda";
    desc.mesh = "gpu:2";
    desc.rendezvous = rendezvous.c_str();
    desc.token = "a token for this test";
    desc.ranks = desc.device_ordinals = &rank;
    desc.num_ranks = 1;
    desc.on_listening = [](void *context, const char *endpoint) {
      static_cast<std::promise<std::string> *>(context)->set_value(endpoint);
    };
    desc.on_listening_context = &endpoint;
    zpp_xla_world *world = nullptr;
    char message[512] = "";
    EXPECT_EQ(zpp_xla_world_create(&desc, &world, message, sizeof(message)),
              ZPP_RT_OK)
        << message;
    return world;
  };
  zpp_xla_world *first = nullptr;
  std::thread thread([&] { first = join(0, "127.0.0.1:0"); });
  zpp_xla_world *second = join(1, endpoint.get_future().get());
  thread.join();
  // Rank 0 waits until the others have left.
  zpp_xla_world_destroy(second);
  zpp_xla_world_destroy(first);
}

/// Returns the processor time of the calling thread in microseconds.
double getThreadUsec() {
  timespec time{};
  EXPECT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return static_cast<double>(time.tv_sec) * 1e6 +
         static_cast<double>(time.tv_nsec) * 1e-3;
}

/// The budget of a start or wait is 20 microseconds, including the runtime's
/// operations. The handlers add one; the medians are printed here. The limit is
/// for sanitizers, and on processor time, because on a busy machine threads
/// wait for each other.
TEST(CudaCalls, CostLittleOnTheHost) {
  constexpr int kCalls = 1000;
  CudaWorld world;
  zpp_xla_host_times times;
  zpp_xla_take_host_times(&times);
  double usec = 0;
  runAll([&](Device &device) {
    if (device.rank != 0)
      return;
    FakeBuffer x = device.allocate(16), y = device.allocate(128);
    double begin = getThreadUsec();
    for (int i = 0; i < kCalls; ++i) {
      EXPECT_EQ(device.start("do_nothing", x, y), "");
      EXPECT_EQ(device.wait("do_nothing", x, y), "");
    }
    usec = getThreadUsec() - begin;
  });
  zpp_xla_take_host_times(&times);
  EXPECT_EQ(times.num_starts, kCalls);
  EXPECT_EQ(times.num_waits, kCalls);
  EXPECT_EQ(times.num_queued, kCalls);
  EXPECT_GT(times.start_usec, 0);
  EXPECT_GT(times.wait_usec, 0);
  std::printf("median of a start: %.2f usec, of a wait: %.2f usec; processor "
              "time of both: %.2f usec\n",
              times.start_usec, times.wait_usec, usec / kCalls);
  EXPECT_LT(usec / kCalls, 400);
  zpp_xla_take_host_times(&times);
  EXPECT_EQ(times.num_starts, 0);
  EXPECT_EQ(times.start_usec, 0);
}

} // namespace
