//===- ErrorBounds.cpp - Bounds of what transport rounds ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ErrorBounds.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

using namespace zpp;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Magnitudes below this are flushed.
static constexpr double kMinNormal = 0x1p-126;
/// Covers the rounding of the reciprocal and of the product.
static constexpr double kSlack = 1 + 0x1p-14;
/// Unit roundoff of f32.
static constexpr double kRoundoff = 0x1p-24;

static uint32_t amaxBits(const float *values, int64_t elements) {
  uint32_t amax = 0;
  for (int64_t i = 0; i < elements; ++i)
    amax = std::max(amax, magnitudeBits(values[i]));
  return amax;
}

/// Half a step of a block with these magnitude bits; infinite if the block does
/// not decode to finite values.
static double getHalfStep(uint32_t amaxBits, WireFormat format) {
  float scale = floatOfBF16Bits(scaleBits(amaxBits, format));
  // i4 decodes the uppermost 0.2 % of the f32 range to infinity.
  int32_t code = encodeValue(floatOfBits(amaxBits), inverseScale(scale));
  if (!std::isfinite(decodeValue(code, scale)))
    return kInfinity;
  return static_cast<double>(scale) / 2;
}

/// Bound on |q(v) - v| in a block with this half step.
static double getElementErrorBound(float value, double halfStep) {
  // If the block decodes to NaN or infinity, the magnitude is no bound.
  if (!std::isfinite(halfStep))
    return kInfinity;
  double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude < kMinNormal)
    return magnitude;
  return std::min(halfStep, magnitude) * kSlack;
}

double zpp::getBlockErrorBound(double amax, WireFormat format) {
  // The comparison is false for NaN.
  if (!(amax <= std::numeric_limits<float>::max()))
    return kInfinity;
  float rounded = static_cast<float>(amax);
  // Scales grow with amax, so the next larger f32 gives an upper bound.
  if (rounded < amax)
    rounded = std::nextafter(rounded, std::numeric_limits<float>::infinity());
  double halfStep = getHalfStep(magnitudeBits(rounded), format);
  return std::max(halfStep * kSlack, std::min(amax, kMinNormal));
}

/// Bounds on |q(v) - v| of a chunk's elements.
static std::vector<double> getChunkErrorBounds(const float *values,
                                               int64_t elements,
                                               WireFormat format,
                                               int64_t block) {
  std::vector<double> bounds(elements);
  for (int64_t begin = 0; begin < elements; begin += block) {
    int64_t end = std::min(begin + block, elements);
    double halfStep =
        getHalfStep(amaxBits(values + begin, end - begin), format);
    for (int64_t i = begin; i < end; ++i)
      bounds[i] = getElementErrorBound(values[i], halfStep);
  }
  return bounds;
}

static double getL2Norm(const std::vector<double> &values) {
  double sum = 0;
  for (double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

double zpp::getChunkL2ErrorBound(const float *values, int64_t elements,
                                 WireFormat format, int64_t block) {
  return getL2Norm(getChunkErrorBounds(values, elements, format, block));
}

double zpp::getReduceErrorBound(const std::vector<HopSpec> &hops,
                                double sumOfNorms) {
  double growth = 1;
  for (const HopSpec &hop : hops) {
    if (hop.format != WireFormat::None)
      growth *= 1 + getRelativeErrorBound(hop.format, hop.block);
    // n - 1 partial sums are rounded: (1 + u)^(n - 1) - 1 in total.
    growth *= std::pow(1 + kRoundoff, hop.ranks - 1);
  }
  return sumOfNorms * (growth - 1);
}

BoundedValues BoundedValues::exact(std::vector<float> values) {
  BoundedValues result;
  result.errors.assign(values.size(), 0.0);
  result.values = std::move(values);
  return result;
}

double BoundedValues::l2Error() const { return getL2Norm(errors); }

BoundedValues zpp::reduceHop(const std::vector<BoundedValues> &sources,
                             WireFormat format, int64_t block) {
  assert(!sources.empty() && "expected at least one source");
  int64_t elements = sources.front().values.size();
  BoundedValues result =
      BoundedValues::exact(std::vector<float>(elements, 0.0f));
  std::vector<float> sent(elements);
  for (const BoundedValues &source : sources) {
    assert(static_cast<int64_t>(source.values.size()) == elements &&
           source.errors.size() == source.values.size() &&
           "expected sources of one size");
    const float *values = source.values.data();
    if (format == WireFormat::None) {
      sent = source.values;
    } else {
      std::vector<uint8_t> chunk(
          getChunkLayout(elements, format, block).chunkBytes);
      quantizeChunk(values, elements, format, block, chunk.data());
      dequantizeChunk(chunk.data(), elements, format, block, sent.data());
      std::vector<double> bounds =
          getChunkErrorBounds(values, elements, format, block);
      for (int64_t i = 0; i < elements; ++i)
        result.errors[i] += bounds[i];
    }
    for (int64_t i = 0; i < elements; ++i) {
      result.values[i] += sent[i];
      // A sum below 2^-126 is exact in f32. Above, the rounding error is at
      // most half a unit in the last place of the result. Nothing bounds the
      // error of a NaN.
      double magnitude = std::fabs(static_cast<double>(result.values[i]));
      result.errors[i] += std::isfinite(magnitude)
                              ? source.errors[i] + magnitude * kRoundoff
                              : kInfinity;
    }
  }
  return result;
}
