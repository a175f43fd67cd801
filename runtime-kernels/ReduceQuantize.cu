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
};

/// dest chunk c, element e =
///   encode(sum over s of decode(source s, element map.at(c, e)) / divisor)
///
/// Thread t of thread block b has the elements e = (b * kThreads + t) * n + [0,
/// n) of chunk c = chunkOfBlock(); the threads of a quantization block are
/// neighbors in one thread block.
template <Kind from, WireFormat format, Path path, int n, int stages>
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
    using Sum = Summer<from, n, stages>;
    __shared__ typename Sum::Storage storage[kThreads / 32];
    if (!Sum::sum(p.sources, storage[threadIdx.x / 32], count >= n,
                  position.index, values))
      fillOneByOne(values, min(count, Int(n)), [&](int i) {
        return sumElement<from>(p.sources, position.index + i);
      });
  }
  p.finish.apply(values);
  encodeItem<format>(values, amaxBits(values), item, p.writer,
                     p.dest + static_cast<int64_t>(c) * p.stride);
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
        auto launchStages = [&](auto item, auto path, auto stages) {
          ReduceQuantizeParams params{
              createSources(sources, sourceElements),
              Finish::create(reduction.divisor, reduction.partial),
              static_cast<uint8_t *>(dest.data),
              dest.stride,
              ChunkWriter::create(index.elements, format, dest.block, item),
              index};
          return launch<reduceQuantizeKernel<from, format, path, item, stages>>(
              divideUp(params.writer.layout.blocks * (dest.block / item),
                       kThreads),
              index.chunks, kThreads, params, target);
        };
        auto launchItems = [&](auto item, auto path) {
          return launchStages(item, path, Stages<manyStages(from, item)>());
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
          if constexpr (isQuantized(from))
            if (sources.count <= kFewStages)
              return launchStages(Large(), PathConstant<Path::Narrow>(),
                                  Stages<kFewStages>());
          return launchItems(Large(), PathConstant<Path::Narrow>());
        }
        if (fits(Small()) && index.isNarrow)
          return launchItems(Small(), PathConstant<Path::Narrow>());
        if (fits(Small()))
          return launchItems(Small(), PathConstant<Path::Wide>());
        return launchItems(Single(), PathConstant<Path::Single>());
      });
}
