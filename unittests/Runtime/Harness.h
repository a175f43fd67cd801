//===- Harness.h - Ranks and buffers of the runtime's tests -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything goes through zpp_rt.h, including memory, so the tests run on any
// back end.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_RUNTIME_HARNESS_H
#define ZPP_UNITTESTS_RUNTIME_HARNESS_H

#include "zpp/Runtime/zpp_rt.h"
#include "zpp/Support/SliceMap.h"
#include "gtest/gtest.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace zpp {

using Bytes = std::vector<uint8_t>;

/// Returns the back ends that a suite runs on: those in the environment
/// variable ZPP_TEST_BACKENDS, separated by commas, or "cpu".
inline std::vector<std::string> getBackends() {
  const char *given = std::getenv("ZPP_TEST_BACKENDS");
  std::stringstream list(given ? given : "cpu");
  std::vector<std::string> backends;
  for (std::string name; std::getline(list, name, ',');)
    backends.push_back(name);
  return backends;
}

/// Copies between the current device and the host, after the work on `stream`,
/// and returns when that is done. Null in tests without device memory.
using CopyOnStream = void (*)(void *dest, const void *source, size_t bytes,
                              void *stream);
inline CopyOnStream copyOnStream = nullptr;

/// The suffix of the name of a back end that uses the exchanges of the caller.
inline constexpr std::string_view kExternal = "_external";

/// Returns the back ends of getBackends(), and each of them with the exchanges
/// of the caller.
inline std::vector<std::string> getBackendsAndExternal() {
  std::vector<std::string> backends;
  for (const std::string &backend : getBackends()) {
    backends.push_back(backend);
    if (backend == "cpu" || copyOnStream)
      backends.push_back(backend + std::string(kExternal));
  }
  return backends;
}

/// Returns the most ranks that a world may have: the number of GPUs, from the
/// variable ZPP_TEST_GPUS.
inline int64_t getMaxRanks(const std::string &backend) {
  if (backend.rfind("cpu", 0) == 0)
    return 64;
  const char *given = std::getenv("ZPP_TEST_GPUS");
  return given ? std::atoi(given) : 1;
}

/// Whether operations are done when their calls return.
inline bool isSynchronous(const std::string &backend) {
  return backend.rfind("cpu", 0) == 0;
}

/// A descriptor of type `Desc` with its size and all else 0.
template <typename Desc> Desc makeDesc() {
  Desc desc{};
  desc.struct_size = sizeof(Desc);
  return desc;
}

/// zpp_rt_rank_create on any device.
inline zpp_rt_status createRank(zpp_rt_world *world, int64_t index,
                                zpp_rt_rank **rank, char *message = nullptr,
                                size_t messageBytes = 0) {
  auto desc = makeDesc<zpp_rt_rank_desc>();
  desc.index = index;
  desc.device = -1;
  return zpp_rt_rank_create(world, &desc, rank, message, messageBytes);
}

/// Exchanges of the caller: threads of one process that read what others have.
class TestExchanges {
public:
  explicit TestExchanges(bool isOnDevice)
      : copy(isOnDevice ? copyOnStream : copyOnHost) {}

  zpp_rt_exchanges get() {
    auto exchanges = makeDesc<zpp_rt_exchanges>();
    exchanges.all_to_all = [](void *self, const zpp_rt_exchange *exchange,
                              const void *input, void *output, char *, size_t) {
      return static_cast<TestExchanges *>(self)->run(*exchange, input, output,
                                                     /*isGather=*/false);
    };
    exchanges.all_gather = [](void *self, const zpp_rt_exchange *exchange,
                              const void *input, void *output, char *, size_t) {
      return static_cast<TestExchanges *>(self)->run(*exchange, input, output,
                                                     /*isGather=*/true);
    };
    exchanges.context = this;
    return exchanges;
  }

private:
  struct Group {
    /// The data of the members, on the host.
    std::vector<const uint8_t *> inputs;
    int64_t arrived = 0;
  };

  static void copyOnHost(void *dest, const void *source, size_t bytes,
                         void *stream) {
    EXPECT_EQ(stream, nullptr);
    std::memcpy(dest, source, bytes);
  }

