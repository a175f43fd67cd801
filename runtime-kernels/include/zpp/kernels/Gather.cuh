//===- Gather.cuh - Items whose elements are not in one piece ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ways to load the `n` consecutive chunk elements of a thread if they cannot be
// loaded as packs. None of them indexes registers with a run-time value.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_GATHER_CUH
#define ZPP_KERNELS_GATHER_CUH

#include "zpp/kernels/BlockCodec.cuh"
#include "zpp/kernels/SliceIndex.cuh"

namespace zpp::kernels {

/// values[i] = get(i) for i < count, the others zero. For the few threads at an
/// edge.
template <int n, typename Int, typename Get>
__device__ __forceinline__ void fillOneByOne(float (&values)[n], Int count,
                                             const Get &get) {
#pragma unroll
  for (int k = 0; k < n; ++k)
    values[k] = 0.0f;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    float value = get(i);
#pragma unroll
    for (int k = 0; k < n; ++k)
      values[k] = k == i ? value : values[k];
  }
}

/// put(i, values[i]) for i < count.
template <int n, typename Int, typename Put>
__device__ __forceinline__ void drainOneByOne(const float (&values)[n],
                                              Int count, const Put &put) {
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    float value = 0.0f;
#pragma unroll
    for (int k = 0; k < n; ++k)
      value = k == i ? values[k] : value;
    put(i, value);
  }
}

/// Loads the items of a whole thread block: neighboring threads get neighboring
/// elements with get(index in the tensor) and exchange them through shared
/// memory. Padding, and elements after the chunk, are zero. All threads must
/// take part.
template <int n, typename Get>
__device__ __forceinline__ void
gatherItems(float (&values)[n], int64_t firstElement, int64_t chunkBegin,
            const SliceIndex &map, const Get &get) {
  // One word of padding per 32 keeps the strided reads off each other's banks.
  auto slot = [](int i) { return i + i / 32; };
  __shared__ float tile[kThreads * n + kThreads * n / 32];
#pragma unroll 1
  for (int i = threadIdx.x; i < kThreads * n; i += kThreads) {
    float value = 0.0f;
    int64_t element = firstElement + i;
    if (element < map.elements) {
      auto position = map.at(chunkBegin, element);
      if (position.inside > 0)
        value = get(position.index);
    }
    tile[slot(i)] = value;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < n; ++i)
    values[i] = tile[slot(threadIdx.x * n + i)];
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_GATHER_CUH
