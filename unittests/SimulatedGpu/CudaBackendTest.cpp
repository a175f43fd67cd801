//===- CudaBackendTest.cpp - What is special about back end cuda ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Streams, graphs, failures of CUDA and NCCL, on simulated GPUs.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"
#include "Simulator.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <regex>
#include <set>

using namespace zpp;

namespace {

constexpr zpp_rt_axis kNode = {"node", 1, 2};
constexpr zpp_rt_axis kGpu = {"gpu", 1, 2};
constexpr zpp_rt_axis kBoth[] = {kNode, kGpu};
constexpr int64_t kChunkBytes = 1024;
/// The time limit of worlds that are expected to fail.
constexpr int64_t kLimitUsec = 400'000;
/// ncclSystemError
constexpr int kNcclSystemError = 2;

zpp_rt_exchange_desc makeExchange(const zpp_rt_axis *axes, int64_t numAxes) {
  auto desc = makeDesc<zpp_rt_exchange_desc>();
  desc.name = "test";
  desc.axes = axes;
  desc.num_axes = numAxes;
  desc.chunk_bytes = kChunkBytes;
  return desc;
}

zpp_rt_reduce_desc makeSum() {
  auto desc = makeDesc<zpp_rt_reduce_desc>();
  desc.sources = 4;
  desc.elements = kChunkBytes / 4;
  return desc;
}

/// A stream of the caller on the device of a rank.
class CallersStream {
public:
  explicit CallersStream(int64_t device) {
    EXPECT_EQ(cudaSetDevice(static_cast<int>(device)), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              cudaSuccess);
  }
  ~CallersStream() {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  operator cudaStream_t() const { return stream; }

private:
  cudaStream_t stream;
};

int64_t usecSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now() - start)
      .count();
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

TEST(CudaStreams, NothingWaitsOnTheHost) {
  TestWorld world("cuda", "node:2,gpu:2", 20'000'000);
  std::promise<void> isReleased;
  std::shared_future<void> released = isReleased.get_future().share();
  std::atomic<int> queued{0};
  std::thread release([&] {
    while (queued < 4)
      std::this_thread::yield();
    isReleased.set_value();
  });
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    CallersStream stream(index);
    DeviceBuffer first(rank, 4 * kChunkBytes), second(rank, 4 * kChunkBytes),
        third(rank, kChunkBytes);
    zpp_rt_exchange_desc exchange = makeExchange(kBoth, 2);
    zpp_rt_exchange_desc inner = makeExchange(&kGpu, 1);
    zpp_rt_reduce_desc sum = makeSum();
    auto runOnce = [&] {
      EXPECT_EQ(zpp_rt_enter(rank, stream), ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_all_to_all(rank, &exchange, first.data(), second.data()),
                ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_reduce(rank, &sum, second.data(), third.data()),
                ZPP_RT_OK);
      EXPECT_EQ(
          zpp_rt_all_gather_chunks(rank, &inner, third.data(), first.data()),
          ZPP_RT_OK);
      zpp_rt_buffer buffer = {first.data(), 4 * kChunkBytes};
      EXPECT_EQ(zpp_rt_leave(rank, stream, &buffer, 1), ZPP_RT_OK);
    };
    // Groups are connected by now.
    runOnce();
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    // Nothing on the device ends before everybody has queued everything.
    EXPECT_EQ(
        simulated::submit(stream, {"a wait", {}, [=] { released.wait(); }}),
        cudaSuccess);
    for (int i = 0; i < 400; ++i)
      runOnce();
    ++queued;
  });
  release.join();
}

/// Operations that wait for another rank do not delay independent ones.
TEST(CudaStreams, IndependentOperationsOverlap) {
  TestWorld world("cuda", "node:2,gpu:2", 20'000'000);
  std::promise<void> isOver;
  std::shared_future<void> over = isOver.get_future().share();
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    DeviceBuffer input(rank, 4 * kChunkBytes), output(rank, 4 * kChunkBytes),
        late(rank, kChunkBytes), other(rank, kChunkBytes),
        gathered(rank, 4 * kChunkBytes), last(rank, kChunkBytes);
    zpp_rt_exchange_desc node = makeExchange(&kNode, 1);
    zpp_rt_exchange_desc gpu = makeExchange(&kGpu, 1);
    zpp_rt_reduce_desc sum = makeSum();
    // The first exchange of a group connects it.
    EXPECT_EQ(zpp_rt_all_to_all(rank, &node, input.data(), output.data()),
              ZPP_RT_OK);
    EXPECT_EQ(
        zpp_rt_all_gather_chunks(rank, &gpu, other.data(), gathered.data()),
        ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    if (index >= 2)
      over.wait();
    // Between nodes: ranks 0 and 1 wait for ranks 2 and 3, and so do kernels
    // that need their data.
    EXPECT_EQ(zpp_rt_all_to_all(rank, &node, input.data(), output.data()),
              ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_reduce(rank, &sum, output.data(), late.data()), ZPP_RT_OK);
    // Kernels, exchanges within the node, and kernels that need their data.
    EXPECT_EQ(zpp_rt_reduce(rank, &sum, input.data(), other.data()), ZPP_RT_OK);
    EXPECT_EQ(
        zpp_rt_all_gather_chunks(rank, &gpu, other.data(), gathered.data()),
        ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_reduce(rank, &sum, gathered.data(), last.data()),
              ZPP_RT_OK);
    CallersStream stream(index);
    zpp_rt_buffer buffer = {last.data(), kChunkBytes};
    EXPECT_EQ(zpp_rt_leave(rank, stream, &buffer, 1), ZPP_RT_OK);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    if (index == 0)
      isOver.set_value();
  });
}

