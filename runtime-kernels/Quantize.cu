//===- Quantize.cu - Slice order and quantization -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/Async.cuh"
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
  /// Base of the difference; null if there is none.
  const void *held;
  uint8_t *dest;
  int64_t stride;
  ChunkWriter writer;
  SliceIndex map;
  /// Items of a thread that rotates.
  int32_t rows;
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

/// Elements of a group, which a thread rotates alone.
constexpr int kGroup = static_cast<int>(kRotation);

/// Buffer in shared memory in which the items of a warp, of n elements each,
/// arrive.
///
/// Where they are consecutive in the tensor, neighboring threads copy
/// neighboring packs of 16 bytes, whoever's they are.
template <typename E, typename Int, int n> class ItemStage {
  static constexpr int kPack = 16 / E::kBytes;
  static constexpr int kPacks = n / kPack;
  static constexpr uint32_t kRowBytes = 32 * 16;
  static constexpr uint32_t kBytes = kPacks * kRowBytes;
  static_assert(kPacks <= 8);

public:
  struct alignas(128) Storage {
    uint4 halves[2][kPacks][32];
  };

  __device__ __forceinline__ explicit ItemStage(const Storage &storage)
      : base(sharedAddress(&storage)) {
    keepInRegister(base);
  }

  /// Begins to copy the warp's items to a half of the storage, the thread's own
  /// one from chunk element `element` on: one group of copies. Items that are
  /// not there as a whole may be left out.
  __device__ __forceinline__ void copy(const typename E::Storage *source,
                                       const SpanIndex<Int> &span, int half,
                                       Int element) const {
    int lane = threadIdx.x % 32;
    uint32_t stage = base + half * kBytes;
    auto first = span.at(element - lane * n);
    if (span.isConsecutive() && first.count >= 32 * n) {
      const auto *address = source + first.index + lane * kPack;
      // Pack lane % kPacks of the threads i * kThreads + lane / kPacks.
      constexpr int kThreads = 32 / kPacks;
      uint32_t place = addressOf(stage, lane / kPacks, lane % kPacks);
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        int thread = i * kThreads;
        copyAsync<16>((place ^ (thread % 8 * 16)) + thread / 8 * 128,
                      address + 32 * i * kPack);
      }
    } else {
      auto place = span.at(element);
      if (place.count >= n) {
#pragma unroll
        for (int i = 0; i < kPacks; ++i)
          copyAsync<16>(addressOf(stage, lane, i),
                        source + place.index + i * kPack);
      }
    }
    commitCopies();
  }

  /// The thread's item of the last but one copy().
  __device__ __forceinline__ Pack<n * E::kBytes> load(int half) const {
    int lane = threadIdx.x % 32;
    uint32_t stage = base + half * kBytes;
    waitForCopies<1>();
    __syncwarp();
    Pack<n * E::kBytes> pack;
#pragma unroll
    for (int i = 0; i < kPacks; ++i)
      pack.setSlice(i, loadShared16(addressOf(stage, lane, i)));
    __syncwarp();
    return pack;
  }

private:
  /// The address of pack i of a thread: in row i, in an order such that neither
  /// copies nor loads have bank conflicts. Bits 4 to 6 of a stage are zero.
  __device__ __forceinline__ static uint32_t addressOf(uint32_t stage,
                                                       int thread, int i) {
    return ((stage + thread * 16) ^ (i * (8 / kPacks) * 16)) + i * kRowBytes;
  }

  uint32_t base;
};

