//===- QuantReferenceTest.cpp ---------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ErrorBounds.h"
#include "Random.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

using namespace zpp;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kMinNormal = 0x1p-126f;

std::vector<float> roundTrip(const std::vector<float> &values,
                             WireFormat format, int64_t block) {
  int64_t elements = values.size();
  std::vector<uint8_t> chunk(
      getChunkLayout(elements, format, block).chunkBytes);
  quantizeChunk(values.data(), elements, format, block, chunk.data());
  std::vector<float> result(elements);
  dequantizeChunk(chunk.data(), elements, format, block, result.data());
  return result;
}

double getNorm(const std::vector<float> &values) {
  double sum = 0;
  for (double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

double getDistance(const std::vector<float> &a, const std::vector<float> &b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

double getL2Bound(const std::vector<float> &values, WireFormat format,
                  int64_t block) {
  return getChunkL2ErrorBound(values.data(), values.size(), format, block);
}

/// Returns the worst possible block: its largest element just needs the next
/// larger scale, and all others lie half a step from a code.
std::vector<float> makeWorstBlock(WireFormat format, int64_t block) {
  // 1 + 2^-7 is the scale after 1.
  float scale = 1.0f + 0x1p-7f;
  std::vector<float> values(block, scale / 2);
  values[0] = maxCode(format) * (1.0f + 0x1p-20f);
  for (size_t i = 1; i < values.size(); i += 2)
    values[i] = -values[i];
  return values;
}

struct Distribution {
  const char *name;
  double (*draw)(Random &random);
};

const Distribution kDistributions[] = {
    {"uniform", [](Random &random) { return random.uniform(-1, 1); }},
    {"normal", [](Random &random) { return random.normal(); }},
    {"student-t(3)", [](Random &random) { return random.studentT3(); }},
    {"sparse",
     [](Random &random) {
       return random.uniform() < 0.98 ? 0.0 : random.normal();
     }},
    // Magnitudes that span 60 binary orders.
    {"log-uniform",
     [](Random &random) {
       double magnitude = std::exp2(random.uniform(-30, 30));
       return random.bits() % 2 ? magnitude : -magnitude;
     }},
};

class QuantReferenceTest
    : public testing::TestWithParam<std::tuple<WireFormat, int64_t>> {
protected:
  WireFormat format() const { return std::get<0>(GetParam()); }
  int64_t block() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(
    Formats, QuantReferenceTest,
    testing::Combine(testing::Values(WireFormat::I8, WireFormat::I4),
                     testing::Values(32, 64, 128, 256, 512, 1024, 2048)),
    [](const auto &info) {
      return (std::get<0>(info.param) == WireFormat::I8 ? "I8Block"
                                                        : "I4Block") +
             std::to_string(std::get<1>(info.param));
    });

//===----------------------------------------------------------------------===//
// Bounds of one chunk
//===----------------------------------------------------------------------===//

TEST_P(QuantReferenceTest, RandomErrorsStayWithinTheBounds) {
  Random random(1);
  double relative = getRelativeErrorBound(format(), block());
  for (const Distribution &distribution : kDistributions) {
    for (int trial = 0; trial < 8; ++trial) {
      // The last block is short.
      std::vector<float> values(3 * block() + block() / 2 + trial);
      for (float &value : values)
        value = distribution.draw(random);
      std::vector<float> read = roundTrip(values, format(), block());
      double error = getDistance(read, values);
      double chunkBound = getL2Bound(values, format(), block());
      EXPECT_LE(error, chunkBound) << distribution.name;
      EXPECT_LE(chunkBound, relative * getNorm(values)) << distribution.name;
      for (size_t begin = 0; begin < values.size(); begin += block()) {
        size_t end = std::min<size_t>(begin + block(), values.size());
        double amax = 0;
        for (size_t i = begin; i < end; ++i)
          amax = std::max<double>(amax, std::fabs(values[i]));
        double bound = getBlockErrorBound(amax, format());
        for (size_t i = begin; i < end; ++i)
          ASSERT_LE(std::fabs(static_cast<double>(read[i]) - values[i]), bound)
              << distribution.name;
      }
    }
  }
}

/// Every bound is tight: the worst block comes close to each of them.
TEST_P(QuantReferenceTest, WorstBlockReachesTheBounds) {
  std::vector<float> values = makeWorstBlock(format(), block());
  std::vector<float> read = roundTrip(values, format(), block());
  double error = getDistance(read, values);

  double relative = error / getNorm(values);
  double relativeBound = getRelativeErrorBound(format(), block());
  EXPECT_LE(relative, relativeBound);
  EXPECT_GT(relative, 0.98 * relativeBound);

  double chunkBound = getL2Bound(values, format(), block());
  EXPECT_LE(error, chunkBound);
  EXPECT_GT(error, 0.98 * chunkBound);

  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i)
    worst =
        std::max(worst, std::fabs(static_cast<double>(read[i]) - values[i]));
  EXPECT_LE(worst, getBlockErrorBound(values[0], format()));
  EXPECT_GT(worst, 0.999 * getBlockErrorBound(values[0], format()));
}

/// Searches around the worst block, at random, for a worse one.
TEST_P(QuantReferenceTest, NoPerturbationOfTheWorstBlockExceedsTheBound) {
  Random random(2);
  double bound = getRelativeErrorBound(format(), block());
  double closest = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> values = makeWorstBlock(format(), block());
    values[0] *= random.uniform(0.98, 1.02);
    for (size_t i = 1; i < values.size(); ++i)
      values[i] *= random.uniform(0.98, 1.02);
    double relative =
        getDistance(roundTrip(values, format(), block()), values) /
        getNorm(values);
    ASSERT_LE(relative, bound);
    closest = std::max(closest, relative / bound);
  }
  EXPECT_GT(closest, 0.9);
}

/// The smallest values for which the bound is defined: amax = qmax * 2^-125,
/// with elements just below 2^-126 that are flushed.
TEST_P(QuantReferenceTest, RelativeBoundHoldsDownToTheFlushedRange) {
  float amax = maxCode(format()) * 2 * kMinNormal;
  std::vector<float> values(block(), std::nextafterf(kMinNormal, 0.0f));
  values[0] = amax;
  double relative = getDistance(roundTrip(values, format(), block()), values) /
                    getNorm(values);
  EXPECT_LE(relative, getRelativeErrorBound(format(), block()));
  EXPECT_GT(relative, 0.9 * getRelativeErrorBound(format(), block()));
  // Below that, the bound of the chunk's data still holds.
  for (float factor : {0.5f, 0.3f, 0.1f}) {
    values[0] = factor * amax;
    double error = getDistance(roundTrip(values, format(), block()), values);
    EXPECT_LE(error, getL2Bound(values, format(), block())) << factor;
    EXPECT_GT(error, 0.99 * getL2Bound(values, format(), block())) << factor;
  }
}

TEST(QuantReference, RelativeBoundValues) {
  // At worst 4.4 % for i8 with blocks of 128, and 63 % for i4. Both grow with
  // the block.
  EXPECT_NEAR(getRelativeErrorBound(WireFormat::I8, 128), 0.0448, 1e-4);
  EXPECT_NEAR(getRelativeErrorBound(WireFormat::I4, 128), 0.6325, 1e-4);
  for (WireFormat format : {WireFormat::I8, WireFormat::I4})
    for (int64_t block = kMinBlock; block < kMaxBlock; block *= 2)
      EXPECT_LT(getRelativeErrorBound(format, block),
                getRelativeErrorBound(format, 2 * block));
}

TEST(QuantReference, ChunkBoundOfExactChunks) {
  std::vector<float> zeros(100, -0.0f);
  EXPECT_EQ(getL2Bound(zeros, WireFormat::I4, 32), 0);
  EXPECT_EQ(getL2Bound({}, WireFormat::I8, 32), 0);
  // Zeros beside other values are exact, too.
  std::vector<float> one(32, 0.0f);
  one[3] = 1.0f;
  EXPECT_EQ(getL2Bound(one, WireFormat::I8, 32),
            getBlockErrorBound(1.0, WireFormat::I8));
}

TEST(QuantReference, ChunkBoundOfNaNIsInfinite) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity(),
                    -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(70, 1.0f);
    values[40] = bad;
    EXPECT_EQ(getL2Bound(values, WireFormat::I8, 32), kInfinity);
    // The same if all other values are flushed.
    values.assign(2, 0.0f);
    values[1] = bad;
    EXPECT_EQ(getL2Bound(values, WireFormat::I4, 32), kInfinity);
  }
}