/// Independent kernels of one kind are a single launch, also for work that
/// waits for one of them.
TEST(CudaStreams, NeighborsAreLaunchedTogether) {
  TestWorld world("cuda", "gpu:1", 20'000'000);
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    DeviceBuffer input(rank, 4 * kChunkBytes), first(rank, kChunkBytes),
        second(rank, kChunkBytes), sum(rank, kChunkBytes);
    zpp_rt_reduce_desc desc = makeSum();
    desc.sources = 1;
    auto reduce = [&](const DeviceBuffer &from, const DeviceBuffer &to) {
      EXPECT_EQ(zpp_rt_reduce(rank, &desc, from.data(), to.data()), ZPP_RT_OK);
    };
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    int64_t before = simulated::getCallCount("cudaLaunchKernel");
    auto countLaunches = [&] {
      int64_t now = simulated::getCallCount("cudaLaunchKernel");
      return now - std::exchange(before, now);
    };
    // Both read the same memory, which is no dependence.
    reduce(input, first);
    reduce(input, second);
    CallersStream stream(index);
    zpp_rt_buffer buffer = {first.data(), kChunkBytes};
    EXPECT_EQ(zpp_rt_leave(rank, stream, &buffer, 1), ZPP_RT_OK);
    EXPECT_EQ(countLaunches(), 1);
    // One reads what the other has written, or writes it again.
    reduce(input, first);
    reduce(first, second);
    reduce(input, second);
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    EXPECT_EQ(countLaunches(), 3);
    // Another kind in between.
    reduce(input, first);
    EXPECT_EQ(zpp_rt_copy(rank, second.data(), input.data(), kChunkBytes),
              ZPP_RT_OK);
    reduce(input, sum);
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    EXPECT_EQ(countLaunches(), 3);
    // Copies are kernels too.
    for (const DeviceBuffer *to : {&first, &second})
      EXPECT_EQ(zpp_rt_copy(rank, to->data(), input.data(), kChunkBytes),
                ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    EXPECT_EQ(countLaunches(), 1);
  });
}

/// One thread puts work on a stream, and another one calls the operations much
/// later, so that there are many marks.
TEST(CudaStreams, MarksJoinThreads) {
  TestWorld world("cuda", "node:2,gpu:2", 20'000'000);
  std::vector<zpp_rt_mark *> left(4);
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    constexpr int kRounds = 400;
    CallersStream stream(index);
    DeviceBuffer input(rank, Bytes(4 * kChunkBytes, 0)),
        output(rank, 4 * kChunkBytes);
    struct Round {
      std::promise<zpp_rt_mark *> inputs, outputs;
    };
    std::vector<Round> rounds(kRounds);
    std::thread caller([&] {
      EXPECT_EQ(cudaSetDevice(static_cast<int>(index)), cudaSuccess);
      for (int i = 0; i < kRounds; ++i) {
        uint8_t *data = static_cast<uint8_t *>(input.data());
        EXPECT_EQ(cudaMemsetAsync(data, i % 251, 4 * kChunkBytes, stream),
                  cudaSuccess);
        zpp_rt_mark *inputs;
        EXPECT_EQ(zpp_rt_mark_stream(rank, stream, &inputs), ZPP_RT_OK);
        rounds[i].inputs.set_value(inputs);
        // The next round writes over both.
        zpp_rt_mark *outputs = rounds[i].outputs.get_future().get();
        EXPECT_EQ(zpp_rt_leave_mark(rank, stream, outputs), ZPP_RT_OK);
        zpp_rt_mark_destroy(outputs);
        EXPECT_EQ(cudaMemsetAsync(output.data(), 0xff, kChunkBytes, stream),
                  cudaSuccess);
      }
      EXPECT_EQ(zpp_rt_mark_stream(rank, stream, &left[index]), ZPP_RT_OK);
    });
    zpp_rt_exchange_desc exchange = makeExchange(kBoth, 2);
    for (Round &round : rounds) {
      zpp_rt_mark *inputs = round.inputs.get_future().get(), *outputs;
      EXPECT_EQ(zpp_rt_enter_mark(rank, inputs), ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_all_to_all(rank, &exchange, input.data(), output.data()),
                ZPP_RT_OK);
      zpp_rt_buffer buffers[] = {{input.data(), 4 * kChunkBytes},
                                 {output.data(), 4 * kChunkBytes}};
      EXPECT_EQ(zpp_rt_mark_operations(rank, buffers, 2, &outputs), ZPP_RT_OK);
      zpp_rt_mark_destroy(inputs);
      round.outputs.set_value(outputs);
    }
    caller.join();
    EXPECT_EQ(zpp_rt_enter_mark(rank, left[index]), ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    Bytes expected(4 * kChunkBytes, (kRounds - 1) % 251);
    std::fill_n(expected.begin(), kChunkBytes, 0xff);
    EXPECT_EQ(output.read(), expected);
  });
  // They may outlive the ranks.
  for (zpp_rt_mark *mark : left)
    zpp_rt_mark_destroy(mark);
}

