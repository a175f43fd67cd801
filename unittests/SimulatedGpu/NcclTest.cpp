//===- NcclTest.cpp - The simulated NCCL itself ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Simulator.h"
#include "gtest/gtest.h"

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <utility>

using namespace zpp::simulated;

extern char **environ;

namespace {

constexpr int64_t kBytes = 100'000;

/// A rank with a stream and two buffers.
struct Rank {
  Rank(const ncclUniqueId &id, int ranks, int rank, int device,
       bool isBlocking = true)
      : rank(rank), ranks(ranks) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void **>(&input), ranks * kBytes),
              cudaSuccess);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void **>(&output), ranks * kBytes),
              cudaSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = isBlocking;
    ncclResult_t result =
        ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
    EXPECT_EQ(result, isBlocking ? ncclSuccess : ncclInProgress);
  }
  ~Rank() {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    if (comm) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    EXPECT_EQ(cudaFree(input), cudaSuccess);
    EXPECT_EQ(cudaFree(output), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }

  ncclResult_t wait() {
    ncclResult_t state;
    do
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    while (state == ncclInProgress);
    return state;
  }
  /// Chunk i is for rank i, and filled with `rank`, i.
  void fill() {
    for (int i = 0; i < ranks; ++i)
      EXPECT_EQ(
          cudaMemsetAsync(input + i * kBytes, 16 * rank + i, kBytes, stream),
          cudaSuccess);
  }
  ncclResult_t allToAll(int64_t bytes = kBytes) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < ranks; ++i) {
      EXPECT_EQ(ncclSend(input + i * kBytes, bytes, ncclUint8, i, comm, stream),
                ncclSuccess);
      EXPECT_EQ(
          ncclRecv(output + i * kBytes, bytes, ncclUint8, i, comm, stream),
          ncclSuccess);
    }
    return ncclGroupEnd();
  }
  std::vector<uint8_t> read() {
    std::vector<uint8_t> result(ranks * kBytes);
    EXPECT_EQ(cudaMemcpyAsync(result.data(), output, result.size(),
                              cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    return result;
  }
  void expectExchanged() {
    std::vector<uint8_t> result = read();
    for (int i = 0; i < ranks; ++i)
      EXPECT_EQ(std::count(result.begin() + i * kBytes,
                           result.begin() + (i + 1) * kBytes, 16 * i + rank),
                kBytes);
  }

  const int rank, ranks;
  cudaStream_t stream = nullptr;
  uint8_t *input = nullptr, *output = nullptr;
  ncclComm_t comm = nullptr;
};

class Nccl : public testing::Test {
protected:
  Nccl() {
    resetFaults();
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  }
  ~Nccl() override {
    resetFaults();
    EXPECT_EQ(takeErrors(), std::vector<std::string>());
  }

  static void forEachRank(int ranks, const std::function<void(int)> &body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back(body, rank);
    for (std::thread &thread : threads)
      thread.join();
  }

  ncclUniqueId id;
};

TEST_F(Nccl, OneProcess) {
  setDelay(100, 1);
  forEachRank(4, [&](int index) {
    Rank rank(id, 4, index, index);
    rank.fill();
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(rank.allToAll(), ncclSuccess);
    rank.expectExchanged();

    EXPECT_EQ(ncclAllGather(rank.input, rank.output, kBytes / 4, ncclFloat32,
                            rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(rank.read()[2 * kBytes], 16 * 2);
    // 0x404040.. is 3.0039215.
    EXPECT_EQ(cudaMemsetAsync(rank.input, 0x40, 4 * kBytes, rank.stream),
              cudaSuccess);
    EXPECT_EQ(ncclReduceScatter(rank.input, rank.output, kBytes / 4,
                                ncclFloat32, ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    float sum;
    std::memcpy(&sum, rank.read().data(), 4);
    EXPECT_FLOAT_EQ(sum, 4 * 3.0039215f);
    EXPECT_EQ(ncclAllReduce(rank.input, rank.output, kBytes, ncclFloat32,
                            ncclSum, rank.comm, rank.stream),
              ncclSuccess);
    std::memcpy(&sum, rank.read().data() + 4 * kBytes - 4, 4);
    EXPECT_FLOAT_EQ(sum, 4 * 3.0039215f);
  });
}

TEST_F(Nccl, Split) {
  forEachRank(4, [&](int index) {
    Rank rank(id, 4, index, index);
    ncclComm_t half;
    // Ranks 2 and 0, and nobody else.
    EXPECT_EQ(ncclCommSplit(rank.comm, index % 2 ? NCCL_SPLIT_NOCOLOR : 0,
                            -index, &half, nullptr),
              ncclSuccess);
    EXPECT_EQ(half == nullptr, index % 2 == 1);
    if (!half)
      return;
    EXPECT_EQ(cudaMemsetAsync(rank.input, index, kBytes, rank.stream),
              cudaSuccess);
    EXPECT_EQ(ncclAllGather(rank.input, rank.output, kBytes, ncclUint8, half,
                            rank.stream),
              ncclSuccess);
    std::vector<uint8_t> result = rank.read();
    EXPECT_EQ(result[0], 2);
    EXPECT_EQ(result[kBytes], 0);
    EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);
  });
}

/// Calls return before they are done, so work that is queued on the stream in
/// between runs too early.
TEST_F(Nccl, NotBlocking) {
  forEachRank(2, [&](int index) {
    Rank rank(id, 2, index, index, /*isBlocking=*/false);
    EXPECT_EQ(rank.wait(), ncclSuccess);
    rank.fill();
    EXPECT_EQ(rank.allToAll(), ncclInProgress);
    EXPECT_EQ(rank.wait(), ncclSuccess);
    rank.expectExchanged();
  });
}

TEST_F(Nccl, AbortEndsWhatWaits) {
  forEachRank(2, [&](int index) {
    Rank rank(id, 2, index, index);
    if (index == 1) // Takes no part.
      return;
    EXPECT_EQ(rank.allToAll(), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(cudaStreamQuery(rank.stream), cudaErrorNotReady);
    EXPECT_EQ(ncclCommAbort(std::exchange(rank.comm, nullptr)), ncclSuccess);
    EXPECT_EQ(rank.read()[0], 0xee);
  });
}

TEST_F(Nccl, SizesThatDisagree) {
  std::vector<std::string> errors;
  forEachRank(2, [&](int index) {
    Rank rank(id, 2, index, index);
    EXPECT_EQ(rank.allToAll(kBytes - index), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
  });
  errors = takeErrors();
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_NE(errors[0].find("bytes of send/recv from rank"), std::string::npos);
  EXPECT_NE(errors[0].find("which sends"), std::string::npos);
}

/// A rank that finds out by other means and aborts has done nothing wrong.
TEST_F(Nccl, SizesThatDisagreeUntilAbort) {
  forEachRank(2, [&](int index) {
    Rank rank(id, 2, index, index);
    EXPECT_EQ(rank.allToAll(kBytes - index), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(ncclCommAbort(std::exchange(rank.comm, nullptr)), ncclSuccess);
  });
}

TEST_F(Nccl, Faults) {
  forEachRank(2, [&](int index) {
    Rank rank(id, 2, index, index);
    ncclResult_t error;
    setNcclError(0, ncclRemoteError);
    EXPECT_EQ(ncclCommGetAsyncError(rank.comm, &error), ncclSuccess);
    EXPECT_EQ(error, index == 0 ? ncclRemoteError : ncclSuccess);
    failCall("ncclGroupEnd", 1, ncclSystemError, /*device=*/index);
    EXPECT_EQ(rank.allToAll(), ncclSystemError);
  });
  resetFaults();
  // Two ranks on one device.
  ncclUniqueId other;
  EXPECT_EQ(ncclGetUniqueId(&other), ncclSuccess);
  std::atomic<int> failed{0};
  std::vector<ncclComm_t> comms(2);
  std::atomic<bool> isOver{false};
  forEachRank(2, [&](int index) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    EXPECT_EQ(ncclCommInitRankConfig(&comms[index], 2, other, index, &config),
              ncclInProgress);
    ncclResult_t error;
    do
      EXPECT_EQ(ncclCommGetAsyncError(comms[index], &error), ncclSuccess);
    while (error == ncclInProgress && !isOver);
    if (error == ncclInvalidUsage) {
      ++failed;
      isOver = true;
    }
    EXPECT_EQ(ncclCommAbort(comms[index]), ncclSuccess);
  });
  EXPECT_EQ(failed, 1);
}

TEST_F(Nccl, ConfigsThatAreRefused) {
  for (auto [least, most] : {std::pair<int, int>{8, NCCL_CONFIG_UNDEF_INT},
                             {8, 4},
                             {0, 4},
                             {NCCL_CONFIG_UNDEF_INT, 0}}) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.minCTAs = least;
    config.maxCTAs = most;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config),
              ncclInvalidArgument);
    EXPECT_EQ(comm, nullptr);
  }
}

TEST_F(Nccl, InitThatHangs) {
  setNcclInitHangs(true);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  ncclResult_t error;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  EXPECT_EQ(error, ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST_F(Nccl, Graph) {
  forEachRank(2, [&](int index) {
    Rank rank(id, 2, index, index);
    EXPECT_EQ(
        cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal),
        cudaSuccess);
    EXPECT_EQ(rank.allToAll(), ncclSuccess);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    EXPECT_EQ(cudaStreamEndCapture(rank.stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    rank.fill();
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(cudaGraphLaunch(exec, rank.stream), cudaSuccess);
    rank.expectExchanged();
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  });
}

/// One of the processes of TwoProcesses.
TEST_F(Nccl, DISABLED_Process) {
  const char *text = std::getenv("ZPP_TEST_ID");
  ASSERT_TRUE(text);
  std::memset(id.internal, 0, sizeof(id.internal));
  std::strncpy(id.internal, text, sizeof(id.internal) - 1);
  int index = std::atoi(std::getenv("ZPP_TEST_RANK"));
  Rank rank(id, 2, index, /*device=*/0);
  rank.fill();
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(rank.allToAll(), ncclSuccess);
  rank.expectExchanged();
}

TEST_F(Nccl, TwoProcesses) {
  pid_t processes[2];
  for (int index = 0; index < 2; ++index) {
    std::string variables[] = {std::string("ZPP_TEST_ID=") + id.internal,
                               "ZPP_TEST_RANK=" + std::to_string(index)};
    std::vector<char *> environment = {variables[0].data(),
                                       variables[1].data()};
    for (char **variable = environ; *variable; ++variable)
      if (std::strncmp(*variable, "GTEST_", 6) != 0)
        environment.push_back(*variable);
    environment.push_back(nullptr);
    char program[] = "/proc/self/exe";
    char filter[] = "--gtest_filter=Nccl.DISABLED_Process";
    char disabled[] = "--gtest_also_run_disabled_tests";
    char *arguments[] = {program, filter, disabled, nullptr};
    ASSERT_EQ(posix_spawn(&processes[index], program, nullptr, nullptr,
                          arguments, environment.data()),
              0);
  }
  for (pid_t process : processes) {
    int status = -1;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
  }
}

} // namespace