TEST(QuantReference, BlockBoundEdges) {
  for (WireFormat format : {WireFormat::I8, WireFormat::I4}) {
    EXPECT_EQ(getBlockErrorBound(0, format), 0);
    // The error of a flushed block is the block itself.
    EXPECT_EQ(getBlockErrorBound(0x1p-130, format), 0x1p-130);
    EXPECT_EQ(getBlockErrorBound(kMinNormal, format), kMinNormal);
    EXPECT_EQ(getBlockErrorBound(kInfinity, format), kInfinity);
    EXPECT_EQ(getBlockErrorBound(std::nan(""), format), kInfinity);
    EXPECT_EQ(getBlockErrorBound(1e300, format), kInfinity);
    EXPECT_LT(getBlockErrorBound(0x1p127, format), 0x1p126);
    // Between two floats the bound is that of the larger one.
    double border = maxCode(format); // Scale 1; above, 1 + 2^-7.
    EXPECT_EQ(getBlockErrorBound(border, format), 0.5 * (1 + 0x1p-14));
    EXPECT_EQ(getBlockErrorBound(border * (1 + 0x1p-23), format),
              getBlockErrorBound(std::nextafterf(border, 1e9f), format));
    EXPECT_EQ(getBlockErrorBound(border * (1 + 0x1p-40), format),
              getBlockErrorBound(std::nextafterf(border, 1e9f), format));
    EXPECT_EQ(getBlockErrorBound(border * (1 + 0x1p-20), format),
              0.5 * (1 + 0x1p-7) * (1 + 0x1p-14));
  }
  // i4 decodes to infinity there, i8 does not.
  float max = std::numeric_limits<float>::max();
  EXPECT_EQ(getBlockErrorBound(max, WireFormat::I4), kInfinity);
  EXPECT_LT(getBlockErrorBound(max, WireFormat::I8), 0x1p121);
  EXPECT_LT(getBlockErrorBound(0x1.ffp127, WireFormat::I4), 0x1p125);
}

