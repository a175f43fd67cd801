//===- Pack.cuh - Packs of elements and codes -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Types for what a thread loads and stores at once, and conversions of their
// elements to f32 and back.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_PACK_CUH
#define ZPP_KERNELS_PACK_CUH

#include "zpp/kernels/SupportMatrix.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace zpp::kernels {

/// `bytes` bytes as 32-bit words, moved in accesses of up to 16 bytes; the
/// address must be aligned to them.
template <int bytes> struct Pack {
  static constexpr int kWords = (bytes + 3) / 4;
  static_assert(bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 ||
                bytes % 16 == 0);
  uint32_t words[kWords];

  /// Reads memory that no thread writes during the kernel.
  __device__ __forceinline__ static Pack load(const void *address) {
    Pack pack;
    if constexpr (bytes == 1) {
      pack.words[0] = __ldg(static_cast<const unsigned char *>(address));
    } else if constexpr (bytes == 2) {
      pack.words[0] = __ldg(static_cast<const unsigned short *>(address));
    } else if constexpr (bytes == 4) {
      pack.words[0] = __ldg(static_cast<const uint32_t *>(address));
    } else if constexpr (bytes == 8) {
      uint2 v = __ldg(static_cast<const uint2 *>(address));
      pack.words[0] = v.x;
      pack.words[1] = v.y;
    } else {
#pragma unroll
      for (int i = 0; i < bytes / 16; ++i)
        pack.setSlice(i, __ldg(static_cast<const uint4 *>(address) + i));
    }
    return pack;
  }

  /// Reads memory that this thread, and no other, may write during the kernel.
  __device__ __forceinline__ static Pack loadOwn(const void *address) {
    static_assert(bytes == 16);
    Pack pack;
    pack.setSlice(0, *static_cast<const uint4 *>(address));
    return pack;
  }

  /// Bytes [i * sliceBytes, (i + 1) * sliceBytes).
  template <int sliceBytes>
  __device__ __forceinline__ Pack<sliceBytes> slice(int i) const {
    Pack<sliceBytes> result;
#pragma unroll
    for (int w = 0; w < sliceBytes / 4; ++w)
      result.words[w] = words[i * (sliceBytes / 4) + w];
    return result;
  }

  __device__ __forceinline__ void setSlice(int i, const uint4 &slice) {
    words[4 * i] = slice.x;
    words[4 * i + 1] = slice.y;
    words[4 * i + 2] = slice.z;
    words[4 * i + 3] = slice.w;
  }

  __device__ __forceinline__ void store(void *address) const {
    if constexpr (bytes == 1) {
      *static_cast<unsigned char *>(address) =
          static_cast<unsigned char>(words[0]);
    } else if constexpr (bytes == 2) {
      *static_cast<unsigned short *>(address) =
          static_cast<unsigned short>(words[0]);
    } else if constexpr (bytes == 4) {
      *static_cast<uint32_t *>(address) = words[0];
    } else if constexpr (bytes == 8) {
      *static_cast<uint2 *>(address) = make_uint2(words[0], words[1]);
    } else {
#pragma unroll
      for (int i = 0; i < bytes / 16; ++i)
        static_cast<uint4 *>(address)[i] = make_uint4(
            words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    }
  }
};

/// Returns the maximum of two values that are not negative; NaN if one of them
/// is NaN.
__device__ __forceinline__ float maxOrNaN(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

/// Elements of a tensor: their storage, widening, which is exact, and rounding
/// to nearest even, with a single NaN.
template <Kind kind> struct Element;

template <> struct Element<Kind::F32> {
  using Storage = float;
  static constexpr int kBytes = 4;
  static constexpr uint32_t kNaNWord = 0x7fc00000u;

  __device__ static float widen(Storage value) { return value; }
  __device__ static Storage narrow(float value) {
    return isnan(value) ? __uint_as_float(kNaNWord) : value;
  }

  template <int n>
  __device__ __forceinline__ static void widen(const Pack<4 * n> &pack,
                                               float (&values)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i)
      values[i] = __uint_as_float(pack.words[i]);
  }
  template <int n>
  __device__ __forceinline__ static Pack<4 * n>
  narrow(const float (&values)[n]) {
    Pack<4 * n> pack;
#pragma unroll
    for (int i = 0; i < n; ++i)
      pack.words[i] = __float_as_uint(narrow(values[i]));
    return pack;
  }
  /// The same for values that are not NaN.
  template <int n>
  __device__ __forceinline__ static Pack<4 * n>
  narrowNumbers(const float (&values)[n]) {
    Pack<4 * n> pack;
#pragma unroll
    for (int i = 0; i < n; ++i)
      pack.words[i] = __float_as_uint(values[i]);
    return pack;
  }
  /// The largest magnitude as f32 bits; NaN is above all numbers.
  template <int n>
  __device__ __forceinline__ static uint32_t amaxBits(const Pack<4 * n> &pack) {
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < n; ++i)
      amax = maxOrNaN(amax, fabsf(__uint_as_float(pack.words[i])));
    return __float_as_uint(amax);
  }
};

