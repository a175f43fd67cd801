//===- Random.h - Random numbers that are the same everywhere ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The standard defines the generators to the bit, but not the distributions.
// Thresholds on measured errors should not depend on the library.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_SUPPORT_RANDOM_H // NOLINT(llvm-header-guard)
#define ZPP_UNITTESTS_SUPPORT_RANDOM_H

#include <cmath>
#include <cstdint>
#include <random>

namespace zpp {

class Random {
public:
  explicit Random(uint64_t seed) : engine(seed) {}

  uint64_t bits() { return engine(); }
  /// In (0, 1).
  double uniform() { return ((engine() >> 12) + 0.5) * 0x1p-52; }
  double uniform(double low, double high) {
    return low + (high - low) * uniform();
  }
  double normal() {
    double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * 3.14159265358979323846 * uniform());
  }
  /// Student's t with three degrees of freedom, which has the heavy tails of
  /// real gradients.
  double studentT3() {
    double numerator = normal();
    double sum = 0;
    for (int i = 0; i < 3; ++i) {
      double value = normal();
      sum += value * value;
    }
    return numerator / std::sqrt(sum / 3);
  }

private:
  std::mt19937_64 engine;
};

} // namespace zpp

#endif // ZPP_UNITTESTS_SUPPORT_RANDOM_H
