//===- Store.cuh - Stores of large items ------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Threads with many consecutive elements each would store far from each other.
// The threads of a warp exchange their elements through shared memory, so that
// they store packs of 16 bytes next to each other.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_STORE_CUH
#define ZPP_KERNELS_STORE_CUH

#include "zpp/kernels/Pack.cuh"
#include "zpp/kernels/SliceIndex.cuh"

namespace zpp::kernels {

/// Shared memory of a warp for items of n elements.
template <typename E, int n> using WarpPacks = uint4[32 * n * E::kBytes / 16];

/// dest[map.at(begin, element + i)] = element i of `packs`, i < n
///
/// All threads of the warp take part, `element` of neighbors being n apart.
/// What lies after the chunk and in the padding of the tensor is not stored.
/// `areInRuns`: the map allows vectors of n elements. Pack v of the warp is its
/// elements v * kPack + [0, kPack); thread t stores the packs 32 * i + t.
template <typename E, int n, typename Int>
__device__ __forceinline__ void
storeItems(const Pack<n * E::kBytes> &packs, WarpPacks<E, n> &storage,
           typename E::Storage *dest, Int element, Int begin,
           const SliceIndex &map, bool areInRuns) {
  constexpr int kPack = 16 / E::kBytes;
  constexpr int kPacks = n / kPack;
  int lane = threadIdx.x % 32;
  // Packs are in rows of eight, each row in another order, so that neither
  // writes nor reads have bank conflicts.
  auto slot = [&](int v) { return &storage[v ^ ((v / 8) % 8)]; };
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kPacks; ++i)
    packs.template slice<16>(i).store(slot(lane * kPacks + i));
  __syncwarp();
  auto store = [&](int v, Int index, Int count) {
    if (count >= kPack)
      *reinterpret_cast<uint4 *>(dest + index) = *slot(v);
    else
#pragma unroll 1
      for (int k = 0; k < count; ++k)
        dest[index + k] =
            reinterpret_cast<const typename E::Storage *>(slot(v))[k];
  };
  Int left = static_cast<Int>(map.elements) - element;
  if (areInRuns) {
    // One thread knows where its item is.
    Int index = 0, count = 0;
    if (left > 0) {
      auto position = map.at(begin, element);
      index = position.index;
      count = min(left, position.inside);
    }
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      int v = 32 * i + lane;
      int offset = v % kPacks * kPack;
      store(v, __shfl_sync(0xffffffffu, index, v / kPacks) + offset,
            __shfl_sync(0xffffffffu, count, v / kPacks) - offset);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kPacks; ++i) {
    int v = 32 * i + lane;
    Int offset = v * kPack - lane * n;
    if (offset >= left)
      continue;
    auto position = map.at(begin, element + offset);
    store(v, position.index, min(left - offset, position.inside));
  }
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_STORE_CUH