template <> struct Element<Kind::BF16> {
  using Storage = __nv_bfloat16;
  static constexpr int kBytes = 2;
  static constexpr uint32_t kNaNWord = 0x7fc07fc0u;

  __device__ static float widen(Storage value) {
    return __bfloat162float(value);
  }
  __device__ static Storage narrow(float value) {
    return isnan(value) ? __ushort_as_bfloat16(0x7fc0)
                        : __float2bfloat16_rn(value);
  }

  template <int n>
  __device__ __forceinline__ static void widen(const Pack<2 * n> &pack,
                                               float (&values)[n]) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      values[2 * i] = __uint_as_float(pack.words[i] << 16);
      values[2 * i + 1] = __uint_as_float(pack.words[i] & 0xffff0000u);
    }
  }
  template <int n>
  __device__ __forceinline__ static Pack<2 * n>
  narrow(const float (&values)[n]) {
    Pack<2 * n> pack;
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      __nv_bfloat162 pair =
          __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      uint32_t nan = __hneu2_mask(pair, pair);
      uint32_t bits = *reinterpret_cast<uint32_t *>(&pair);
      pack.words[i] = (bits & ~nan) | (kNaNWord & nan);
    }
    return pack;
  }
  template <int n>
  __device__ __forceinline__ static Pack<2 * n>
  narrowNumbers(const float (&values)[n]) {
    Pack<2 * n> pack;
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      __nv_bfloat162 pair =
          __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
      pack.words[i] = *reinterpret_cast<uint32_t *>(&pair);
    }
    return pack;
  }
  template <int n>
  __device__ __forceinline__ static uint32_t amaxBits(const Pack<2 * n> &pack) {
    uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < n / 2; ++i)
      asm("{ .reg .b32 m; abs.bf16x2 m, %1; max.NaN.bf16x2 %0, %0, m; }"
          : "+r"(amax)
          : "r"(pack.words[i]));
    return max(amax << 16, amax & 0xffff0000u);
  }
};

template <> struct Element<Kind::F16> {
  using Storage = __half;
  static constexpr int kBytes = 2;
  static constexpr uint32_t kNaNWord = 0x7e007e00u;

  __device__ static float widen(Storage value) { return __half2float(value); }
  __device__ static Storage narrow(float value) {
    return isnan(value) ? __ushort_as_half(0x7e00) : __float2half_rn(value);
  }

  template <int n>
  __device__ __forceinline__ static void widen(const Pack<2 * n> &pack,
                                               float (&values)[n]) {
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      float2 pair =
          __half22float2(*reinterpret_cast<const __half2 *>(&pack.words[i]));
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  }
  template <int n>
  __device__ __forceinline__ static Pack<2 * n>
  narrow(const float (&values)[n]) {
    Pack<2 * n> pack;
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      uint32_t nan = __hneu2_mask(pair, pair);
      uint32_t bits = *reinterpret_cast<uint32_t *>(&pair);
      pack.words[i] = (bits & ~nan) | (kNaNWord & nan);
    }
    return pack;
  }
  template <int n>
  __device__ __forceinline__ static Pack<2 * n>
  narrowNumbers(const float (&values)[n]) {
    Pack<2 * n> pack;
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
      __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
      pack.words[i] = *reinterpret_cast<uint32_t *>(&pair);
    }
    return pack;
  }
  template <int n>
  __device__ __forceinline__ static uint32_t amaxBits(const Pack<2 * n> &pack) {
    uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < n / 2; ++i)
      asm("{ .reg .b32 m; abs.f16x2 m, %1; max.NaN.f16x2 %0, %0, m; }"
          : "+r"(amax)
          : "r"(pack.words[i]));
    float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&amax));
    return max(__float_as_uint(pair.x), __float_as_uint(pair.y));
  }
};

} // namespace zpp::kernels

#endif // ZPP_KERNELS_PACK_CUH
