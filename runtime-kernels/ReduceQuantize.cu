//===- ReduceQuantize.cu - Dequantization, reduction, quantization --------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/Launch.h"
#include "zpp/kernels/Sum.cuh"

using namespace zpp;
using namespace zpp::kernels;

namespace {

struct ReduceQuantizeParams {
  Sources sources;
  Finish finish;
  uint8_t *dest;
  int64_t stride;
  ChunkWriter writer;
  SliceIndex map;
  /// Items of a thread, for few sources.
  int32_t rows;
};

/// dest chunk c, element e =
///   encode(sum over s of decode(source s, element map.at(c, e)) / divisor)
///
/// Thread t of thread block b has the elements e = (b * kThreads + t) * n + [0,
/// n) of chunk c = chunkOfBlock(); the threads of a quantization block are
/// neighbors in one thread block.
template <Kind from, WireFormat format, Path path, int n>
__global__ void __launch_bounds__(kThreads, 5) reduceQuantizeKernel(
    const __grid_constant__ Batch<ReduceQuantizeParams> batch) {
  int threadBlock;
  const ReduceQuantizeParams &p = batch.find(threadBlock);
  using Int = IndexOf<path>;
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int firstItem = static_cast<Int>(threadBlock) * kThreads;
  Int item = firstItem + static_cast<Int>(threadIdx.x);
  float values[n];
  if constexpr (path == Path::Single) {
    gatherItems(values, firstItem * n, begin, p.map,
                [&](Int index) { return sumElement<from>(p.sources, index); });
  } else {
    Int left = static_cast<Int>(p.map.elements) - item * n;
    SliceIndex::Position<Int> position{};
    Int count = 0;
    if (left > 0) {
      position = p.map.at(begin, item * n);
      count = min(left, position.inside);
    }
    using Sum = Summer<from, n>;
    __shared__ typename Sum::Storage storage[kThreads / 32];
    if (!Sum::sum(p.sources, storage[threadIdx.x / 32], count >= n,
                  position.index, values))
      fillOneByOne(values, min(count, Int(n)), [&](int i) {
        return sumElement<from>(p.sources, position.index + i);
      });
  }
  p.finish.apply(values);
  encodeItem<format, /*isFirst=*/true>(
      values, /*factor=*/1.0f, amaxBits(values), item, p.writer,
      p.dest + static_cast<int64_t>(c) * p.stride);
}

/// The same for so many `sources` and 32-bit indices: the time of a thread's
/// copies is hidden behind the sums of the items before.
///
/// Thread t of thread block b has the items (b * rows + r) * kThreads + t,
/// r < rows, of n elements each.
template <Kind from, WireFormat format, int n, int sources>
__global__ void __launch_bounds__(kThreads, 5) reduceFewQuantizeKernel(
    const __grid_constant__ Batch<ReduceQuantizeParams> batch) {
  int threadBlock;
  const ReduceQuantizeParams &p = batch.find(threadBlock);
  using Sum = FewSummer<from, n, sources>;
  __shared__ typename Sum::Storage storage[kThreads / 32];
  typename Sum::Lane lane(storage[threadIdx.x / 32]);
  auto c = chunkOfBlock<int32_t>();
  if (c >= p.map.chunks)
    return;
  int64_t offset = static_cast<int64_t>(c) * p.stride;
  keepInRegister(offset);
  uint8_t *chunk = p.dest + offset;
  bool finishes = !p.finish.isNothing();
  int32_t firstItem = threadBlock * p.rows * kThreads;
  int32_t item = firstItem + static_cast<int32_t>(threadIdx.x);
  SpanIndex<int32_t> span(p.map, p.map.chunkBegin(c), firstItem * n,
                          p.rows * kThreads * n);
  // Where an item begins, or -1 if it is not there as a whole.
  auto locate = [&](int32_t item) {
    auto place = span.at(item * n);
    return place.count >= n ? place.index : -1;
  };
  int32_t index = locate(item);
  Sum::copy(p.sources, lane, /*half=*/0, index >= 0, index);
#pragma unroll 1
  for (int r = 0; r < p.rows; ++r) {
    int32_t next = r + 1 < p.rows ? locate(item + kThreads) : -1;
    Sum::copy(p.sources, lane, (r + 1) % 2, next >= 0, next);
    float values[n];
    bool isMultiplied = false;
    if (!Sum::sum(p.sources, lane, r % 2, index >= 0, index, /*power=*/0.0f,
                  isMultiplied, values)) {
      auto place = span.at(item * n);
      fillOneByOne(values, min(place.count, n), [&](int i) {
        return sumElement<from>(p.sources, place.index + i);
      });
    }
    if (finishes)
      p.finish.apply(values);
    encodeItem<format, /*isFirst=*/false>(
        values, /*factor=*/1.0f, amaxBits(values), item, p.writer, chunk);
    item += kThreads;
    index = next;
  }
}

} // namespace

