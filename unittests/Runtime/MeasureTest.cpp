//===- MeasureTest.cpp - What quantization costs in accuracy --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A sample is elements of a chunk that follow each other, the first of them the
// first of a block. Which ones is not said, so that the tests look for the
// place at which Reference.h has the same errors.
//
//===----------------------------------------------------------------------===//

#include "Reference.h"

#include <cmath>
#include <limits>

using namespace zpp;

namespace {

struct Found {
  std::string name;
  WireFormat format;
  int64_t samples, elements, notFinite, leftOut;
  double squaredError, squared;
};

class Measure : public testing::TestWithParam<std::string> {
protected:
  TestWorld world{GetParam(), "gpu:1"};
  zpp_rt_rank *rank = world.join(0);
  ~Measure() override { zpp_rt_rank_destroy(rank); }

  void measure(bool on) {
    EXPECT_EQ(zpp_rt_world_measure(world.get(), on, nullptr, 0), ZPP_RT_OK);
  }
  std::vector<Found> get() {
    EXPECT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK)
        << zpp_rt_rank_message(rank);
    std::vector<Found> found;
    EXPECT_EQ(zpp_rt_world_visit_measures(
                  world.get(),
                  [](void *context, const zpp_rt_measure *measure) {
                    static_cast<std::vector<Found> *>(context)->push_back(
                        {measure->name,
                         static_cast<WireFormat>(measure->format),
                         measure->samples, measure->elements,
                         measure->not_finite, measure->left_out,
                         measure->squared_error, measure->squared});
                  },
                  &found, nullptr, 0),
              ZPP_RT_OK);
    return found;
  }

  /// Quantizes `tensor` and returns what was measured.
  Found quantize(const SliceMap &map, ElementType type,
                 const WireFormatAndBlock &wire, const Bytes &tensor,
                 const Bytes *held = nullptr) {
    auto desc = makeDesc<zpp_rt_quantize_desc>();
    desc.name = "layer";
    desc.element_type = static_cast<int64_t>(type);
    desc.format = static_cast<int64_t>(wire.format);
    desc.block = wire.block;
    desc.rotate = wire.rotate;
    desc.slices = getSlices(map);
    Bytes output(map.numChunks() * wire.chunkBytes(map.elementsPerChunk()));
    measure(true);
    if (held)
      runLocal(rank, zpp_rt_quantize_difference, desc, tensor, *held, output);
    else
      runLocal(rank, zpp_rt_quantize, desc, tensor, output);
    measure(false);
    return one(get());
  }
  static Found one(const std::vector<Found> &found) {
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? Found{} : found.front();
  }
};

SliceMap makeMap(int64_t outer, std::vector<int64_t> factors, int64_t extent,
                 int64_t inner, std::vector<int64_t> chunkFactors) {
  SliceMap map;
  map.outer = outer;
  map.factors = std::move(factors);
  map.extent = extent;
  map.inner = inner;
  map.chunkFactors = std::move(chunkFactors);
  map.unit = (extent + map.numSlices() - 1) / map.numSlices();
  EXPECT_EQ(map.verify(), "");
  return map;
}

/// Contiguous chunks, chunks in many pieces, and padding.
std::vector<SliceMap> getMaps() {
  return {makeMap(1, {}, 4097, 1, {}),          makeMap(1, {2, 4}, 64, 33, {1}),
          makeMap(1, {2, 4}, 61, 7, {1}),       makeMap(3, {2, 3}, 17, 5, {0}),
          makeMap(2, {2, 2, 2}, 41, 3, {2, 0}), makeMap(64, {8}, 256, 1, {0}),
          makeMap(1, {2, 4}, 3, 9, {1})};
}

