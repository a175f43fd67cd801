//===- SliceIndex.cpp - A SliceMap as kernels evaluate it -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/SliceIndex.cuh"

#include <algorithm>
#include <limits>

using namespace zpp;
using namespace zpp::kernels;

Divider Divider::create(int64_t d) {
  auto one = static_cast<unsigned __int128>(1);
  int log2 = 64 - __builtin_clzll(static_cast<uint64_t>(d - 1));
  return {d, static_cast<uint64_t>((one << (63 + log2)) / d + 1),
          log2 <= 31 ? static_cast<uint32_t>((one << (31 + log2)) / d + 1) : 0u,
          log2 - 1};
}

namespace {

/// A fixed-capacity list of (size, stride), slowest first. Dims of size 1 are
/// dropped, and dims that are contiguous are merged.
struct DimList {
  struct Entry {
    int64_t size;
    int64_t stride;
  };
  Entry entries[SliceIndex::kMaxFactors + 2];
  int count = 0;

  void append(int64_t size, int64_t stride) {
    if (size == 1)
      return;
    if (count > 0 && entries[count - 1].stride == size * stride)
      entries[count - 1] = {entries[count - 1].size * size, stride};
    else
      entries[count++] = {size, stride};
  }

  /// The digits of all dims, or of all but the slowest, which is then on top.
  SliceIndex::Digits createDigits(bool slowestOnTop) const {
    SliceIndex::Digits digits{};
    int first = slowestOnTop && count > 0 ? 1 : 0;
    if (first == 1)
      digits.topStride = entries[0].stride;
    for (int i = count; i-- > first;)
      digits.dims[digits.numDims++] = {Divider::create(entries[i].size),
                                       entries[i].stride};
    return digits;
  }
};

} // namespace

cudaError_t SliceIndex::create(const SliceMap &map, SliceIndex &index) {
  if (map.factors.size() > kMaxFactors || !map.verify().empty())
    return cudaErrorInvalidValue;

  index.chunks = map.numChunks();
  index.elements = map.elementsPerChunk();
  // part and inner are neighbors in the tensor and in the chunk.
  index.extent = map.extent * map.inner;
  index.outer = map.outer;
  index.begin = map.partBegin() * map.inner;

  int64_t strides[kMaxFactors];
  int64_t stride = map.unit * map.inner;
  for (size_t i = map.factors.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= map.factors[i];
  }

  DimList chunkDims;
  bool isChunkFactor[kMaxFactors] = {};
  for (int64_t factor : map.chunkFactors) {
    chunkDims.append(map.factors[factor], strides[factor]);
    isChunkFactor[factor] = true;
  }

  DimList dims;
  for (size_t i = 0; i < map.factors.size(); ++i)
    if (!isChunkFactor[i])
      dims.append(map.factors[i], strides[i]);
  dims.append(map.partSize() * map.inner, 1);

  // The run is the last dim, if it is contiguous and not empty.
  bool hasRun = dims.count > 0 && dims.entries[dims.count - 1].stride == 1;
  index.run = hasRun ? dims.entries[dims.count - 1].size : 1;
  // One contiguous tensor: `outer` is a part of the run. A later stage may be
  // as long, but it is all padding.
  if (index.outer > 1 && index.chunks == 1 && dims.count == 1 && hasRun &&
      index.begin == 0 && index.run == index.extent) {
    index.run *= index.outer;
    index.extent = index.run;
    index.outer = 1;
    dims.entries[0].size = index.run;
  }

  // A grid ends less than 2^20 elements after its chunk.
  constexpr int64_t kNarrow =
      std::numeric_limits<int32_t>::max() - (int64_t(1) << 20);
  index.isNarrow = std::max({map.paddedExtent() * map.inner, index.elements,
                             index.outer * index.extent}) <= kNarrow;
  index.chunkDigits = chunkDims.createDigits(/*slowestOnTop=*/true);
  // An empty tensor has no digits.
  index.digits = index.elements == 0
                     ? Digits{}
                     : dims.createDigits(/*slowestOnTop=*/index.outer == 1);
  return cudaSuccess;
}

bool SliceIndex::allowsVectors(int64_t item, int64_t alignment) const {
  bool isOneRun = outer == 1 && digits.numDims == 0 && digits.topStride <= 1;
  if (!isOneRun && run % item != 0)
    return false;
  if (outer > 1 && extent % alignment != 0)
    return false;
  // The stride of the run itself is 1. The stride of chunks is 1 only if they
  // are single elements, which are no vectors anyway.
  auto isAligned = [&](int64_t stride) {
    return stride == 1 || stride % alignment == 0;
  };
  for (const Digits *list : {&digits, &chunkDigits}) {
    if (!isAligned(list->topStride))
      return false;
    for (int d = 0; d < list->numDims; ++d)
      if (!isAligned(list->dims[d].stride))
        return false;
  }
  return begin % alignment == 0;
}
