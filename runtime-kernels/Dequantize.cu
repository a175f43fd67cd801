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
  /// Addend of the values, which may be `dest`; null if there is none.
  const void *held;
  void *dest;
  int64_t stride;
  int64_t scalesOffset;
  int32_t blockLog2;
  bool rotates;
  /// Whether each rotated group lies in one run.
  bool areInRuns;
  SliceIndex map;
};

/// `n` codes of a chunk and their scale.
template <WireFormat format, int n> struct CodedItem {
  static constexpr int kBytes = n * codeBits(format) / 8;
  Pack<kBytes> codes = {};
  /// As bf16.
  uint32_t scaleBits = 0;

  __device__ __forceinline__ float scale() const {
    return floatOfBits(scaleBits << 16);
  }

  /// Item `item` of a chunk, or zeros after its last element.
  template <typename Int>
  __device__ __forceinline__ static CodedItem
  load(const uint8_t *chunk, const DequantizeParams &p, Int item) {
    CodedItem result;
    if (item * n < static_cast<Int>(p.map.elements)) {
      auto *scales = reinterpret_cast<const uint16_t *>(chunk + p.scalesOffset);
      // The last item can be longer than the payload, which is padded to 16
      // bytes: the scales follow, 16 bytes at least.
      result.codes = Pack<kBytes>::load(chunk + item * kBytes);
      result.scaleBits = __ldg(scales + ((item * n) >> p.blockLog2));
    }
    return result;
  }
};

