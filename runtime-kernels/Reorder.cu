//===- Reorder.cu - Slice reordering alone --------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/Reorder.cuh"

#include "zpp/kernels/BlockCodec.cuh"
#include "zpp/kernels/Launch.h"

using namespace zpp;
using namespace zpp::kernels;

namespace {

constexpr int kWordsPerThread = 4;

/// chunk c, element e  <->  tensor, element map.at(c, e)
///
/// with e a multiple of the elements of a word. Thread t of thread block b
/// moves the words (b * kWordsPerThread + i) * kThreads + t of chunk
/// c = chunkOfBlock().
template <int wordBytes, ReorderDirection direction, Path path>
__global__ void __launch_bounds__(kThreads)
    reorderKernel(const __grid_constant__ Batch<ReorderParams> batch) {
  int threadBlock;
  const ReorderParams &p = batch.find(threadBlock);
  using Word = Pack<wordBytes>;
  using Int = IndexOf<path>;
  constexpr bool toChunks = direction == ReorderDirection::ToChunks;
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int elements = static_cast<Int>(p.map.elements);
  Int perWord = wordBytes / p.elementBytes;
  Int first = static_cast<Int>(threadBlock) * (kWordsPerThread * kThreads) +
              static_cast<Int>(threadIdx.x);
  auto address = [&](auto *base, Int element) {
    return base + static_cast<int64_t>(element) * p.elementBytes;
  };
  int64_t chunkOffset = static_cast<int64_t>(c) * p.stride;
  auto *source = static_cast<const char *>(p.source);
  auto *dest = static_cast<char *>(p.dest);

  Word words[kWordsPerThread];
  Int indices[kWordsPerThread];
#pragma unroll
  for (int i = 0; i < kWordsPerThread; ++i) {
    Int element = (first + i * kThreads) * perWord;
    words[i] = {};
    indices[i] = -1;
    if (element >= elements)
      continue;
    auto position = p.map.at(begin, element);
    if (position.inside <= 0)
      continue;
    indices[i] = position.index;
    words[i] = Word::load(toChunks ? address(source, position.index)
                                   : address(source + chunkOffset, element));
  }
#pragma unroll
  for (int i = 0; i < kWordsPerThread; ++i) {
    Int element = (first + i * kThreads) * perWord;
    if (toChunks) {
      if (element < elements)
        words[i].store(address(dest + chunkOffset, element));
    } else if (indices[i] >= 0) {
      words[i].store(address(dest, indices[i]));
    }
  }
}

template <int wordBytes, ReorderDirection direction>
cudaError_t launchReorder(const ReorderParams &params,
                          const LaunchTarget &target) {
  int64_t words =
      divideUp(params.map.elements * params.elementBytes, wordBytes);
  int64_t threadBlocks = divideUp(words, kThreads * kWordsPerThread);
  if (params.map.isNarrow)
    return launch<reorderKernel<wordBytes, direction, Path::Narrow>>(
        threadBlocks, params.map.chunks, kThreads, params, target);
  return launch<reorderKernel<wordBytes, direction, Path::Wide>>(
      threadBlocks, params.map.chunks, kThreads, params, target);
}

template <int wordBytes>
cudaError_t launchReorder(ReorderDirection direction,
                          const ReorderParams &params,
                          const LaunchTarget &target) {
  return direction == ReorderDirection::ToChunks
             ? launchReorder<wordBytes, ReorderDirection::ToChunks>(params,
                                                                    target)
             : launchReorder<wordBytes, ReorderDirection::ToTensor>(params,
                                                                    target);
}

} // namespace

cudaError_t zpp::kernels::reorder(ReorderDirection direction,
                                  const ReorderParams &params,
                                  const LaunchTarget &target) {
  if (params.map.elements == 0)
    return cudaSuccess;
  // A word must not extend past the end of a run, of the chunk or of the
  // extent.
  auto fits = [&](int64_t wordBytes) {
    int64_t perWord = wordBytes / params.elementBytes;
    return wordBytes == params.elementBytes ||
           (isAligned(params.source, wordBytes) &&
            isAligned(params.dest, wordBytes) &&
            (params.map.chunks == 1 || params.stride % wordBytes == 0) &&
            params.map.allowsVectors(perWord, perWord) &&
            params.map.elements % perWord == 0 &&
            params.map.extent % perWord == 0);
  };
  if (fits(16))
    return launchReorder<16>(direction, params, target);
  if (fits(8))
    return launchReorder<8>(direction, params, target);
  if (fits(4))
    return launchReorder<4>(direction, params, target);
  if (fits(2))
    return launchReorder<2>(direction, params, target);
  return launchReorder<1>(direction, params, target);
}

/// Elements of any size are copied in words of 4, 2 or 1 bytes: the largest
/// that divides their size, the addresses and the stride.
static cudaError_t reorderElements(ReorderDirection direction,
                                   const void *source, void *dest,
                                   int64_t elementBytes, const SliceMap &map,
                                   int64_t stride, const LaunchTarget &target) {
  if (elementBytes < 1 ||
      (map.numChunks() > 1 && stride < map.elementsPerChunk() * elementBytes))
    return cudaErrorInvalidValue;
  int32_t unit = 4;
  while (elementBytes % unit != 0 || !isAligned(source, unit) ||
         !isAligned(dest, unit) || stride % unit != 0)
    unit /= 2;
  SliceMap scaled = map;
  scaled.inner *= elementBytes / unit;
  SliceIndex index;
  if (cudaError_t error = SliceIndex::create(scaled, index))
    return error;
  return reorder(direction, {source, dest, stride, unit, index}, target);
}

cudaError_t zpp::kernels::pack(const void *source, int64_t elementBytes,
                               const SliceMap &map, void *dest, int64_t stride,
                               const LaunchTarget &target) {
  return reorderElements(ReorderDirection::ToChunks, source, dest, elementBytes,
                         map, stride, target);
}

cudaError_t zpp::kernels::unpack(const void *source, int64_t elementBytes,
                                 const SliceMap &map, void *dest,
                                 int64_t stride, const LaunchTarget &target) {
  return reorderElements(ReorderDirection::ToTensor, source, dest, elementBytes,
                         map, stride, target);
}
