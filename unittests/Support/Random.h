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
    double radius = std::sqrt(chiSquared2());
    return radius * std::cos(kTurn * uniform());
  }
  /// Student's t with three degrees of freedom, which has the heavy tails of
  /// real gradients. Numerator and denominator take one normal number each, at
  /// right angles; two more squares are a chi-squared number.
  double studentT3() {
    double radius = std::sqrt(chiSquared2()), angle = kTurn * uniform();
    double other = radius * std::sin(angle);
    return radius * std::cos(angle) /
           std::sqrt((other * other + chiSquared2()) / 3);
  }

private:
  static constexpr double kTurn = 2 * 3.14159265358979323846;

  /// The sum of the squares of two normal numbers.
  double chiSquared2() { return -2 * std::log(uniform()); }

  std::mt19937_64 engine;
};

} // namespace zpp

#endif // ZPP_UNITTESTS_SUPPORT_RANDOM_H