TEST(CudaStreams, FreedMemoryIsNotInUse) {
  TestWorld world("cuda", "gpu:1");
  simulated::setDelay(300, 1);
  world.runAll([&](zpp_rt_rank *rank, int64_t) {
    zpp_rt_reduce_desc sum = makeSum();
    DeviceBuffer output(rank, kChunkBytes);
    for (int i = 0; i < 10; ++i) {
      void *data;
      EXPECT_EQ(zpp_rt_alloc(rank, 4 * kChunkBytes, &data), ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_reduce(rank, &sum, data, output.data()), ZPP_RT_OK);
      zpp_rt_free(rank, data);
      // The workspace grows, and the old one is freed.
      EXPECT_EQ(zpp_rt_workspace(rank, (4 + i) * kChunkBytes, &data),
                ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_reduce(rank, &sum, data, output.data()), ZPP_RT_OK);
    }
  });
  EXPECT_EQ(simulated::getAllocatedBytes(0), 0);
}

/// Slices of `kind` on the row `stream` of rank 0.
int64_t countSlices(const std::string &trace, const std::string &kind,
                    const std::string &stream) {
  size_t row = trace.find("rank 0 (node 0, gpu 0): " + stream + "\"");
  if (row == std::string::npos)
    return 0;
  size_t begin = trace.rfind("\"tid\": ", row);
  std::string tid = trace.substr(begin, trace.find(',', begin) - begin);
  std::string slice = "\"cat\": \"" + kind + "\", \"pid\": 0, " + tid + ",";
  int64_t count = 0;
  for (size_t at = 0; (at = trace.find(slice, at)) != std::string::npos; ++at)
    ++count;
  return count;
}

std::string readTrace(const TestWorld &world) {
  std::string path = testing::TempDir() + "zpp-cuda-trace-" +
                     std::to_string(getpid()) + ".json";
  char message[256] = "";
  EXPECT_EQ(zpp_rt_world_write_trace(world.get(), path.c_str(), message,
                                     sizeof(message)),
            ZPP_RT_OK)
      << message;
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  return text.str();
}

TEST(CudaStreams, Trace) {
  TestWorld world("cuda", "node:2,gpu:2", 0, /*isTraced=*/true);
  world.runAll([&](zpp_rt_rank *rank, int64_t) {
    DeviceBuffer input(rank, 4 * kChunkBytes), output(rank, 4 * kChunkBytes),
        other(rank, 4 * kChunkBytes), sum(rank, kChunkBytes);
    zpp_rt_exchange_desc desc = makeExchange(kBoth, 2);
    zpp_rt_reduce_desc reduce = makeSum();
    EXPECT_EQ(zpp_rt_reduce(rank, &reduce, input.data(), sum.data()),
              ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_all_to_all(rank, &desc, input.data(), output.data()),
              ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_reduce(rank, &reduce, output.data(), sum.data()),
              ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_all_to_all(rank, &desc, input.data(), other.data()),
              ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_reduce(rank, &reduce, output.data(), sum.data()),
              ZPP_RT_OK);
  });
  std::string text = readTrace(world);
  EXPECT_EQ(countSlices(text, "all_to_all", "node"), 2) << text;
  // A reduction after no exchange, one right after the first, and one after the
  // second.
  EXPECT_EQ(countSlices(text, "reduce", "kernels"), 1) << text;
  EXPECT_EQ(countSlices(text, "reduce", "node"), 1) << text;
  EXPECT_EQ(countSlices(text, "reduce", "kernels after node"), 1) << text;
}