/// dest[map.at(c, e)] = decode(source chunk c, element e), or
/// held[map.at(c, e)] plus that
///
/// An item is 16 bytes of the destination, so that a warp stores in one piece.
/// Thread t of thread block b has the items (b * kRows + r) * kThreads + t of
/// chunk c = chunkOfBlock(), r < kRows.
template <WireFormat format, Kind type, Path path, bool isDifference>
__global__ void __launch_bounds__(kThreads)
    dequantizeKernel(const __grid_constant__ Batch<DequantizeParams> batch) {
  int threadBlock;
  const DequantizeParams &p = batch.find(threadBlock);
  using E = Element<type>;
  using Int = IndexOf<path>;
  constexpr int kItem = 16 / E::kBytes;
  auto *dest = static_cast<typename E::Storage *>(p.dest);
  auto *held = static_cast<const typename E::Storage *>(p.held);
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int elements = static_cast<Int>(p.map.elements);
  Int first = static_cast<Int>(threadBlock) * (kRows * kThreads) +
              static_cast<Int>(threadIdx.x);
  const uint8_t *chunk = p.source + static_cast<int64_t>(c) * p.stride;

  /// Place of item r in the tensor, and how much of it lies there.
  struct Place {
    Int index, count;
  };
  auto find = [&](int r) -> Place {
    Int element = (first + r * kThreads) * kItem;
    Int left = elements - element;
    if (left <= 0)
      return {0, 0};
    auto position = p.map.at(begin, element);
    return {position.index, min(left, position.inside)};
  };

  CodedItem<format, kItem> items[kRows];
  Place places[isDifference ? kRows : 1];
  Pack<16> before[isDifference ? kRows : 1];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    items[r] =
        CodedItem<format, kItem>::load(chunk, p, Int(first + r * kThreads));
    if constexpr (isDifference) {
      places[r] = find(r);
      before[r] = {};
      if (places[r].count >= kItem)
        before[r] = Pack<16>::loadOwn(held + places[r].index);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float values[kItem];
    float scale = items[r].scale();
    forEachCode<format, kItem>(items[r].codes, [&](int i, float code) {
      values[i] = __fmul_rn(code, scale);
    });
    Place place;
    if constexpr (isDifference)
      place = places[r];
    else
      place = find(r);
    if (place.count <= 0)
      continue;
    if (place.count >= kItem) {
      if constexpr (isDifference) {
        float others[kItem];
        E::template widen<kItem>(before[r], others);
#pragma unroll
        for (int i = 0; i < kItem; ++i)
          values[i] = addHeld(others[i], values[i]);
      }
      E::template narrow<kItem>(values).store(dest + place.index);
    } else {
      drainOneByOne(values, place.count, [&](int i, float value) {
        if constexpr (isDifference)
          value = addHeld(E::widen(held[place.index + i]), value);
        dest[place.index + i] = E::narrow(value);
      });
    }
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

  CodedItem<format, kItem> items[kRotatedRows];
#pragma unroll
  for (int r = 0; r < kRotatedRows; ++r)
    items[r] =
        CodedItem<format, kItem>::load(chunk, p, Int(first + r * kThreads));
#pragma unroll
  for (int r = 0; r < kRotatedRows; ++r) {
    Int element = (first + r * kThreads) * kItem;
    auto packs = decodeGroup<format, E>(items[r].codes, items[r].scale(),
                                        elements - element);
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
    rotateBack(value, left);
  if (left <= 0)
    return;
  auto position = p.map.at(p.map.chunkBegin(c), element);
  if (position.inside <= 0)
    return;
  if (auto *held = static_cast<const typename E::Storage *>(p.held))
    value[0] = addHeld(E::widen(held[position.index]), value[0]);
  dest[position.index] = E::narrow(value[0]);
}

/// Launches the kernel of Dequantize or, with `held`, of DequantizeAdd.
template <Operation op>
cudaError_t launchDequantize(const ConstChunks &source, const void *held,
                             const SliceMap &map, const Tensor &dest,
                             const LaunchTarget &target) {
  SliceIndex index;
  if (cudaError_t error = SliceIndex::create(map, index))
    return error;
  if (cudaError_t error = checkTensor(dest))
    return error;
  if (cudaError_t error = checkChunks(source, index.chunks, index.elements))
    return error;
  return dispatch<op>(
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
          constexpr bool isDifference = op == Operation::DequantizeAdd;
          constexpr int kItem = 16 / Element<to>::kBytes;
          DequantizeParams params{
              static_cast<const uint8_t *>(source.data),
              held,
              dest.data,
              source.stride,
              getChunkLayout(index.elements, format, source.block).scalesOffset,
              log2Of(source.block),
              source.rotate != 0,
              index.allowsVectors(kRotation, kItem),
              index};
          auto launchPath = [&](auto path) {
            if constexpr (!isDifference)
              if (params.rotates)
                return launch<dequantizeRotatedKernel<format, to, path>>(
                    divideUp(index.elements,
                             kRotation * kThreads * kRotatedRows),
                    index.chunks, kThreads, params, target);
            return launch<dequantizeKernel<format, to, path, isDifference>>(
                divideUp(index.elements, kItem * kThreads * kRows),
                index.chunks, kThreads, params, target);
          };
          if (!isAligned(dest.data, 16) || !isAligned(held, 16) ||
              !index.allowsVectors(kItem, kItem))
            return launch<scatterKernel<format, to>>(
                divideUp(index.elements, kThreads), index.chunks, kThreads,
                params, target);
          if (!index.isNarrow)
            return launchPath(PathConstant<Path::Wide>());
          return launchPath(PathConstant<Path::Narrow>());
        }
      });
}

} // namespace

cudaError_t zpp::kernels::dequantize(const ConstChunks &source,
                                     const SliceMap &map, const Tensor &dest,
                                     const LaunchTarget &target) {
  return launchDequantize<Operation::Dequantize>(source, /*held=*/nullptr, map,
                                                 dest, target);
}

cudaError_t zpp::kernels::dequantizeAdd(const ConstChunks &source,
                                        const ConstTensor &held,
                                        const SliceMap &map, const Tensor &dest,
                                        const LaunchTarget &target) {
  if (held.type != dest.type || source.rotate != 0)
    return cudaErrorInvalidValue;
  if (cudaError_t error = checkTensor(held))
    return error;
  return launchDequantize<Operation::DequantizeAdd>(source, held.data, map,
                                                    dest, target);
}
