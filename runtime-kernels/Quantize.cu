//===- Quantize.cu - Slice order and quantization -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/BlockCodec.cuh"
#include "zpp/kernels/Gather.cuh"
#include "zpp/kernels/Kernels.h"
#include "zpp/kernels/Launch.h"
#include "zpp/kernels/Reorder.cuh"
#include "zpp/kernels/Rotate.cuh"

using namespace zpp;
using namespace zpp::kernels;

namespace {

/// Elements that a thread encodes.
constexpr int kItem = 16;

struct QuantizeParams {
  const void *source;
  uint8_t *dest;
  int64_t stride;
  ChunkWriter writer;
  SliceIndex map;
};

/// dest chunk c, element e = encode(source[map.at(c, e)]), of rotated groups
/// where it `rotates`
///
/// Thread t of thread block b has the elements e = (b * kThreads + t) * kItem +
/// [0, kItem) of chunk c = chunkOfBlock(); the threads of a quantization block
/// are neighbors in one thread block.
template <Kind type, WireFormat format, Path path, bool rotates>
__global__ void __launch_bounds__(kThreads)
    quantizeKernel(const __grid_constant__ Batch<QuantizeParams> batch) {
  int threadBlock;
  const QuantizeParams &p = batch.find(threadBlock);
  using E = Element<type>;
  using Int = IndexOf<path>;
  auto *source = static_cast<const typename E::Storage *>(p.source);
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int firstItem = static_cast<Int>(threadBlock) * kThreads;
  Int item = firstItem + static_cast<Int>(threadIdx.x);
  float values[kItem];
  uint32_t amax = 0;
  if constexpr (path == Path::Single) {
    gatherItems(values, firstItem * kItem, begin, p.map,
                [&](Int index) { return E::widen(source[index]); });
    amax = amaxBits(values);
  } else {
#pragma unroll
    for (int i = 0; i < kItem; ++i)
      values[i] = 0.0f;
    Int left = static_cast<Int>(p.map.elements) - item * kItem;
    if (left > 0) {
      auto position = p.map.at(begin, item * kItem);
      Int count = min(left, position.inside);
      if (count >= kItem) {
        auto pack = Pack<kItem * E::kBytes>::load(source + position.index);
        E::template widen<kItem>(pack, values);
        amax = E::template amaxBits<kItem>(pack);
      } else {
        fillOneByOne(values, count, [&](int i) {
          return E::widen(source[position.index + i]);
        });
        amax = amaxBits(values);
      }
    }
  }
  if constexpr (rotates) {
    rotateItem<Rotation::Forward>(values, static_cast<Int>(p.map.elements) -
                                              item * kItem);
    amax = amaxBits(values);
  }
  encodeItem<format>(values, amax, item, p.writer,
                     p.dest + static_cast<int64_t>(c) * p.stride);
}

} // namespace

cudaError_t zpp::kernels::quantize(const ConstTensor &source,
                                   const SliceMap &map, const Chunks &dest,
                                   const LaunchTarget &target) {
  SliceIndex index;
  if (cudaError_t error = SliceIndex::create(map, index))
    return error;
  if (cudaError_t error = checkTensor(source))
    return error;
  if (cudaError_t error = checkChunks(dest, index.chunks, index.elements))
    return error;
  return dispatch<Operation::Quantize>(
      kindOf(source.type), kindOf(dest), [&](auto from, auto to) {
        if (index.elements == 0)
          return cudaSuccess;
        if constexpr (!isQuantized(to)) {
          return reorder(ReorderDirection::ToChunks,
                         {source.data, dest.data, dest.stride,
                          static_cast<int32_t>(elementBytes(source.type)),
                          index},
                         target);
        } else {
          constexpr WireFormat format = formatOf(to);
          QuantizeParams params{
              source.data, static_cast<uint8_t *>(dest.data), dest.stride,
              ChunkWriter::create(index.elements, format, dest.block, kItem),
              index};
          int64_t items = params.writer.layout.blocks * (dest.block / kItem);
          bool vectors =
              isAligned(source.data, 16) &&
              index.allowsVectors(kItem, 16 / elementBytes(source.type));
          auto launchKernel = [&](auto path, auto rotates) {
            return launch<quantizeKernel<from, format, path, rotates>>(
                divideUp(items, kThreads), index.chunks, kThreads, params,
                target);
          };
          auto launchPath = [&](auto path) {
            return dest.rotate ? launchKernel(path, std::true_type())
                               : launchKernel(path, std::false_type());
          };
          if (!vectors)
            return launchPath(PathConstant<Path::Single>());
          if (!index.isNarrow)
            return launchPath(PathConstant<Path::Wide>());
          return launchPath(PathConstant<Path::Narrow>());
        }
      });
}
