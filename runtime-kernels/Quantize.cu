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
  /// What the difference is taken to; null if there is none.
  const void *held;
  uint8_t *dest;
  int64_t stride;
  ChunkWriter writer;
  SliceIndex map;
};

/// dest chunk c, element e = encode(source[map.at(c, e)]), or of that minus
/// held[map.at(c, e)]
///
/// Thread t of thread block b has the elements e = (b * kThreads + t) * kItem +
/// [0, kItem) of chunk c = chunkOfBlock(); the threads of a quantization block
/// are neighbors in one thread block.
template <Kind type, WireFormat format, Path path, bool isDifference>
__global__ void __launch_bounds__(kThreads)
    quantizeKernel(const __grid_constant__ Batch<QuantizeParams> batch) {
  int threadBlock;
  const QuantizeParams &p = batch.find(threadBlock);
  using E = Element<type>;
  using Int = IndexOf<path>;
  auto *source = static_cast<const typename E::Storage *>(p.source);
  auto *held = static_cast<const typename E::Storage *>(p.held);
  auto get = [&](Int index) {
    float value = E::widen(source[index]);
    if constexpr (isDifference)
      value = subtractHeld(value, E::widen(held[index]));
    return value;
  };
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int firstItem = static_cast<Int>(threadBlock) * kThreads;
  Int item = firstItem + static_cast<Int>(threadIdx.x);
  float values[kItem];
  uint32_t amax = 0;
  if constexpr (path == Path::Single) {
    gatherItems(values, firstItem * kItem, begin, p.map, get);
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
        using ItemPack = Pack<kItem * E::kBytes>;
        auto pack = ItemPack::load(source + position.index);
        E::template widen<kItem>(pack, values);
        if constexpr (isDifference) {
          float others[kItem];
          E::template widen<kItem>(ItemPack::load(held + position.index),
                                   others);
#pragma unroll
          for (int i = 0; i < kItem; ++i)
            values[i] = subtractHeld(values[i], others[i]);
          amax = amaxBits(values);
        } else {
          amax = E::template amaxBits<kItem>(pack);
        }
      } else {
        fillOneByOne(values, count,
                     [&](int i) { return get(position.index + i); });
        amax = amaxBits(values);
      }
    }
  }
  encodeItem<format, /*isFirst=*/true>(
      values, /*factor=*/1.0f, amax, item, p.writer,
      p.dest + static_cast<int64_t>(c) * p.stride);
}

/// Elements of a group, which a thread rotates alone, and groups that a thread
/// loads at a time.
constexpr int kGroup = static_cast<int>(kRotation);
ZPP_HOST_DEVICE constexpr int groupsOf(Path path) {
  return path == Path::Single ? 1 : 2;
}

