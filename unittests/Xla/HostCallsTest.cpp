//===- HostCallsTest.cpp - zpp.start and zpp.wait on the CPU --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The handlers for platform Host, a thread per device. The host functions are
// those of test/python/Inputs/collectives.c, for 2 nodes of 4.
//
//===----------------------------------------------------------------------===//

#include "FakeXla.h"
#include "zpp/Xla/zpp_xla.h"

#include "gtest/gtest.h"

#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>
#include <unistd.h>

using namespace zpp;

namespace {

class HostWorld : public TestWorld {
public:
  HostWorld() : TestWorld("cpu", {0, 1, 2, 3, 4, 5, 6, 7}) {}
};

/// Buffers of one device.
struct Device {
  explicit Device(int rank) : rank(rank), x(32, rank), y(256, -1) {}

  std::string start(const std::string &function, int64_t elements = 16) {
    return call(function, elements, false).run(zpp_xla_start_host);
  }
  std::string wait(const std::string &function, int64_t elements = 16) {
    return call(function, elements, true).run(zpp_xla_wait_host);
  }
  FakeCall call(const std::string &function, int64_t elements, bool isWait) {
    FakeBuffer input{x.data(), elements}, output{y.data(), kRanks * elements};
    FakeCall call{rank, nullptr, "test",  function, 1,
                  1,    0,       {input}, {output}, std::nullopt};
    if (isWait)
      call.operands.push_back(output);
    else
      call.isDeferrable = true;
    return call;
  }

  const int rank;
  std::vector<float> x, y;
};

void runAll(const std::function<void(Device &)> &program) {
  runAllRanks([&](int rank) {
    Device device(rank);
    program(device);
  });
}

TEST(HostCalls, RunBesideTheCaller) {
  HostWorld world;
  runAll([](Device &device) {
    for (int step = 0; step < 50; ++step) {
      int64_t elements = step % 2 ? 32 : 16;
      std::string function = "gather_" + std::to_string(elements);
      device.x.assign(32, device.rank + step);
      EXPECT_EQ(device.start(function, elements), "");
      EXPECT_EQ(device.wait(function, elements), "");
      for (int64_t i = 0; i < kRanks * elements; ++i)
        ASSERT_EQ(device.y[i], i / elements + step);
    }
  });
  EXPECT_EQ(zpp_xla_world_synchronize(world.world, nullptr, 0), ZPP_RT_OK);
}

TEST(HostCalls, AFailureReachesAllRanks) {
  HostWorld world;
  runAll([](Device &device) {
    EXPECT_EQ(device.start("fail_on_three"), "");
    std::string error = device.wait("fail_on_three");
    EXPECT_EQ(error.find("zpp.wait fail_on_three: all_gather_chunks "
                         "'broken.py:3'"),
              0u)
        << error;
  });
}

TEST(HostCalls, ACopiedOutputIsAnErrorOnceNobodyUsesIt) {
  HostWorld world;
  runAll([](Device &device) {
    EXPECT_EQ(device.start("gather_16"), "");
    std::vector<float> original = std::move(device.y);
    device.y.assign(256, 0);
    std::string error = device.wait("gather_16");
    EXPECT_NE(error.find("got a copy of it"), std::string::npos) << error;
    // XLA frees the memory now: the sanitizers see whether it is in use.
    original = {};
  });
}

/// XLA may give the result of a start or wait memory of its own, and the
/// operand is then a view of something larger.
TEST(HostCalls, WhatIsNotInPlaceIsCopied) {
  HostWorld world;
  testing::internal::CaptureStderr();
  runAll([](Device &device) {
    std::vector<float> tie(16, device.rank + 100), passed(16), last(16),
        whole(kRanks * 16);
    for (int step = 0; step < 2; ++step) {
      FakeCall start = device.call("gather_16", 16, false);
      start.operands.push_back({tie.data(), 16});
      start.results.push_back({passed.data(), 16});
      EXPECT_EQ(start.run(zpp_xla_start_host), "");
      EXPECT_EQ(passed, tie);
      FakeCall wait = device.call("gather_16", 16, true);
      wait.operands.push_back({passed.data(), 16});
      wait.results = {{whole.data(), kRanks * 16}, {last.data(), 16}};
      EXPECT_EQ(wait.run(zpp_xla_wait_host), "");
      EXPECT_EQ(last, tie);
      for (int64_t i = 0; i < kRanks * 16; ++i)
        ASSERT_EQ(whole[i], i / 16);
      std::fill(passed.begin(), passed.end(), 0);
    }
  });
  // Once for each call of a collective, whatever the devices and steps.
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "zpp: zpp.start gather_16: copies 64 bytes in every step, because "
            "XLA has not left 1 of its results in the memory of their "
            "operands\n"
            "zpp: zpp.wait gather_16: copies 576 bytes in every step, because "
            "XLA has not left 2 of its results in the memory of their "
            "operands\n");
}