/// Returns the start and duration of all slices in microseconds, in the order
/// in which they were written.
std::vector<std::pair<double, double>> getTimes(const std::string &text) {
  std::vector<std::pair<double, double>> times;
  std::regex slice("\"ts\": ([-0-9.]+), \"dur\": ([-0-9.]+)");
  for (std::sregex_iterator it(text.begin(), text.end(), slice), end; it != end;
       ++it)
    times.emplace_back(std::stod((*it)[1]), std::stod((*it)[2]));
  return times;
}

/// CUDA tells the time between two events in float milliseconds. After ten
/// hours the next larger number is four milliseconds away.
TEST(CudaStreams, TraceOfAnOldWorld) {
  TestWorld world("cuda", "gpu:1", 0, /*isTraced=*/true);
  constexpr int kCopies = 20;
  world.runAll([&](zpp_rt_rank *rank, int64_t) {
    DeviceBuffer input(rank, kChunkBytes), output(rank, kChunkBytes);
    simulated::advanceClock(std::chrono::hours(10));
    ASSERT_EQ(zpp_rt_world_record(world.get(), 1, nullptr, 0), ZPP_RT_OK);
    for (int i = 0; i < kCopies; ++i) {
      // Each a launch of its own.
      EXPECT_EQ(zpp_rt_copy(rank, output.data(), input.data(), kChunkBytes),
                ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    }
    zpp_rt_world_record(world.get(), 0, nullptr, 0);
  });
  auto times = getTimes(readTrace(world));
  ASSERT_EQ(times.size(), size_t(kCopies));
  double last = 0;
  for (auto [begin, duration] : times) {
    EXPECT_GT(duration, 0);
    EXPECT_GE(begin, last - 1);
    last = begin + duration;
  }
  // Since recording began.
  EXPECT_LT(last, 10e6);
}

/// A kernel after a local exchange overwrites what another exchange reads,
/// which still waits for its peer. Later local exchanges do not wait for that
/// kernel.
TEST(CudaStreams, LocalExchangesGoOn) {
  TestWorld world("cuda", "node:2,gpu:2");
  std::promise<void> isOver;
  std::shared_future<void> over = isOver.get_future().share();
  std::atomic<int> numDone{0};
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    CallersStream stream(index);
    DeviceBuffer input(rank, 4 * kChunkBytes), output(rank, 4 * kChunkBytes),
        sent(rank, 2 * kChunkBytes), first(rank, 2 * kChunkBytes),
        second(rank, 2 * kChunkBytes);
    zpp_rt_exchange_desc node = makeExchange(&kBoth[0], 1);
    zpp_rt_exchange_desc gpu = makeExchange(&kBoth[1], 1);
    zpp_rt_reduce_desc sum = makeSum();
    sum.sources = 2;
    auto exchange = [&](const zpp_rt_exchange_desc &desc,
                        const DeviceBuffer &from, const DeviceBuffer &to) {
      EXPECT_EQ(zpp_rt_all_to_all(rank, &desc, from.data(), to.data()),
                ZPP_RT_OK)
          << zpp_rt_rank_message(rank);
    };
    exchange(node, input, output);
    exchange(gpu, sent, first);
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    if (index >= 2)
      over.wait();
    exchange(node, input, output);
    exchange(gpu, sent, first);
    EXPECT_EQ(zpp_rt_reduce(rank, &sum, first.data(), input.data()), ZPP_RT_OK);
    exchange(gpu, sent, second);
    if (index >= 2)
      return;
    zpp_rt_buffer buffer = {second.data(), 2 * kChunkBytes};
    EXPECT_EQ(zpp_rt_leave(rank, stream, &buffer, 1), ZPP_RT_OK);
    auto begin = std::chrono::steady_clock::now();
    while (cudaStreamQuery(stream) != cudaSuccess &&
           usecSince(begin) < 20'000'000)
      std::this_thread::yield();
    EXPECT_LT(usecSince(begin), 20'000'000);
    if (++numDone == 2)
      isOver.set_value();
  });
}

