//===- ProcessesTest.cpp - Worlds of several processes --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Back end cuda in several processes, on simulated GPUs. A process runs the
// test Processes.DISABLED_Part of this program.
//
//===----------------------------------------------------------------------===//

#include "Harness.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zpp;

extern char **environ;

namespace {

constexpr int64_t kRanks = 4;
constexpr int64_t kPartBytes = 5000;
constexpr zpp_rt_axis kAxes[] = {{"node", 1, 2}, {"gpu", 1, 2}};

constexpr const char *kListening = "listening on ";

struct Part {
  pid_t process;
  int output;
};

/// Starts a process with ranks [first, first + count), of which rank `dying`
/// ends its process after some exchanges.
Part startPart(const std::string &endpoint, int64_t first, int64_t count,
               int64_t dying) {
  std::string variables[] = {
      "ZPP_TEST_ENDPOINT=" + endpoint,
      "ZPP_TEST_FIRST=" + std::to_string(first),
      "ZPP_TEST_COUNT=" + std::to_string(count),
      "ZPP_TEST_DYING=" + std::to_string(dying),
      // Two processes of one rank each are a host.
      "NCCL_HOSTID=" + std::to_string(first / 2),
  };
  std::vector<char *> environment;
  for (std::string &variable : variables)
    environment.push_back(variable.data());
  for (char **variable = environ; *variable; ++variable)
    if (std::strncmp(*variable, "GTEST_", 6) != 0)
      environment.push_back(*variable);
  environment.push_back(nullptr);
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::string arguments[] = {"/proc/self/exe",
                             "--gtest_filter=Processes.DISABLED_Part",
                             "--gtest_also_run_disabled_tests"};
  std::vector<char *> pointers;
  for (std::string &argument : arguments)
    pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  Part part{};
  EXPECT_EQ(posix_spawn(&part.process, pointers[0], &actions, nullptr,
                        pointers.data(), environment.data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  part.output = ends[0];
  return part;
}

/// Returns the endpoint at which the process of rank 0 listens.
std::string readEndpoint(const Part &part) {
  std::string line;
  for (char c; read(part.output, &c, 1) == 1;) {
    if (c != '\n') {
      line += c;
      continue;
    }
    if (line.rfind(kListening, 0) == 0)
      return line.substr(std::strlen(kListening));
    line.clear();
  }
  ADD_FAILURE() << "expected an endpoint, but got none";
  return "";
}

/// Starts all processes, at a port that the first one finds.
std::vector<Part> startAll(int64_t perProcess, int64_t dying) {
  std::vector<Part> parts = {startPart("127.0.0.1:0", 0, perProcess, dying)};
  std::string endpoint = readEndpoint(parts[0]);
  for (int64_t rank = perProcess; rank < kRanks; rank += perProcess)
    parts.push_back(startPart(endpoint, rank, perProcess, dying));
  return parts;
}

/// Waits for a process; its output and status.
std::string waitFor(const Part &part, int &status) {
  std::string output;
  char buffer[4096];
  for (ssize_t bytes; (bytes = read(part.output, buffer, sizeof(buffer))) > 0;)
    output.append(buffer, bytes);
  close(part.output);
  EXPECT_EQ(waitpid(part.process, &status, 0), part.process);
  return output;
}

int64_t getNumber(const char *variable) {
  const char *text = std::getenv(variable);
  return text ? std::atoll(text) : -1;
}

/// Chunk r of the result holds r + 1.
void expectGathered(zpp_rt_rank *rank, int64_t index, int64_t bytes) {
  auto gather = makeDesc<zpp_rt_exchange_desc>();
  gather.name = "weights";
  gather.axes = kAxes;
  gather.num_axes = 2;
  gather.chunk_bytes = bytes;
  DeviceBuffer input(rank, Bytes(bytes, index + 1)),
      output(rank, kRanks * bytes);
  ASSERT_EQ(
      zpp_rt_all_gather_chunks(rank, &gather, input.data(), output.data()),
      ZPP_RT_OK)
      << zpp_rt_rank_message(rank);
  Bytes result = output.read(), expected;
  for (int64_t r = 0; r < kRanks; ++r)
    expected.insert(expected.end(), bytes, r + 1);
  EXPECT_TRUE(result == expected);
}

TEST(Processes, DISABLED_Part) {
  const char *endpoint = std::getenv("ZPP_TEST_ENDPOINT");
  ASSERT_TRUE(endpoint);
  auto desc = makeDesc<zpp_rt_world_desc>();
  desc.backend = "cuda";
  desc.mesh = "node:2,gpu:2";
  desc.rendezvous = endpoint;
  desc.token = "a token for this test";
  zpp_rt_world *world;
  char message[256] = "";
  ASSERT_EQ(zpp_rt_world_create(&desc, &world, message, sizeof(message)),
            ZPP_RT_OK)
      << message;
  int64_t first = getNumber("ZPP_TEST_FIRST");
  if (first == 0) {
    char found[256];
    // The second time nothing changes.
    for (int i = 0; i < 2; ++i)
      ASSERT_EQ(zpp_rt_world_listen(world, found, sizeof(found), message,
                                    sizeof(message)),
                ZPP_RT_OK)
          << message;
    std::printf("%s%s\n", kListening, found);
    std::fflush(stdout);
  }
  int64_t count = getNumber("ZPP_TEST_COUNT");
  int64_t dying = getNumber("ZPP_TEST_DYING");
  std::vector<std::thread> threads;
  for (int64_t index = first; index < first + count; ++index)
    threads.emplace_back([=] {
      zpp_rt_rank *rank;
      char text[256] = "";
      ASSERT_EQ(createRank(world, index, &rank, text, sizeof(text)), ZPP_RT_OK)
          << text;
      // Chunk i of rank r holds 16 r + i.
      Bytes values(kRanks * kPartBytes);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<uint8_t>(16 * index + i / kPartBytes);
      auto exchange = makeDesc<zpp_rt_exchange_desc>();
      exchange.name = "chunks";
      exchange.axes = kAxes;
      exchange.num_axes = 2;
      exchange.chunk_bytes = kPartBytes;
      {
        DeviceBuffer input(rank, values), output(rank, values);
        zpp_rt_status status = ZPP_RT_OK;
        // Until somebody dies.
        for (int64_t i = 0; status == ZPP_RT_OK && (dying >= 0 || i < 20);
             ++i) {
          if (index == dying && i == 10)
            raise(SIGKILL);
          status =
              zpp_rt_all_to_all(rank, &exchange, input.data(), output.data());
          if (i % 4 == 3 && status == ZPP_RT_OK)
            status = zpp_rt_rank_synchronize(rank);
        }
        if (status == ZPP_RT_OK) {
          Bytes result = output.read();
          for (size_t i = 0; i < result.size(); ++i)
            ASSERT_EQ(result[i], 16 * (i / kPartBytes) + index);
          // In one part, and in several, over two hosts if they are.
          if (dying < 0)
            for (int64_t bytes : {1000, 17 << 20 | 777})
              expectGathered(rank, index, bytes);
        } else {
          std::printf("rank %d: %s: %s\n", static_cast<int>(index),
                      zpp_rt_status_name(status), zpp_rt_rank_message(rank));
        }
      }
      zpp_rt_rank_destroy(rank);
    });
  for (std::thread &thread : threads)
    thread.join();
  zpp_rt_world_destroy(world);
}

TEST(Processes, Exchange) {
  for (int64_t perProcess : {1, 2}) {
    for (const Part &part : startAll(perProcess, /*dying=*/-1)) {
      int status = -1;
      std::string output = waitFor(part, status);
      EXPECT_EQ(status, 0) << output;
    }
  }
}

/// The others are told at once, even if it was the process where they meet.
TEST(Processes, OneDies) {
  for (int64_t dying : {0, 3}) {
    auto start = std::chrono::steady_clock::now();
    std::vector<Part> parts = startAll(/*perProcess=*/1, dying);
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      int status = -1;
      std::string output = waitFor(parts[rank], status);
      if (rank == dying) {
        EXPECT_TRUE(WIFSIGNALED(status));
        continue;
      }
      EXPECT_EQ(status, 0) << output;
      EXPECT_NE(
          output.find("rank " + std::to_string(rank) + ": ZPP_RT_RANK_LOST: "),
          std::string::npos)
          << output;
      // In this exchange, or between it and the next.
      EXPECT_NE(output.find("all_to_all 'chunks' along node, gpu: expected 4 "
                            "ranks, but rank " +
                            std::to_string(dying) + " was lost"),
                std::string::npos)
          << output;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(20));
  }
}

/// The errors of zpp_rt_world_listen.
TEST(Processes, Listen) {
  char endpoint[64], message[256] = "";
  auto listen = [&](zpp_rt_world *world, char *endpoint, size_t bytes) {
    EXPECT_EQ(
        zpp_rt_world_listen(world, endpoint, bytes, message, sizeof(message)),
        ZPP_RT_INVALID_ARGUMENT);
    return std::string(message);
  };
  EXPECT_EQ(listen(nullptr, endpoint, 64), "expected a world, but got NULL");
  TestWorld alone("cuda", "gpu:1");
  EXPECT_EQ(listen(alone.get(), endpoint, 64),
            "expected a world with a rendezvous, but got one without");
  auto desc = makeDesc<zpp_rt_world_desc>();
  desc.backend = "cuda";
  desc.mesh = "gpu:2";
  desc.rendezvous = "127.0.0.1:0";
  desc.time_limit_usec = 100'000;
  zpp_rt_world *world;
  EXPECT_EQ(zpp_rt_world_create(&desc, &world, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message,
               "expected a token for the rendezvous '127.0.0.1:0', but "
               "got NULL");
  desc.token = "a token for this test";
  ASSERT_EQ(zpp_rt_world_create(&desc, &world, nullptr, 0), ZPP_RT_OK);
  EXPECT_EQ(listen(world, nullptr, 64),
            "expected where to write the endpoint, but got NULL");
  // Nobody can connect to port 0.
  zpp_rt_rank *rank;
  EXPECT_EQ(createRank(world, 1, &rank, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected the port at which rank 0 listens, but got 0 "
                        "in '127.0.0.1:0'");
  EXPECT_EQ(listen(world, endpoint, 5).rfind("expected room for the ", 0), 0u)
      << message;
  EXPECT_EQ(zpp_rt_world_listen(world, endpoint, 64, nullptr, 0), ZPP_RT_OK);
  EXPECT_EQ(std::string(endpoint).rfind("127.0.0.1:", 0), 0u);
  EXPECT_STRNE(endpoint, "127.0.0.1:0");
  zpp_rt_world_destroy(world);
}

} // namespace