/// The same of rotated groups
///
/// Thread t of thread block b has the groups (b * kRows + r) * kThreads + t of
/// chunk c = chunkOfBlock(), r < kRows = groupsOf(path).
template <Kind type, WireFormat format, Path path>
__global__ void __launch_bounds__(kThreads, 8)
    quantizeRotatedKernel(const __grid_constant__ Batch<QuantizeParams> batch) {
  int threadBlock;
  const QuantizeParams &p = batch.find(threadBlock);
  constexpr int kRows = groupsOf(path);
  using E = Element<type>;
  using Int = IndexOf<path>;
  auto *source = static_cast<const typename E::Storage *>(p.source);
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int elements = static_cast<Int>(p.map.elements);
  uint8_t *chunk = p.dest + static_cast<int64_t>(c) * p.stride;
  Int firstGroup = static_cast<Int>(threadBlock) * (kRows * kThreads);
  Int firstOfThread = firstGroup + static_cast<Int>(threadIdx.x);
  // The group's values are get(i), i < count, and zeros.
  auto encode = [&](float (&values)[kGroup], Int group, Int count,
                    const auto &get) {
    float factor = 1.0f;
    uint32_t amax;
    if (elements - group * kGroup >= kGroup)
      factor = rotateForward(values, amax, get, count);
    else
      amax = amaxBits(values);
    encodeItem<format, /*isFirst=*/kRows == 1>(values, factor, amax, group,
                                               p.writer, chunk);
  };
  if constexpr (path == Path::Single) {
    float values[kGroup];
    gatherItems(values, firstGroup * kGroup, begin, p.map,
                [&](Int index) { return E::widen(source[index]); });
    auto get = [&](int i) {
      auto position = p.map.at(begin, firstOfThread * kGroup + i);
      return position.inside > 0 ? E::widen(source[position.index]) : 0.0f;
    };
    encode(values, firstOfThread, Int(kGroup), get);
  } else {
    Pack<kGroup * E::kBytes> packs[kRows];
    Int indices[kRows];
    // Elements of the group that are in the tensor.
    Int counts[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      Int element = (firstOfThread + r * kThreads) * kGroup;
      Int left = elements - element;
      packs[r] = {};
      indices[r] = counts[r] = 0;
      if (left > 0) {
        auto position = p.map.at(begin, element);
        indices[r] = position.index;
        counts[r] = min(min(left, position.inside), Int(kGroup));
        if (counts[r] == kGroup)
          packs[r] = Pack<kGroup * E::kBytes>::load(source + position.index);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float values[kGroup];
      E::template widen<kGroup>(packs[r], values);
      auto get = [&](int i) { return E::widen(source[indices[r] + i]); };
      if (counts[r] > 0 && counts[r] < kGroup)
        fillOneByOne(values, counts[r], get);
      encode(values, firstOfThread + r * kThreads, counts[r], get);
    }
  }
}

/// Launches the kernel of Quantize or, with `held`, of QuantizeDifference.
template <Operation op>
cudaError_t launchQuantize(const ConstTensor &source, const void *held,
                           const SliceMap &map, const Chunks &dest,
                           const LaunchTarget &target) {
  SliceIndex index;
  if (cudaError_t error = SliceIndex::create(map, index))
    return error;
  if (cudaError_t error = checkTensor(source))
    return error;
  if (cudaError_t error = checkChunks(dest, index.chunks, index.elements))
    return error;
  return dispatch<op>(
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
          constexpr bool isDifference = op == Operation::QuantizeDifference;
          int item = dest.rotate ? kGroup : kItem;
          QuantizeParams params{
              source.data,
              held,
              static_cast<uint8_t *>(dest.data),
              dest.stride,
              ChunkWriter::create(index.elements, format, dest.block, item),
              index};
          int64_t items = params.writer.layout.blocks * (dest.block / item);
          bool vectors =
              isAligned(source.data, 16) && isAligned(held, 16) &&
              index.allowsVectors(item, 16 / elementBytes(source.type));
          auto launchPath = [&](auto path) {
            if constexpr (!isDifference)
              if (dest.rotate)
                return launch<quantizeRotatedKernel<from, format, path>>(
                    divideUp(items, kThreads * groupsOf(path)), index.chunks,
                    kThreads, params, target);
            return launch<quantizeKernel<from, format, path, isDifference>>(
                divideUp(items, kThreads), index.chunks, kThreads, params,
                target);
          };
          if (!vectors)
            return launchPath(PathConstant<Path::Single>());
          if (!index.isNarrow)
            return launchPath(PathConstant<Path::Wide>());
          return launchPath(PathConstant<Path::Narrow>());
        }
      });
}

} // namespace

cudaError_t zpp::kernels::quantize(const ConstTensor &source,
                                   const SliceMap &map, const Chunks &dest,
                                   const LaunchTarget &target) {
  return launchQuantize<Operation::Quantize>(source, /*held=*/nullptr, map,
                                             dest, target);
}

cudaError_t zpp::kernels::quantizeDifference(const ConstTensor &source,
                                             const ConstTensor &held,
                                             const SliceMap &map,
                                             const Chunks &dest,
                                             const LaunchTarget &target) {
  if (held.type != source.type || dest.rotate != 0)
    return cudaErrorInvalidValue;
  if (cudaError_t error = checkTensor(held))
    return error;
  return launchQuantize<Operation::QuantizeDifference>(source, held.data, map,
                                                       dest, target);
}