/// The host is always ahead by more operations than there are events, for
/// longer than the time limit of an exchange.
TEST(CudaStreams, FarAhead) {
  constexpr int kLead = 300, kExchanges = 4500;
  TestWorld world("cuda", "gpu:2", kLimitUsec);
  simulated::setDelay(1000, 1);
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    CallersStream stream(index);
    DeviceBuffer input(rank, 2 * kChunkBytes), output(rank, 2 * kChunkBytes);
    zpp_rt_exchange_desc exchange = makeExchange(&kGpu, 1);
    std::atomic<int> numDone{0};
    for (int i = 0; i < kExchanges; ++i) {
      ASSERT_EQ(zpp_rt_all_to_all(rank, &exchange, input.data(), output.data()),
                ZPP_RT_OK)
          << zpp_rt_rank_message(rank);
      zpp_rt_buffer buffer = {output.data(), 2 * kChunkBytes};
      EXPECT_EQ(zpp_rt_leave(rank, stream, &buffer, 1), ZPP_RT_OK);
      EXPECT_EQ(simulated::submit(stream, {"count", {}, [&] { ++numDone; }}),
                cudaSuccess);
      while (i - numDone > kLead)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK)
        << zpp_rt_rank_message(rank);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  });
  simulated::resetFaults();
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

/// Captures what `function` calls in a graph, which is not launched.
template <typename Function>
void capture(zpp_rt_rank *rank, cudaStream_t stream, const Function &function) {
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  EXPECT_EQ(zpp_rt_enter(rank, stream), ZPP_RT_OK);
  function();
  EXPECT_EQ(zpp_rt_leave(rank, stream, nullptr, 0), ZPP_RT_OK);
  cudaGraph_t graph;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

/// Events of a graph cannot be queried.
TEST(CudaGraphs, ManyOperationsAfter) {
  TestWorld world("cuda", "gpu:2");
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    constexpr int64_t kCopies = 3000;
    CallersStream stream(index);
    DeviceBuffer from(rank, kCopies * 32), to(rank, kCopies * 32);
    zpp_rt_exchange_desc exchange = makeExchange(&kGpu, 1);
    auto runOnce = [&] {
      EXPECT_EQ(zpp_rt_all_to_all(rank, &exchange, from.data(), to.data()),
                ZPP_RT_OK);
    };
    runOnce();
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    capture(rank, stream, runOnce);
    EXPECT_EQ(zpp_rt_enter(rank, stream), ZPP_RT_OK);
    // More segments of memory than are remembered, none of them accessed by
    // kernels.
    for (int64_t i = 0; i < kCopies; ++i)
      ASSERT_EQ(zpp_rt_copy(rank, static_cast<uint8_t *>(to.data()) + 32 * i,
                            static_cast<uint8_t *>(from.data()) + 32 * i, 8),
                ZPP_RT_OK)
          << zpp_rt_rank_message(rank);
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
  });
}

TEST(CudaGraphs, LeaveAfter) {
  TestWorld world("cuda", "gpu:1");
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    CallersStream stream(index);
    DeviceBuffer input(rank, 4 * kChunkBytes), output(rank, kChunkBytes);
    zpp_rt_reduce_desc sum = makeSum();
    capture(rank, stream, [&] {
      EXPECT_EQ(zpp_rt_reduce(rank, &sum, input.data(), output.data()),
                ZPP_RT_OK);
    });
    zpp_rt_buffer buffer = {output.data(), kChunkBytes};
    EXPECT_EQ(zpp_rt_leave(rank, stream, &buffer, 1), ZPP_RT_OK)
        << zpp_rt_rank_message(rank);
  });
}

/// Calls `function(rank, index, runOnce)` on both ranks while an exchange is
/// under way; runOnce() is another one.
template <typename Function> void runDuringExchange(const Function &function) {
  TestWorld world("cuda", "gpu:2");
  std::promise<void> isOver;
  std::shared_future<void> over = isOver.get_future().share();
  std::atomic<int> numQueued{0}, numDone{0};
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    CallersStream slow(index);
    DeviceBuffer input(rank, 2 * kChunkBytes), output(rank, 2 * kChunkBytes);
    zpp_rt_exchange_desc exchange = makeExchange(&kGpu, 1);
    auto runOnce = [&] {
      EXPECT_EQ(zpp_rt_all_to_all(rank, &exchange, input.data(), output.data()),
                ZPP_RT_OK)
          << zpp_rt_rank_message(rank);
    };
    // Groups are connected by now.
    runOnce();
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    EXPECT_EQ(simulated::submit(slow, {"slow work", {}, [=] { over.wait(); }}),
              cudaSuccess);
    EXPECT_EQ(zpp_rt_enter(rank, slow), ZPP_RT_OK);
    runOnce();
    ++numQueued;
    while (numQueued < 2)
      std::this_thread::yield();
    function(rank, index, runOnce);
    if (++numDone == 2)
      isOver.set_value();
    over.wait();
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK)
        << zpp_rt_rank_message(rank);
  });
}

