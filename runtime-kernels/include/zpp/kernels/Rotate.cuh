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

#include "zpp/Support/BlockQuant.h"

namespace zpp::kernels {

/// The stages of a group whose pairs lie `n` = kRotation or fewer elements
/// apart at most, on `values`.
template <Rotation rotation, int n>
__device__ __forceinline__ void rotateWithinThread(float *values) {
#pragma unroll
  for (int i = 0; i < n; ++i)
    values[i] = enterRotation(values[i], rotation);
#pragma unroll
  for (int h = 1; h < n; h *= 2)
#pragma unroll
    for (int i = 0; i < n; ++i)
      if ((i & h) == 0) {
        float a = values[i], b = values[i + h];
        values[i] = __fadd_rn(a, b);
        values[i + h] = __fsub_rn(a, b);
      }
}

/// Rotates the whole groups of a chunk in an item of `n` elements. `left` are
/// the elements of the chunk from the item's first one on, none or fewer where
/// it lies behind the chunk. Items begin at multiples of n, with neighbors in
/// neighboring threads. If an item is smaller than a group, all threads of the
/// warp must take part.
template <Rotation rotation, int n, typename Int>
__device__ __forceinline__ void rotateItem(float (&values)[n], Int left) {
  if constexpr (n >= kRotation) {
#pragma unroll
    for (int g = 0; g < n / kRotation; ++g)
      if (left >= (g + 1) * kRotation)
        rotateWithinThread<rotation, kRotation>(values + g * kRotation);
  } else {
    constexpr int kLanes = kRotation / n;
    int lane = static_cast<int>(threadIdx.x) % kLanes;
    Int inGroup = left + lane * n;
    auto rotate = [&](float *group) {
      rotateWithinThread<rotation, n>(group);
#pragma unroll
      for (int l = 1; l < kLanes; l *= 2) {
        // The lower of two is their sum, the upper one the difference.
        float sign = (lane & l) == 0 ? 1.0f : -1.0f;
#pragma unroll
        for (int i = 0; i < n; ++i)
          group[i] = __fmaf_rn(group[i], sign,
                               __shfl_xor_sync(0xffffffffu, group[i], l));
      }
    };
    // A group behind the chunk is zeros, which stay zeros.
    if (__all_sync(0xffffffffu, inGroup >= kRotation || inGroup <= 0)) {
      rotate(values);
      return;
    }
    float rotated[n];
#pragma unroll
    for (int i = 0; i < n; ++i)
      rotated[i] = values[i];
    rotate(rotated);
#pragma unroll
    for (int i = 0; i < n; ++i)
      values[i] = inGroup >= kRotation ? rotated[i] : values[i];
  }
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_ROTATE_CUH
