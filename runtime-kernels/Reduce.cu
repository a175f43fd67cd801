//===- Reduce.cu - Dequantization and reduction ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/Launch.h"
#include "zpp/kernels/Rotate.cuh"
#include "zpp/kernels/Sum.cuh"

using namespace zpp;
using namespace zpp::kernels;

namespace {

struct ReduceParams {
  Sources sources;
  Finish finish;
  void *dest;
  bool rotates;
  SliceIndex map;
};

/// dest[map.at(0, e)] = sum over s of decode(source s, element e) / divisor
///
/// Thread t of thread block b sums the elements e = (b * kThreads + t) * n +
/// [0, n). The threads of a warp then exchange them through shared memory, so
/// that they store packs of 16 bytes next to each other: pack v of the warp is
/// elements v * kPack + [0, kPack) of it, and thread t stores the packs
/// 32 * i + t.
template <Kind from, Kind to, Path path, int n, int stages>
__global__ void __launch_bounds__(kThreads, 5)
    reduceKernel(const __grid_constant__ Batch<ReduceParams> batch) {
  int threadBlock;
  const ReduceParams &p = batch.find(threadBlock);
  using E = Element<to>;
  using Storage = typename E::Storage;
  using Int = IndexOf<path>;
  constexpr int kPack = 16 / E::kBytes;
  using Sum = Summer<from, n, stages>;
  constexpr int kResultBytes = 32 * n * E::kBytes;
  union WarpStorage {
    typename Sum::Storage sources;
    uint4 packs[kResultBytes / 16];
  };
  __shared__ WarpStorage storage[kThreads / 32];
  WarpStorage &warpStorage = storage[threadIdx.x / 32];
  int lane = threadIdx.x % 32;

  auto *dest = static_cast<Storage *>(p.dest);
  Int elements = static_cast<Int>(p.map.elements);
  Int begin = p.map.template chunkBegin<Int>(/*chunk=*/0);
  Int element = (static_cast<Int>(threadBlock) * kThreads +
                 static_cast<Int>(threadIdx.x)) *
                n;
  Int left = elements - element;
  float values[n];
  // Codes are padded to 16 bytes, other elements are not.
  if (!Sum::sum(p.sources, warpStorage.sources,
                left >= (isQuantized(from) ? 1 : n), element, values))
    fillOneByOne(values, min(left, Int(n)), [&](int i) {
      return sumElement<from>(p.sources, element + i);
    });
  p.finish.apply(values);
  if constexpr (isQuantized(from))
    if (p.rotates)
      rotateItem<Rotation::Back>(values, left);

  // Packs are in rows of eight, each row in another order, so that neither
  // writes nor reads have bank conflicts.
  auto slot = [&](int v) { return &warpStorage.packs[v ^ ((v / 8) % 8)]; };
  auto packs = E::template narrow<n>(values);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < n / kPack; ++i)
    packs.template slice<16>(i).store(slot(lane * (n / kPack) + i));
  __syncwarp();
  Int warpElement = element - lane * n;
#pragma unroll
  for (int i = 0; i < n / kPack; ++i) {
    int v = 32 * i + lane;
    Int packElement = warpElement + v * kPack;
    if (packElement >= elements)
      continue;
    auto position = p.map.at(begin, packElement);
    Int count = min(elements - packElement, position.inside);
    if (count >= kPack)
      *reinterpret_cast<uint4 *>(dest + position.index) = *slot(v);
    else
      for (int k = 0; k < count; ++k)
        dest[position.index + k] =
            reinterpret_cast<const Storage *>(slot(v))[k];
  }
}

/// The same for single elements: thread t of thread block b has element b *
/// kThreads + t.
template <Kind from, Kind to>
__global__ void __launch_bounds__(kThreads)
    reduceSingleKernel(const __grid_constant__ Batch<ReduceParams> batch) {
  int threadBlock;
  const ReduceParams &p = batch.find(threadBlock);
  using E = Element<to>;
  int64_t element = static_cast<int64_t>(threadBlock) * kThreads + threadIdx.x;
  int64_t left = p.map.elements - element;
  float sum[1] = {0.0f};
  if (left > 0)
    sum[0] = sumElement<from>(p.sources, element);
  p.finish.apply(sum);
  if constexpr (isQuantized(from))
    if (p.rotates)
      rotateItem<Rotation::Back>(sum, left);
  if (left <= 0)
    return;
  auto position =
      p.map.at(p.map.template chunkBegin<int64_t>(/*chunk=*/0), element);
  if (position.inside <= 0)
    return;
  static_cast<typename E::Storage *>(p.dest)[position.index] =
      E::narrow(sum[0]);
}

} // namespace

cudaError_t zpp::kernels::dequantizeReduce(const ConstChunks &sources,
                                           const SliceMap &map,
                                           const Reduction &reduction,
                                           const Tensor &dest,
                                           const LaunchTarget &target) {
  SliceIndex index;
  if (cudaError_t error = SliceIndex::create(map, index))
    return error;
  if (index.chunks != 1 || !areValid(sources, reduction.divisor))
    return cudaErrorInvalidValue;
  if (cudaError_t error = checkTensor(dest))
    return error;
  if (cudaError_t error = checkChunks(sources, sources.count, index.elements))
    return error;
  return dispatch<Operation::Reduce>(
      kindOf(sources), kindOf(dest.type), [&](auto from, auto to) {
        if (index.elements == 0)
          return cudaSuccess;
        ReduceParams params{createSources(sources, index.elements),
                            Finish::create(reduction.divisor, ElementType::F32),
                            dest.data, sources.rotate != 0, index};
        constexpr int kPack = 16 / Element<to>::kBytes;
        if (isAligned(dest.data, 16) && index.allowsVectors(kPack, kPack) &&
            (isQuantized(from) || allowsVectors(sources))) {
          auto launchStages = [&](auto item, auto path, auto stages) {
            return launch<reduceKernel<from, to, path, item, stages>>(
                divideUp(index.elements, item * kThreads),
                /*chunks=*/1, kThreads, params, target);
          };
          auto launchItems = [&](auto item, auto path) {
            return launchStages(item, path, Stages<manyStages(from, item)>());
          };
          using Large = std::integral_constant<int, largeItem(from)>;
          using Small = std::integral_constant<int, smallItem(from)>;
          if (!index.isNarrow)
            return launchItems(Small(), PathConstant<Path::Wide>());
          if (isQuantized(from) && sources.block < Large())
            return launchItems(Small(), PathConstant<Path::Narrow>());
          if constexpr (isQuantized(from))
            if (sources.count <= kFewStages)
              return launchStages(Large(), PathConstant<Path::Narrow>(),
                                  Stages<kFewStages>());
          return launchItems(Large(), PathConstant<Path::Narrow>());
        }
        return launch<reduceSingleKernel<from, to>>(
            divideUp(index.elements, kThreads), /*chunks=*/1, kThreads, params,
            target);
      });
}
