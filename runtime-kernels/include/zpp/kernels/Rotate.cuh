//===- Rotate.cuh - Rotations of groups, by threads -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rotation of zpp/Support/BlockQuant.h, bit for bit, for items: `n`
// consecutive elements in the registers of one thread. Stages whose pairs lie
// in two threads exchange them by shuffles.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_ROTATE_CUH
#define ZPP_KERNELS_ROTATE_CUH

#include "zpp/kernels/BlockCodec.cuh"
#include "zpp/kernels/Gather.cuh"

namespace zpp::kernels {

/// The stages of a group, on values that have entered the rotation.
template <Rotation rotation>
__device__ __forceinline__ void addStages(float *values) {
  constexpr int n = static_cast<int>(kRotation);
  constexpr bool isBack = rotation == Rotation::Back;
#pragma unroll
  for (int step = 1; step < n; step *= 2)
#pragma unroll
    for (int i = 0; i < n; ++i) {
      int h = isBack ? n / 2 / step : step;
      if ((i & h) == 0) {
        float a = values[i], b = values[i + h];
        values[i] = __fadd_rn(a, b);
        values[i + h] =
            isBack && isReversed(i, h) ? __fsub_rn(b, a) : __fsub_rn(a, b);
      }
    }
}

template <Rotation rotation>
__device__ __forceinline__ void rotateGroup(float *values) {
#pragma unroll
  for (int i = 0; i < kRotation; ++i)
    values[i] = enterRotation(values[i], rotation, i);
  addStages<rotation>(values);
}

/// Rotates the whole groups of an item forward; `left` elements of the chunk
/// are left from its first one on. The values were get(i), i < count, and
/// zeros; the rotated ones are the returned power of two times `values`, and
/// `amax` is their largest magnitude, as bits.
template <int n, typename Int, typename Get>
__device__ __forceinline__ float rotateForward(float (&values)[n], Int left,
                                               const Get &get, Int count,
                                               uint32_t &amax) {
  static_assert(n % kRotation == 0);
  if (left >= n) {
    // The first step of enterRotation(), without the power of two of the
    // second.
    constexpr float kShift = 0x1p-26f;
    constexpr float kFactor = 0x1p23f;
#pragma unroll
    for (int i = 0; i < n; ++i)
      values[i] = multiplyFlushed(values[i],
                                  isNegated(i % kRotation) ? -kShift : kShift);
#pragma unroll
    for (int g = 0; g < n; g += kRotation)
      addStages<Rotation::Forward>(values + g);
    amax = amaxBits(values);
    if (amax == 0)
      return 1.0f;
    // Neither the stages nor the encoder meet infinities or subnormal numbers
    // in one of both ways alone: amax is from 2^-113 up to 2^97. Sums that are
    // subnormal here are exact, and too small for a code other than 0.
    constexpr uint32_t kLeast = (127u - 113u) << 23, kMost = (127u + 97u) << 23;
    if (amax - kLeast < kMost - kLeast) {
      amax += 23u << 23;
      return kFactor;
    }
    fillOneByOne(values, count, get);
  }
#pragma unroll
  for (int g = 0; g < n; g += kRotation)
    if (left >= g + kRotation)
      rotateGroup<Rotation::Forward>(values + g);
  amax = amaxBits(values);
  return 1.0f;
}

/// Sums and differences of `count` pairs of numbers: of words i and i + h.
template <typename Pair, int count>
__device__ __forceinline__ void addPairs(Pair (&words)[count], int h) {
#pragma unroll
  for (int i = 0; i < count; ++i)
    if ((i & h) == 0) {
      Pair a = words[i], b = words[i + h];
      words[i] = __hadd2(a, b);
      words[i + h] = __hsub2(a, b);
    }
}
template <typename Pair>
__device__ __forceinline__ Pair pairOfBits(uint32_t bits) {
  return *reinterpret_cast<Pair *>(&bits);
}
template <typename Pair>
__device__ __forceinline__ uint32_t bitsOfPair(Pair pair) {
  return *reinterpret_cast<uint32_t *>(&pair);
}

/// All stages on codes of i4, without signs. Their sums are integers of at most
/// 2^8, which bf16 holds: so they are exact in whatever order. Word i is
/// elements 2 * i and 2 * i + 1.
__device__ __forceinline__ void
rotateCodes(const Pack<16> &codes, __nv_bfloat162 (&words)[kRotation / 2]) {
  using Pair = __nv_bfloat162;
  // A nibble with its sign flipped is code + 8, in the low bits of 2^7. Word
  // 4 * k + j is elements 8 * k + j and 8 * k + j + 4.
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      words[4 * k + j] =
          __hsub2(pairOfBits<Pair>(maskFlip(codes.words[k] >> (4 * j),
                                            0x000f000fu, 0x43084308u)),
                  pairOfBits<Pair>(0x43084308u));
  for (int h : {1, 2, 4, 8})
    addPairs(words, h);
  // The stage of elements 4 apart, and the order.
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      uint32_t a = bitsOfPair(words[4 * k + j]);
      uint32_t b = bitsOfPair(words[4 * k + j + 1]);
      words[4 * k + j] = pairOfBits<Pair>(__byte_perm(a, b, 0x5410));
      words[4 * k + j + 1] = pairOfBits<Pair>(__byte_perm(a, b, 0x7632));
    }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    Pair *w = words + 4 * k;
    Pair low0 = __hadd2(w[0], w[1]), high0 = __hsub2(w[0], w[1]);
    Pair low2 = __hadd2(w[2], w[3]), high2 = __hsub2(w[2], w[3]);
    w[0] = low0;
    w[1] = low2;
    w[2] = high0;
    w[3] = high2;
  }
}

