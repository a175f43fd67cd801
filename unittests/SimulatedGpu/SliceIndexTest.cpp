//===- SliceIndexTest.cpp - How kernels number elements -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/SliceIndex.cuh"

#include "../Support/Random.h"
#include "../Support/SliceMaps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

using namespace zpp;
using namespace zpp::kernels;

namespace {

/// Every element of every chunk is where the map says, or is padding.
template <typename Int>
void checkElements(const SliceMap &map, const SliceIndex &index) {
  for (int64_t c = 0; c < index.chunks; ++c) {
    Int begin = index.chunkBegin(static_cast<Int>(c));
    for (int64_t e = 0; e < index.elements; ++e) {
      auto position = index.at(begin, static_cast<Int>(e));
      int64_t expected = map.tensorIndex(c, e);
      ASSERT_EQ(position.inside > 0, expected >= 0)
          << describe(map) << ": chunk " << c << " element " << e;
      if (expected >= 0) {
        ASSERT_EQ(position.index, expected)
            << describe(map) << ": chunk " << c << " element " << e;
      }
    }
  }
}

/// Items of `size` elements, a multiple of `alignment`, that are read at once
/// are one piece of the tensor, begin at a multiple of `alignment`, and end in
/// nothing but padding.
void checkItems(const SliceMap &map, const SliceIndex &index, int64_t size,
                int64_t alignment) {
  if (!index.allowsVectors(size, alignment))
    return;
  for (int64_t c = 0; c < index.chunks; ++c)
    for (int64_t e = 0; e < index.elements; e += size) {
      auto position = index.at(index.chunkBegin(c), e);
      int64_t count = std::min(index.elements - e, size);
      if (position.inside > 0) {
        ASSERT_EQ(position.index % alignment, 0) << describe(map);
      }
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(map.tensorIndex(c, e + i),
                  i < position.inside ? position.index + i : -1)
            << describe(map) << ": chunk " << c << " element " << e + i
            << " in items of " << size;
    }
}

/// The elements of a span are where the map says, and consecutive if the span
/// says so.
template <typename Int>
void checkSpan(const SliceMap &map, const SliceIndex &index, int64_t first,
               int64_t count) {
  for (int64_t c = 0; c < index.chunks; ++c) {
    SpanIndex<Int> span(index, index.chunkBegin(static_cast<Int>(c)),
                        static_cast<Int>(first), static_cast<Int>(count));
    for (int64_t e = first; e < first + count; ++e) {
      auto place = span.at(static_cast<Int>(e));
      int64_t expected = e < index.elements ? map.tensorIndex(c, e) : -1;
      ASSERT_EQ(place.count > 0, expected >= 0)
          << describe(map) << ": chunk " << c << " element " << e << " of "
          << first << " + " << count;
      if (expected >= 0) {
        ASSERT_EQ(place.index, expected)
            << describe(map) << ": chunk " << c << " element " << e << " of "
            << first << " + " << count;
      }
      if (span.isConsecutive() && expected >= 0) {
        ASSERT_EQ(expected - e, map.tensorIndex(c, first) - first)
            << describe(map);
        int64_t end = std::min(first + count, e + place.count);
        ASSERT_TRUE(e + place.count <= index.elements) << describe(map);
        if (end < std::min(first + count, index.elements)) {
          ASSERT_LT(map.tensorIndex(c, end), 0) << describe(map);
        }
      }
    }
  }
}

void check(const SliceMap &map) {
  SliceIndex index;
  ASSERT_EQ(SliceIndex::create(map, index), cudaSuccess) << describe(map);
  ASSERT_EQ(index.chunks, map.numChunks());
  ASSERT_EQ(index.elements, map.elementsPerChunk());
  checkElements<int64_t>(map, index);
  ASSERT_TRUE(index.isNarrow);
  checkElements<int32_t>(map, index);
  // As quantization and reordering ask.
  for (auto [size, alignment] : {std::pair<int64_t, int64_t>{16, 8},
                                 {16, 4},
                                 {16, 16},
                                 {8, 8},
                                 {4, 4},
                                 {2, 2}})
    checkItems(map, index, size, alignment);
  for (int64_t count : {1, 7, 32, 1000})
    for (int64_t first = 0; first <= index.elements; first += count) {
      checkSpan<int32_t>(map, index, first, count);
      checkSpan<int64_t>(map, index, first, count);
    }
}

/// A stage as long as what exists of each outer index, all of it padding.
TEST(SliceIndex, StageBehindTheExtent) {
  SliceMap map;
  map.outer = 4;
  map.unit = 6;
  map.inner = 16;
  map.extent = 2;
  map.stages = 3;
  for (map.stage = 0; map.stage < 3; ++map.stage)
    check(map);
}

TEST(SliceIndex, RandomMaps) {
  Random random(1);
  auto pick = [&](int64_t limit) {
    return static_cast<int64_t>(random.bits() % limit);
  };
  for (int round = 0; round < 3000; ++round) {
    SliceMap map;
    map.outer = pick(4);
    map.unit = pick(6) * (pick(2) ? 1 : 4);
    map.inner = pick(2) ? 1 + pick(5) : 8 * (1 + pick(2));
    pickFactors(map, pick);
    map.stages = pick(2) ? 1 : 1 + pick(4);
    map.stage = pick(map.stages);
    map.extent = pick(2) ? map.paddedExtent() : pick(map.paddedExtent() + 1);
    ASSERT_EQ(map.verify(), "");
    check(map);
    if (HasFatalFailure())
      return;
  }
}

} // namespace
