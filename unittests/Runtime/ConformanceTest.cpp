//===- ConformanceTest.cpp - What every back end must compute -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bit for bit, against Reference.h. The parameter is the name of the back end.
//
//===----------------------------------------------------------------------===//

#include "../Support/SliceMaps.h"
#include "Reference.h"
#include "zpp/Support/Placement.h"

using namespace zpp;

namespace {

constexpr WireFormat kFormats[] = {WireFormat::I8, WireFormat::I4};

SliceMap makeMap(int64_t outer, std::vector<int64_t> factors, int64_t extent,
                 int64_t inner, std::vector<int64_t> chunkFactors,
                 int64_t stage = 0, int64_t stages = 1) {
  SliceMap map;
  map.outer = outer;
  map.factors = std::move(factors);
  map.extent = extent;
  map.inner = inner;
  map.chunkFactors = std::move(chunkFactors);
  map.stage = stage;
  map.stages = stages;
  map.unit = (extent + map.numSlices() - 1) / map.numSlices();
  EXPECT_EQ(map.verify(), "");
  return map;
}

/// Odd sizes: 1-D, indivisible, padded, empty, in the middle of a shape.
std::vector<SliceMap> getMaps() {
  return {
      makeMap(1, {1}, 1, 1, {0}),
      makeMap(1, {2}, 31, 1, {0}),
      makeMap(1, {3}, 1000, 1, {0}),
      makeMap(1, {}, 4097, 1, {}),
      makeMap(1, {2, 4}, 64, 33, {1}),
      makeMap(1, {2, 4}, 61, 7, {1}),
      makeMap(3, {2, 3}, 17, 5, {0}),
      makeMap(2, {2, 2, 2}, 41, 3, {2, 0}),
      makeMap(2, {2, 2, 2}, 64, 16, {1}),
      // Whole slices are padding.
      makeMap(1, {2, 4}, 3, 9, {1}),
      makeMap(1, {4}, 0, 9, {0}),
      makeMap(0, {4}, 8, 9, {0}),
      makeMap(2, {4}, 8, 0, {0}),
  };
}

/// The same, and parts of a pipeline.
std::vector<SliceMap> getMapsWithStages() {
  std::vector<SliceMap> maps = getMaps();
  for (int64_t stage = 0; stage < 3; ++stage) {
    maps.push_back(makeMap(1, {2, 4}, 64, 33, {1}, stage, 3));
    maps.push_back(makeMap(2, {2, 2}, 9, 5, {0}, stage, 3));
  }
  // More stages than rows.
  maps.push_back(makeMap(1, {2}, 4, 5, {0}, 4, 5));
  return maps;
}

std::vector<WireFormatAndBlock> getWires() {
  std::vector<WireFormatAndBlock> wires;
  for (WireFormat format : kFormats)
    for (int64_t block = kMinBlock; block <= kMaxBlock; block *= 2)
      wires.push_back({format, block});
  return wires;
}

/// The same, and some with rotated values.
std::vector<WireFormatAndBlock> getWiresAndRotations() {
  std::vector<WireFormatAndBlock> wires = getWires();
  for (WireFormat format : kFormats)
    for (int64_t block : {kMinBlock, int64_t(128)})
      wires.push_back({format, block, kRotation});
  return wires;
}

/// The bytes of `count` chunks, `stride` bytes apart, from the first byte to
/// the last.
Bytes spread(const Bytes &chunks, int64_t count, int64_t stride) {
  if (count == 0 || chunks.empty())
    return chunks;
  int64_t bytes = chunks.size() / count;
  Bytes result = fill((count - 1) * stride + bytes);
  for (int64_t c = 0; c < count; ++c)
    std::copy_n(chunks.begin() + c * bytes, bytes, result.begin() + c * stride);
  return result;
}

/// A tensor of `type` to or from all chunks of `map`, without space between
/// them.
zpp_rt_quantize_desc getQuantizeDesc(const SliceMap &map, ElementType type,
                                     const WireFormatAndBlock &wire) {
  auto desc = makeDesc<zpp_rt_quantize_desc>();
  desc.element_type = static_cast<int64_t>(type);
  desc.format = static_cast<int64_t>(wire.format);
  desc.block = wire.block;
  desc.rotate = wire.rotate;
  desc.slices = getSlices(map);
  return desc;
}

/// A test on one rank.
class Local : public testing::TestWithParam<std::string> {
protected:
  TestWorld world{GetParam(), "gpu:1"};
  zpp_rt_rank *rank = world.join(0);
  ~Local() override { zpp_rt_rank_destroy(rank); }
};

class Collective : public testing::TestWithParam<std::string> {};

//===----------------------------------------------------------------------===//
// Local operations
//===----------------------------------------------------------------------===//

TEST_P(Local, Pack) {
  for (const SliceMap &map : getMapsWithStages())
    for (int64_t bytes : {1, 2, 4, 3}) {
      SCOPED_TRACE(describe(map));
      auto desc = makeDesc<zpp_rt_pack_desc>();
      desc.element_bytes = bytes;
      desc.slices = getSlices(map);
      Bytes tensor = makeTensor(ElementType::F32, numElements(map), 1);
      tensor.resize(numElements(map) * bytes);
      Bytes packed = packReference(map, bytes, tensor);
      EXPECT_EQ(
          runLocal(rank, zpp_rt_pack_slices, desc, tensor, fill(packed.size())),
          packed);
      int64_t chunkBytes = map.elementsPerChunk() * bytes;
      desc.chunk_stride = chunkBytes + 5 * bytes;
      EXPECT_EQ(runLocal(rank, zpp_rt_pack_slices, desc, tensor,
                         spread(fill(packed.size()), map.numChunks(),
                                desc.chunk_stride)),
                spread(packed, map.numChunks(), desc.chunk_stride));
    }
}

TEST_P(Local, Unpack) {
  for (const SliceMap &map : getMaps())
    for (int64_t bytes : {1, 2, 4, 3}) {
      SCOPED_TRACE(describe(map));
      auto desc = makeDesc<zpp_rt_pack_desc>();
      desc.element_bytes = bytes;
      desc.slices = getSlices(map);
      Bytes chunks = makeTensor(ElementType::F32,
                                map.numChunks() * map.elementsPerChunk(), 2);
      chunks.resize(map.numChunks() * map.elementsPerChunk() * bytes);
      Bytes tensor = fill(numElements(map) * bytes);
      Bytes expected = unpackReference(map, bytes, chunks, tensor);
      EXPECT_EQ(runLocal(rank, zpp_rt_unpack_slices, desc, chunks, tensor),
                expected);
      desc.chunk_stride = (map.elementsPerChunk() + 3) * bytes;
      EXPECT_EQ(runLocal(rank, zpp_rt_unpack_slices, desc,
                         spread(chunks, map.numChunks(), desc.chunk_stride),
                         tensor),
                expected);
    }
}

TEST_P(Local, Quantize) {
  for (const SliceMap &map : getMapsWithStages())
    for (ElementType type : kTypes)
      for (WireFormatAndBlock wire : getWiresAndRotations())
        for (bool hasSpecials : {false, true}) {
          SCOPED_TRACE(describe(map));
          zpp_rt_quantize_desc desc = getQuantizeDesc(map, type, wire);
          Bytes tensor = makeTensor(type, numElements(map), 3, hasSpecials);
          Bytes chunks = quantizeReference(map, type, wire, tensor);
          ASSERT_EQ(runLocal(rank, zpp_rt_quantize, desc, tensor,
                             fill(chunks.size())),
                    chunks);
          desc.chunk_stride = wire.chunkBytes(map.elementsPerChunk()) + 48;
          ASSERT_EQ(runLocal(rank, zpp_rt_quantize, desc, tensor,
                             spread(fill(chunks.size()), map.numChunks(),
                                    desc.chunk_stride)),
                    spread(chunks, map.numChunks(), desc.chunk_stride));
        }
}

TEST_P(Local, Dequantize) {
  for (const SliceMap &map : getMaps())
    for (ElementType type : kTypes)
      for (WireFormatAndBlock wire : getWiresAndRotations()) {
        SCOPED_TRACE(describe(map));
        zpp_rt_quantize_desc desc = getQuantizeDesc(map, type, wire);
        Bytes values = makeTensor(ElementType::F32, numElements(map), 4, true);
        Bytes chunks = quantizeReference(map, ElementType::F32, wire, values);
        Bytes tensor = fill(numElements(map) * elementBytes(type));
        Bytes expected = dequantizeReference(map, type, wire, chunks, tensor);
        ASSERT_EQ(runLocal(rank, zpp_rt_dequantize, desc, chunks, tensor),
                  expected);
        desc.chunk_stride = wire.chunkBytes(map.elementsPerChunk()) + 16;
        ASSERT_EQ(runLocal(rank, zpp_rt_dequantize, desc,
                           spread(chunks, map.numChunks(), desc.chunk_stride),
                           tensor),
                  expected);
      }
}

TEST_P(Local, QuantizeDifference) {
  for (const SliceMap &map : getMapsWithStages())
    for (ElementType type : kTypes)
      for (WireFormatAndBlock wire : getWires())
        for (bool hasSpecials : {false, true}) {
          SCOPED_TRACE(describe(map));
          zpp_rt_quantize_desc desc = getQuantizeDesc(map, type, wire);
          Bytes tensor = makeTensor(type, numElements(map), 3, hasSpecials);
          Bytes held = makeTensor(type, numElements(map), 4, hasSpecials);
          Bytes chunks = quantizeReference(map, type, wire, tensor, &held);
          ASSERT_EQ(runLocal(rank, zpp_rt_quantize_difference, desc, tensor,
                             held, fill(chunks.size())),
                    chunks);
          desc.chunk_stride = wire.chunkBytes(map.elementsPerChunk()) + 48;
          ASSERT_EQ(runLocal(rank, zpp_rt_quantize_difference, desc, tensor,
                             held,
                             spread(fill(chunks.size()), map.numChunks(),
                                    desc.chunk_stride)),
                    spread(chunks, map.numChunks(), desc.chunk_stride));
        }
}

TEST_P(Local, DequantizeAdd) {
  for (const SliceMap &map : getMaps())
    for (ElementType type : kTypes)
      for (WireFormatAndBlock wire : getWires()) {
        SCOPED_TRACE(describe(map));
        zpp_rt_quantize_desc desc = getQuantizeDesc(map, type, wire);
        Bytes values = makeTensor(ElementType::F32, numElements(map), 4, true);
        Bytes chunks = quantizeReference(map, ElementType::F32, wire, values);
        Bytes held = makeTensor(type, numElements(map), 5, true);
        Bytes tensor = fill(numElements(map) * elementBytes(type));
        Bytes expected =
            dequantizeReference(map, type, wire, chunks, tensor, &held);
        ASSERT_EQ(
            runLocal(rank, zpp_rt_dequantize_add, desc, chunks, held, tensor),
            expected);
        // In place.
        DeviceBuffer source(rank, chunks), both(rank, held);
        ASSERT_EQ(zpp_rt_dequantize_add(rank, &desc, source.data(), both.data(),
                                        both.data()),
                  ZPP_RT_OK);
        ASSERT_EQ(both.read(),
                  dequantizeReference(map, type, wire, chunks, held, &held));
        desc.chunk_stride = wire.chunkBytes(map.elementsPerChunk()) + 16;
        ASSERT_EQ(runLocal(rank, zpp_rt_dequantize_add, desc,
                           spread(chunks, map.numChunks(), desc.chunk_stride),
                           held, tensor),
                  expected);
      }
}

TEST_P(Local, Reduce) {
  for (int64_t elements : {0, 1, 31, 1000, 4099})
    for (int64_t sources : {1, 2, 3, 8})
      for (ElementType sourceType : kTypes)
        for (ElementType type : kTypes)
          for (bool isMean : {false, true}) {
            auto desc = makeDesc<zpp_rt_reduce_desc>();
            desc.kind = isMean ? ZPP_RT_MEAN : ZPP_RT_SUM;
            desc.sources = sources;
            desc.elements = elements;
            desc.source_type = static_cast<int64_t>(sourceType);
            desc.element_type = static_cast<int64_t>(type);
            Bytes input = makeTensor(sourceType, sources * elements, 5, true);
            Bytes output =
                reduceReference(isMean, sources, elements, sourceType,
                                {WireFormat::None, 0}, type, input);
            ASSERT_EQ(
                runLocal(rank, zpp_rt_reduce, desc, input, fill(output.size())),
                output)
                << sources << " x " << elements;
            desc.source_stride = (elements + 7) * elementBytes(sourceType);
            ASSERT_EQ(runLocal(rank, zpp_rt_reduce, desc,
                               spread(input, sources, desc.source_stride),
                               fill(output.size())),
                      output)
                << sources << " x " << elements;
          }
}

/// Wire chunks of `elements`, one per source.
Bytes makeChunks(int64_t sources, int64_t elements, WireFormatAndBlock wire,
                 bool hasSpecials) {
  return quantizeReference(
      makeMap(1, {sources}, sources, elements, {0}), ElementType::F32, wire,
      makeTensor(ElementType::F32, sources * elements, 6, hasSpecials));
}

TEST_P(Local, DequantizeReduce) {
  for (int64_t elements : {0, 1, 31, 1000, 4099})
    for (int64_t sources : {1, 2, 3, 8})
      for (WireFormatAndBlock wire : getWiresAndRotations())
        for (ElementType type : kTypes)
          for (bool isMean : {false, true}) {
            auto desc = makeDesc<zpp_rt_reduce_desc>();
            desc.kind = isMean ? ZPP_RT_MEAN : ZPP_RT_SUM;
            desc.sources = sources;
            desc.elements = elements;
            desc.format = static_cast<int64_t>(wire.format);
            desc.block = wire.block;
            desc.rotate = wire.rotate;
            desc.element_type = static_cast<int64_t>(type);
            Bytes input = makeChunks(sources, elements, wire, isMean);
            Bytes output = reduceReference(isMean, sources, elements,
                                           ElementType::F32, wire, type, input);
            ASSERT_EQ(runLocal(rank, zpp_rt_dequantize_reduce, desc, input,
                               fill(output.size())),
                      output)
                << sources << " x " << elements;
            desc.source_stride = wire.chunkBytes(elements) + 32;
            ASSERT_EQ(runLocal(rank, zpp_rt_dequantize_reduce, desc,
                               spread(input, sources, desc.source_stride),
                               fill(output.size())),
                      output)
                << sources << " x " << elements;
          }
}

TEST_P(Local, DequantizeReduceQuantize) {
  for (const SliceMap &map : getMapsWithStages())
    for (int64_t sources : {1, 3, 4})
      for (ElementType partial : kTypes)
        for (WireFormatAndBlock from :
             {WireFormatAndBlock{WireFormat::I8, 128},
              WireFormatAndBlock{WireFormat::I4, 256}})
          for (WireFormatAndBlock to : getWires()) {
            SCOPED_TRACE(describe(map));
            bool isMean = sources == 3;
            auto desc = makeDesc<zpp_rt_reduce_quantize_desc>();
            desc.kind = isMean ? ZPP_RT_MEAN : ZPP_RT_SUM;
            desc.sources = sources;
            desc.format = static_cast<int64_t>(from.format);
            desc.block = from.block;
            desc.element_type = static_cast<int64_t>(partial);
            desc.to_format = static_cast<int64_t>(to.format);
            desc.to_block = to.block;
            desc.slices = getSlices(map);
            Bytes input = makeChunks(sources, numElements(map), from, true);
            Bytes sum = reduceReference(isMean, sources, numElements(map),
                                        ElementType::F32, from, partial, input);
            Bytes output = quantizeReference(map, partial, to, sum);
            ASSERT_EQ(runLocal(rank, zpp_rt_dequantize_reduce_quantize, desc,
                               input, fill(output.size())),
                      output);
            desc.source_stride = from.chunkBytes(numElements(map)) + 16;
            desc.chunk_stride = to.chunkBytes(map.elementsPerChunk()) + 64;
            ASSERT_EQ(runLocal(rank, zpp_rt_dequantize_reduce_quantize, desc,
                               spread(input, sources, desc.source_stride),
                               spread(fill(output.size()), map.numChunks(),
                                      desc.chunk_stride)),
                      spread(output, map.numChunks(), desc.chunk_stride));
          }
}

TEST_P(Local, Memory) {
  void *data[3];
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(zpp_rt_alloc(rank, i * 1000, &data[i]), ZPP_RT_OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data[i]) % 64, 0u);
  }
  Bytes host = makeTensor(ElementType::F32, 250, 7), result(1000);
  ASSERT_EQ(zpp_rt_copy(rank, data[1], host.data(), 1000), ZPP_RT_OK);
  ASSERT_EQ(zpp_rt_copy(rank, data[2], data[1], 1000), ZPP_RT_OK);
  ASSERT_EQ(zpp_rt_copy(rank, result.data(), data[2], 1000), ZPP_RT_OK);
  ASSERT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
  EXPECT_EQ(result, host);
  zpp_rt_free(rank, data[1]);
  zpp_rt_free(rank, nullptr);
  // The others are freed with the rank.
}