  zpp_rt_status run(const zpp_rt_exchange &exchange, const void *input,
                    void *output, bool isGather) {
    std::vector<int64_t> members(exchange.members,
                                 exchange.members + exchange.num_members);
    EXPECT_GE(members.size(), 2u);
    EXPECT_EQ(members[exchange.position], exchange.rank);
    const int64_t bytes = exchange.chunk_bytes;
    Bytes own(isGather ? bytes : bytes * members.size());
    copy(own.data(), input, own.size(), exchange.stream);

    std::unique_lock<std::mutex> lock(mutex);
    Group &group = groups[members];
    group.inputs.resize(members.size());
    group.inputs[exchange.position] = own.data();
    meet(group, lock);
    std::vector<const uint8_t *> inputs = group.inputs;
    lock.unlock();
    for (size_t i = 0; i < inputs.size(); ++i)
      copy(static_cast<uint8_t *>(output) + i * bytes,
           inputs[i] + (isGather ? 0 : exchange.position * bytes), bytes,
           exchange.stream);
    lock.lock();
    // Nobody reads `own` any more.
    meet(group, lock);
    return ZPP_RT_OK;
  }

  /// Waits for all members.
  void meet(Group &group, std::unique_lock<std::mutex> &lock) {
    int64_t size = group.inputs.size();
    int64_t last = (group.arrived++ / size + 1) * size;
    changed.notify_all();
    changed.wait(lock, [&] { return group.arrived >= last; });
  }

  const CopyOnStream copy;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::vector<int64_t>, Group> groups;
};

/// A world, destroyed with the test.
class TestWorld {
public:
  TestWorld(const std::string &backend, const char *mesh,
            int64_t timeLimitUsec = 0, bool isTraced = false,
            std::function<void(const char *)> onFailure = {})
      : onFailure(std::move(onFailure)) {
    auto desc = makeDesc<zpp_rt_world_desc>();
    std::string name = backend;
    zpp_rt_exchanges functions;
    if (size_t end = backend.find(kExternal); end != std::string::npos) {
      name.resize(end);
      exchanges = std::make_unique<TestExchanges>(name != "cpu");
      functions = exchanges->get();
      desc.exchanges = &functions;
    }
    desc.backend = name.c_str();
    desc.mesh = mesh;
    desc.time_limit_usec = timeLimitUsec;
    desc.trace = isTraced;
    desc.on_failure = [](void *self, const char *message) {
      if (auto &onFailure = static_cast<TestWorld *>(self)->onFailure)
        onFailure(message);
    };
    desc.on_failure_context = this;
    char message[256] = "";
    zpp_rt_status status =
        zpp_rt_world_create(&desc, &world, message, sizeof(message));
    EXPECT_EQ(status, ZPP_RT_OK) << message;
  }
  ~TestWorld() { zpp_rt_world_destroy(world); }
  TestWorld(const TestWorld &) = delete;
  TestWorld &operator=(const TestWorld &) = delete;

  zpp_rt_world *get() const { return world; }
  int64_t size() const {
    int64_t size = 0;
    EXPECT_EQ(zpp_rt_world_size(world, &size), ZPP_RT_OK);
    return size;
  }

  zpp_rt_rank *join(int64_t index) {
    zpp_rt_rank *rank;
    char message[256] = "";
    zpp_rt_status status =
        createRank(world, index, &rank, message, sizeof(message));
    EXPECT_EQ(status, ZPP_RT_OK) << message;
    return rank;
  }

  /// The result of a rank.
  struct Outcome {
    zpp_rt_status status = ZPP_RT_OK;
    std::string message;
  };

  /// Runs `body` on every rank, in threads that join and leave.
  std::vector<Outcome>
  run(const std::function<void(zpp_rt_rank *rank, int64_t index)> &body) {
    std::vector<Outcome> outcomes(size());
    std::vector<std::thread> threads;
    for (int64_t index = 0; index < size(); ++index)
      threads.emplace_back([&, index] {
        zpp_rt_rank *rank = join(index);
        // Wait, so that no rank fails while others join.
        meet();
        body(rank, index);
        outcomes[index].status = zpp_rt_rank_synchronize(rank);
        outcomes[index].message = zpp_rt_rank_message(rank);
        zpp_rt_rank_destroy(rank);
      });
    for (std::thread &thread : threads)
      thread.join();
    return outcomes;
  }

  /// Waits until all ranks of `run` call this. What they did before is done, on
  /// devices only if they waited for them.
  void meet() {
    int64_t last = (met++ / size() + 1) * size();
    while (met < last)
      std::this_thread::yield();
  }

  /// Like `run`, but no rank may fail.
  void
  runAll(const std::function<void(zpp_rt_rank *rank, int64_t index)> &body) {
    for (const Outcome &outcome : run(body))
      EXPECT_EQ(outcome.status, ZPP_RT_OK) << outcome.message;
  }

private:
  const std::function<void(const char *)> onFailure;
  std::unique_ptr<TestExchanges> exchanges;
  zpp_rt_world *world = nullptr;
  std::atomic<int64_t> met{0};
};