cudaError_t zpp::kernels::dequantizeReduceQuantize(const ConstChunks &sources,
                                                   const SliceMap &map,
                                                   const Reduction &reduction,
                                                   const Chunks &dest,
                                                   const LaunchTarget &target) {
  SliceIndex index;
  if (cudaError_t error = SliceIndex::create(map, index))
    return error;
  if (!areValid(sources, reduction.divisor) || sources.rotate != 0 ||
      dest.rotate != 0)
    return cudaErrorInvalidValue;
  int64_t sourceElements = map.outer * map.extent * map.inner;
  if (cudaError_t error = checkChunks(sources, sources.count, sourceElements))
    return error;
  if (cudaError_t error = checkChunks(dest, index.chunks, index.elements))
    return error;
  return dispatch<Operation::ReduceQuantize>(
      kindOf(sources), kindOf(dest), [&](auto from, auto to) {
        if (index.elements == 0)
          return cudaSuccess;
        constexpr WireFormat format = formatOf(to);
        auto createParams = [&](int item) {
          return ReduceQuantizeParams{
              createSources(sources, sourceElements),
              Finish::create(reduction.divisor, reduction.partial),
              static_cast<uint8_t *>(dest.data),
              dest.stride,
              ChunkWriter::create(index.elements, format, dest.block, item),
              index,
              /*rows=*/1};
        };
        auto countItems = [&](const ReduceQuantizeParams &params, int item) {
          return params.writer.layout.blocks * (dest.block / item);
        };
        auto launchFew = [&](auto item, auto count) {
          ReduceQuantizeParams params = createParams(item);
          int64_t items = countItems(params, item);
          return launchRows<reduceFewQuantizeKernel<from, format, item, count>>(
              items, index.chunks, kThreads,
              /*waitsForMemory=*/from == Kind::I4 && count > 2, params, target);
        };
        auto launchItems = [&](auto item, auto path) {
          ReduceQuantizeParams params = createParams(item);
          return launch<reduceQuantizeKernel<from, format, path, item>>(
              divideUp(countItems(params, item), kThreads), index.chunks,
              kThreads, params, target);
        };
        // If the sources are codes, an item must begin at a multiple of its
        // size, so that it has a single scale.
        auto fits = [&](int item) {
          if (isQuantized(from))
            return item <= std::min(sources.block, dest.block) &&
                   index.allowsVectors(item, item);
          return allowsVectors(sources) &&
                 index.allowsVectors(item, 16 * 8 / bitsOf(from));
        };
        using Large = std::integral_constant<int, largeItem(from)>;
        using Small = std::integral_constant<int, smallItem(from)>;
        using Single = std::integral_constant<int, kSingleItem>;
        if (fits(Large()) && index.isNarrow) {
          if constexpr (isQuantized(from)) {
            if (sources.count == 2)
              return launchFew(Large(), std::integral_constant<int, 2>());
            if (sources.count == 3)
              return launchFew(Large(), std::integral_constant<int, 3>());
            if (sources.count == 4)
              return launchFew(Large(), std::integral_constant<int, 4>());
          }
          return launchItems(Large(), PathConstant<Path::Narrow>());
        }
        if (fits(Small()) && index.isNarrow)
          return launchItems(Small(), PathConstant<Path::Narrow>());
        if (fits(Small()))
          return launchItems(Small(), PathConstant<Path::Wide>());
        return launchItems(Single(), PathConstant<Path::Single>());
      });
}
