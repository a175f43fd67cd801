//===- SliceIndex.cuh - A SliceMap as kernels evaluate it -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SliceMap::tensorIndex with few divisions: factors that stay next to each
// other are merged, so the common cases need one division or none. Sizes below
// 2^31 are computed in 32 bits.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_SLICEINDEX_CUH
#define ZPP_KERNELS_SLICEINDEX_CUH

#include "zpp/Support/SliceMap.h"

#include <cuda_runtime_api.h>

#include <cstdint>

/// Compiled for kernels, and for tests on the host.
#if defined(__CUDACC__)
#define ZPP_KERNELS_INLINE __host__ __device__ __forceinline__
#else
#define ZPP_KERNELS_INLINE inline
#endif

namespace zpp::kernels {

/// Division of 0 <= n < 2^N by a fixed d >= 2 as a product, N = 63 or 31:
///   n / d = (n * magic) >> (N + l),  l = ceil(log2 d),
///   magic = floor(2^(N + l) / d) + 1 < 2^(N + 1)
/// (Granlund and Montgomery: magic * d exceeds 2^(N + l) by at most 2^l.)
struct Divider {
  int64_t divisor;
  uint64_t magic64;
  /// 0 for divisors that do not fit.
  uint32_t magic32;
  int32_t shift;

  static Divider create(int64_t d);

  ZPP_KERNELS_INLINE int64_t quotient(int64_t n) const {
    auto factor = static_cast<uint64_t>(n);
#if defined(__CUDA_ARCH__)
    uint64_t high = __umul64hi(factor, magic64);
#else
    auto high = static_cast<uint64_t>(
        (static_cast<unsigned __int128>(factor) * magic64) >> 64);
#endif
    return static_cast<int64_t>(high >> shift);
  }
  ZPP_KERNELS_INLINE int32_t quotient(int32_t n) const {
    auto factor = static_cast<uint32_t>(n);
#if defined(__CUDA_ARCH__)
    uint32_t high = __umulhi(factor, magic32);
#else
    auto high =
        static_cast<uint32_t>((static_cast<uint64_t>(factor) * magic32) >> 32);
#endif
    return static_cast<int32_t>(high >> shift);
  }
};

struct SliceIndex {
  static constexpr int kMaxFactors = 8;

  /// A digit and its weight in the cut dim (times inner).
  struct Dim {
    Divider size;
    int64_t stride;
  };
  /// A mixed-radix number, fastest digit first. What remains after the dims is
  /// the slowest digit.
  struct Digits {
    int32_t numDims;
    int64_t topStride;
    Dim dims[kMaxFactors + 1];
  };

  /// Chunks, and elements of one.
  int64_t chunks;
  int64_t elements;
  /// Elements of the cut dim times inner that exist, for one `outer`.
  int64_t extent;
  int64_t outer;
  /// The offset of the stage in its unit.
  int64_t begin;
  /// Elements that are consecutive both in the tensor and in the chunk.
  int64_t run;
  /// All indices are below 2^31, including those of threads past the end.
  bool isNarrow;
  /// The digits of the chunk number.
  Digits chunkDigits;
  /// The digits of the element in the chunk: run, factors, and on top either a
  /// factor (topStride) or, if there are several, `outer`.
  Digits digits;

  /// cudaErrorInvalidValue if `map` is not valid or has too many factors.
  static cudaError_t create(const SliceMap &map, SliceIndex &index);

  /// Whether every item lies in one run and begins in the tensor at a multiple
  /// of `alignment`. An item is `item` elements from a multiple of `item` on;
  /// the last one of a chunk may be shorter.
  bool allowsVectors(int64_t item, int64_t alignment) const;

  // `Int` is int32_t (if isNarrow) or int64_t.

  template <typename Int> struct Position {
    /// Index in the tensor.
    Int index;
    /// Elements from here to the end of the extent. After that comes padding.
    Int inside;
  };

  /// The start of a chunk in the cut dim.
  template <typename Int> ZPP_KERNELS_INLINE Int chunkBegin(Int chunk) const {
    Int position = static_cast<Int>(begin);
    Int top = takeOff(chunkDigits, chunk, position);
    return position + top * static_cast<Int>(chunkDigits.topStride);
  }

  /// The place of an element of the chunk with this start.
  template <typename Int>
  ZPP_KERNELS_INLINE Position<Int> at(Int chunkBegin, Int element) const {
    Int position = chunkBegin;
    Int top = takeOff(digits, element, position);
    position += top * static_cast<Int>(digits.topStride);
    Int index = position;
    if (outer > 1)
      index += top * static_cast<Int>(extent);
    return {index, static_cast<Int>(extent) - position};
  }

  /// Whether the elements [first, last] of a chunk are consecutive in the
  /// tensor, padding included.
  template <typename Int>
  ZPP_KERNELS_INLINE bool areConsecutive(Int first, Int last) const {
    if (digits.numDims == 0)
      return outer == 1 && digits.topStride == 1;
    const Dim &fastest = digits.dims[0];
    return fastest.stride == 1 &&
           fastest.size.quotient(first) == fastest.size.quotient(last);
  }

private:
  template <typename Int>
  ZPP_KERNELS_INLINE static Int takeOff(const Digits &digits, Int rest,
                                        Int &position) {
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
    for (int d = 0; d < digits.numDims; ++d) {
      const Dim &dim = digits.dims[d];
      Int next = dim.size.quotient(rest);
      position += (rest - next * static_cast<Int>(dim.size.divisor)) *
                  static_cast<Int>(dim.stride);
      rest = next;
    }
    return rest;
  }
};

/// The places of `count` elements of a chunk from `first` on, for threads that
/// need several of them.
template <typename Int> class SpanIndex {
public:
  struct Place {
    /// Index in the tensor.
    Int index;
    /// Elements from here to the end of the chunk or of the extent, whichever
    /// comes first; none if not above 0.
    Int count;
  };

  ZPP_KERNELS_INLINE SpanIndex(const SliceIndex &map, Int chunkBegin, Int first,
                               Int count)
      : map(map), base(chunkBegin) {
    auto elements = static_cast<Int>(map.elements);
    consecutive = first < elements &&
                  map.areConsecutive(first, least(first + count, elements) - 1);
    if (!consecutive)
      return;
    auto position = map.at(chunkBegin, first);
    base = position.index - first;
    end = least(elements, first + position.inside);
  }

  /// Whether all of the elements are consecutive in the tensor: index and count
  /// then follow from the element.
  ZPP_KERNELS_INLINE bool isConsecutive() const { return consecutive; }

  ZPP_KERNELS_INLINE Place at(Int element) const {
    if (consecutive)
      return {element + base, end - element};
    Int left = static_cast<Int>(map.elements) - element;
    if (left <= 0)
      return {0, 0};
    auto position = map.at(base, element);
    return {position.index, least(left, position.inside)};
  }

private:
  ZPP_KERNELS_INLINE static Int least(Int a, Int b) { return a < b ? a : b; }

  const SliceIndex &map;
  bool consecutive;
  /// If they are consecutive, what an element's index is larger by, and the
  /// element where they end; else the start of the chunk.
  Int base;
  Int end = 0;
};

} // namespace zpp::kernels

#endif // ZPP_KERNELS_SLICEINDEX_CUH
