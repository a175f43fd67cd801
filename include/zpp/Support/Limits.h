//===- Limits.h - Numbers that programs cannot exceed -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_LIMITS_H
#define ZPP_SUPPORT_LIMITS_H

#include <cstdint>
#include <limits>

namespace zpp {

/// The maximal number of devices of a mesh. Replica groups list all of them,
/// and a mesh larger than any machine would only take memory.
inline constexpr int64_t kMaxDevices = int64_t(1) << 20;

/// The maximal number of parts into which a collective is cut. Each is some ten
/// ops.
inline constexpr int64_t kMaxStages = 1024;

/// The maximal number of elements of a tensor that zero ops work on: bytes fit
/// into 64 bits even if each element takes 64, padded or encoded.
inline constexpr int64_t kMaxElements = (int64_t(1) << 57) - 1;

/// a + b and a * b of numbers that are not negative, such as bytes or times.
/// Results that 64 bits do not hold become the largest number.
inline int64_t addSaturating(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum)
             ? std::numeric_limits<int64_t>::max()
             : sum;
}
inline int64_t multiplySaturating(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product)
             ? std::numeric_limits<int64_t>::max()
             : product;
}

} // namespace zpp

#endif // ZPP_SUPPORT_LIMITS_H
