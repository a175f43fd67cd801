//===- Float16Test.cpp ----------------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/Float16.h"
#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace zpp;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A 16-bit format, computed digit by digit from its definition.
struct Format {
  int exponentBits;
  int fractionBits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);

  double value(uint16_t bits) const {
    int bias = (1 << (exponentBits - 1)) - 1;
    int exponent = bits >> fractionBits & ((1 << exponentBits) - 1);
    int fraction = bits & ((1 << fractionBits) - 1);
    double magnitude;
    if (exponent == (1 << exponentBits) - 1)
      magnitude = fraction ? NAN : HUGE_VAL;
    else if (exponent == 0)
      magnitude = std::ldexp(fraction, 1 - bias - fractionBits);
    else
      magnitude = std::ldexp(fraction + (1 << fractionBits),
                             exponent - bias - fractionBits);
    return bits & 0x8000 ? -magnitude : magnitude;
  }
  uint16_t infinityBits() const {
    return static_cast<uint16_t>(((1 << exponentBits) - 1) << fractionBits);
  }
};

const Format kF16 = {5, 10, floatOfF16Bits, f16BitsOfFloat};
const Format kBF16 = {8, 7, floatOfBF16Bits, bf16BitsOfFloat};

class Float16Test : public testing::TestWithParam<const Format *> {};

TEST_P(Float16Test, WideningIsExactForAllBits) {
  const Format &format = *GetParam();
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    double expected = format.value(bits);
    float got = format.widen(bits);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(got)) << bits;
    else
      ASSERT_EQ(got, expected) << bits;
    ASSERT_EQ(std::signbit(got), bits >= 0x8000) << bits;
  }
}

TEST_P(Float16Test, NarrowingInvertsWideningForAllBits) {
  const Format &format = *GetParam();
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    uint16_t got = format.narrow(format.widen(bits));
    uint32_t expected = bits;
    if (std::isnan(format.value(bits))) // A signaling NaN becomes quiet.
      expected |= 1u << (format.fractionBits - 1);
    ASSERT_EQ(got, expected);
  }
}

TEST_P(Float16Test, NarrowingRoundsToNearestEvenBetweenAllNeighbors) {
  const Format &format = *GetParam();
  for (uint32_t low = 0; low < format.infinityBits(); ++low) {
    uint32_t high = low + 1;
    // Infinity takes the place of the next finite value.
    double above = high == format.infinityBits()
                       ? 2 * format.value(low) - format.value(low - 1)
                       : format.value(high);
    float middle = static_cast<float>((format.value(low) + above) / 2);
    ASSERT_EQ(format.narrow(middle), low % 2 ? high : low) << low;
    ASSERT_EQ(format.narrow(std::nextafterf(middle, 0.0f)), low);
    ASSERT_EQ(format.narrow(std::nextafterf(middle, kInfinity)), high);
    ASSERT_EQ(format.narrow(-std::nextafterf(middle, 0.0f)), 0x8000 | low);
    ASSERT_EQ(format.narrow(-std::nextafterf(middle, kInfinity)),
              0x8000 | high);
  }
}

TEST_P(Float16Test, NarrowingKeepsNaNWhosePayloadIsOnlyInTheLowBits) {
  const Format &format = *GetParam();
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu}) {
    uint16_t got = format.narrow(floatOfBits(bits));
    EXPECT_TRUE(std::isnan(format.value(got))) << std::hex << bits;
    EXPECT_EQ(got >> 15, bits >> 31);
  }
}

TEST(Float16, WideningF16MakesNaNQuiet) {
  EXPECT_EQ(bitsOfFloat(floatOfF16Bits(0x7c01)), 0x7fc02000u);
  EXPECT_EQ(bitsOfFloat(floatOfF16Bits(0xfdff)), 0xffffe000u);
  EXPECT_EQ(bitsOfFloat(floatOfF16Bits(0x7e00)), 0x7fc00000u);
}

TEST_P(Float16Test, NarrowingSaturatesToInfinity) {
  const Format &format = *GetParam();
  float max = std::numeric_limits<float>::max();
  EXPECT_EQ(format.narrow(max), format.infinityBits());
  EXPECT_EQ(format.narrow(-max), 0x8000 | format.infinityBits());
  EXPECT_EQ(format.narrow(kInfinity), format.infinityBits());
}

INSTANTIATE_TEST_SUITE_P(Formats, Float16Test, testing::Values(&kF16, &kBF16),
                         [](const auto &info) {
                           return info.param == &kF16 ? "F16" : "BF16";
                         });

} // namespace
