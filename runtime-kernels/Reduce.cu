//===- Reduce.cu - Dequantization and reduction ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/Launch.h"
#include "zpp/kernels/Rotate.cuh"
#include "zpp/kernels/Store.cuh"
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
  /// Whether each item lies in one run.
  bool areInRuns;
  /// For few sources: the items of a thread, and what multiplies exact sums in
  /// place of `finish` and of the first step of a rotation, or 0.
  int32_t rows;
  float power;
};

/// dest[map.at(0, e)] = sum over s of decode(source s, element e) / divisor
///
/// Thread t of thread block b sums the elements e = (b * kThreads + t) * n +
/// [0, n), and the threads of a warp store them together.
template <Kind from, Kind to, Path path, int n>
__global__ void __launch_bounds__(kThreads, 5)
    reduceKernel(const __grid_constant__ Batch<ReduceParams> batch) {
  int threadBlock;
  const ReduceParams &p = batch.find(threadBlock);
  using E = Element<to>;
  using Storage = typename E::Storage;
  using Int = IndexOf<path>;
  using Sum = Summer<from, n>;
  union WarpStorage {
    typename Sum::Storage sources;
    WarpPacks<E, n> packs;
  };
  __shared__ WarpStorage storage[kThreads / 32];
  WarpStorage &warpStorage = storage[threadIdx.x / 32];

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
      rotateBack(values, left);

  storeItems<E, n>(E::template narrow<n>(values), warpStorage.packs, dest,
                   element, begin, p.map, p.areInRuns);
}

/// The same for so many `sources` and 32-bit indices: the time of a thread's
/// copies is hidden behind the sums of the items before.
///
/// Thread t of thread block b has the items (b * rows + r) * kThreads + t,
/// r < rows, of n elements each.
template <Kind from, Kind to, int n, int sources>
__global__ void __launch_bounds__(kThreads, 5)
    reduceFewKernel(const __grid_constant__ Batch<ReduceParams> batch) {
  int threadBlock;
  const ReduceParams &p = batch.find(threadBlock);
  using E = Element<to>;
  using Sum = FewSummer<from, n, sources>;
  __shared__ typename Sum::Storage storage[kThreads / 32];
  __shared__ WarpPacks<E, n> packs[kThreads / 32];
  typename Sum::Lane lane(storage[threadIdx.x / 32]);
  auto *dest = static_cast<typename E::Storage *>(p.dest);
  auto elements = static_cast<int32_t>(p.map.elements);
  auto begin = p.map.template chunkBegin<int32_t>(/*chunk=*/0);
  int32_t element =
      (threadBlock * p.rows * kThreads + static_cast<int32_t>(threadIdx.x)) * n;
  Sum::copy(p.sources, lane, /*half=*/0, element < elements, element);
#pragma unroll 1
  for (int r = 0; r < p.rows; ++r, element += kThreads * n) {
    int32_t next = element + kThreads * n;
    Sum::copy(p.sources, lane, (r + 1) % 2, r + 1 < p.rows && next < elements,
              next);
    int32_t left = elements - element;
    float values[n];
    // Exact sums take the divisor, and the power of two of a rotation back, in
    // their stride. Rotations are for whole groups only.
    bool isMultiplied = false;
    if (!Sum::sum(p.sources, lane, r % 2, left > 0, element,
                  left >= n ? p.power : 0.0f, isMultiplied, values))
      fillOneByOne(values, min(left, n), [&](int i) {
        return sumElement<from>(p.sources, element + i);
      });
    if (!isMultiplied) {
      p.finish.apply(values);
      if (p.rotates)
        rotateBack(values, left);
    } else if (p.rotates) {
#pragma unroll
      for (int g = 0; g < n; g += kRotation)
        addStages<Rotation::Back>(values + g);
    }
    storeItems<E, n>(E::template narrow<n>(values), packs[threadIdx.x / 32],
                     dest, element, begin, p.map, p.areInRuns);
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
      rotateBack(sum, left);
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
                            dest.data,
                            sources.rotate != 0,
                            index,
                            /*areInRuns=*/false,
                            /*rows=*/1};
        constexpr int kPack = 16 / Element<to>::kBytes;
        if (isAligned(dest.data, 16) && index.allowsVectors(kPack, kPack) &&
            (isQuantized(from) || allowsVectors(sources))) {
          auto launchItems = [&](auto item, auto path) {
            params.areInRuns = index.allowsVectors(item, kPack);
            return launch<reduceKernel<from, to, path, item>>(
                divideUp(index.elements, item * kThreads),
                /*chunks=*/1, kThreads, params, target);
          };
          auto launchFew = [&](auto item, auto count) {
            int64_t items = divideUp(index.elements, item);
            params.areInRuns = index.allowsVectors(item, kPack);
            float power =
                params.finish.factor * (params.rotates ? 0x1p-2f : 1.0f);
            if (power >= 0x1p-12f && power <= 1.0f)
              params.power = power;
            return launchRows<reduceFewKernel<from, to, item, count>>(
                items, /*chunks=*/1, kThreads, /*waitsForMemory=*/true, params,
                target);
          };
          using Large = std::integral_constant<int, largeItem(from)>;
          using Small = std::integral_constant<int, smallItem(from)>;
          if (!index.isNarrow)
            return launchItems(Small(), PathConstant<Path::Wide>());
          if (isQuantized(from) && sources.block < Large())
            return launchItems(Small(), PathConstant<Path::Narrow>());
          if constexpr (isQuantized(from)) {
            // What is in flight and the results have to fit in 48 KiB.
            using Few =
                std::integral_constant<int, Element<to>::kBytes == 4 ? Small()
                                                                     : Large()>;
            if (sources.count == 2)
              return launchFew(Few(), std::integral_constant<int, 2>());
          }
          return launchItems(Large(), PathConstant<Path::Narrow>());
        }
        return launch<reduceSingleKernel<from, to>>(
            divideUp(index.elements, kThreads), /*chunks=*/1, kThreads, params,
            target);
      });
}
