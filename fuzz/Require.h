//===- Require.h - What must hold for every input ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_FUZZ_REQUIRE_H
#define ZPP_FUZZ_REQUIRE_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

/// Aborts, which is what a fuzzer looks for, where `condition` does not hold.
inline void require(bool condition, const char *what) {
  if (condition)
    return;
  std::fprintf(stderr, "expected %s\n", what);
  std::abort();
}

#endif // ZPP_FUZZ_REQUIRE_H