/// Expects `found` to be what elements from a block on have as errors.
void expectSomewhere(const Found &found, const SliceMap &map, ElementType type,
                     int64_t block, const Bytes &tensor,
                     const Bytes &received) {
  Bytes before = packReference(map, elementBytes(type), tensor);
  Bytes after = packReference(map, elementBytes(type), received);
  ASSERT_GT(found.elements, 0);
  int64_t elements = map.elementsPerChunk();
  for (int64_t c = 0; c < map.numChunks(); ++c)
    for (int64_t begin = 0; begin < elements; begin += block) {
      double squared = 0, squaredError = 0;
      int64_t present = 0;
      for (int64_t e = begin; e < elements && present < found.elements; ++e) {
        if (map.tensorIndex(c, e) < 0)
          continue;
        ++present;
        double value = readElement(type, before.data(), c * elements + e);
        double error =
            readElement(type, after.data(), c * elements + e) - value;
        squared += value * value;
        squaredError += error * error;
      }
      auto isNear = [](double a, double b) {
        return std::fabs(a - b) <= 1e-9 * std::max(a, b);
      };
      if (isNear(squared, found.squared) &&
          isNear(squaredError, found.squaredError))
        return;
    }
  ADD_FAILURE() << "no " << found.elements << " elements have these errors";
}

TEST_P(Measure, Quantize) {
  for (const SliceMap &map : getMaps())
    for (ElementType type :
         {ElementType::F32, ElementType::BF16, ElementType::F16})
      for (WireFormat format : {WireFormat::I8, WireFormat::I4})
        for (int64_t rotate : {int64_t(0), kRotation}) {
          WireFormatAndBlock wire{format, 128, rotate};
          Bytes tensor = makeTensor(type, numElements(map), 11);
          Bytes received = dequantizeReference(
              map, type, wire, quantizeReference(map, type, wire, tensor),
              tensor);
          Found found = quantize(map, type, wire, tensor);
          EXPECT_EQ(found.name, "quantize layer");
          EXPECT_EQ(found.format, format);
          EXPECT_EQ(found.samples, 1);
          EXPECT_EQ(found.notFinite, 0);
          EXPECT_EQ(found.leftOut, 0);
          expectSomewhere(found, map, type, wire.block, tensor, received);
        }
}

TEST_P(Measure, Difference) {
  for (const SliceMap &map : getMaps()) {
    WireFormatAndBlock wire{WireFormat::I4, 128};
    ElementType type = ElementType::BF16;
    Bytes tensor = makeTensor(type, numElements(map), 12);
    Bytes held = makeTensor(type, numElements(map), 13);
    Bytes received = dequantizeReference(
        map, type, wire, quantizeReference(map, type, wire, tensor, &held),
        tensor, &held);
    Found found = quantize(map, type, wire, tensor, &held);
    EXPECT_EQ(found.name, "quantize_difference layer");
    expectSomewhere(found, map, type, wire.block, tensor, received);
  }
}

TEST_P(Measure, ReduceAndQuantize) {
  for (const SliceMap &map : getMaps())
    for (WireFormat from : {WireFormat::I8, WireFormat::I4})
      for (bool isMean : {false, true}) {
        WireFormatAndBlock first{from, 64}, next{WireFormat::I4, 128};
        int64_t sources = 3, elements = numElements(map);
        Bytes input;
        for (int64_t source = 0; source < sources; ++source) {
          Bytes tensor = makeTensor(ElementType::F32, elements, 20 + source);
          SliceMap whole = makeMap(1, {}, elements, 1, {});
          Bytes chunk =
              quantizeReference(whole, ElementType::F32, first, tensor);
          input.insert(input.end(), chunk.begin(), chunk.end());
        }
        ElementType type = ElementType::F32;
        Bytes sum = reduceReference(isMean, sources, elements, type, first,
                                    type, input);
        Bytes received = dequantizeReference(
            map, type, next, quantizeReference(map, type, next, sum), sum);
        auto desc = makeDesc<zpp_rt_reduce_quantize_desc>();
        desc.kind = isMean ? ZPP_RT_MEAN : ZPP_RT_SUM;
        desc.sources = sources;
        desc.format = static_cast<int64_t>(from);
        desc.block = first.block;
        desc.element_type = ZPP_RT_F32;
        desc.to_format = static_cast<int64_t>(next.format);
        desc.to_block = next.block;
        desc.slices = getSlices(map);
        measure(true);
        runLocal(
            rank, zpp_rt_dequantize_reduce_quantize, desc, input,
            Bytes(map.numChunks() * next.chunkBytes(map.elementsPerChunk())));
        measure(false);
        expectSomewhere(one(get()), map, type, next.block, sum, received);
      }
}