/// The same of rotated groups.
///
/// Thread t of thread block b has the groups (b * rows + r) * kThreads + t of
/// chunk c = chunkOfBlock(), r < rows.
template <Kind type, WireFormat format, Path path>
__global__ void __launch_bounds__(kThreads, Element<type>::kBytes == 2 ? 8 : 6)
    quantizeRotatedKernel(const __grid_constant__ Batch<QuantizeParams> batch) {
  int threadBlock;
  const QuantizeParams &p = batch.find(threadBlock);
  using E = Element<type>;
  using Int = IndexOf<path>;
  constexpr int n = kGroup;
  auto *source = static_cast<const typename E::Storage *>(p.source);
  Int c = chunkOfBlock<Int>();
  if (c >= p.map.chunks)
    return;
  Int begin = p.map.chunkBegin(c);
  Int elements = static_cast<Int>(p.map.elements);
  int64_t offset = static_cast<int64_t>(c) * p.stride;
  keepInRegister(offset);
  uint8_t *chunk = p.dest + offset;
  Int firstItem = static_cast<Int>(threadBlock) * (p.rows * kThreads);
  Int item = firstItem + static_cast<Int>(threadIdx.x);
  auto encode = [&](float (&values)[n], const auto &get, Int count) {
    uint32_t amax;
    float factor = rotateForward(values, elements - item * n, get, count, amax);
    encodeItem<format, path == Path::Single>(values, factor, amax, item,
                                             p.writer, chunk);
  };
  float values[n];
  if constexpr (path == Path::Single) {
    gatherItems(values, firstItem * n, begin, p.map,
                [&](Int index) { return E::widen(source[index]); });
    auto get = [&](int i) {
      auto position = p.map.at(begin, item * n + i);
      return position.inside > 0 ? E::widen(source[position.index]) : 0.0f;
    };
    encode(values, get, Int(n));
  } else {
    using Stage = ItemStage<E, Int, n>;
    __shared__ typename Stage::Storage storage[kThreads / 32];
    Stage stage(storage[threadIdx.x / 32]);
    SpanIndex<Int> span(p.map, begin, firstItem * n, p.rows * kThreads * n);
    stage.copy(source, span, /*half=*/0, item * n);
#pragma unroll 1
    for (int r = 0; r < p.rows; ++r, item += kThreads) {
      if (r + 1 < p.rows)
        stage.copy(source, span, (r + 1) % 2, (item + kThreads) * n);
      else
        commitCopies();
      E::template widen<n>(stage.load(r % 2), values);
      auto place = span.at(item * n);
      auto get = [&](int i) { return E::widen(source[place.index + i]); };
      Int count = min(place.count, Int(n));
      if (count < n)
        fillOneByOne(values, count, get);
      encode(values, get, count);
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
          auto create = [&](int item) {
            return QuantizeParams{
                source.data,
                held,
                static_cast<uint8_t *>(dest.data),
                dest.stride,
                ChunkWriter::create(index.elements, format, dest.block, item),
                index,
                /*rows=*/1};
          };
          auto countItems = [&](const QuantizeParams &params, int item) {
            return params.writer.layout.blocks * (dest.block / item);
          };
          auto allowsVectors = [&](int item) {
            return isAligned(source.data, 16) && isAligned(held, 16) &&
                   index.allowsVectors(item, 16 / elementBytes(source.type));
          };
          auto launchRotated = [&](auto path) {
            constexpr auto *kernel = quantizeRotatedKernel<from, format, path>;
            QuantizeParams params = create(kGroup);
            int64_t items = countItems(params, kGroup);
            if constexpr (path == Path::Single)
              return launch<kernel>(divideUp(items, kThreads), index.chunks,
                                    kThreads, params, target);
            return launchRows<kernel>(items, index.chunks, kThreads,
                                      /*waitsForMemory=*/codeBits(format) == 8,
                                      params, target);
          };
          auto launchPlain = [&](auto path) {
            QuantizeParams params = create(kItem);
            return launch<quantizeKernel<from, format, path, isDifference>>(
                divideUp(countItems(params, kItem), kThreads), index.chunks,
                kThreads, params, target);
          };
          auto launchPath = [&](auto path) {
            if constexpr (!isDifference)
              if (dest.rotate)
                return launchRotated(path);
            return launchPlain(path);
          };
          if (!allowsVectors(dest.rotate ? kGroup : kItem))
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