TEST(QuantReference, ChunkBoundWhereI4OverflowsIsInfinite) {
  float max = std::numeric_limits<float>::max();
  EXPECT_EQ(getL2Bound({max, 1.0f}, WireFormat::I4, 32), kInfinity);
  EXPECT_LT(getL2Bound({max, 1.0f}, WireFormat::I8, 32), 0x1p121);
}

/// For every bf16 as amax, the bound covers a sweep of values, and a tie
/// reaches it.
TEST(QuantReference, BlockBoundOfAllBF16) {
  for (WireFormat format : {WireFormat::I8, WireFormat::I4}) {
    double previous = 0;
    for (uint16_t bits = 0x0080; bits <= 0x7f7f; ++bits) {
      float amax = floatOfBF16Bits(bits);
      double bound = getBlockErrorBound(amax, format);
      ASSERT_GE(bound, previous) << "not monotonic at " << amax;
      previous = bound;
      float scale = floatOfBF16Bits(scaleBits(magnitudeBits(amax), format));
      std::vector<float> values = {amax};
      for (float step = 0.25f; step <= maxCode(format); step *= 1.37f)
        values.push_back(std::min(step * scale, amax));
      values.push_back(std::min(scale / 2, amax));
      std::vector<float> read = roundTrip(values, format, 32);
      double worst = 0;
      for (size_t i = 0; i < values.size(); ++i)
        worst = std::max(worst,
                         std::fabs(static_cast<double>(read[i]) - values[i]));
      ASSERT_LE(worst, bound) << amax;
      // Below 2^-125, half a step is flushed or is not a tie.
      if (scale >= 2 * kMinNormal) {
        ASSERT_GT(worst, 0.999 * bound) << amax;
      }
    }
  }
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

TEST_P(QuantReferenceTest, DequantizeReduceSumsInOrder) {
  Random random(3);
  constexpr int kChunks = 5;
  int64_t elements = 2 * block() + 3;
  ChunkLayout layout = getChunkLayout(elements, format(), block());
  std::vector<uint8_t> chunks(kChunks * layout.chunkBytes);
  std::vector<float> forward(elements, 0.0f), backward(elements, 0.0f);
  std::vector<std::vector<float>> read;
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    std::vector<float> values(elements);
    for (float &value : values)
      value = random.studentT3() * std::pow(1e5, chunk % 3);
    quantizeChunk(values.data(), elements, format(), block(),
                  chunks.data() + chunk * layout.chunkBytes);
    read.push_back(roundTrip(values, format(), block()));
  }
  for (int chunk = 0; chunk < kChunks; ++chunk)
    for (int64_t i = 0; i < elements; ++i) {
      forward[i] += read[chunk][i];
      backward[i] += read[kChunks - 1 - chunk][i];
    }
  std::vector<float> sum(elements, 42.0f);
  dequantizeReduceChunks(chunks.data(), kChunks, layout.chunkBytes, elements,
                         format(), block(), sum.data());
  EXPECT_EQ(sum, forward);
  EXPECT_NE(sum, backward) << "the data do not tell the order";
}