/// All stages on codes of i8, but that of neighbors, without signs: integers of
/// at most 2^11, which f16 holds. Word i is elements 2 * i and 2 * i + 1.
__device__ __forceinline__ void rotateCodes(const Pack<32> &codes,
                                            __half2 (&words)[kRotation / 2]) {
  // A byte with its sign flipped is code + 128, in the low byte of 2^10.
#pragma unroll
  for (int k = 0; k < 8; ++k)
#pragma unroll
    for (int j = 0; j < 2; ++j)
      words[2 * k + j] = __hsub2(pairOfBits<__half2>(__byte_perm(
                                     codes.words[k] ^ 0x80808080u, 0x64646464u,
                                     j == 0 ? 0x4140 : 0x4342)),
                                 pairOfBits<__half2>(0x64806480u));
  for (int h : {1, 2, 4, 8})
    addPairs(words, h);
}

/// Returns the group of these codes, rotated back if all of it is there: `left`
/// elements of its chunk are left.
template <WireFormat format, typename E, typename Int>
__device__ __forceinline__ Pack<kRotation * E::kBytes>
decodeGroup(const Pack<kRotation * codeBits(format) / 8> &codes, float scale,
            Int left) {
  constexpr int n = static_cast<int>(kRotation);
  float values[n];
  bool rotates = left >= n;
  // A group has one scale, so that all its sums are exact: of codes as well as
  // of their products with the scale. No value but zero is flushed if the scale
  // is not too small. The comparisons are false for NaN.
  uint32_t allCodes = 0;
#pragma unroll
  for (uint32_t word : codes.words)
    allCodes |= word;
  if (rotates && ((scale >= 0x1p-100f && scale < 0x1p110f) ||
                  (scale == 0.0f && allCodes == 0))) {
    float factor = scale * 0x1p-2f;
    // Zeros are added so that none is negative.
    auto multiply = [&](int i, float sum) {
      return __fmaf_rn(sum, isNegated(i) ? -factor : factor, 0.0f);
    };
    if constexpr (format == WireFormat::I4) {
      __nv_bfloat162 words[n / 2];
      rotateCodes(codes, words);
      if constexpr (std::is_same_v<E, Element<Kind::BF16>>) {
        Pack<2 * n> packs;
#pragma unroll
        for (int i = 0; i < n / 2; ++i)
          packs.words[i] = bitsOfPair(__hfma2(
              words[i],
              __floats2bfloat162_rn(isNegated(2 * i) ? -factor : factor,
                                    isNegated(2 * i + 1) ? -factor : factor),
              __floats2bfloat162_rn(0.0f, 0.0f)));
        return packs;
      } else {
#pragma unroll
        for (int i = 0; i < n / 2; ++i) {
          float2 pair = __bfloat1622float2(words[i]);
          values[2 * i] = multiply(2 * i, pair.x);
          values[2 * i + 1] = multiply(2 * i + 1, pair.y);
        }
        return E::template narrowNumbers<n>(values);
      }
    } else {
      __half2 words[n / 2];
      rotateCodes(codes, words);
#pragma unroll
      for (int i = 0; i < n / 2; ++i) {
        float2 pair = __half22float2(words[i]);
        values[2 * i] = multiply(2 * i, __fadd_rn(pair.x, pair.y));
        values[2 * i + 1] = multiply(2 * i + 1, __fsub_rn(pair.x, pair.y));
      }
      return E::template narrowNumbers<n>(values);
    }
  }
  forEachCode<format, n>(
      codes, [&](int i, float code) { values[i] = __fmul_rn(code, scale); });
  if (rotates)
    rotateGroup<Rotation::Back>(values);
  return E::template narrow<n>(values);
}