/// 65504 is the largest f16; scales are rounded up.
TEST_P(Measure, ValuesThatTheFormatLoses) {
  SliceMap map = makeMap(1, {}, 128, 1, {});
  WireFormatAndBlock wire{WireFormat::I8, 128};
  Bytes tensor(256);
  for (int64_t i = 0; i < 128; ++i)
    writeElement(ElementType::F16, i == 5 ? 65504.0f : 1.0f, tensor.data(), i);
  Found found = quantize(map, ElementType::F16, wire, tensor);
  EXPECT_EQ(found.elements, 128);
  EXPECT_EQ(found.notFinite, 1);
}

/// Values that are not finite before are not the format's fault.
TEST_P(Measure, ValuesThatWereNotFinite) {
  SliceMap map = makeMap(1, {}, 256, 1, {});
  for (int64_t rotate : {int64_t(0), kRotation}) {
    WireFormatAndBlock wire{WireFormat::I8, 128, rotate};
    Bytes tensor = makeTensor(ElementType::F32, 256, 14);
    for (int64_t i : {3, 200})
      writeElement(ElementType::F32, std::numeric_limits<float>::infinity(),
                   tensor.data(), i);
    Found found = quantize(map, ElementType::F32, wire, tensor);
    EXPECT_EQ(found.samples, 1);
    EXPECT_EQ(found.elements, 0);
    EXPECT_EQ(found.notFinite, 0);
  }
}

/// A rotation adds up values that are finite.
TEST_P(Measure, RotationsThatOverflow) {
  SliceMap map = makeMap(1, {}, 128, 1, {});
  Bytes tensor(512);
  for (int64_t i = 0; i < 128; ++i)
    writeElement(ElementType::F32, isNegated(i % kRotation) ? -3e38f : 3e38f,
                 tensor.data(), i);
  Found found =
      quantize(map, ElementType::F32, {WireFormat::I8, 128, kRotation}, tensor);
  EXPECT_EQ(found.elements, 128);
  EXPECT_EQ(found.notFinite, 128);
}

TEST_P(Measure, OnlyWhatItIsAskedTo) {
  SliceMap map = makeMap(1, {}, 2048, 1, {});
  Bytes tensor = makeTensor(ElementType::F32, 2048, 15);
  WireFormatAndBlock wire{WireFormat::I8, 2048};
  quantize(map, ElementType::F32, wire, tensor);
  EXPECT_EQ(get().size(), 1u);
  auto desc = makeDesc<zpp_rt_quantize_desc>();
  desc.format = ZPP_RT_FORMAT_I8;
  desc.block = 2048;
  desc.slices = getSlices(map);
  Bytes chunk(wire.chunkBytes(2048));
  runLocal(rank, zpp_rt_quantize, desc, tensor, chunk);
  EXPECT_EQ(get().size(), 1u);
  measure(true);
  EXPECT_EQ(get().size(), 0u);
  // There is room for some thousands of samples between two waits.
  DeviceBuffer input(rank, tensor), output(rank, chunk);
  int64_t times = 2000;
  for (int64_t i = 0; i < times; ++i)
    ASSERT_EQ(zpp_rt_quantize(rank, &desc, input.data(), output.data()),
              ZPP_RT_OK);
  measure(false);
  Found found = one(get());
  EXPECT_GT(found.samples, 0);
  EXPECT_GT(found.leftOut, 0);
  EXPECT_EQ(found.samples + found.leftOut, times);
}

INSTANTIATE_TEST_SUITE_P(, Measure, testing::ValuesIn(getBackendsAndExternal()),
                         [](const auto &info) { return info.param; });

TEST(MeasureErrors, Arguments) {
  char message[128] = "";
  EXPECT_EQ(zpp_rt_world_measure(nullptr, 1, message, sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected a world, but got NULL");
  TestWorld world("cpu", "gpu:1");
  EXPECT_EQ(zpp_rt_world_visit_measures(world.get(), nullptr, nullptr, message,
                                        sizeof(message)),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(message, "expected a function, but got NULL");
}

} // namespace