//===----------------------------------------------------------------------===//
// Rotation
//===----------------------------------------------------------------------===//

std::vector<float> rotated(std::vector<float> values, Rotation rotation) {
  rotateChunk(values.data(), values.size(), rotation);
  return values;
}

/// 1 or -1: the signs, then the matrix.
float getRotationEntry(int64_t row, int64_t column) {
  bool isNegative = __builtin_popcountll(row & column) % 2;
  return isNegative != isNegated(column) ? -1.0f : 1.0f;
}

TEST(QuantReference, RotationIsTheHadamardMatrixAfterSigns) {
  // Small integers times powers of two: nothing rounds.
  for (int64_t column = 0; column < kRotation; ++column) {
    std::vector<float> values(kRotation, 0.0f);
    values[column] = 8.0f;
    std::vector<float> result = rotated(values, Rotation::Forward);
    for (int64_t row = 0; row < kRotation; ++row)
      EXPECT_EQ(result[row], getRotationEntry(row, column));
    EXPECT_EQ(rotated(result, Rotation::Back), values);
    // The way back is the matrix transposed.
    result = rotated(values, Rotation::Back);
    for (int64_t row = 0; row < kRotation; ++row)
      EXPECT_EQ(result[row], 2.0f * getRotationEntry(column, row));
  }
}

/// Returns the largest magnitude of the rotated group, relative to its norm
/// times that of a row: 1 if all magnitudes are equal, sqrt(32) = 5.7 if one
/// holds all.
double getPeak(const std::vector<float> &values) {
  double most = 0;
  for (float value : rotated(values, Rotation::Forward))
    most = std::max(most, std::fabs(static_cast<double>(value)));
  return most * 8 / getNorm(values);
}

TEST(QuantReference, RotationSpreadsWhatIsAlike) {
  // Rows of the matrix, of which constants and alternating signs are two.
  // There are no signs with less than sqrt(2) for each of them.
  for (int64_t row = 0; row < kRotation; ++row) {
    std::vector<float> values(kRotation);
    for (int64_t i = 0; i < kRotation; ++i)
      values[i] = __builtin_popcountll(row & i) % 2 ? -3.0f : 3.0f;
    EXPECT_NEAR(getPeak(values), std::sqrt(2.0), 1e-6) << row;
  }
  // Runs of ones among zeros, or among ones of the other sign, the same with
  // alternating signs, and waves.
  for (int64_t begin = 0; begin < kRotation; ++begin)
    for (int64_t end = begin + 1; end <= kRotation; ++end)
      for (float other : {0.0f, -1.0f})
        for (bool alternates : {false, true}) {
          std::vector<float> values(kRotation);
          for (int64_t i = 0; i < kRotation; ++i)
            values[i] = (begin <= i && i < end ? 1.0f : other) *
                        (alternates && i % 2 ? -1.0f : 1.0f);
          EXPECT_LT(getPeak(values), 2.5) << begin << " to " << end;
        }
  for (int quarters = 0; quarters <= 64; ++quarters)
    for (int phase = 0; phase < 16; ++phase) {
      std::vector<float> values(kRotation);
      for (int64_t i = 0; i < kRotation; ++i)
        values[i] = static_cast<float>(
            std::cos(M_PI * (quarters * i / 64.0 + phase / 16.0)));
      EXPECT_LT(getPeak(values), 2.5) << quarters << " " << phase;
    }
}

TEST(QuantReference, NoSumThatCancelsIsANegativeZero) {
  std::vector<float> alike(kRotation, 1.0f), zeros(kRotation, 0.0f);
  for (const std::vector<float> &values : {alike, zeros})
    for (float value : rotated(values, Rotation::Back))
      EXPECT_FALSE(value == 0.0f && std::signbit(value));
}

TEST(QuantReference, OnlyWholeGroupsAreRotated) {
  for (int64_t elements : {0, 1, 31, 32, 33, 64, 95}) {
    std::vector<float> values(elements);
    for (int64_t i = 0; i < elements; ++i)
      values[i] = static_cast<float>(i * i % 17 - 8);
    std::vector<float> result = rotated(values, Rotation::Forward);
    for (int64_t i = elements / 32 * 32; i < elements; ++i)
      EXPECT_EQ(result[i], values[i]);
    if (elements >= 32) {
      EXPECT_NE(result, values);
    }
    EXPECT_EQ(rotated(result, Rotation::Back), values);
  }
}

