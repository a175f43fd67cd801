//===- ErrorBounds.h - Bounds of what transport rounds ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All bounds hold strictly, including f32 rounding. They are built from one
// bound, in which s is the stored scale of the block:
//
//   |q(v) - v| <= min(s / 2, |v|) * (1 + 2^-14)   if |v| >= 2^-126
//   |q(v) - v|  = |v|                             if v is flushed to zero
//
// s / 2 is half a step of the code. |v| is a bound because 0 is a code, and the
// nearest code is no farther away. 1 + 2^-14 covers the rounding of reciprocal
// and product (relative 2^-23 of |v| / s <= 127.5, less than 2^-15 of half a
// step).
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_SUPPORT_ERRORBOUNDS_H
#define ZPP_UNITTESTS_SUPPORT_ERRORBOUNDS_H

#include "zpp/Support/QuantReference.h"

#include <vector>

namespace zpp {

/// Upper bound on |decode(encode(x)) - x| for every x of a block whose largest
/// magnitude is `amax` >= 0. It is half a step of the stored scale, or the
/// magnitude of flushed values if that is larger. The scale is at most
/// amax / qmax * (1 + 2^-7) (bf16 has 8 significant bits, rounded up) and at
/// least 2^-126. The bound is infinite if the block is not finite, or so close
/// to the f32 maximum that i4 decodes to infinity.
double getBlockErrorBound(double amax, WireFormat format);

/// Upper bound on ||q(x) - x||_2 for these `values` quantized in blocks of
/// `block`. Infinite if getBlockErrorBound is infinite for one of the blocks.
double getChunkL2ErrorBound(const float *values, int64_t elements,
                            WireFormat format, int64_t block);

/// One hop of a reduce-scatter: the format in which it sends, and the number of
/// ranks over which it sums. `format` None sends f32.
struct HopSpec {
  WireFormat format;
  int64_t block;
  int64_t ranks;
};

/// Upper bound on the L2 error of a sum that is reduced over `hops` (in their
/// order), for any data with this sum of the L2 norms of all ranks' operands.
/// Quantization in a hop adds an error of at most r_h times the norms that it
/// sends, with r_h = getRelativeErrorBound. n - 1 additions in f32 add at most
/// (1 + 2^-24)^(n - 1) - 1 times the norms that they add. By the triangle
/// inequality, the norms that the next hop sends have grown by no more than the
/// same factors. Hence the bound is
///   sumOfNorms * (product over hops of (1 + r_h) (1 + 2^-24)^(n_h - 1) - 1),
/// if each hop meets the condition of getRelativeErrorBound.
double getReduceErrorBound(const std::vector<HopSpec> &hops, double sumOfNorms);

/// f32 values, and for each an upper bound on its distance from the value that
/// exact arithmetic would give.
struct BoundedValues {
  std::vector<float> values;
  std::vector<double> errors;

  /// `values`, with errors of 0.
  static BoundedValues exact(std::vector<float> values);
  /// The L2 norm of `errors`, which bounds the L2 distance.
  double l2Error() const;
};

/// Executes a hop as its receiver sees it: quantizes each source's chunk, then
/// dequantizes the chunks and sums them in f32, in order. The errors follow
/// from the data that is quantized: they are those of the sources, plus each
/// source's quantization error, plus the rounding errors of the sum. Applied
/// hop after hop, this bounds the error of the whole reduction. Values that are
/// not finite have infinite errors. `format` None sends f32. All sources have
/// the same size.
BoundedValues reduceHop(const std::vector<BoundedValues> &sources,
                        WireFormat format, int64_t block);

} // namespace zpp

#endif // ZPP_UNITTESTS_SUPPORT_ERRORBOUNDS_H