/// A wait does not take inputs that its start overwrites.
TEST(HostCalls, AnInputThatIsNotOverwrittenIsCopied) {
  HostWorld world;
  testing::internal::CaptureStderr();
  runAll([](Device &device) {
    std::vector<float> held(16, device.rank + 1), written(16);
    FakeCall start = device.call("do_nothing", 16, false);
    start.operands = {{held.data(), 16}};
    start.results = {{written.data(), 16}};
    start.inPlace = {0, 0};
    EXPECT_EQ(start.run(zpp_xla_start_host), "");
    FakeCall wait = device.call("do_nothing", 16, true);
    wait.inputs = 0;
    wait.operands = wait.results = start.results;
    EXPECT_EQ(wait.run(zpp_xla_wait_host), "");
    EXPECT_EQ(written, held);
    // As it is meant to be.
    start.operands = start.results;
    EXPECT_EQ(start.run(zpp_xla_start_host), "");
    EXPECT_EQ(wait.run(zpp_xla_wait_host), "");
    // An output that there is not.
    start.inPlace = {0, 1};
    EXPECT_EQ(start.run(zpp_xla_start_host),
              "zpp.start do_nothing: expected an input and an output that it "
              "overwrites, but got 0 and 1");
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "zpp: zpp.start do_nothing: copies 64 bytes in every step, because "
            "XLA has not left 1 of its results in the memory of their "
            "operands\n");
}

TEST(HostCalls, ATieOfAnotherSizeIsAnError) {
  HostWorld world;
  Device device(0);
  FakeCall start = device.call("gather_16", 16, false);
  start.operands.push_back({device.x.data(), 16});
  start.results.push_back({device.x.data(), 8});
  EXPECT_EQ(start.run(zpp_xla_start_host),
            "zpp.start gather_16: expected result 1 of 64 bytes, as operand 1, "
            "but got 32");
}

TEST(HostCalls, AWorldIsDestroyedUnderWay) {
  HostWorld world;
  std::vector<Device> devices;
  for (int rank = 0; rank < kRanks - 1; ++rank)
    devices.emplace_back(rank);
  // Rank 7 does not come.
  std::vector<std::thread> threads;
  for (Device &device : devices) {
    EXPECT_EQ(device.start("gather_16"), "");
    threads.emplace_back([&] {
      std::string error = device.wait("gather_16");
      EXPECT_NE(error, "");
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  world.destroy();
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(devices[0].start("gather_16"),
            "zpp.start gather_16: expected a bundle that is loaded, but got "
            "'test'");
}

TEST(HostCalls, BundlesBelongToOneWorld) {
  HostWorld first;
  char message[512] = "";
  EXPECT_EQ(zpp_xla_bundle_load(first.world, "test", ZPP_TEST_BUNDLE, message,
                                sizeof(message)),
            ZPP_RT_OK);
  zpp_xla_world_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.backend = "cpu";
  desc.mesh = "gpu:1";
  zpp_xla_world *second = nullptr;
  ASSERT_EQ(zpp_xla_world_create(&desc, &second, nullptr, 0), ZPP_RT_OK);
  EXPECT_EQ(zpp_xla_bundle_load(second, "test", ZPP_TEST_BUNDLE, message,
                                sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message,
               "expected a bundle of this world, but got 'test' of another "
               "one");
  zpp_xla_world_destroy(second);
  EXPECT_EQ(zpp_xla_bundle_load(first.world, "other", "/nonexistent.so",
                                message, sizeof(message)),
            ZPP_RT_SYSTEM_ERROR);
  EXPECT_NE(std::string(message).find("/nonexistent.so"), std::string::npos);
}

TEST(HostCalls, ABundleIsOneLibrary) {
  HostWorld world;
  const std::string path =
      testing::TempDir() + "zpp-bundle-" + std::to_string(getpid()) + ".so";
  {
    std::ifstream from(ZPP_TEST_BUNDLE, std::ios::binary);
    std::ofstream to(path, std::ios::binary);
    to << from.rdbuf();
  }
  char message[512] = "";
  auto load = [&] {
    return zpp_xla_bundle_load(world.world, "test", path.c_str(), message,
                               sizeof(message));
  };
  // Another file with the same content is the same library.
  EXPECT_EQ(load(), ZPP_RT_OK) << message;
  std::ofstream(path, std::ios::app) << 'x';
  EXPECT_EQ(load(), ZPP_RT_INVALID_ARGUMENT);
  EXPECT_EQ(message,
            "expected the library that bundle 'test' was loaded with, but got "
            "another one in '" +
                path + "'");
  std::remove(path.c_str());
}

} // namespace