TEST_P(Local, CopyRows) {
  Bytes host = makeTensor(ElementType::F32, 250, 7);
  void *data;
  ASSERT_EQ(zpp_rt_alloc(rank, 1000, &data), ZPP_RT_OK);
  for (int64_t rowBytes : {1, 4, 64, 99}) {
    Bytes result = fill(1000), expected = fill(1000);
    auto desc = makeDesc<zpp_rt_copy_desc>();
    desc.rows = 10;
    desc.row_bytes = rowBytes;
    desc.source_stride = 100;
    ASSERT_EQ(zpp_rt_copy_rows(rank, &desc, host.data(), data), ZPP_RT_OK);
    desc.source_stride = 0;
    desc.dest_stride = 99;
    ASSERT_EQ(zpp_rt_copy_rows(rank, &desc, data, result.data()), ZPP_RT_OK);
    ASSERT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
    for (int64_t row = 0; row < 10; ++row)
      std::copy_n(host.begin() + 100 * row, rowBytes,
                  expected.begin() + 99 * row);
    EXPECT_EQ(result, expected) << rowBytes;
  }
  // No bytes and no pointers.
  auto desc = makeDesc<zpp_rt_copy_desc>();
  desc.rows = 2;
  EXPECT_EQ(zpp_rt_copy_rows(rank, &desc, nullptr, nullptr), ZPP_RT_OK);
  desc.row_bytes = 8;
  desc.source_stride = 7;
  desc.name = "c";
  EXPECT_EQ(zpp_rt_copy_rows(rank, &desc, host.data(), data),
            ZPP_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(zpp_rt_rank_message(rank),
               "copy_rows 'c': expected a source_stride of 0 or at least 8 "
               "bytes, but got 7");
}

/// Within the device, to and from rows with gaps.
TEST_P(Local, CopyRowsWithin) {
  constexpr int64_t kRows = 5;
  for (int64_t rowBytes : {99, 240, 256, 528, 4096})
    for (auto [from, to] : {std::pair<int64_t, int64_t>{0, 0},
                            {0, 16},
                            {48, 0},
                            {16, 32},
                            {0, 1}}) {
      from += rowBytes;
      to += rowBytes;
      Bytes source(kRows * from);
      for (size_t i = 0; i < source.size(); ++i)
        source[i] = static_cast<uint8_t>(i * 7 + i / 256);
      Bytes expected = fill(kRows * to);
      DeviceBuffer input(rank, source), output(rank, expected);
      auto desc = makeDesc<zpp_rt_copy_desc>();
      desc.rows = kRows;
      desc.row_bytes = rowBytes;
      desc.source_stride = from;
      desc.dest_stride = to;
      ASSERT_EQ(zpp_rt_copy_rows(rank, &desc, input.data(), output.data()),
                ZPP_RT_OK);
      for (int64_t row = 0; row < kRows; ++row)
        std::copy_n(source.begin() + row * from, rowBytes,
                    expected.begin() + row * to);
      EXPECT_EQ(output.read(), expected)
          << rowBytes << " bytes from rows of " << from << " to rows of " << to;
    }
}

TEST_P(Local, Workspace) {
  void *small, *large, *again;
  ASSERT_EQ(zpp_rt_workspace(rank, 100, &small), ZPP_RT_OK);
  ASSERT_EQ(zpp_rt_workspace(rank, 100000, &large), ZPP_RT_OK);
  ASSERT_EQ(zpp_rt_workspace(rank, 5000, &again), ZPP_RT_OK);
  EXPECT_EQ(large, again);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % 256, 0u);
  Bytes host = fill(100000), result(100000);
  ASSERT_EQ(zpp_rt_copy(rank, large, host.data(), host.size()), ZPP_RT_OK);
  ASSERT_EQ(zpp_rt_copy(rank, result.data(), large, host.size()), ZPP_RT_OK);
  ASSERT_EQ(zpp_rt_rank_synchronize(rank), ZPP_RT_OK);
  EXPECT_EQ(result, host);
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Converts axes. `axes` must outlive the result.
std::vector<zpp_rt_axis> getAxes(const std::vector<AxisRef> &axes) {
  std::vector<zpp_rt_axis> result;
  for (const AxisRef &axis : axes)
    result.push_back({axis.name.c_str(), axis.preSize, axis.size});
  return result;
}

/// Each axis, all of them, all in reverse order, and parts of the last axis.
std::vector<std::vector<AxisRef>> getGroupings(const Mesh &mesh) {
  std::vector<std::vector<AxisRef>> groupings;
  std::vector<AxisRef> all;
  for (size_t i = 0; i < mesh.getAxes().size(); ++i) {
    all.push_back(mesh.getAxis(i));
    groupings.push_back({mesh.getAxis(i)});
  }
  groupings.push_back(all);
  groupings.push_back({all.rbegin(), all.rend()});
  AxisRef last = all.back();
  if (last.size == 4) {
    groupings.push_back({{last.name, 1, 2}});
    groupings.push_back({{last.name, 2, 2}});
    groupings.push_back({{last.name, 2, 2}, all.front()});
  }
  return groupings;
}

TEST_P(Collective, Exchange) {
  for (const char *text : getMeshes(GetParam())) {
    Mesh mesh = parseMesh(text);
    TestWorld world(GetParam(), text);
    struct Case {
      std::vector<AxisRef> axes;
      int64_t chunkBytes;
      bool isGather;
      std::vector<Bytes> inputs, expected;
    };
    std::vector<Case> cases;
    for (const std::vector<AxisRef> &axes : getGroupings(mesh))
      for (int64_t chunkBytes : {0, 1, 3, 16, 1000, 40007})
        for (bool isGather : {false, true}) {
          int64_t bytes = chunkBytes * (isGather ? 1 : numDevices(axes));
          std::vector<Bytes> inputs;
          for (int64_t r = 0; r < world.size(); ++r) {
            Bytes input = makeTensor(ElementType::F32, bytes / 4 + 1, 100 + r);
            input.resize(bytes);
            inputs.push_back(std::move(input));
          }
          std::vector<Bytes> expected =
              exchangeReference(mesh, axes, chunkBytes, isGather, inputs);
          cases.push_back({axes, chunkBytes, isGather, std::move(inputs),
                           std::move(expected)});
        }
    world.runAll([&](zpp_rt_rank *rank, int64_t index) {
      for (const Case &test : cases) {
        std::vector<zpp_rt_axis> axes = getAxes(test.axes);
        auto desc = makeDesc<zpp_rt_exchange_desc>();
        desc.axes = axes.data();
        desc.num_axes = axes.size();
        desc.chunk_bytes = test.chunkBytes;
        auto *entrypoint =
            test.isGather ? zpp_rt_all_gather_chunks : zpp_rt_all_to_all;
        EXPECT_EQ(runLocal(rank, entrypoint, desc, test.inputs[index],
                           fill(test.chunkBytes * numDevices(test.axes))),
                  test.expected[index])
            << text << " " << test.chunkBytes;
      }
    });
  }
}

/// The hierarchical reduce-scatter of qgZ: every hop quantizes, exchanges and
/// reduces, and the last one writes the slice.
struct Scatter {
  Mesh mesh;
  HopPlan plan;
  ElementType type;
  std::vector<WireFormatAndBlock> wires;

  SliceMap getMap(size_t hop) const { return plan.getHopMap(hop, 0); }
  int64_t sources(size_t hop) const { return numDevices(plan.hops[hop]); }

  std::vector<Bytes> runReference(std::vector<Bytes> values) const {
    ElementType held = type;
    for (size_t hop = 0; hop < plan.hops.size(); ++hop) {
      SliceMap map = getMap(hop);
      int64_t elements = map.elementsPerChunk();
      int64_t chunkBytes = wires[hop].chunkBytes(elements);
      for (Bytes &value : values)
        value = quantizeReference(map, held, wires[hop], value);
      values = exchangeReference(mesh, plan.hops[hop], chunkBytes,
                                 /*isGather=*/false, values);
      held = hop + 1 == plan.hops.size() ? type : ElementType::F32;
      for (Bytes &value : values)
        value = reduceReference(false, sources(hop), elements, held, wires[hop],
                                held, value);
    }
    return values;
  }

  Bytes runRank(zpp_rt_rank *rank, const Bytes &input) const {
    auto quantize = makeDesc<zpp_rt_quantize_desc>();
    SliceMap first = getMap(0);
    quantize.element_type = static_cast<int64_t>(type);
    quantize.format = static_cast<int64_t>(wires[0].format);
    quantize.block = wires[0].block;
    quantize.slices = getSlices(first);
    int64_t elements = first.elementsPerChunk();
    Bytes value =
        runLocal(rank, zpp_rt_quantize, quantize, input,
                 fill(first.numChunks() * wires[0].chunkBytes(elements)));

    for (size_t hop = 0; hop < plan.hops.size(); ++hop) {
      auto exchange = makeDesc<zpp_rt_exchange_desc>();
      std::vector<zpp_rt_axis> axes = getAxes(plan.hops[hop]);
      exchange.axes = axes.data();
      exchange.num_axes = axes.size();
      exchange.chunk_bytes = wires[hop].chunkBytes(elements);
      value = runLocal(rank, zpp_rt_all_to_all, exchange, value,
                       fill(value.size()));
      if (hop + 1 == plan.hops.size())
        break;
      SliceMap map = getMap(hop + 1);
      auto reduce = makeDesc<zpp_rt_reduce_quantize_desc>();
      reduce.kind = ZPP_RT_SUM;
      reduce.sources = sources(hop);
      reduce.format = static_cast<int64_t>(wires[hop].format);
      reduce.block = wires[hop].block;
      reduce.element_type = ZPP_RT_F32;
      reduce.to_format = static_cast<int64_t>(wires[hop + 1].format);
      reduce.to_block = wires[hop + 1].block;
      reduce.slices = getSlices(map);
      elements = map.elementsPerChunk();
      value =
          runLocal(rank, zpp_rt_dequantize_reduce_quantize, reduce, value,
                   fill(map.numChunks() * wires[hop + 1].chunkBytes(elements)));
    }

    auto reduce = makeDesc<zpp_rt_reduce_desc>();
    reduce.kind = ZPP_RT_SUM;
    reduce.sources = sources(plan.hops.size() - 1);
    reduce.elements = elements;
    reduce.format = static_cast<int64_t>(wires.back().format);
    reduce.block = wires.back().block;
    reduce.element_type = static_cast<int64_t>(type);
    return runLocal(rank, zpp_rt_dequantize_reduce, reduce, value,
                    fill(elements * elementBytes(type)));
  }
};

TEST_P(Collective, HierarchicalReduceScatter) {
  for (const char *text : getMeshes(GetParam())) {
    TestWorld world(GetParam(), text);
    std::vector<Scatter> scatters;
    for (ElementType type : kTypes)
      for (int64_t extent : {1, 13, 96})
        for (WireFormat last : kFormats)
          for (bool isOneHop : {false, true}) {
            Scatter scatter;
            scatter.mesh = parseMesh(text);
            scatter.type = type;
            int64_t axes = scatter.mesh.getAxes().size();
            if (isOneHop) {
              std::vector<AxisRef> all;
              for (int64_t i = 0; i < axes; ++i)
                all.push_back(scatter.mesh.getAxis(i));
              scatter.plan.hops = {all};
            } else {
              for (int64_t i = axes; i-- > 0;)
                scatter.plan.hops.push_back({scatter.mesh.getAxis(i)});
            }
            scatter.plan.outer = 2;
            scatter.plan.extent = extent;
            scatter.plan.inner = 21;
            ASSERT_EQ(scatter.getMap(0).verify(), "");
            scatter.wires.assign(scatter.plan.hops.size(),
                                 {WireFormat::I8, 64});
            scatter.wires.back() = {last, 32};
            scatters.push_back(std::move(scatter));
          }

    auto makeInput = [&](const Scatter &scatter, int64_t rank) {
      return makeTensor(scatter.type, 2 * scatter.plan.extent * 21,
                        1000 + rank);
    };
    std::vector<std::vector<Bytes>> expected;
    for (const Scatter &scatter : scatters) {
      std::vector<Bytes> inputs;
      for (int64_t r = 0; r < world.size(); ++r)
        inputs.push_back(makeInput(scatter, r));
      expected.push_back(scatter.runReference(std::move(inputs)));
    }
    world.runAll([&](zpp_rt_rank *rank, int64_t index) {
      for (size_t i = 0; i < scatters.size(); ++i)
        EXPECT_EQ(scatters[i].runRank(rank, makeInput(scatters[i], index)),
                  expected[i][index])
            << text;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(, Local, testing::ValuesIn(getBackendsAndExternal()),
                         [](const auto &info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(, Collective,
                         testing::ValuesIn(getBackendsAndExternal()),
                         [](const auto &info) { return info.param; });

} // namespace
