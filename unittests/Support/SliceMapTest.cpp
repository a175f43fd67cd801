//===- SliceMapTest.cpp ---------------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SliceMaps.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <limits>
#include <numeric>

using namespace zpp;

namespace {

using Factors = std::vector<int64_t>;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

/// All factor lists up to 4x8 and 2x3x4.
std::vector<Factors> getFactorLists() {
  std::vector<Factors> lists = {{}};
  for (int64_t a = 1; a <= 8; ++a)
    lists.push_back({a});
  for (int64_t a = 1; a <= 4; ++a)
    for (int64_t b = 1; b <= 8; ++b)
      lists.push_back({a, b});
  for (int64_t a = 1; a <= 2; ++a)
    for (int64_t b = 1; b <= 3; ++b)
      for (int64_t c = 1; c <= 4; ++c)
        lists.push_back({a, b, c});
  return lists;
}

/// All ordered choices of [0, count).
std::vector<Factors> getOrderedSubsets(int64_t count) {
  std::vector<Factors> subsets = {{}};
  for (size_t i = 0; i < subsets.size(); ++i)
    for (int64_t index = 0; index < count; ++index) {
      Factors subset = subsets[i];
      if (std::find(subset.begin(), subset.end(), index) != subset.end())
        continue;
      subset.push_back(index);
      subsets.push_back(subset);
    }
  return subsets;
}

int64_t product(const Factors &factors) {
  return std::accumulate(factors.begin(), factors.end(), int64_t(1),
                         std::multiplies<int64_t>());
}

/// Returns the order of slices in the send buffer of a hop over `chunkFactors`:
/// result[p] is the slice of the natural order (equation 1) at position p
/// (equation 2); stages are outermost. Slices are numbered by (factors...,
/// stage), so there are product(factors) * stages of them. The result is always
/// a permutation.
Factors getSliceOrder(const Factors &factors, const Factors &chunkFactors,
                      int64_t stages) {
  // In a tensor with one element per (slice, stage), elements are slices.
  SliceMap map;
  map.factors = factors;
  map.unit = stages;
  map.extent = map.paddedExtent();
  map.chunkFactors = chunkFactors;
  map.stages = stages;
  EXPECT_EQ(map.verify(), "");

  Factors order;
  order.reserve(map.extent);
  for (map.stage = 0; map.stage < stages; ++map.stage)
    for (int64_t chunk = 0, e = map.numChunks(); chunk < e; ++chunk)
      for (int64_t element = 0; element < map.elementsPerChunk(); ++element)
        order.push_back(map.tensorIndex(chunk, element));
  return order;
}

/// Digits of `value` in the mixed radix `factors`, most significant first.
Factors getDigits(int64_t value, const Factors &factors) {
  Factors digits(factors.size());
  for (size_t i = factors.size(); i-- > 0; value /= factors[i])
    digits[i] = value % factors[i];
  return digits;
}

/// Walks the padded tensor in its natural order and computes, by the definition
/// in the header, the chunk of each element and its place there. Together the
/// stages must hit every (chunk, element) of this list exactly once.
void checkAgainstDefinition(SliceMap map) {
  int64_t slices = product(map.factors);
  int64_t share = (map.unit + map.stages - 1) / map.stages;

  // expected[stage][chunk][element]
  std::vector<std::vector<std::vector<int64_t>>> expected(map.stages);
  for (map.stage = 0; map.stage < map.stages; ++map.stage) {
    ASSERT_EQ(map.verify(), "") << describe(map);
    ASSERT_EQ(map.numSlices(), slices);
    ASSERT_EQ(map.paddedExtent(), slices * map.unit);
    ASSERT_EQ(map.partBegin(), std::min(map.stage * share, map.unit));
    ASSERT_EQ(map.partBegin() + map.partSize(),
              std::min((map.stage + 1) * share, map.unit));
    constexpr int64_t kUnset = -2;
    expected[map.stage].assign(
        map.numChunks(), std::vector<int64_t>(map.elementsPerChunk(), kUnset));
  }

  int64_t next = 0;
  int64_t padding = 0;
  for (int64_t outer = 0; outer < map.outer; ++outer) {
    for (int64_t row = 0; row < slices * map.unit; ++row) {
      Factors digits = getDigits(row / map.unit, map.factors);
      int64_t stage = row % map.unit / share;
      int64_t begin = stage * share;
      int64_t part = std::min(share, map.unit - begin);

      int64_t chunk = 0;
      for (int64_t index : map.chunkFactors)
        chunk = chunk * map.factors[index] + digits[index];
      int64_t position = outer;
      for (size_t index = 0; index < digits.size(); ++index)
        if (std::find(map.chunkFactors.begin(), map.chunkFactors.end(),
                      index) == map.chunkFactors.end())
          position = position * map.factors[index] + digits[index];
      position = position * part + row % map.unit - begin;
      for (int64_t inner = 0; inner < map.inner; ++inner) {
        int64_t &slot = expected[stage][chunk].at(position * map.inner + inner);
        ASSERT_EQ(slot, -2) << describe(map) << " twice";
        bool exists = row < map.extent;
        slot = exists ? next++ : -1;
        padding += !exists;
      }
    }
  }
  ASSERT_EQ(next, map.outer * map.extent * map.inner);
  ASSERT_EQ(padding, map.outer * (map.paddedExtent() - map.extent) * map.inner);

  for (map.stage = 0; map.stage < map.stages; ++map.stage)
    for (int64_t chunk = 0; chunk < map.numChunks(); ++chunk)
      for (int64_t element = 0; element < map.elementsPerChunk(); ++element)
        ASSERT_EQ(map.tensorIndex(chunk, element),
                  expected[map.stage][chunk][element])
            << describe(map) << " chunk " << chunk << " element " << element;
}

class SliceMapTest : public testing::TestWithParam<int64_t> {};

TEST_P(SliceMapTest, IsBijectionForAllSmallShapes) {
  for (const Factors &factors : getFactorLists()) {
    for (const Factors &chunkFactors : getOrderedSubsets(factors.size())) {
      for (int64_t unit : {1, 2, 3, 5}) {
        int64_t padded = product(factors) * unit;
        for (int64_t extent : {padded, padded - 1, padded - unit, padded / 2}) {
          for (auto [outer, inner] : {std::pair(1, 1), std::pair(2, 3)}) {
            SliceMap map;
            map.outer = outer;
            map.factors = factors;
            map.unit = unit;
            map.inner = inner;
            map.extent = std::max<int64_t>(extent, 0);
            map.chunkFactors = chunkFactors;
            map.stages = GetParam();
            checkAgainstDefinition(map);
            if (HasFatalFailure())
              return;
          }
        }
      }
    }
  }
}

TEST_P(SliceMapTest, OrderIsPermutation) {
  for (const Factors &factors : getFactorLists()) {
    for (const Factors &chunkFactors : getOrderedSubsets(factors.size())) {
      std::vector<int64_t> order =
          getSliceOrder(factors, chunkFactors, GetParam());
      std::sort(order.begin(), order.end());
      std::vector<int64_t> all(product(factors) * GetParam());
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(order, all);
    }
  }
}

/// The order has a contiguous share for every stage, with nothing but that
/// stage, chunk after chunk. So a hop sends contiguous memory.
TEST_P(SliceMapTest, OrderIsContiguousPerStageAndChunk) {
  int64_t stages = GetParam();
  for (const Factors &factors : getFactorLists()) {
    for (const Factors &chunkFactors : getOrderedSubsets(factors.size())) {
      std::vector<int64_t> order = getSliceOrder(factors, chunkFactors, stages);
      int64_t slices = product(factors);
      Factors chunkSizes;
      for (int64_t index : chunkFactors)
        chunkSizes.push_back(factors[index]);
      int64_t perChunk = slices / product(chunkSizes);
      for (size_t position = 0; position < order.size(); ++position) {
        ASSERT_EQ(order[position] % stages,
                  static_cast<int64_t>(position) / slices);
        Factors digits = getDigits(order[position] / stages, factors);
        Factors chunk = getDigits(position % slices / perChunk, chunkSizes);
        for (size_t i = 0; i < chunk.size(); ++i)
          ASSERT_EQ(digits[chunkFactors[i]], chunk[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, SliceMapTest, testing::Values(1, 2, 3, 4));

//===----------------------------------------------------------------------===//
// The paper
//===----------------------------------------------------------------------===//

/// Equation 2: [0, X, 2X, .. (Y-1)X, 1, X+1, .. YX-1] for X GPUs, Y nodes.
TEST(SliceOrder, EqualsThePapersEquations) {
  for (int64_t nodes = 1; nodes <= 8; ++nodes) {
    for (int64_t gpus = 1; gpus <= 16; ++gpus) {
      std::vector<int64_t> equation2;
      for (int64_t first = 0; first < gpus; ++first)
        for (int64_t slice = first; slice < nodes * gpus; slice += gpus)
          equation2.push_back(slice);
      EXPECT_EQ(getSliceOrder({nodes, gpus}, {1}, 1), equation2);
    }
  }
}

/// The figure of section 3.3.3 swaps slices 2 and 3 (counted from 1).
TEST(SliceOrder, TwoByTwo) {
  EXPECT_EQ(getSliceOrder({2, 2}, {1}, 1), (std::vector<int64_t>{0, 2, 1, 3}));
  // Sub-slice 2s + k is stage k of slice s.
  EXPECT_EQ(getSliceOrder({2, 2}, {1}, 2),
            (std::vector<int64_t>{0, 4, 2, 6, 1, 5, 3, 7}));
}

TEST(SliceOrder, OneHopAndNoHopKeepTheOrder) {
  EXPECT_EQ(getSliceOrder({2, 3}, {0, 1}, 1),
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(getSliceOrder({2, 3}, {}, 1),
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(getSliceOrder({2, 3}, {1, 0}, 1),
            (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(getSliceOrder({}, {}, 1), (std::vector<int64_t>{0}));
}

TEST(SliceOrder, ThreeTiers) {
  // racks x nodes x gpus; the chunk of GPU g holds (rack, node) in order.
  EXPECT_EQ(getSliceOrder({2, 2, 2}, {2}, 1),
            (std::vector<int64_t>{0, 2, 4, 6, 1, 3, 5, 7}));
  // A hop over racks only, if it came first.
  EXPECT_EQ(getSliceOrder({2, 2, 2}, {0}, 1),
            (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(getSliceOrder({2, 2, 2}, {1}, 1),
            (std::vector<int64_t>{0, 1, 4, 5, 2, 3, 6, 7}));
}

/// Algorithm 2 line by line.
std::vector<int64_t> algorithm2(int64_t stages, int64_t nodeSize,
                                int64_t nodes) {
  std::vector<int64_t> mapped;
  int64_t totalDevices = nodeSize * nodes;
  for (int64_t id = 0; id < stages * totalDevices; ++id) {
    int64_t stageID = id % totalDevices;
    int64_t chunkID = id / totalDevices;
    int64_t pipelineOffset = stageID * totalDevices;
    int64_t chunkOffset = stageID / nodeSize;
    int64_t chunkBase = chunkID % nodeSize * nodes;
    mapped.push_back(pipelineOffset + chunkBase + chunkOffset);
  }
  return mapped;
}

/// The same, with the lines for stage and chunk swapped, and with the chunk
/// offset computed from the chunk.
std::vector<int64_t> correctedAlgorithm2(int64_t stages, int64_t nodeSize,
                                         int64_t nodes) {
  std::vector<int64_t> mapped;
  int64_t totalDevices = nodeSize * nodes;
  for (int64_t id = 0; id < stages * totalDevices; ++id) {
    int64_t stageID = id / totalDevices;
    int64_t chunkID = id % totalDevices;
    int64_t pipelineOffset = stageID * totalDevices;
    int64_t chunkOffset = chunkID / nodeSize;
    int64_t chunkBase = chunkID % nodeSize * nodes;
    mapped.push_back(pipelineOffset + chunkBase + chunkOffset);
  }
  return mapped;
}

TEST(SliceOrder, PapersAlgorithm2IsNoPermutation) {
  for (int64_t stages = 1; stages <= 4; ++stages)
    for (int64_t nodeSize = 1; nodeSize <= 8; ++nodeSize)
      for (int64_t nodes = 1; nodes <= 4; ++nodes) {
        std::vector<int64_t> mapped = algorithm2(stages, nodeSize, nodes);
        std::sort(mapped.begin(), mapped.end());
        std::vector<int64_t> all(mapped.size());
        std::iota(all.begin(), all.end(), 0);
        // Except with one node: if there are as many stages as GPUs, it does
        // not show that the algorithm confuses the two.
        EXPECT_EQ(mapped == all, nodes == 1 && stages == nodeSize)
            << stages << " stages, " << nodes << " x " << nodeSize;
      }
}

TEST(SliceOrder, InvertsThePapersAlgorithm2Corrected) {
  for (int64_t stages = 1; stages <= 4; ++stages)
    for (int64_t nodeSize = 1; nodeSize <= 8; ++nodeSize)
      for (int64_t nodes = 1; nodes <= 4; ++nodes) {
        int64_t slices = nodeSize * nodes;
        std::vector<int64_t> mapped =
            correctedAlgorithm2(stages, nodeSize, nodes);
        std::vector<int64_t> order =
            getSliceOrder({nodes, nodeSize}, {1}, stages);
        // The algorithm numbers (stage, slice), getSliceOrder (slice, stage).
        for (int64_t id = 0; id < stages * slices; ++id)
          ASSERT_EQ(order[mapped[id]], id % slices * stages + id / slices);
      }
}

//===----------------------------------------------------------------------===//
// Particular maps
//===----------------------------------------------------------------------===//

SliceMap makeMap(Factors factors, int64_t unit, int64_t extent,
                 Factors chunkFactors) {
  SliceMap map;
  map.factors = std::move(factors);
  map.unit = unit;
  map.extent = extent;
  map.chunkFactors = std::move(chunkFactors);
  return map;
}

TEST(SliceMap, DimInTheMiddle) {
  // [2, 4 = 2 x 2 x 1, 3]: chunk 1 of the inner factor is rows 1 and 3.
  SliceMap map = makeMap({2, 2}, 1, 4, {1});
  map.outer = 2;
  map.inner = 3;
  std::vector<int64_t> chunk;
  for (int64_t element = 0; element < map.elementsPerChunk(); ++element)
    chunk.push_back(map.tensorIndex(1, element));
  EXPECT_EQ(chunk,
            (std::vector<int64_t>{3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23}));
}

TEST(SliceMap, StagesBeyondTheUnitAreEmpty) {
  SliceMap map = makeMap({2}, 3, 6, {0});
  map.stages = 5;
  std::vector<int64_t> sizes;
  for (map.stage = 0; map.stage < map.stages; ++map.stage) {
    sizes.push_back(map.partSize());
    EXPECT_EQ(map.elementsPerChunk(), map.partSize());
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 1, 1, 0, 0}));
  // Four rows in three stages: two, two, none.
  map = makeMap({2}, 4, 8, {0});
  map.stages = 3;
  map.stage = 2;
  EXPECT_EQ(map.partBegin(), 4);
  EXPECT_EQ(map.partSize(), 0);
}

TEST(SliceMap, MovesWhole) {
  // Wherever it says so, groups of a chunk are groups of the tensor.
  auto keepsGroups = [](const SliceMap &map, int64_t size) {
    if (map.elementsPerChunk() % size != 0)
      return false;
    for (int64_t c = 0; c < map.numChunks(); ++c)
      for (int64_t e = 0; e < map.elementsPerChunk(); ++e) {
        int64_t first = map.tensorIndex(c, e - e % size);
        if (first < 0 || first % size != 0 ||
            map.tensorIndex(c, e) != first + e % size)
          return false;
      }
    return true;
  };
  int64_t whole = 0;
  for (int64_t unit : {1, 2, 3, 4, 6, 8})
    for (int64_t inner : {1, 2, 3, 4})
      for (int64_t outer : {1, 3})
        for (int64_t stages : {1, 2, 3})
          for (int64_t missing : {0, 1}) {
            SliceMap map = makeMap({2, 3}, unit, 6 * unit - missing, {0});
            map.outer = outer;
            map.inner = inner;
            map.stages = stages;
            for (map.stage = 0; map.stage < stages; ++map.stage)
              if (map.movesWhole(4)) {
                EXPECT_TRUE(keepsGroups(map, 4)) << describe(map);
                ++whole;
              }
          }
  EXPECT_GT(whole, 20);
  EXPECT_FALSE(makeMap({2}, 8, 15, {0}).movesWhole(4));
  EXPECT_FALSE(makeMap({2}, 6, 12, {0}).movesWhole(4));
}

TEST(SliceMap, EmptyTensors) {
  SliceMap map = makeMap({2, 4}, 0, 0, {1});
  EXPECT_EQ(map.verify(), "");
  EXPECT_EQ(map.elementsPerChunk(), 0);
  map = makeMap({2, 4}, 1, 8, {1});
  map.inner = 0;
  EXPECT_EQ(map.verify(), "");
  EXPECT_EQ(map.elementsPerChunk(), 0);
}

TEST(SliceMap, SizesBeyond32Bits) {
  int64_t unit = int64_t(1) << 40;
  SliceMap map = makeMap({4, 8}, unit, 32 * unit - 1, {1});
  ASSERT_EQ(map.verify(), "");
  EXPECT_EQ(map.elementsPerChunk(), 4 * unit);
  EXPECT_EQ(map.tensorIndex(7, 4 * unit - 1), -1);
  EXPECT_EQ(map.tensorIndex(7, 4 * unit - 2), 32 * unit - 2);
  EXPECT_EQ(map.tensorIndex(3, 2 * unit + 5), (2 * 8 + 3) * unit + 5);
  // The index of a stage may be large too.
  map.stages = kMaxInt64;
  map.stage = kMaxInt64 - 1;
  EXPECT_EQ(map.verify(), "");
  EXPECT_EQ(map.partSize(), 0);
  map.stage = unit - 1;
  EXPECT_EQ(map.partBegin(), unit - 1);
  EXPECT_EQ(map.partSize(), 1);
}

TEST(SliceMap, Verify) {
  auto check = [](auto change, const std::string &error) {
    SliceMap map = makeMap({2, 4}, 3, 24, {1});
    ASSERT_EQ(map.verify(), "");
    change(map);
    EXPECT_EQ(map.verify(), error);
  };
  check([](SliceMap &map) { map.outer = -1; },
        "expected a non-negative outer size, but got -1");
  check([](SliceMap &map) { map.unit = -2; },
        "expected a non-negative unit, but got -2");
  check([](SliceMap &map) { map.inner = -3; },
        "expected a non-negative inner size, but got -3");
  check([](SliceMap &map) { map.factors[0] = 0; },
        "expected positive factors, but got 0");
  check(
      [](SliceMap &map) { map.factors = {int64_t(1) << 32, int64_t(1) << 31}; },
      "expected fewer than 2^63 slices, with factor, but got 2147483648");
  check([](SliceMap &map) { map.chunkFactors = {2}; },
        "expected chunk factors in [0, 2), but got 2");
  check([](SliceMap &map) { map.chunkFactors = {-1}; },
        "expected chunk factors in [0, 2), but got -1");
  check([](SliceMap &map) { map.chunkFactors = {1, 0, 1}; },
        "expected different chunk factors, but got 1 twice");
  check([](SliceMap &map) { map.stages = 0; },
        "expected at least one stage, but got 0");
  check([](SliceMap &map) { map.stage = 1; },
        "expected a stage in [0, 1), but got 1");
  check([](SliceMap &map) { map.stage = -1; },
        "expected a stage in [0, 1), but got -1");
  check([](SliceMap &map) { map.extent = 25; },
        "expected an extent in [0, 24], but got 25");
  check([](SliceMap &map) { map.extent = -1; },
        "expected an extent in [0, 24], but got -1");
  check([](SliceMap &map) { map.unit = int64_t(1) << 60; },
        "expected a padded extent below 2^63, with unit, but got "
        "1152921504606846976");
  check([](SliceMap &map) { map.inner = int64_t(1) << 60; },
        "expected fewer than 2^63 elements, but got 1 x 8 x 3 x "
        "1152921504606846976");
  // A size of zero does not hide an overflow.
  check(
      [](SliceMap &map) {
        map.outer = 0;
        map.inner = int64_t(1) << 60;
      },
      "expected fewer than 2^63 elements, but got 0 x 8 x 3 x "
      "1152921504606846976");
}

} // namespace
