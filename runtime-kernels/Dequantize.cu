//===- Dequantize.cu - Dequantization and inverse slice order -------------===//
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
#include "zpp/kernels/Store.cuh"

using namespace zpp;
using namespace zpp::kernels;

namespace {

/// Items that a thread loads at a time.
constexpr int kRows = 4;
/// The same for items that are rotated.
constexpr int kRotatedRows = 2;

struct DequantizeParams {
  const uint8_t *source;
  void *dest;
  int64_t stride;
  int64_t scalesOffset;
  int32_t blockLog2;
  bool rotates;
  /// Whether each rotated group lies in one run.
  bool areInRuns;
  SliceIndex map;
};

/// dest[map.at(c, e)] = decode(source chunk c, element e)
///
/// An item is 16 bytes of the destination, so that a warp stores in one piece.
/// Thread t of thread block b has the items (b * kRows + r) * kThreads + t of
/// chunk c = chunkOfBlock(), r < kRows.
template <WireFormat format, Kind type, Path path>
__global__ void __launch_bounds__(kThreads)
    dequantizeKernel(const __grid_constant__ Batch<DequantizeParams> batch) {
  int threadBlock;
  const DequantizeParams &p = batch.find(threadBlock);
  using E = Element<type>;
  using Int = IndexOf<path>;
  constexpr int kItem = 16 / E::kBytes;
  constexpr int kBytes = kItem * codeBits(format) / 8;
  auto *dest = static_cast<typename E::Storage *>(p.dest);
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int elements = static_cast<Int>(p.map.elements);
  Int first = static_cast<Int>(threadBlock) * (kRows * kThreads) +
              static_cast<Int>(threadIdx.x);
  const uint8_t *chunk = p.source + static_cast<int64_t>(c) * p.stride;
  auto *scales = reinterpret_cast<const uint16_t *>(chunk + p.scalesOffset);

  Pack<kBytes> codes[kRows];
  uint32_t scaleBits[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Int item = first + r * kThreads;
    codes[r] = {};
    scaleBits[r] = 0;
    if (item * kItem < elements) {
      // Packs are whole even at the end, because the payload is padded to 16
      // bytes.
      codes[r] = Pack<kBytes>::load(chunk + item * kBytes);
      scaleBits[r] = __ldg(scales + ((item * kItem) >> p.blockLog2));
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float values[kItem];
    float scale = floatOfBits(scaleBits[r] << 16);
    forEachCode<format, kItem>(codes[r], [&](int i, float code) {
      values[i] = __fmul_rn(code, scale);
    });
    Int element = (first + r * kThreads) * kItem;
    Int left = elements - element;
    if (left <= 0)
      continue;
    auto position = p.map.at(begin, element);
    Int count = min(left, position.inside);
    if (count >= kItem)
      E::template narrow<kItem>(values).store(dest + position.index);
    else
      drainOneByOne(values, count, [&](int i, float value) {
        dest[position.index + i] = E::narrow(value);
      });
  }
}

/// The same with groups rotated back.
///
/// An item is a group, so that its rotation needs no other thread. Thread t of
/// thread block b has the items (b * kRotatedRows + r) * kThreads + t of chunk
/// c = chunkOfBlock(), r < kRotatedRows.
template <WireFormat format, Kind type, Path path>
__global__ void __launch_bounds__(kThreads) dequantizeRotatedKernel(
    const __grid_constant__ Batch<DequantizeParams> batch) {
  int threadBlock;
  const DequantizeParams &p = batch.find(threadBlock);
  using E = Element<type>;
  using Int = IndexOf<path>;
  constexpr int kItem = static_cast<int>(kRotation);
  constexpr int kBytes = kItem * codeBits(format) / 8;
  __shared__ WarpPacks<E, kItem> storage[kThreads / 32];
  auto *dest = static_cast<typename E::Storage *>(p.dest);
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int elements = static_cast<Int>(p.map.elements);
  Int first = static_cast<Int>(threadBlock) * (kRotatedRows * kThreads) +
              static_cast<Int>(threadIdx.x);
  const uint8_t *chunk = p.source + static_cast<int64_t>(c) * p.stride;
  auto *scales = reinterpret_cast<const uint16_t *>(chunk + p.scalesOffset);

  Pack<kBytes> codes[kRotatedRows];
  float itemScales[kRotatedRows];
#pragma unroll
  for (int r = 0; r < kRotatedRows; ++r) {
    Int item = first + r * kThreads;
    codes[r] = {};
    itemScales[r] = 0.0f;
    if (item * kItem < elements) {
      // The last item can be longer than the payload: the scales follow, 16
      // bytes at least.
      codes[r] = Pack<kBytes>::load(chunk + item * kBytes);
      itemScales[r] =
          floatOfBF16Bits(__ldg(scales + ((item * kItem) >> p.blockLog2)));
    }
  }
#pragma unroll
  for (int r = 0; r < kRotatedRows; ++r) {
    Int element = (first + r * kThreads) * kItem;
    auto packs =
        decodeGroup<format, E>(codes[r], itemScales[r], elements - element);
    storeItems<E, kItem>(packs, storage[threadIdx.x / 32], dest, element, begin,
                         p.map, p.areInRuns);
  }
}

/// The same for single elements: thread t of thread block b has element b *
/// kThreads + t.
template <WireFormat format, Kind type>
__global__ void __launch_bounds__(kThreads)
    scatterKernel(const __grid_constant__ Batch<DequantizeParams> batch) {
  int threadBlock;
  const DequantizeParams &p = batch.find(threadBlock);
  using E = Element<type>;
  auto *dest = static_cast<typename E::Storage *>(p.dest);
  int64_t c = chunkOfBlock<int64_t>();
  int64_t element = static_cast<int64_t>(threadBlock) * kThreads + threadIdx.x;
  if (c >= p.map.chunks)
    return;
  int64_t left = p.map.elements - element;
  float value[1] = {0.0f};
  if (left > 0)
    value[0] = decodeElement<format>(p.source + c * p.stride, p.scalesOffset,
                                     p.blockLog2, element);
  if (p.rotates)
    rotateItem<Rotation::Back>(value, left);
  if (left <= 0)
    return;
  auto position = p.map.at(p.map.chunkBegin(c), element);
  if (position.inside > 0)
    dest[position.index] = E::narrow(value[0]);
}

} // namespace

cudaError_t zpp::kernels::dequantize(const ConstChunks &source,
                                     const SliceMap &map, const Tensor &dest,
                                     const LaunchTarget &target) {
  SliceIndex index;
  if (cudaError_t error = SliceIndex::create(map, index))
    return error;
  if (cudaError_t error = checkTensor(dest))
    return error;
  if (cudaError_t error = checkChunks(source, index.chunks, index.elements))
    return error;
  return dispatch<Operation::Dequantize>(
      kindOf(source), kindOf(dest.type), [&](auto from, auto to) {
        if (index.elements == 0)
          return cudaSuccess;
        if constexpr (!isQuantized(from)) {
          return reorder(ReorderDirection::ToTensor,
                         {source.data, dest.data, source.stride,
                          static_cast<int32_t>(elementBytes(dest.type)), index},
                         target);
        } else {
          constexpr WireFormat format = formatOf(from);
          constexpr int kItem = 16 / Element<to>::kBytes;
          DequantizeParams params{
              static_cast<const uint8_t *>(source.data),
              dest.data,
              source.stride,
              getChunkLayout(index.elements, format, source.block).scalesOffset,
              log2Of(source.block),
              source.rotate != 0,
              index.allowsVectors(kRotation, kItem),
              index};
          auto launchPath = [&](auto path) {
            if (params.rotates)
              return launch<dequantizeRotatedKernel<format, to, path>>(
                  divideUp(index.elements, kRotation * kThreads * kRotatedRows),
                  index.chunks, kThreads, params, target);
            return launch<dequantizeKernel<format, to, path>>(
                divideUp(index.elements, kItem * kThreads * kRows),
                index.chunks, kThreads, params, target);
          };
          if (!isAligned(dest.data, 16) || !index.allowsVectors(kItem, kItem))
            return launch<scatterKernel<format, to>>(
                divideUp(index.elements, kThreads), index.chunks, kThreads,
                params, target);
          if (!index.isNarrow)
            return launchPath(PathConstant<Path::Wide>());
          return launchPath(PathConstant<Path::Narrow>());
        }
      });
}
