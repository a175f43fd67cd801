//===- BackendMain.cpp - The runtime's tests on a simulated GPU -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs suites of unittests/Runtime with back end "cuda" on simulated GPUs. What
// the simulator reports fails the test that was running.
//
//===----------------------------------------------------------------------===//

#include "Simulator.h"
#include "gtest/gtest.h"

#include <cstdlib>

namespace {
class Reporter : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo &) override {
    zpp::simulated::resetFaults();
  }
  void OnTestEnd(const testing::TestInfo &) override {
    for (const std::string &error : zpp::simulated::takeErrors())
      ADD_FAILURE() << "simulated GPU: " << error;
  }
};
} // namespace

int main(int argc, char **argv) {
  setenv("ZPP_TEST_BACKENDS", "cuda", /*replace=*/0);
  setenv("ZPP_TEST_GPUS", "8", /*replace=*/0);
  setenv("ZPP_TEST_SOON_USEC", "1000000", /*replace=*/0);
  setenv("ZPP_NCCL_LIBRARY", ZPP_SIMULATED_NCCL, /*replace=*/1);
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new Reporter);
  return RUN_ALL_TESTS();
}