/// Enough operations are captured that events are reused.
TEST(CudaGraphs, ExchangeUnderWay) {
  runDuringExchange([](zpp_rt_rank *rank, int64_t index, const auto &runOnce) {
    CallersStream stream(index);
    capture(rank, stream, [&] {
      for (int i = 0; i < 256; ++i)
        runOnce();
    });
    // The watching thread looks.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
}

/// A graph ends with all streams joined, including those whose results nobody
/// uses.
TEST(CudaGraphs, AllStreamsAreJoined) {
  TestWorld world("cuda", "node:2,gpu:2");
  world.runAll([&](zpp_rt_rank *rank, int64_t index) {
    DeviceBuffer input(rank, 4 * kChunkBytes), output(rank, 4 * kChunkBytes),
        sum(rank, kChunkBytes);
    zpp_rt_exchange_desc exchange = makeExchange(kBoth, 2);
    zpp_rt_reduce_desc reduce = makeSum();
    auto runOnce = [&] {
      EXPECT_EQ(zpp_rt_all_to_all(rank, &exchange, input.data(), output.data()),
                ZPP_RT_OK);
      EXPECT_EQ(zpp_rt_reduce(rank, &reduce, input.data(), sum.data()),
                ZPP_RT_OK);
    };
    runOnce();
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    CallersStream stream(index);
    capture(rank, stream, runOnce);
  });
}

/// Meanwhile the threads that watch exchanges query events, which other threads
/// must not do.
TEST(CudaGraphs, WatchingGoesOn) {
  runDuringExchange([](zpp_rt_rank *, int64_t index, const auto &) {
    if (index != 0)
      return;
    CallersStream captured(index);
    EXPECT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal),
              cudaSuccess);
    int64_t queries = simulated::getCallCount("cudaEventQuery");
    auto start = std::chrono::steady_clock::now();
    while (simulated::getCallCount("cudaEventQuery") < queries + 4 &&
           usecSince(start) < 10'000'000)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GE(simulated::getCallCount("cudaEventQuery"), queries + 4);
    cudaGraph_t graph;
    EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

TEST(CudaGraphs, SynchronizeIsRefused) {
  TestWorld world("cuda", "gpu:1");
  std::vector<TestWorld::Outcome> outcomes =
      world.run([&](zpp_rt_rank *rank, int64_t index) {
        CallersStream stream(index);
        EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
                  cudaSuccess);
        EXPECT_EQ(zpp_rt_enter(rank, stream), ZPP_RT_OK);
        EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_UNSUPPORTED);
        cudaGraph_t graph;
        EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      });
  EXPECT_EQ(outcomes[0].status, ZPP_RT_UNSUPPORTED);
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

/// Runs some exchanges on all ranks, any of which may fail at any point,
/// including creation. Returns the outcomes, and checks the results of ranks
/// that did not fail.
std::vector<TestWorld::Outcome> runUntilFailure(int64_t exchanges,
                                                int64_t limitUsec) {
  TestWorld world("cuda", "node:2,gpu:2", limitUsec);
  std::vector<TestWorld::Outcome> outcomes(4);
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < 4; ++index)
    threads.emplace_back([&, index] {
      zpp_rt_rank *rank;
      char message[512] = "";
      zpp_rt_status status =
          createRank(world.get(), index, &rank, message, sizeof(message));
      if (status != ZPP_RT_OK) {
        EXPECT_EQ(rank, nullptr);
        outcomes[index] = {status, message};
        return;
      }
      Bytes values(4 * kChunkBytes, static_cast<uint8_t>(index));
      Bytes result(4 * kChunkBytes);
      void *input = nullptr, *output = nullptr;
      zpp_rt_alloc(rank, 4 * kChunkBytes, &input);
      zpp_rt_alloc(rank, 4 * kChunkBytes, &output);
      zpp_rt_copy(rank, input, values.data(), values.size());
      zpp_rt_exchange_desc desc = makeExchange(kBoth, 2);
      zpp_rt_exchange_desc inner = makeExchange(&kGpu, 1);
      zpp_rt_reduce_desc sum = makeSum();
      for (int64_t i = 0; i < exchanges; ++i) {
        zpp_rt_all_gather_chunks(rank, &inner, input, output);
        zpp_rt_reduce(rank, &sum, input, output);
        zpp_rt_all_to_all(rank, &desc, input, output);
      }
      zpp_rt_copy(rank, result.data(), output, result.size());
      status = zpp_rt_rank_synchronize(rank);
      outcomes[index] = {status, zpp_rt_rank_message(rank)};
      if (status == ZPP_RT_OK)
        for (int64_t i = 0; i < 4 * kChunkBytes; ++i)
          if (result[i] != i / kChunkBytes) {
            ADD_FAILURE() << "rank " << index << " has wrong results";
            break;
          }
      zpp_rt_free(rank, input);
      zpp_rt_rank_destroy(rank);
    });
  for (std::thread &thread : threads)
    thread.join();
  return outcomes;
}

/// Expects the failure on the rank itself and on all others.
void expectFailure(const std::vector<TestWorld::Outcome> &outcomes,
                   size_t failed, const std::string &text) {
  for (size_t index = 0; index < outcomes.size(); ++index) {
    const TestWorld::Outcome &outcome = outcomes[index];
    EXPECT_NE(outcome.status, ZPP_RT_OK);
    EXPECT_NE(outcome.message.find(text), std::string::npos)
        << "expected " << text << " on rank " << index
        << " in: " << outcome.message;
    if (index != failed) {
      EXPECT_NE(
          outcome.message.find("rank " + std::to_string(failed) + " failed"),
          std::string::npos)
          << outcome.message;
    }
  }
}

/// No matter which call fails and when: all ranks end, and no memory is left.
TEST(CudaFaults, EveryCallMayFail) {
  struct Function {
    const char *name;
    int error;
  };
  const Function functions[] = {
      {"cudaGetDeviceCount", cudaErrorNoDevice},
      {"cudaSetDevice", cudaErrorInvalidDevice},
      {"cudaDeviceGetStreamPriorityRange", cudaErrorLaunchFailure},
      {"cudaStreamCreateWithPriority", cudaErrorLaunchFailure},
      {"cudaStreamCreateWithFlags", cudaErrorLaunchFailure},
      {"cudaEventCreateWithFlags", cudaErrorLaunchFailure},
      {"cudaEventRecord", cudaErrorLaunchFailure},
      {"cudaStreamWaitEvent", cudaErrorLaunchFailure},
      {"cudaEventQuery", cudaErrorLaunchFailure},
      {"cudaStreamQuery", cudaErrorLaunchFailure},
      {"cudaStreamSynchronize", cudaErrorLaunchFailure},
      {"cudaMalloc", cudaErrorMemoryAllocation},
      {"cudaMemcpyAsync", cudaErrorLaunchFailure},
      {"cudaPointerGetAttributes", cudaErrorLaunchFailure},
      {"cudaLaunchKernel", cudaErrorLaunchFailure},
      {"zpp::kernels::load", cudaErrorLaunchFailure},
      {"ncclGetUniqueId", kNcclSystemError},
      {"ncclCommInitRankConfig", kNcclSystemError},
      {"ncclCommSplit", kNcclSystemError},
      {"ncclGroupStart", kNcclSystemError},
      {"ncclGroupEnd", kNcclSystemError},
      {"ncclSend", kNcclSystemError},
      {"ncclRecv", kNcclSystemError},
      {"ncclAllGather", kNcclSystemError},
      {"ncclCommGetAsyncError", kNcclSystemError},
  };
  for (const Function &function : functions) {
    int64_t before = simulated::getCallCount(function.name);
    for (const TestWorld::Outcome &outcome : runUntilFailure(3, 0))
      EXPECT_EQ(outcome.status, ZPP_RT_OK) << outcome.message;
    int64_t calls = simulated::getCallCount(function.name) - before;
    // The first call on a rank, one in the middle, and about the last one.
    std::set<int64_t> numbers = {1, calls / 8, calls / 4};
    for (int64_t n : numbers) {
      if (n < 1)
        continue;
      SCOPED_TRACE(std::string(function.name) + ", call " + std::to_string(n) +
                   " of about " + std::to_string(calls / 4));
      simulated::failCall(function.name, n, function.error, /*device=*/1);
      auto start = std::chrono::steady_clock::now();
      runUntilFailure(3, kLimitUsec);
      EXPECT_LT(usecSince(start), 10'000'000);
      // A thread that nobody waited for any more frees its memory when it
      // returns from NCCL.
      for (int device = 0; device < 4; ++device) {
        while (simulated::getAllocatedBytes(device) != 0 &&
               usecSince(start) < 10'000'000)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(simulated::getAllocatedBytes(device), 0) << device;
      }
      simulated::resetFaults();
    }
  }
}

/// The order of the collectives is a valid one: first those along a and b where
/// c is 0, then all along b and c, then the rest. But communicators are split
/// off the world, so that the ranks have to agree on which groups come first.
TEST(CudaFaults, GroupsAreFirstUsedInDifferentOrder) {
  constexpr zpp_rt_axis kAB[] = {{"a", 1, 2}, {"b", 1, 2}};
  constexpr zpp_rt_axis kBC[] = {{"b", 1, 2}, {"c", 1, 2}};
  TestWorld world("cuda", "a:2,b:2,c:2", 20'000'000);
  auto start = std::chrono::steady_clock::now();
  auto outcomes = world.run([&](zpp_rt_rank *rank, int64_t index) {
    DeviceBuffer input(rank, 4 * kChunkBytes), output(rank, 4 * kChunkBytes);
    for (bool isAB : {index % 2 == 0, index % 2 != 0}) {
      zpp_rt_exchange_desc desc = makeExchange(isAB ? kAB : kBC, 2);
      zpp_rt_all_to_all(rank, &desc, input.data(), output.data());
    }
  });
  EXPECT_LT(usecSince(start), 10'000'000);
  for (const TestWorld::Outcome &outcome : outcomes) {
    EXPECT_EQ(outcome.status, ZPP_RT_MISMATCH) << outcome.message;
    EXPECT_NE(
        outcome.message.find(
            "expected first use of the groups along a, b for sends on all "
            "ranks, as "
            "on rank 0 in all_to_all 'test' along a, b, but got first use "
            "of the groups along b, c for sends on rank 1"),
        std::string::npos)
        << outcome.message;
  }
}

TEST(CudaFaults, LaunchFails) {
  simulated::failCall("cudaLaunchKernel", 2, cudaErrorLaunchFailure, 1);
  expectFailure(runUntilFailure(3, 0), 1,
                "unspecified launch failure (cudaErrorLaunchFailure)");
}

TEST(CudaFaults, NcclFails) {
  int64_t before = simulated::getCallCount("ncclSend");
  runUntilFailure(3, 0);
  int64_t calls = simulated::getCallCount("ncclSend") - before;
  simulated::failCall("ncclSend", calls / 4, kNcclSystemError, 2);
  expectFailure(runUntilFailure(3, 0), 2, "NCCL: unhandled system error");
}

TEST(CudaFaults, NcclFailsBehindTheScenes) {
  std::thread network([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    simulated::setNcclError(3, /*ncclRemoteError=*/6);
  });
  expectFailure(runUntilFailure(200'000, 0), 3,
                "NCCL: remote process exited or there was a network error");
  network.join();
}

TEST(CudaFaults, DeviceIsLost) {
  std::thread cosmos([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    simulated::failDevice(2, cudaErrorECCUncorrectable);
  });
  // NCCL may notice first, and its error says less.
  expectFailure(runUntilFailure(200'000, 0), 2, "");
  cosmos.join();
}

TEST(CudaFaults, OutOfMemory) {
  simulated::setMemoryLimit(6 * kChunkBytes);
  for (const TestWorld::Outcome &outcome : runUntilFailure(1, 0)) {
    EXPECT_TRUE(outcome.status == ZPP_RT_OUT_OF_MEMORY ||
                outcome.status == ZPP_RT_ABORTED)
        << outcome.status;
    EXPECT_NE(outcome.message.find("alloc: expected 4096 bytes, but got"),
              std::string::npos)
        << outcome.message;
  }
}

std::vector<std::string> getCreationErrors(const char *mesh) {
  TestWorld world("cuda", mesh);
  std::vector<std::string> errors(world.size());
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < world.size(); ++index)
    threads.emplace_back([&, index] {
      zpp_rt_rank *rank;
      char message[512] = "";
      EXPECT_NE(createRank(world.get(), index, &rank, message, sizeof(message)),
                ZPP_RT_OK);
      errors[index] = message;
    });
  for (std::thread &thread : threads)
    thread.join();
  return errors;
}

TEST(CudaFaults, MoreRanksThanGpus) {
  for (const std::string &error : getCreationErrors("gpu:9")) {
    EXPECT_NE(error.find("duplicate GPU"), std::string::npos) << error;
    EXPECT_NE(error.find("; expected a GPU for each of 9 ranks, but got 8"),
              std::string::npos)
        << error;
  }
}

TEST(CudaFaults, NoGpu) {
  simulated::failCall("cudaGetDeviceCount", 1, cudaErrorNoDevice);
  simulated::failCall("cudaGetDevice", 1, cudaErrorNoDevice);
  EXPECT_EQ(getCreationErrors("gpu:1").front(),
            "cudaGetDeviceCount: no CUDA-capable device is detected "
            "(cudaErrorNoDevice)");
}

TEST(CudaFaults, NcclNeverStarts) {
  simulated::setNcclInitHangs(true);
  auto start = std::chrono::steady_clock::now();
  for (const TestWorld::Outcome &outcome : runUntilFailure(1, 300'000))
    EXPECT_TRUE(outcome.status == ZPP_RT_TIMEOUT ||
                outcome.status == ZPP_RT_ABORTED)
        << outcome.status << ": " << outcome.message;
  EXPECT_LT(usecSince(start), 3'000'000);
}

} // namespace
