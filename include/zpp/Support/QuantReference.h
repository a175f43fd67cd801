//===- QuantReference.h - Reference quantized transport ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operations on whole chunks of f32 data, written for clarity on top of
// BlockQuant.h, and the error bounds that follow from the format, which hold
// strictly, including f32 rounding. The kernels of the CPU runtime and the CUDA
// kernels are checked against these.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_QUANTREFERENCE_H
#define ZPP_SUPPORT_QUANTREFERENCE_H

#include "zpp/Support/BlockQuant.h"

#include <cstdint>

namespace zpp {

/// Writes the chunk (ChunkLayout::chunkBytes bytes at `chunk`) of
/// `values[0..elements)`. Padding is zeroed.
void quantizeChunk(const float *values, int64_t elements, WireFormat format,
                   int64_t block, uint8_t *chunk);

/// Reads a chunk back into `values[0..elements)`.
void dequantizeChunk(const uint8_t *chunk, int64_t elements, WireFormat format,
                     int64_t block, float *values);

/// Rotates the whole groups of a chunk's values.
void rotateChunk(float *values, int64_t elements, Rotation rotation);

/// Computes what the receiver of a hop does: the sum of `numChunks` chunks, in
/// f32 and in this order. Each chunk lies `stride` bytes after the one before.
void dequantizeReduceChunks(const uint8_t *chunks, int64_t numChunks,
                            int64_t stride, int64_t elements, WireFormat format,
                            int64_t block, float *sum);

/// Upper bound on ||q(x) - x||_2 / ||x||_2 for any x quantized in blocks of
/// `block`, if every block is zero or has a largest magnitude in
/// [qmax * 2^-125, 2^127]. Let r = (1 + 2^-7) / (2 qmax), half a step relative
/// to amax. The error of the largest element is at most r amax. The error of
/// any other is at most r amax and at most its own magnitude. So the bound, per
/// block and therefore in total, is
///   (1 + 2^-14) * sqrt(block r^2 / (1 + (block - 1) r^2)).
double getRelativeErrorBound(WireFormat format, int64_t block);

/// Upper bound on ||r(x) - s x||_2 / ||s x||_2, s x being the exact rotation of
/// x, where nothing is flushed or overflows. A stage is orthogonal but for a
/// factor of sqrt(2), and rounds its results once, so five of them give at most
///   (1 + 2^-24)^5 - 1.
/// An element that is flushed adds at most 2^-100. Quantization is as much off
/// in the rotated domain as getRelativeErrorBound says, and rotating back keeps
/// norms.
double getRotationErrorBound();

} // namespace zpp

#endif // ZPP_SUPPORT_QUANTREFERENCE_H
