//===- OlderGlibcTest.cpp - Tests of OlderGlibc.cpp -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Linked as the programs of a wheel are: with static libstdc++ and libgcc,
// which call what OlderGlibc.cpp defines.
//
//===----------------------------------------------------------------------===//

#include "gtest/gtest.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 36)
namespace {

using FindObject = decltype(&_dl_find_object);

/// Returns the function of the system.
FindObject getSystems() {
  return reinterpret_cast<FindObject>(dlsym(RTLD_DEFAULT, "_dl_find_object"));
}

void *addressOf(const void *address) { return const_cast<void *>(address); }

TEST(OlderGlibc, IsNotSeenByOtherLibraries) {
  ASSERT_NE(getSystems(), nullptr);
  EXPECT_NE(getSystems(), &_dl_find_object);
  EXPECT_NE(dlsym(RTLD_DEFAULT, "arc4random"),
            reinterpret_cast<void *>(&arc4random));
}

TEST(OlderGlibc, FindsTheTableThatGlibcFinds) {
  static const int here = 0;
  for (void *address : {reinterpret_cast<void *>(&getSystems), addressOf(&here),
                        dlsym(RTLD_DEFAULT, "getenv"),
                        dlsym(RTLD_DEFAULT, "sin"), addressOf(&stdout)}) {
    dl_find_object expected{}, found{};
    if (!address)
      continue;
    ASSERT_EQ(getSystems()(address, &expected), 0);
    ASSERT_EQ(_dl_find_object(address, &found), 0);
    EXPECT_EQ(found.dlfo_eh_frame, expected.dlfo_eh_frame);
    EXPECT_LE(found.dlfo_map_start, address);
    EXPECT_GT(found.dlfo_map_end, address);
    EXPECT_EQ(found.dlfo_flags, expected.dlfo_flags);
  }
}

TEST(OlderGlibc, FindsNothingElsewhere) {
  auto memory = std::make_unique<char[]>(16);
  int local = 0;
  dl_find_object found{};
  for (void *address :
       {static_cast<void *>(nullptr), static_cast<void *>(memory.get()),
        static_cast<void *>(&local), reinterpret_cast<void *>(UINTPTR_MAX)}) {
    EXPECT_EQ(_dl_find_object(address, &found), -1);
    EXPECT_EQ(found.dlfo_eh_frame, nullptr);
  }
}

[[gnu::noinline]] void throwAfter(int calls) {
  if (calls == 0)
    throw std::runtime_error("thrown");
  throwAfter(calls - 1);
}

/// Through frames of this program and of a library.
TEST(OlderGlibc, ExceptionsAreCaught) {
  EXPECT_THROW(throwAfter(10), std::runtime_error);
  int numbers[] = {2, 1};
  auto compare = [](const void *, const void *) -> int {
    throw std::invalid_argument("thrown");
  };
  EXPECT_THROW(std::qsort(numbers, 2, sizeof(int), compare),
               std::invalid_argument);
}

TEST(OlderGlibc, RandomNumbersDiffer) {
  std::set<uint32_t> numbers;
  uint32_t ones = 0, zeros = 0;
  for (int i = 0; i < 100; ++i) {
    uint32_t number = arc4random();
    numbers.insert(number);
    ones |= number;
    zeros |= ~number;
  }
  // Two of them are equal in one run of a million.
  EXPECT_GE(numbers.size(), 98u);
  EXPECT_EQ(ones, UINT32_MAX);
  EXPECT_EQ(zeros, UINT32_MAX);
  std::random_device device;
  EXPECT_NE(std::min({device(), device(), device()}),
            std::max({device(), device(), device()}));
}

} // namespace
#endif