TEST(QuantReference, RotationIsWithinItsBound) {
  Random random(8);
  for (const Distribution &distribution : kDistributions) {
    std::vector<float> values(4096);
    for (float &value : values)
      value = static_cast<float>(distribution.draw(random));
    std::vector<float> forward = rotated(values, Rotation::Forward);
    std::vector<float> back = rotated(forward, Rotation::Back);
    double bound = getRotationErrorBound() * getNorm(values);
    // Norms grow by sqrt(32) / 8 first, and come back.
    EXPECT_NEAR(getNorm(forward), getNorm(values) * std::sqrt(0.5),
                bound + 1e-30)
        << distribution.name;
    EXPECT_LE(getDistance(back, values), 2.01 * bound) << distribution.name;
    // Quantized in between, it is as far off as any vector may be.
    for (WireFormat format : {WireFormat::I8, WireFormat::I4}) {
      std::vector<float> sent =
          rotated(roundTrip(forward, format, 128), Rotation::Back);
      EXPECT_LE(getDistance(sent, values),
                (getRelativeErrorBound(format, 128) + 1e-6) * getNorm(values))
          << distribution.name;
    }
  }
}

TEST(QuantReference, RotationSpreadsAnOutlier) {
  std::vector<float> values(128, 0.0f);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % 3 == 0 ? 1.0f : -1.0f;
  values[40] = 100.0f;
  double plain = getDistance(roundTrip(values, WireFormat::I4, 128), values);
  std::vector<float> sent = rotated(
      roundTrip(rotated(values, Rotation::Forward), WireFormat::I4, 128),
      Rotation::Back);
  // Without it, everything but the outlier is lost.
  EXPECT_GT(plain, 11.0);
  EXPECT_LT(getDistance(sent, values), 10.0);
}

TEST(QuantReference, RotationHasNoSubnormals) {
  // Differences of neighbors of the least number that is not flushed.
  Random random(9);
  std::vector<float> values(kRotation * 100);
  for (float &value : values)
    value = floatOfBits(bitsOfFloat(0x1p-100f) + random.bits() % 8) *
            (random.bits() % 2 ? 1.0f : -1.0f);
  for (Rotation rotation : {Rotation::Forward, Rotation::Back})
    for (float value : rotated(values, rotation))
      EXPECT_TRUE(value == 0.0f || std::fabs(value) >= kMinNormal) << value;
  EXPECT_EQ(enterRotation(0x1.fffffep-101f, Rotation::Forward, 0), 0.0f);
  EXPECT_EQ(enterRotation(0x1p-100f, Rotation::Forward, 0), 0x1p-103f);
  ASSERT_TRUE(isNegated(1));
  EXPECT_EQ(enterRotation(0x1p-100f, Rotation::Forward, 1), -0x1p-103f);
  EXPECT_EQ(enterRotation(-0x1p-100f, Rotation::Back, 1), -0x1p-102f);
}

TEST(QuantReference, RotationShowsWhatIsNotFinite) {
  for (float special : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> values(2 * kRotation, 1.0f);
    values[7] = special;
    std::vector<float> result = rotated(
        roundTrip(rotated(values, Rotation::Forward), WireFormat::I8, 32),
        Rotation::Back);
    for (int64_t i = 0; i < 2 * kRotation; ++i)
      EXPECT_EQ(std::isnan(result[i]), i < kRotation) << i;
  }
}

TEST(QuantReference, DequantizeReduceIsInF32AndShowsNaN) {
  // 2^24 + 1 - 2^24 is 0 in f32, in this order.
  std::vector<std::vector<float>> sources = {
      {0x1p24f, 1.0f}, {1.0f, 1.0f}, {-0x1p24f, 1.0f}};
  auto reduce = [&] {
    ChunkLayout layout = getChunkLayout(2, WireFormat::I8, 32);
    std::vector<uint8_t> chunks(3 * layout.chunkBytes);
    for (size_t i = 0; i < sources.size(); ++i)
      quantizeChunk(sources[i].data(), 2, WireFormat::I8, 32,
                    chunks.data() + i * layout.chunkBytes);
    std::vector<float> sum(2);
    dequantizeReduceChunks(chunks.data(), 3, layout.chunkBytes, 2,
                           WireFormat::I8, 32, sum.data());
    return sum;
  };
  std::vector<float> large = roundTrip({0x1p24f, 1.0f}, WireFormat::I8, 32);
  std::vector<float> sum = reduce();
  volatile float partial = large[0] + roundTrip({1.0f}, WireFormat::I8, 32)[0];
  EXPECT_EQ(sum[0], partial - large[0]);
  sources[1][1] = NAN;
  sum = reduce();
  EXPECT_TRUE(std::isnan(sum[0]));
  EXPECT_TRUE(std::isnan(sum[1]));
}

