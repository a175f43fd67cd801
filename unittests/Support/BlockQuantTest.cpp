//===- BlockQuantTest.cpp -------------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/BlockQuant.h"
#include "ErrorBounds.h"
#include "Random.h"
#include "zpp/Support/Float16.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace zpp;

namespace {

constexpr float kMinNormal = 0x1p-126f;
constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr uint16_t kMinScaleBits = 0x0080; // 2^-126
constexpr uint16_t kMaxBF16Bits = 0x7f7f;

/// The content of a chunk, read by the definition of the layout rather than by
/// the library's decoder.
struct Decoded {
  std::vector<uint8_t> bytes;
  std::vector<int> codes;
  std::vector<uint16_t> scales;
  std::vector<float> values;
};

Decoded transport(const std::vector<float> &values, WireFormat format,
                  int64_t block) {
  Decoded result;
  int64_t elements = values.size();
  ChunkLayout layout = getChunkLayout(elements, format, block);
  result.bytes.assign(layout.chunkBytes, 0xee);
  quantizeChunk(values.data(), elements, format, block, result.bytes.data());
  for (int64_t i = 0; i < elements; ++i) {
    int code;
    if (format == WireFormat::I8) {
      code = result.bytes[i] < 128 ? result.bytes[i] : result.bytes[i] - 256;
    } else {
      code = i % 2 ? result.bytes[i / 2] / 16 : result.bytes[i / 2] % 16;
      code = code < 8 ? code : code - 16;
    }
    result.codes.push_back(code);
  }
  for (int64_t b = 0; b < layout.blocks; ++b) {
    const uint8_t *scale = &result.bytes[layout.scalesOffset + 2 * b];
    result.scales.push_back(scale[0] + 256 * scale[1]);
  }
  result.values.resize(elements);
  dequantizeChunk(result.bytes.data(), elements, format, block,
                  result.values.data());
  return result;
}

/// The scale rule on real numbers: the least bf16 that is at least 2^-126 and
/// at least amax / qmax.
uint16_t expectedScaleBits(double amax, int qmax) {
  if (amax < kMinNormal)
    return 0;
  uint16_t low = kMinScaleBits, high = kMaxBF16Bits;
  while (low < high) {
    uint16_t middle = (low + high) / 2;
    if (static_cast<double>(floatOfBF16Bits(middle)) * qmax >= amax)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// Checks a block of finite values against the definition.
void checkFiniteBlock(const std::vector<float> &values, WireFormat format,
                      int64_t block, const Decoded &decoded) {
  int qmax = maxCode(format);
  for (size_t begin = 0; begin < values.size(); begin += block) {
    size_t end = std::min<size_t>(begin + block, values.size());
    double amax = 0;
    for (size_t i = begin; i < end; ++i)
      amax = std::max(amax, std::fabs(static_cast<double>(values[i])));
    uint16_t bits = decoded.scales[begin / block];
    ASSERT_EQ(bits, expectedScaleBits(amax, qmax)) << "amax " << amax;
    double scale = floatOfBF16Bits(bits);
    for (size_t i = begin; i < end; ++i) {
      double value = values[i];
      int code = decoded.codes[i];
      ASSERT_LE(std::abs(code), qmax) << value << " of " << amax;
      ASSERT_EQ(decoded.values[i], code * scale) << value << " of " << amax;
      if (std::fabs(value) < kMinNormal) {
        ASSERT_EQ(code, 0) << value << " of " << amax;
        ASSERT_EQ(bitsOfFloat(decoded.values[i]), 0u);
        continue;
      }
      double bound = std::min(scale / 2, std::fabs(value)) * (1 + 0x1p-14);
      ASSERT_LE(std::fabs(decoded.values[i] - value), bound)
          << value << " of " << amax;
    }
  }
}

void checkNaNBlock(const Decoded &decoded) {
  for (uint16_t bits : decoded.scales)
    ASSERT_EQ(bits, 0x7fc0);
  for (int code : decoded.codes)
    ASSERT_EQ(code, 0);
  for (float value : decoded.values)
    ASSERT_TRUE(std::isnan(value));
}

//===----------------------------------------------------------------------===//
// All 16-bit inputs
//===----------------------------------------------------------------------===//

class AllBitsTest : public testing::TestWithParam<
                        std::tuple<float (*)(uint16_t), WireFormat>> {
protected:
  float widen(uint16_t bits) const { return std::get<0>(GetParam())(bits); }
  WireFormat format() const { return std::get<1>(GetParam()); }
};

/// Every value is the largest of a block once, with elements of all magnitudes
/// and elements on the borders between codes.
TEST_P(AllBitsTest, AsLargestOfABlock) {
  int qmax = maxCode(format());
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float amax = widen(bits);
    std::vector<float> values = {amax, 0.0f, -0.0f};
    if (std::isfinite(amax)) {
      values.push_back(-amax);
      float scale = floatOfBF16Bits(expectedScaleBits(std::fabs(amax), qmax));
      for (float step : {0.25f, 0.5f, 0.75f, 1.0f, 1.5f, 2.5f, 6.5f, 126.5f})
        values.push_back(
            std::copysign(std::min(step * scale, std::fabs(amax)), amax));
      for (float part : {0.001f, 0.3f, 0.6f, 0.9f, 0.999f})
        values.push_back(part * -amax);
    }
    std::vector<float> negated = values;
    for (float &value : negated)
      value = -value;

    Decoded decoded = transport(values, format(), 32);
    Decoded mirrored = transport(negated, format(), 32);
    ASSERT_EQ(mirrored.scales, decoded.scales) << bits;
    if (!std::isfinite(amax)) {
      ASSERT_NO_FATAL_FAILURE(checkNaNBlock(decoded)) << bits;
      ASSERT_NO_FATAL_FAILURE(checkNaNBlock(mirrored)) << bits;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(checkFiniteBlock(values, format(), 32, decoded));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(mirrored.codes[i], -decoded.codes[i]) << bits;
      ASSERT_EQ(mirrored.values[i], -decoded.values[i]) << bits;
    }
  }
}

/// All values are in one tensor, so that blocks hold neighbors, including the
/// block that holds infinity or NaN.
TEST_P(AllBitsTest, AsOneTensor) {
  constexpr int64_t kBlock = 128;
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    values.push_back(widen(bits));
  Decoded decoded = transport(values, format(), kBlock);

  int64_t nanBlocks = 0;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    std::vector<float> block(values.begin() + begin,
                             values.begin() + begin + kBlock);
    Decoded part;
    part.scales.push_back(decoded.scales[begin / kBlock]);
    part.codes.assign(decoded.codes.begin() + begin,
                      decoded.codes.begin() + begin + kBlock);
    part.values.assign(decoded.values.begin() + begin,
                       decoded.values.begin() + begin + kBlock);
    if (std::all_of(block.begin(), block.end(),
                    [](float value) { return std::isfinite(value); })) {
      ASSERT_NO_FATAL_FAILURE(checkFiniteBlock(block, format(), kBlock, part));
    } else {
      ++nanBlocks;
      ASSERT_NO_FATAL_FAILURE(checkNaNBlock(part));
    }
  }
  // bf16 has 2^7 bit patterns of the largest exponent and f16 2^10, per sign.
  bool isBF16 = values[0x3f80] == 1.0f;
  EXPECT_EQ(nanBlocks, isBF16 ? 2 : 16);
}

/// No value moves by more than half a step, whatever the extremes beside it.
TEST_P(AllBitsTest, AsSmallElementOfAUnitBlock) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = widen(bits);
    if (!(std::fabs(value) <= 1.0f))
      continue;
    std::vector<float> values = {1.0f, value};
    ASSERT_NO_FATAL_FAILURE(checkFiniteBlock(values, format(), 32,
                                             transport(values, format(), 32)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, AllBitsTest,
    testing::Combine(testing::Values(floatOfBF16Bits, floatOfF16Bits),
                     testing::Values(WireFormat::I8, WireFormat::I4)),
    [](const auto &info) {
      bool isBF16 = std::get<0>(info.param)(0x3f80) == 1.0f;
      bool isI8 = std::get<1>(info.param) == WireFormat::I8;
      return std::string(isBF16 ? "BF16" : "F16") + (isI8 ? "I8" : "I4");
    });

//===----------------------------------------------------------------------===//
// Scales and codes
//===----------------------------------------------------------------------===//

class BlockQuantTest : public testing::TestWithParam<WireFormat> {
protected:
  int qmax() const { return maxCode(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Formats, BlockQuantTest,
                         testing::Values(WireFormat::I8, WireFormat::I4),
                         [](const auto &info) {
                           return info.param == WireFormat::I8 ? "I8" : "I4";
                         });

/// For every scale, checks the magnitudes around the border at which the next
/// larger scale begins.
TEST_P(BlockQuantTest, LargestElementNeverExceedsTheLargestCode) {
  int64_t borders = 0;
  for (uint16_t bits = kMinScaleBits; bits <= kMaxBF16Bits; ++bits) {
    float border = floatOfBF16Bits(bits) * qmax();
    if (!std::isfinite(border))
      continue;
    float amax = border;
    for (int ulp = 0; ulp < 4; ++ulp)
      amax = std::nextafterf(amax, 0.0f);
    for (int ulp = -4; ulp <= 4;
         ++ulp, amax = std::nextafterf(amax, kInfinity)) {
      if (!std::isfinite(amax))
        break;
      uint16_t stored = scaleBits(magnitudeBits(amax), GetParam());
      // One ulp above, amax / qmax may round down to the border itself.
      if (ulp <= 0)
        ASSERT_EQ(stored, bits) << amax;
      else
        ASSERT_TRUE(stored == bits + 1 || (stored == bits && ulp == 1)) << amax;
      float inverse = inverseScale(floatOfBF16Bits(stored));
      ASSERT_LE(encodeValue(amax, inverse), qmax()) << amax;
      ASSERT_GE(encodeValue(-amax, inverse), -qmax()) << amax;
      if (ulp == 0) {
        ASSERT_EQ(encodeValue(amax, inverse), qmax()) << amax;
      }
      ++borders;
    }
  }
  EXPECT_GT(borders, 9 * 31000);
}

TEST_P(BlockQuantTest, ScaleOfRandomFloats) {
  Random random(1);
  for (int i = 0; i < 1000000; ++i) {
    float amax = floatOfBits(random.bits() & 0x7fffffffu);
    if (!std::isfinite(amax) || amax < kMinNormal)
      continue;
    double scale = floatOfBF16Bits(scaleBits(magnitudeBits(amax), GetParam()));
    double exact = static_cast<double>(amax) / qmax();
    ASSERT_GE(scale, exact * (1 - 0x1p-24)) << amax;
    ASSERT_LE(scale, std::max<double>(kMinNormal, exact * (1 + 0x1p-7)))
        << amax;
    float inverse = inverseScale(static_cast<float>(scale));
    ASSERT_LE(encodeValue(amax, inverse), qmax()) << amax;
    // Rounding the scale up costs less than one level of i8, and none of i4.
    if (amax >= qmax() * kMinNormal) {
      ASSERT_GE(encodeValue(amax, inverse), qmax() == 7 ? 7 : 126) << amax;
    }
  }
}

/// This is why a fused multiply-add changes no bit of a sum.
TEST_P(BlockQuantTest, CodeTimesScaleIsExact) {
  for (uint16_t bits = kMinScaleBits; bits <= kMaxBF16Bits; ++bits) {
    float scale = floatOfBF16Bits(bits);
    for (int code = -qmax(); code <= qmax(); ++code) {
      double exact = code * static_cast<double>(scale);
      float got = decodeValue(code, scale);
      ASSERT_TRUE(got == exact ||
                  (std::isinf(got) && std::fabs(exact) >= 0x1p128))
          << code << " * " << scale;
    }
  }
}

TEST_P(BlockQuantTest, TiesGoToEven) {
  // amax = qmax makes the scale 1.
  std::vector<float> values = {static_cast<float>(qmax()),
                               0.5f,
                               1.5f,
                               2.5f,
                               3.5f,
                               -0.5f,
                               -1.5f,
                               -2.5f,
                               -3.5f};
  Decoded decoded = transport(values, GetParam(), 32);
  EXPECT_EQ(decoded.scales, std::vector<uint16_t>{0x3f80});
  EXPECT_EQ(decoded.codes,
            (std::vector<int>{qmax(), 0, 2, 2, 4, 0, -2, -2, -4}));
  // Next to a tie they do not.
  values = {static_cast<float>(qmax()), std::nextafterf(0.5f, 1.0f),
            std::nextafterf(2.5f, 3.0f), std::nextafterf(-3.5f, 0.0f)};
  EXPECT_EQ(transport(values, GetParam(), 32).codes,
            (std::vector<int>{qmax(), 1, 3, -3}));
}

//===----------------------------------------------------------------------===//
// Extremes
//===----------------------------------------------------------------------===//

TEST_P(BlockQuantTest, FlushBoundary) {
  float below = std::nextafterf(kMinNormal, 0.0f);
  // The smallest normal number, of either sign, is a code of its own scale ...
  Decoded decoded = transport({kMinNormal, -kMinNormal}, GetParam(), 32);
  EXPECT_EQ(decoded.scales, std::vector<uint16_t>{kMinScaleBits});
  EXPECT_EQ(decoded.values, (std::vector<float>{kMinNormal, -kMinNormal}));
  // ... and anything below counts as zero, even if it would round to code 1.
  decoded = transport({kMinNormal, below, -below}, GetParam(), 32);
  EXPECT_EQ(decoded.values, (std::vector<float>{kMinNormal, 0.0f, 0.0f}));
  // A block of only such values is a zero block, bit for bit.
  decoded = transport({below, -below, 0x1p-149f, -0x1p-149f}, GetParam(), 32);
  EXPECT_EQ(decoded.bytes, std::vector<uint8_t>(decoded.bytes.size(), 0));
  for (float value : decoded.values)
    EXPECT_EQ(bitsOfFloat(value), 0u);
}

TEST_P(BlockQuantTest, ScaleIsClampedToTheSmallestNormal) {
  for (int multiple = 1; multiple <= qmax(); ++multiple) {
    float amax = multiple * kMinNormal;
    Decoded decoded = transport({amax}, GetParam(), 32);
    ASSERT_EQ(decoded.scales, std::vector<uint16_t>{kMinScaleBits});
    ASSERT_EQ(decoded.codes, std::vector<int>{multiple});
    ASSERT_EQ(decoded.values, std::vector<float>{amax});
  }
  float next =
      std::nextafterf(std::nextafterf(qmax() * kMinNormal, 1.0f), 1.0f);
  EXPECT_EQ(scaleBits(magnitudeBits(next), GetParam()), kMinScaleBits + 1);
}

TEST_P(BlockQuantTest, LargestBF16AndF16StayFinite) {
  for (float amax : {floatOfBF16Bits(kMaxBF16Bits), 65504.0f}) {
    std::vector<float> values = {amax, -amax, amax / 3};
    ASSERT_NO_FATAL_FAILURE(checkFiniteBlock(
        values, GetParam(), 32, transport(values, GetParam(), 32)));
  }
}

TEST(BlockQuant, LargestFloatInI8) {
  std::vector<float> values = {kMaxFloat, -kMaxFloat, kMaxFloat / 2};
  Decoded decoded = transport(values, WireFormat::I8, 32);
  ASSERT_NO_FATAL_FAILURE(
      checkFiniteBlock(values, WireFormat::I8, 32, decoded));
  // The largest 3 % of the magnitudes stay finite; checked in steps of 255 ulp.
  for (uint32_t bits = 0x7f780000; bits < 0x7f800000; bits += 0xff) {
    float amax = floatOfBits(bits);
    ASSERT_TRUE(std::isfinite(transport({amax}, WireFormat::I8, 32).values[0]));
  }
}

TEST(BlockQuant, LargestFloatInI4RoundsToInfinity) {
  // 7 times the scale above 146/128 * 2^125 is more than the largest float.
  float last = 0x1.ffp127f;
  EXPECT_EQ(transport({last}, WireFormat::I4, 32).values[0], last);
  for (float amax : {std::nextafterf(last, kInfinity), kMaxFloat}) {
    Decoded decoded = transport({amax, -amax, 0.0f}, WireFormat::I4, 32);
    EXPECT_EQ(decoded.codes, (std::vector<int>{7, -7, 0}));
    EXPECT_EQ(decoded.values, (std::vector<float>{kInfinity, -kInfinity, 0}));
  }
}

/// With scales of type f16, these would underflow and the block would vanish.
TEST_P(BlockQuantTest, TinyGradientsSurvive) {
  Random random(2);
  for (float magnitude : {1e-9f, 1e-12f, 1e-20f, 1e-30f}) {
    std::vector<float> values(128);
    float amax = 0;
    for (float &value : values) {
      value = magnitude * random.normal();
      amax = std::max(amax, std::fabs(value));
    }
    ASSERT_EQ(f16BitsOfFloat(amax / qmax()), 0) << "no underflow to avoid";
    Decoded decoded = transport(values, GetParam(), 128);
    ASSERT_NO_FATAL_FAILURE(checkFiniteBlock(values, GetParam(), 128, decoded));
    double error = 0, norm = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      double difference = static_cast<double>(decoded.values[i]) - values[i];
      error += difference * difference;
      norm += static_cast<double>(values[i]) * values[i];
    }
    // The error of a uniform rounding at amax = 3 sigma: 0.7 % and 13 %.
    EXPECT_LT(std::sqrt(error / norm), qmax() == 127 ? 0.01 : 0.2);
  }
}

TEST_P(BlockQuantTest, ZeroBlockIsExact) {
  std::vector<float> values(70, 0.0f);
  for (size_t i = 0; i < values.size(); i += 2)
    values[i] = -0.0f;
  Decoded decoded = transport(values, GetParam(), 32);
  EXPECT_EQ(decoded.bytes, std::vector<uint8_t>(decoded.bytes.size(), 0));
  for (float value : decoded.values)
    EXPECT_EQ(bitsOfFloat(value), 0u);
}

TEST_P(BlockQuantTest, NaNBlockDoesNotTouchItsNeighbors) {
  constexpr int kBlock = 32;
  std::vector<float> clean(3 * kBlock);
  for (size_t i = 0; i < clean.size(); ++i)
    clean[i] = std::sin(static_cast<float>(i));
  Decoded expected = transport(clean, GetParam(), kBlock);

  for (float bad : {kNaN, -kNaN, kInfinity, -kInfinity, floatOfBits(0x7f800001),
                    floatOfBits(0xffffffff)}) {
    for (int position : {kBlock, kBlock + 7, 2 * kBlock - 1}) {
      std::vector<float> values = clean;
      values[position] = bad;
      Decoded decoded = transport(values, GetParam(), kBlock);
      for (int i = 0; i < 3 * kBlock; ++i) {
        if (i / kBlock == 1) {
          ASSERT_TRUE(std::isnan(decoded.values[i])) << i;
          ASSERT_EQ(decoded.codes[i], 0) << i;
        } else {
          ASSERT_EQ(decoded.values[i], expected.values[i]) << i;
        }
      }
      EXPECT_EQ(decoded.scales[0], expected.scales[0]);
      EXPECT_EQ(decoded.scales[1], 0x7fc0);
      EXPECT_EQ(decoded.scales[2], expected.scales[2]);
    }
  }
}

TEST(BlockQuant, MagnitudeBitsOrderAsMagnitudes) {
  // 2^16 evenly spread bit patterns of floats; NaNs are above all numbers.
  uint32_t previous = 0;
  for (uint32_t bits = 0; bits < 0x80000000u; bits += 0x7fff) {
    uint32_t got = magnitudeBits(floatOfBits(bits));
    ASSERT_EQ(got, magnitudeBits(floatOfBits(bits | 0x80000000u)));
    ASSERT_EQ(got, bits < 0x00800000u ? 0u : bits);
    ASSERT_GE(got, previous);
    previous = got;
  }
  EXPECT_GT(magnitudeBits(-kNaN), magnitudeBits(kInfinity));
  EXPECT_GT(magnitudeBits(floatOfBits(0x7f800001)), magnitudeBits(kInfinity));
}

TEST(BlockQuant, InverseScaleOfZeroAndNaN) {
  EXPECT_EQ(inverseScale(0.0f), 0.0f);
  EXPECT_EQ(inverseScale(kNaN), 0.0f);
  EXPECT_EQ(inverseScale(0x1p-126f), 0x1p126f);
  // Not the result of converting NaN to int, which only shows at run time.
  for (volatile float value : {kNaN, kInfinity, -kInfinity, 1.0f})
    EXPECT_EQ(encodeValue(value, 0.0f), 0);
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

TEST(BlockQuant, DifferencesFlushWhatIsSubnormal) {
  EXPECT_EQ(subtractHeld(3.0f, 1.0f), 2.0f);
  EXPECT_EQ(addHeld(1.0f, 2.0f), 3.0f);
  // What goes in,
  EXPECT_EQ(subtractHeld(0x1.8p-126f, 0x1p-127f), 0x1.8p-126f);
  EXPECT_EQ(addHeld(0x1p-127f, 0x1.8p-126f), 0x1.8p-126f);
  // and what comes out; with its sign.
  EXPECT_EQ(bitsOfFloat(subtractHeld(0x1p-126f, 0x1.8p-126f)), 0x80000000u);
  EXPECT_EQ(bitsOfFloat(addHeld(0x1.8p-126f, -0x1p-126f)), 0u);
  EXPECT_EQ(bitsOfFloat(addHeld(-0x1p-127f, -0.0f)), 0x80000000u);
  EXPECT_EQ(bitsOfFloat(subtractHeld(1.0f, 1.0f)), 0u);
  // What is not finite stays visible.
  float largest = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isinf(subtractHeld(largest, -largest)));
  EXPECT_TRUE(std::isnan(addHeld(1.0f, NAN)));
  EXPECT_TRUE(std::isnan(subtractHeld(NAN, 1.0f)));
  // What is held does not stay so for ever.
  for (float held : {NAN, -NAN, INFINITY, -INFINITY}) {
    EXPECT_EQ(subtractHeld(3.0f, held), 3.0f);
    EXPECT_EQ(addHeld(held, 3.0f), 3.0f);
  }
  EXPECT_EQ(addHeld(largest, 0.0f), largest);
}

TEST_P(BlockQuantTest, DifferencesDoNotDrift) {
  Random random(17);
  constexpr int64_t kElements = 256, kBlock = 64;
  std::vector<float> weights(kElements), held(kElements);
  for (float &weight : weights)
    weight = random.normal();
  std::vector<float> differences(kElements), values(kElements);
  std::vector<uint8_t> chunk(
      getChunkLayout(kElements, GetParam(), kBlock).chunkBytes);
  for (int step = 0; step < 1000; ++step) {
    float change = step == 0 ? 0.0f : 1e-3f, largest = 0.0f;
    for (int64_t i = 0; i < kElements; ++i) {
      weights[i] += change * random.normal();
      differences[i] = subtractHeld(weights[i], held[i]);
      largest = std::max(largest, std::fabs(differences[i]));
    }
    quantizeChunk(differences.data(), kElements, GetParam(), kBlock,
                  chunk.data());
    dequantizeChunk(chunk.data(), kElements, GetParam(), kBlock, values.data());
    for (int64_t i = 0; i < kElements; ++i) {
      held[i] = addHeld(held[i], values[i]);
      // Half a step of this difference, whatever came before, and the rounding
      // of the sum.
      double bound = getBlockErrorBound(largest, GetParam()) +
                     std::fabs(static_cast<double>(weights[i])) * 0x1p-22;
      ASSERT_LE(std::fabs(static_cast<double>(held[i]) - weights[i]), bound)
          << "step " << step << ", element " << i;
    }
  }
}

TEST(BlockQuant, NibblesAreLowFirstAndTwosComplement) {
  for (int low = -8; low < 8; ++low) {
    for (int high = -8; high < 8; ++high) {
      uint8_t byte = packNibbles(low, high);
      ASSERT_EQ(byte, (low + 16) % 16 + (high + 16) % 16 * 16);
      ASSERT_EQ(unpackNibble(byte, 0), low);
      ASSERT_EQ(unpackNibble(byte, 1), high);
    }
  }
}

TEST(BlockQuant, ValidBlocks) {
  std::vector<int64_t> valid;
  for (int64_t block = -4096; block <= 8192; ++block)
    if (isValidBlock(block))
      valid.push_back(block);
  EXPECT_EQ(valid, (std::vector<int64_t>{32, 64, 128, 256, 512, 1024, 2048}));
}

TEST(BlockQuant, FormatFacts) {
  EXPECT_EQ(maxCode(WireFormat::I8), 127);
  EXPECT_EQ(maxCode(WireFormat::I4), 7);
  EXPECT_EQ(elementBytes(ElementType::F32), 4);
  EXPECT_EQ(elementBytes(ElementType::BF16), 2);
  EXPECT_EQ(elementBytes(ElementType::F16), 2);
}

TEST_P(BlockQuantTest, LayoutOfAllSizes) {
  int64_t perByte = GetParam() == WireFormat::I4 ? 2 : 1;
  for (int64_t block = kMinBlock; block <= kMaxBlock; block *= 2) {
    for (int64_t elements = 0; elements <= 2 * kMaxBlock + 1; ++elements) {
      ChunkLayout layout = getChunkLayout(elements, GetParam(), block);
      ASSERT_EQ(layout.elements, elements);
      // The smallest numbers of blocks and of payload bytes that hold all.
      ASSERT_GE(layout.blocks * block, elements);
      ASSERT_LT((layout.blocks - 1) * block, std::max<int64_t>(elements, 1));
      ASSERT_GE(layout.payloadBytes * perByte, elements);
      ASSERT_LT(layout.payloadBytes * perByte, elements + perByte);
      // The next boundaries.
      ASSERT_EQ(layout.scalesOffset % kChunkAlignment, 0);
      ASSERT_GE(layout.scalesOffset, layout.payloadBytes);
      ASSERT_LT(layout.scalesOffset, layout.payloadBytes + kChunkAlignment);
      int64_t end = layout.scalesOffset + 2 * layout.blocks;
      ASSERT_EQ(layout.chunkBytes % kChunkAlignment, 0);
      ASSERT_GE(layout.chunkBytes, end);
      ASSERT_LT(layout.chunkBytes, end + kChunkAlignment);
    }
  }
}

TEST(BlockQuant, LayoutExamples) {
  auto check = [](int64_t elements, WireFormat format, int64_t block,
                  int64_t payloadBytes, int64_t scalesOffset,
                  int64_t chunkBytes) {
    ChunkLayout layout = getChunkLayout(elements, format, block);
    EXPECT_EQ(layout.payloadBytes, payloadBytes);
    EXPECT_EQ(layout.scalesOffset, scalesOffset);
    EXPECT_EQ(layout.chunkBytes, chunkBytes);
  };
  check(0, WireFormat::I8, 128, 0, 0, 0);
  check(1, WireFormat::I8, 128, 1, 16, 32);
  check(128, WireFormat::I8, 128, 128, 128, 144);
  check(129, WireFormat::I8, 128, 129, 144, 160);
  check(129, WireFormat::I4, 128, 65, 80, 96);
  check(1024, WireFormat::I4, 128, 512, 512, 528);
  check(1025, WireFormat::I4, 128, 513, 528, 560);
  // Sizes beyond 32 bits.
  check(int64_t(1) << 33, WireFormat::I4, 2048, int64_t(1) << 32,
        int64_t(1) << 32, (int64_t(1) << 32) + (int64_t(1) << 23));
}

TEST(BlockQuant, ChunkBytesI8) {
  // Scale 2: 254 / 127.
  std::vector<float> values = {254.0f, -254.0f, 3.0f, -2.0f, 0.0f};
  std::vector<uint8_t> expected(32);
  expected[0] = 0x7f;
  expected[1] = 0x81;
  expected[2] = 0x02; // 1.5 to even.
  expected[3] = 0xff;
  expected[17] = 0x40; // 0x4000, little endian.
  EXPECT_EQ(transport(values, WireFormat::I8, 32).bytes, expected);
}

TEST(BlockQuant, ChunkBytesI4) {
  // Two blocks, the second of one element; scales 1 and 1.5.
  std::vector<float> values(33, 0.0f);
  values[0] = 7.0f;
  values[1] = -1.0f;
  values[2] = -7.0f;
  values[31] = 3.0f;
  values[32] = -10.5f;
  std::vector<uint8_t> expected(48);
  expected[0] = 0xf7;
  expected[1] = 0x09;
  expected[15] = 0x30;
  expected[16] = 0x09;
  expected[32] = 0x80;
  expected[33] = 0x3f;
  expected[34] = 0xc0;
  expected[35] = 0x3f;
  EXPECT_EQ(transport(values, WireFormat::I4, 32).bytes, expected);
}

/// For every length around one and two blocks: values make the round trip,
/// padding is zero, and no byte outside the chunk is touched.
TEST_P(BlockQuantTest, AllLengths) {
  Random random(3);
  for (int64_t block : {32, 64}) {
    for (int64_t elements = 0; elements <= 2 * block + 3; ++elements) {
      std::vector<float> values(elements);
      for (float &value : values)
        value = random.normal();
      ChunkLayout layout = getChunkLayout(elements, GetParam(), block);

      constexpr int64_t kMargin = 16;
      std::vector<uint8_t> buffer(layout.chunkBytes + 2 * kMargin, 0xa5);
      uint8_t *chunk = buffer.data() + kMargin;
      quantizeChunk(values.data(), elements, GetParam(), block, chunk);
      for (int64_t i = 0; i < kMargin; ++i) {
        ASSERT_EQ(buffer[i], 0xa5);
        ASSERT_EQ(chunk[layout.chunkBytes + i], 0xa5);
      }
      for (int64_t i = layout.payloadBytes; i < layout.scalesOffset; ++i)
        ASSERT_EQ(chunk[i], 0);
      for (int64_t i = layout.scalesOffset + 2 * layout.blocks;
           i < layout.chunkBytes; ++i)
        ASSERT_EQ(chunk[i], 0);
      if (GetParam() == WireFormat::I4 && elements % 2) {
        ASSERT_EQ(chunk[elements / 2] >> 4, 0);
      }

      std::vector<float> read(elements + 1, 42.0f);
      dequantizeChunk(chunk, elements, GetParam(), block, read.data());
      ASSERT_EQ(read.back(), 42.0f);
      read.pop_back();
      Decoded decoded = transport(values, GetParam(), block);
      ASSERT_EQ(read, decoded.values);
      for (int64_t i = 0; i < elements; ++i) {
        double scale = floatOfBF16Bits(decoded.scales[i / block]);
        ASSERT_LE(std::fabs(static_cast<double>(read[i]) - values[i]),
                  scale / 2 * (1 + 0x1p-14));
      }
    }
  }
}

} // namespace
