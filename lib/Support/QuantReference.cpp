//===- QuantReference.cpp - Reference quantized transport -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/QuantReference.h"

#include <algorithm>
#include <cmath>

using namespace zpp;

/// Covers the rounding of the reciprocal and of the product.
static constexpr double kSlack = 1 + 0x1p-14;
/// Unit roundoff of f32.
static constexpr double kRoundoff = 0x1p-24;

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

static uint32_t amaxBits(const float *values, int64_t elements) {
  uint32_t amax = 0;
  for (int64_t i = 0; i < elements; ++i)
    amax = std::max(amax, magnitudeBits(values[i]));
  return amax;
}

void zpp::quantizeChunk(const float *values, int64_t elements,
                        WireFormat format, int64_t block, uint8_t *chunk) {
  ChunkLayout layout = getChunkLayout(elements, format, block);
  std::fill_n(chunk, layout.chunkBytes, 0);
  for (int64_t b = 0; b < layout.blocks; ++b) {
    int64_t begin = b * block;
    int64_t end = std::min(begin + block, elements);
    uint16_t scale = scaleBits(amaxBits(values + begin, end - begin), format);
    uint8_t *stored = chunk + layout.scalesOffset + 2 * b;
    stored[0] = static_cast<uint8_t>(scale & 0xff);
    stored[1] = static_cast<uint8_t>(scale >> 8);

    float inverse = inverseScale(floatOfBF16Bits(scale));
    for (int64_t i = begin; i < end; ++i)
      storeCode(chunk, i, encodeValue(values[i], inverse), format);
  }
}

void zpp::rotateChunk(float *values, int64_t elements, Rotation rotation) {
  for (int64_t begin = 0; begin + kRotation <= elements; begin += kRotation) {
    float *group = values + begin;
    for (int64_t i = 0; i < kRotation; ++i)
      group[i] = enterRotation(group[i], rotation, i);
    for (int64_t step = 1; step < kRotation; step *= 2) {
      bool isBack = rotation == Rotation::Back;
      int64_t h = isBack ? kRotation / 2 / step : step;
      for (int64_t i = 0; i < kRotation; ++i)
        if ((i & h) == 0) {
          float a = group[i], b = group[i + h];
          group[i] = a + b;
          group[i + h] = isBack && isReversed(i, h) ? b - a : a - b;
        }
    }
  }
}

/// Element `index` of a chunk.
static float decodeElement(const uint8_t *chunk, const ChunkLayout &layout,
                           WireFormat format, int64_t block, int64_t index) {
  const uint8_t *stored = chunk + layout.scalesOffset + 2 * (index / block);
  float scale =
      floatOfBF16Bits(static_cast<uint16_t>(stored[0] | stored[1] << 8));
  return decodeValue(loadCode(chunk, index, format), scale);
}

void zpp::dequantizeChunk(const uint8_t *chunk, int64_t elements,
                          WireFormat format, int64_t block, float *values) {
  ChunkLayout layout = getChunkLayout(elements, format, block);
  for (int64_t i = 0; i < elements; ++i)
    values[i] = decodeElement(chunk, layout, format, block, i);
}

void zpp::dequantizeReduceChunks(const uint8_t *chunks, int64_t numChunks,
                                 int64_t stride, int64_t elements,
                                 WireFormat format, int64_t block, float *sum) {
  ChunkLayout layout = getChunkLayout(elements, format, block);
  for (int64_t i = 0; i < elements; ++i) {
    float total = 0.0f;
    for (int64_t c = 0; c < numChunks; ++c)
      total += decodeElement(chunks + c * stride, layout, format, block, i);
    sum[i] = total;
  }
}

//===----------------------------------------------------------------------===//
// Error bounds
//===----------------------------------------------------------------------===//

double zpp::getRelativeErrorBound(WireFormat format, int64_t block) {
  double halfStep = (1 + 0x1p-7) / (2 * maxCode(format));
  double squared = halfStep * halfStep;
  return kSlack * std::sqrt(block * squared / (1 + (block - 1) * squared));
}

double zpp::getRotationErrorBound() { return std::pow(1 + kRoundoff, 5) - 1; }