TEST_P(QuantReferenceTest, ReduceHopEqualsTheWire) {
  Random random(4);
  int64_t elements = block() + block() / 2 + 1;
  ChunkLayout layout = getChunkLayout(elements, format(), block());
  std::vector<uint8_t> chunks(3 * layout.chunkBytes);
  std::vector<BoundedValues> sources;
  for (int chunk = 0; chunk < 3; ++chunk) {
    std::vector<float> values(elements);
    for (float &value : values)
      value = random.normal();
    quantizeChunk(values.data(), elements, format(), block(),
                  chunks.data() + chunk * layout.chunkBytes);
    sources.push_back(BoundedValues::exact(values));
  }
  std::vector<float> sum(elements);
  dequantizeReduceChunks(chunks.data(), 3, layout.chunkBytes, elements,
                         format(), block(), sum.data());
  EXPECT_EQ(reduceHop(sources, format(), block()).values, sum);
}

TEST(QuantReference, ReduceHopAddsUpTheErrors) {
  // Sums of powers of two are exact, so only the largest possible rounding
  // errors remain: 2^-24 of each partial sum, 1, 2 and 4.
  std::vector<BoundedValues> sources = {BoundedValues::exact({1.0f}),
                                        BoundedValues::exact({1.0f}),
                                        BoundedValues::exact({2.0f})};
  BoundedValues sum = reduceHop(sources, WireFormat::None, 32);
  EXPECT_EQ(sum.values, std::vector<float>{4.0f});
  EXPECT_EQ(sum.errors, std::vector<double>{7 * 0x1p-24});
  // The errors of the sources are added.
  sources[0].errors[0] = 0.5;
  sources[2].errors[0] = 0.25;
  EXPECT_EQ(reduceHop(sources, WireFormat::None, 32).errors,
            std::vector<double>{0.75 + 7 * 0x1p-24});
  // So is the quantization error of each source.
  double each = getBlockErrorBound(1.0, WireFormat::I4);
  sources = {BoundedValues::exact({1.0f}), BoundedValues::exact({1.0f})};
  sum = reduceHop(sources, WireFormat::I4, 32);
  EXPECT_GE(sum.errors[0], 2 * each);
  EXPECT_LT(sum.errors[0], 2 * each + 1e-6);
  EXPECT_EQ(sum.l2Error(), sum.errors[0]);
}

TEST(QuantReference, ReduceHopBoundsNothingInNaNBlocks) {
  std::vector<float> values(64, 1.0f);
  values[40] = NAN;
  BoundedValues sum =
      reduceHop({BoundedValues::exact(values)}, WireFormat::I8, 32);
  for (int i = 0; i < 64; ++i)
    ASSERT_EQ(std::isinf(sum.errors[i]), i >= 32) << i;
}

TEST(QuantReference, L2Error) {
  BoundedValues values = BoundedValues::exact({1.0f, 2.0f, 3.0f});
  EXPECT_EQ(values.l2Error(), 0);
  values.errors = {3, 0, 4};
  EXPECT_EQ(values.l2Error(), 5);
}

TEST(QuantReference, ReduceErrorBoundValues) {
  double i8 = getRelativeErrorBound(WireFormat::I8, 128);
  double i4 = getRelativeErrorBound(WireFormat::I4, 128);
  EXPECT_EQ(getReduceErrorBound({}, 10.0), 0.0);
  EXPECT_NEAR(getReduceErrorBound({{WireFormat::I8, 128, 1}}, 10.0), 10 * i8,
              1e-12);
  EXPECT_NEAR(getReduceErrorBound({{WireFormat::None, 0, 1025}}, 1.0), 0x1p-14,
              1e-8);
  EXPECT_NEAR(getReduceErrorBound(
                  {{WireFormat::I8, 128, 4}, {WireFormat::I4, 128, 2}}, 2.0),
              2 * ((1 + i8) * (1 + i4) - 1), 1e-6);
}

} // namespace
