//===- NcclLibraryTest.cpp - Finding NCCL at run time ---------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tests with libraries that only know their version (FakeNccl.cpp). A loaded
// library stays loaded, so every case runs in a process of its own.
//
//===----------------------------------------------------------------------===//

#include "Cuda/NcclLibrary.h"

#include "gtest/gtest.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

using namespace zpp::rt;

namespace {

const std::string directory = ZPP_FAKE_NCCL_DIR;
const std::string newNccl = directory + "/new/libnccl.so.2";
const std::string oldNccl = directory + "/old/libnccl.so.2";
const std::string partOfNccl = directory + "/part/libnccl.so.2";

void name(const std::string &file) {
  setenv("ZPP_NCCL_LIBRARY", file.c_str(), 1);
}

/// Prints what loadNccl() says and ends the process.
[[noreturn]] void report() {
  const NcclLibrary *library = nullptr;
  Status status = loadNccl(library);
  if (status.ok())
    std::fprintf(stderr, "version %d in %s", library->version,
                 library->path.c_str());
  else
    std::fprintf(stderr, "%s: %s", zpp_rt_status_name(status.code),
                 status.message.c_str());
  std::exit(0);
}

/// The same with a library that the environment names.
[[noreturn]] void report(const std::string &file) {
  name(file);
  report();
}

class NcclLibraryTest : public testing::Test {
protected:
  void SetUp() override {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    unsetenv("ZPP_NCCL_LIBRARY");
  }
};

TEST_F(NcclLibraryTest, LoadsWhatTheEnvironmentNames) {
  EXPECT_EXIT(report(newNccl), testing::ExitedWithCode(0),
              "version 22809 in .*/new/libnccl.so.2");
}

TEST_F(NcclLibraryTest, TheEnvironmentComesFirst) {
  EXPECT_EXIT((dlopen(oldNccl.c_str(), RTLD_NOW | RTLD_LOCAL), report(newNccl)),
              testing::ExitedWithCode(0), "version 22809 in .*/new/");
}

TEST_F(NcclLibraryTest, WhatTheEnvironmentNamesIsNotReplaced) {
  EXPECT_EXIT(
      (dlopen(newNccl.c_str(), RTLD_NOW | RTLD_LOCAL),
       report("/nonexistent/nccl.so")),
      testing::ExitedWithCode(0),
      "ZPP_RT_SYSTEM_ERROR: expected NCCL \\(libnccl.so.2\\), but got none: "
      "/nonexistent/nccl.so: cannot open shared object file");
}

TEST_F(NcclLibraryTest, UsesWhatTheProcessHasLoaded) {
  EXPECT_EXIT((dlopen(newNccl.c_str(), RTLD_NOW | RTLD_LOCAL), report()),
              testing::ExitedWithCode(0), "version 22809 in .*/new/");
}

TEST_F(NcclLibraryTest, LoadsOnce) {
  const NcclLibrary *library = nullptr;
  EXPECT_EXIT(
      (name(newNccl), static_cast<void>(loadNccl(library)), report(oldNccl)),
      testing::ExitedWithCode(0), "version 22809 in .*/new/");
}

TEST_F(NcclLibraryTest, TriesAgainAfterAFailure) {
  const NcclLibrary *library = nullptr;
  EXPECT_EXIT(
      (name(oldNccl), static_cast<void>(loadNccl(library)), report(newNccl)),
      testing::ExitedWithCode(0), "version 22809 in .*/new/");
}

TEST_F(NcclLibraryTest, RejectsAVersionThatIsTooOld) {
  EXPECT_EXIT(report(oldNccl), testing::ExitedWithCode(0),
              "ZPP_RT_SYSTEM_ERROR: expected NCCL 2.19.0 or newer, but got "
              "2.18.3 in '.*/old/libnccl.so.2'");
}

TEST_F(NcclLibraryTest, RejectsALibraryWithoutTheFunctions) {
  EXPECT_EXIT(report(partOfNccl), testing::ExitedWithCode(0),
              "ZPP_RT_SYSTEM_ERROR: expected all functions of NCCL in "
              "'.*/part/libnccl.so.2', but got none named ncclCommSplit, "
              "ncclAllGather");
}

} // namespace