/// Memory of a rank between guards.
class DeviceBuffer {
public:
  DeviceBuffer(zpp_rt_rank *rank, int64_t bytes) : rank(rank), bytes(bytes) {
    // A rank may learn at any time that another one has failed.
    auto isWell = [&](zpp_rt_status status) {
      return status == ZPP_RT_OK || status == ZPP_RT_ABORTED ||
             status == ZPP_RT_RANK_LOST;
    };
    EXPECT_TRUE(isWell(zpp_rt_alloc(rank, bytes + 2 * kGuardBytes, &base)))
        << zpp_rt_rank_message(rank);
    Bytes guards(bytes + 2 * kGuardBytes, kGuard);
    EXPECT_TRUE(isWell(zpp_rt_copy(rank, base, guards.data(), guards.size())))
        << zpp_rt_rank_message(rank);
    // Wait, because `guards` is destroyed before the copy may be done.
    zpp_rt_rank_synchronize(rank);
  }
  DeviceBuffer(zpp_rt_rank *rank, const Bytes &content)
      : DeviceBuffer(rank, static_cast<int64_t>(content.size())) {
    EXPECT_EQ(zpp_rt_copy(rank, data(), content.data(), bytes), ZPP_RT_OK);
    zpp_rt_rank_synchronize(rank);
  }
  ~DeviceBuffer() { zpp_rt_free(rank, base); }
  DeviceBuffer(const DeviceBuffer &) = delete;
  DeviceBuffer &operator=(const DeviceBuffer &) = delete;

  /// Null if the rank had failed before.
  void *data() const {
    return base ? static_cast<uint8_t *>(base) + kGuardBytes : nullptr;
  }

  /// Returns the content, and checks that nothing was written outside of it.
  Bytes read() const {
    Bytes all(bytes + 2 * kGuardBytes);
    EXPECT_EQ(zpp_rt_copy(rank, all.data(), base, all.size()), ZPP_RT_OK);
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK)
        << zpp_rt_rank_message(rank);
    Bytes guard(kGuardBytes, kGuard);
    EXPECT_TRUE(std::equal(guard.begin(), guard.end(), all.begin()))
        << "written before the buffer";
    EXPECT_TRUE(std::equal(guard.begin(), guard.end(), all.end() - kGuardBytes))
        << "written after the buffer";
    return Bytes(all.begin() + kGuardBytes, all.end() - kGuardBytes);
  }

private:
  static constexpr int64_t kGuardBytes = 64;
  static constexpr uint8_t kGuard = 0xa5;
  zpp_rt_rank *rank;
  int64_t bytes;
  void *base = nullptr;
};

/// Converts a map. `map` must outlive the result.
inline zpp_rt_slices getSlices(const SliceMap &map) {
  zpp_rt_slices slices{};
  slices.outer = map.outer;
  slices.unit = map.unit;
  slices.inner = map.inner;
  slices.extent = map.extent;
  slices.factors = map.factors.data();
  slices.num_factors = map.factors.size();
  slices.chunk_factors = map.chunkFactors.data();
  slices.num_chunk_factors = map.chunkFactors.size();
  slices.stage = map.stage;
  slices.stages = map.stages;
  return slices;
}

/// Runs a local operation on a lone rank.
template <typename Desc>
Bytes runLocal(zpp_rt_rank *rank,
               zpp_rt_status (*entrypoint)(zpp_rt_rank *, const Desc *,
                                           const void *, void *),
               const Desc &desc, const Bytes &input, const Bytes &output) {
  DeviceBuffer source(rank, input), dest(rank, output);
  EXPECT_EQ(entrypoint(rank, &desc, source.data(), dest.data()), ZPP_RT_OK)
      << zpp_rt_rank_message(rank);
  EXPECT_EQ(source.read(), input) << "the input was written";
  return dest.read();
}

/// The same for an entry point that also reads `held`.
template <typename Desc>
Bytes runLocal(zpp_rt_rank *rank,
               zpp_rt_status (*entrypoint)(zpp_rt_rank *, const Desc *,
                                           const void *, const void *, void *),
               const Desc &desc, const Bytes &input, const Bytes &held,
               const Bytes &output) {
  DeviceBuffer source(rank, input), other(rank, held), dest(rank, output);
  EXPECT_EQ(entrypoint(rank, &desc, source.data(), other.data(), dest.data()),
            ZPP_RT_OK)
      << zpp_rt_rank_message(rank);
  EXPECT_EQ(source.read(), input) << "the input was written";
  EXPECT_EQ(other.read(), held) << "what is held was written";
  return dest.read();
}

} // namespace zpp

#endif // ZPP_UNITTESTS_RUNTIME_HARNESS_H