/// The lanes whose element is the upper one of stage `h` and is subtracted, or
/// that others are subtracted from if `reversed`, as bits.
template <int h>
ZPP_HOST_DEVICE constexpr uint32_t lanesNegating(bool reversed) {
  uint32_t lanes = 0;
  for (int i = 0; i < 32; ++i)
    if ((i & h) != 0 && isReversed(i - h, h) == reversed)
      lanes |= 1u << i;
  return lanes;
}

/// Stage `h` of the way back of a group with an element in each lane. The lower
/// of two is their sum, the upper one a difference.
template <int h> __device__ __forceinline__ float addAcross(float value) {
  constexpr uint32_t kOwn = lanesNegating<h>(/*reversed=*/false);
  constexpr uint32_t kOther = lanesNegating<h>(/*reversed=*/true);
  uint32_t shift = 31 - threadIdx.x % 32;
  float other = __shfl_xor_sync(0xffffffffu, value, h);
  auto negate = [&](float x, uint32_t lanes) {
    return __uint_as_float(__float_as_uint(x) ^
                           ((lanes << shift) & 0x80000000u));
  };
  return __fadd_rn(negate(value, kOwn), negate(other, kOther));
}

/// Rotates the whole groups of a chunk back, in an item of `n` elements. `left`
/// are the elements of the chunk from the item's first one on, none or fewer
/// where it lies after the chunk. Items begin at multiples of n, with
/// neighbors in neighboring threads. If an item is smaller than a group, it is
/// one element, and all threads of the warp must take part.
template <int n, typename Int>
__device__ __forceinline__ void rotateBack(float (&values)[n], Int left) {
  if constexpr (n >= kRotation) {
#pragma unroll
    for (int g = 0; g < n / kRotation; ++g)
      if (left >= (g + 1) * kRotation)
        rotateGroup<Rotation::Back>(values + g * kRotation);
  } else {
    static_assert(n == 1 && kRotation == 32);
    int lane = static_cast<int>(threadIdx.x) % 32;
    float rotated = enterRotation(values[0], Rotation::Back, lane);
    rotated = addAcross<8>(addAcross<16>(rotated));
    rotated = addAcross<1>(addAcross<2>(addAcross<4>(rotated)));
    // A group after the chunk is zeros, which stay as they are.
    if (left + lane >= kRotation)
      values[0] = rotated;
  }
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_ROTATE_CUH
