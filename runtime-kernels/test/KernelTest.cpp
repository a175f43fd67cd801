//===- KernelTest.cpp - The kernels against the host reference ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Goes through the support matrix: every (operation, source, destination) x
// block x slice map x misalignment x sources x data. Compares every byte of the
// results, and the bytes around them, with the host reference.
//
//   zpp-kernels-test           everything but the tensors above 2^32 elements
//   zpp-kernels-test --quick   a small part, in allocations without slack: what
//                              compute-sanitizer runs
//   zpp-kernels-test --large   only the tensors above 2^32 elements (40 GB)
//
// GoogleTest's own options choose tests too. Each test has the same data
// whatever runs before it, so they can be distributed (GTEST_TOTAL_SHARDS).
//
//===----------------------------------------------------------------------===//

#include "HostReference.h"

#include "../../unittests/Support/SliceMaps.h"

#include "zpp/kernels/SupportMatrix.h"

#include <algorithm>
#include <cfloat>
#include <cstdio>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <string>

using namespace zpp;
using namespace zpp::kernels;

namespace {

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

int64_t numChecks = 0;
/// Failures of the test that runs. The first ones are shown.
int64_t numFailures = 0;

void fail(const std::string &what) {
  if (++numFailures <= 20)
    ADD_FAILURE() << what;
}

void checkCuda(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return;
  std::printf("FAILED: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void expectError(cudaError_t expected, cudaError_t got,
                 const std::string &what) {
  ++numChecks;
  if (expected != got)
    fail(what + ": expected " + cudaGetErrorName(expected) + ", but got " +
         cudaGetErrorName(got));
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

constexpr uint8_t kPoison = 0xa5;
/// Bytes before and after a result that must stay as they are.
int64_t slack = 256;

/// Bytes in device memory that begin `misalignment` bytes after a 256-byte
/// boundary, and what they should be.
class Buffer {
public:
  Buffer(int64_t bytes, int64_t misalignment)
      : begin(slack + misalignment), host(begin + bytes + slack, kPoison) {
    void *memory;
    checkCuda(cudaMalloc(&memory, std::max<size_t>(host.size(), 1)),
              "cudaMalloc");
    device = static_cast<uint8_t *>(memory);
  }
  ~Buffer() { cudaFree(device); }
  Buffer(const Buffer &) = delete;

  uint8_t *hostData() { return host.data() + begin; }
  uint8_t *deviceData() { return device + begin; }

  /// Copies the host's bytes to the device.
  void upload() {
    checkCuda(
        cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice),
        "upload");
  }
  /// Compares the device's bytes with the host's.
  void compare(const std::string &what) {
    std::vector<uint8_t> got(host.size());
    checkCuda(
        cudaMemcpy(got.data(), device, host.size(), cudaMemcpyDeviceToHost),
        what.c_str());
    ++numChecks;
    auto [expected, actual] =
        std::mismatch(host.begin(), host.end(), got.begin());
    if (expected == host.end())
      return;
    char text[128];
    std::snprintf(text, sizeof(text),
                  ": at byte %lld expected 0x%02x, but got 0x%02x",
                  static_cast<long long>(expected - host.begin() - begin),
                  *expected, *actual);
    fail(what + text);
  }

private:
  int64_t begin;
  std::vector<uint8_t> host;
  uint8_t *device = nullptr;
};

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

/// Begins anew in each test.
std::mt19937_64 rng;

int64_t pick(int64_t count) { return static_cast<int64_t>(rng() % count); }
float gauss(float deviation) {
  return std::normal_distribution<float>(0.0f, deviation)(rng);
}

enum class Data {
  Normal,
  TinyGradients,
  AnyMagnitude,
  Specials,
  Extremes,
  NearFlush,
  Ties,
  Zeros,
  UnequalSources,
  CloseScales
};
constexpr int kNumData = 10;

float makeValue(Data data, int64_t index, int64_t source = 0) {
  switch (data) {
  case Data::Normal:
  case Data::CloseScales:
    return gauss(1.0f);
  case Data::TinyGradients:
    return gauss(1e-9f);
  case Data::AnyMagnitude: {
    float value = floatOfBits(static_cast<uint32_t>(rng()));
    return std::isfinite(value) ? value : 0.0f;
  }
  case Data::Specials:
    // Far enough apart that some blocks have none.
    switch (index % 331 == 0 ? pick(6) : 6) {
    case 0:
      return NAN;
    case 1:
      return INFINITY;
    case 2:
      return -INFINITY;
    case 3:
      return -0.0f;
    case 4:
      return FLT_TRUE_MIN;
    case 5:
      return -FLT_MIN / 2;
    default:
      return gauss(1e-3f);
    }
  case Data::Extremes:
    return (pick(2) ? 1.0f : -1.0f) * (pick(4) ? FLT_MAX : gauss(1e38f));
  case Data::NearFlush:
    return floatOfBits(static_cast<uint32_t>(0x00600000 + pick(0x800000)) |
                       (pick(2) ? 0x80000000u : 0u));
  case Data::Ties:
    // Blocks whose largest value makes the scale 1: halves are ties.
    return index % 32 == 0 ? (pick(2) ? 7.0f : 127.0f)
                           : static_cast<float>(pick(255) - 127) / 2;
  case Data::Zeros:
    return index % 2000 < 1500 ? 0.0f : gauss(1.0f);
  case Data::UnequalSources: {
    // Blocks of a source are up to 2^13 times as large as those of another, or
    // zero.
    uint64_t hash = (index / 256 * 31 + source + 1) * 0x9e3779b97f4a7c15u >> 40;
    return hash % 16 == 15 ? 0.0f : std::ldexp(gauss(1e-6f), hash % 14);
  }
  }
  return 0.0f;
}

void fillTensor(uint8_t *bytes, ElementType type, int64_t elements, Data data) {
  for (int64_t i = 0; i < elements; ++i)
    reference::store(type, bytes, i, makeValue(data, i));
}

/// bf16 scales at both ends of 2^4 to 2^9, where sums of i4 cease to be exact,
/// and some between them or zero. What several threads sum together has the
/// same ends.
void fillCloseScales(uint16_t *scales, int64_t blocks, int64_t block) {
  for (int64_t b = 0; b < blocks; ++b) {
    uint64_t hash = (b * block / 2048 + 1) * 0x9e3779b97f4a7c15u >> 40;
    int64_t largest = 1 + hash % 254, span = 4 + hash / 254 % 6;
    int64_t down = pick(3) ? pick(2) * span : pick(span);
    int64_t mantissa = pick(2) ? 127 : pick(128);
    scales[b] =
        pick(16) ? std::max<int64_t>(largest - down, 1) << 7 | mantissa : 0;
  }
}

/// Chunks as `quantize` would write them, or, for i8 and i4, any bits, which
/// must decode to the same values.
void fillChunks(const Chunks &chunks, int64_t elements, Data data,
                bool anyBits) {
  for (int64_t c = 0; c < chunks.count; ++c) {
    auto *chunk = static_cast<uint8_t *>(chunks.data) + c * chunks.stride;
    if (chunks.format == WireFormat::None) {
      for (int64_t i = 0; i < elements; ++i)
        reference::store(chunks.type, chunk, i, makeValue(data, i, c));
    } else if (anyBits || data == Data::CloseScales) {
      ChunkLayout layout =
          getChunkLayout(elements, chunks.format, chunks.block);
      for (int64_t i = 0; i < layout.chunkBytes; ++i)
        chunk[i] = static_cast<uint8_t>(rng());
      if (data == Data::CloseScales)
        fillCloseScales(
            reinterpret_cast<uint16_t *>(chunk + layout.scalesOffset),
            layout.blocks, chunks.block);
    } else {
      std::vector<float> values(elements);
      for (int64_t i = 0; i < elements; ++i)
        values[i] = makeValue(data, i, c);
      quantizeChunk(values.data(), elements, chunks.format, chunks.block,
                    chunk);
    }
  }
}

//===----------------------------------------------------------------------===//
// Maps
//===----------------------------------------------------------------------===//

SliceMap makeMap(int64_t outer, std::vector<int64_t> factors, int64_t unit,
                 int64_t inner, std::vector<int64_t> chunkFactors,
                 int64_t missing = 0, int64_t stage = 0, int64_t stages = 1) {
  SliceMap map;
  map.outer = outer;
  map.factors = std::move(factors);
  map.unit = unit;
  map.inner = inner;
  map.chunkFactors = std::move(chunkFactors);
  map.stage = stage;
  map.stages = stages;
  map.extent = std::max<int64_t>(map.paddedExtent() - missing, 0);
  return map;
}

std::vector<SliceMap> makeMaps(bool quick) {
  std::vector<SliceMap> maps;
  // One chunk of any length.
  for (int64_t n : {1, 31, 100, 4096, 5003, 8208})
    maps.push_back(makeMap(1, {}, n, 1, {}));
  maps.push_back(makeMap(7, {}, 64, 16, {}));
  // One hop, aligned; two and three tiers, each hop; the order of the factors.
  maps.push_back(makeMap(1, {4}, 64, 96, {0}));
  maps.push_back(makeMap(1, {2, 4}, 16, 48, {1}));
  maps.push_back(makeMap(1, {2, 4}, 16, 48, {0}));
  maps.push_back(makeMap(1, {2, 3, 4}, 8, 32, {1}));
  maps.push_back(makeMap(2, {2, 3, 4}, 8, 32, {2, 0}));
  maps.push_back(makeMap(3, {2, 2, 2, 2}, 4, 64, {3, 1}));
  // The last dim.
  maps.push_back(makeMap(33, {2, 4}, 32, 1, {1}));
  // Odd sizes.
  maps.push_back(makeMap(1, {2, 4}, 5, 7, {0}));
  maps.push_back(makeMap(5, {3}, 11, 1, {0}));
  maps.push_back(makeMap(1, {2, 3}, 1, 1, {1}));
  maps.push_back(makeMap(1, {2, 3}, 1, 1, {0}));
  // Padding: within a row of items, of whole slices, of everything but one.
  maps.push_back(makeMap(3, {2, 4}, 13, 16, {1}, 9));
  maps.push_back(makeMap(2, {4}, 40, 8, {0}, 3));
  maps.push_back(makeMap(1, {8}, 4, 32, {0}, 22));
  maps.push_back(makeMap(1, {8}, 37, 1, {0}, 8 * 37 - 1));
  // Stages: even, uneven, more than rows.
  for (int64_t stage = 0; stage < 4; ++stage)
    maps.push_back(makeMap(1, {2, 2}, 64, 24, {1}, 0, stage, 4));
  for (int64_t stage = 0; stage < 3; ++stage)
    maps.push_back(makeMap(2, {2, 2}, 10, 16, {0}, 7, stage, 3));
  maps.push_back(makeMap(1, {2}, 2, 5, {0}, 0, 1, 3));
  // A stage as long as the extent, all of which is in another stage.
  maps.push_back(makeMap(4, {}, 6, 16, {}, 4, 1, 3));
  // Nothing.
  maps.push_back(makeMap(1, {2}, 2, 5, {0}, 0, 2, 3));
  maps.push_back(makeMap(0, {2}, 2, 5, {0}));
  if (quick)
    return maps;
  for (int i = 0; i < 60; ++i) {
    SliceMap map;
    map.outer = 1 + pick(4);
    map.unit = (1 + pick(20)) * (pick(2) ? 1 : 16);
    map.inner = pick(3) ? 8 * (1 + pick(8)) : 1 + pick(9);
    pickFactors(map, pick);
    map.stages = pick(2) ? 1 : 1 + pick(3);
    map.stage = pick(map.stages);
    map.extent = map.paddedExtent() - (pick(2) ? pick(map.unit) : 0);
    maps.push_back(map);
  }
  return maps;
}

//===----------------------------------------------------------------------===//
// Descriptions
//===----------------------------------------------------------------------===//

const char *str(Kind kind) {
  switch (kind) {
  case Kind::F32:
    return "f32";
  case Kind::BF16:
    return "bf16";
  case Kind::F16:
    return "f16";
  case Kind::I8:
    return "i8";
  case Kind::I4:
    return "i4";
  }
  return "?";
}

ElementType typeOf(Kind kind) {
  return kind == Kind::BF16  ? ElementType::BF16
         : kind == Kind::F16 ? ElementType::F16
                             : ElementType::F32;
}

//===----------------------------------------------------------------------===//
// One case of each operation
//===----------------------------------------------------------------------===//

/// One point of the product that the tests go through.
struct Case {
  SliceMap map;
  Kind source;
  Kind dest;
  int64_t sourceBlock = 128;
  int64_t destBlock = 128;
  int64_t sources = 1;
  Data data = Data::Normal;
  bool anyBits = false;
  /// The misalignment in elements of the tensor or of unquantized chunks.
  int64_t misalignment = 0;
  /// The same of a tensor that is held.
  int64_t heldMisalignment = 0;
  /// Whether the sum is written to the tensor that is held.
  bool inPlace = false;
  /// Bytes between chunks, times their alignment.
  int64_t gap = 0;
  /// Rotation of the chunks on the side that has codes, but between two hops.
  int64_t rotate = 0;
  Reduction reduction = {};
  cudaStream_t stream = nullptr;

  std::string describe(const char *operation) const {
    return std::string(operation) + " " + str(source) + " -> " + str(dest) +
           " blocks " + std::to_string(sourceBlock) + " -> " +
           std::to_string(destBlock) + " sources " + std::to_string(sources) +
           " data " + std::to_string(static_cast<int>(data)) +
           (anyBits ? " any bits" : "") + " misaligned by " +
           std::to_string(misalignment) + " and " +
           std::to_string(heldMisalignment) + (inPlace ? " in place" : "") +
           " gap " + std::to_string(gap) + (rotate ? " rotated" : "") +
           " divisor " + std::to_string(reduction.divisor) + " partial " +
           str(kindOf(reduction.partial)) + ": " + zpp::describe(map);
  }
};

/// Chunks in a buffer of their own.
struct ChunkSet {
  Buffer buffer;
  Chunks host;
  Chunks device;

  static int64_t strideOf(int64_t elements, Kind kind, int64_t block,
                          int64_t gap) {
    int64_t alignment =
        isQuantized(kind) ? kChunkAlignment : elementBytes(typeOf(kind));
    return reference::chunkBytes(elements, formatOf(kind), block,
                                 typeOf(kind)) +
           gap * alignment;
  }

  ChunkSet(int64_t count, int64_t elements, Kind kind, int64_t block,
           int64_t misalignment, int64_t gap)
      : buffer(count * strideOf(elements, kind, block, gap),
               isQuantized(kind) ? 0
                                 : misalignment * elementBytes(typeOf(kind))),
        host{buffer.hostData(), count, strideOf(elements, kind, block, gap),
             formatOf(kind),    block, typeOf(kind)},
        device(host) {
    device.data = buffer.deviceData();
  }
  static ConstChunks asConst(const Chunks &chunks) {
    return {chunks.data,  chunks.count, chunks.stride, chunks.format,
            chunks.block, chunks.type,  chunks.rotate};
  }
  /// Says whether the values are rotated.
  void setRotation(int64_t rotate) { host.rotate = device.rotate = rotate; }
};

int64_t tensorElements(const SliceMap &map) {
  return map.outer * map.extent * map.inner;
}

Buffer makeTensorBuffer(const Case &c, Kind kind, int64_t misalignment) {
  int64_t bytes = elementBytes(typeOf(kind));
  return Buffer(tensorElements(c.map) * bytes, misalignment * bytes);
}
Buffer makeTensorBuffer(const Case &c, Kind kind) {
  return makeTensorBuffer(c, kind, c.misalignment);
}

/// Fills what is held before a difference arrives: close to `values`, equal to
/// them, or anything.
void fillHeld(const Case &c, ElementType type, const uint8_t *values,
              uint8_t *held) {
  int64_t elements = tensorElements(c.map);
  if (!values || pick(3) == 0)
    return fillTensor(held, type, elements, static_cast<Data>(pick(kNumData)));
  bool isEqual = pick(4) == 0;
  for (int64_t i = 0; i < elements; ++i) {
    float value = reference::load(type, values, i);
    reference::store(type, held, i,
                     isEqual ? value : value * (1.0f + gauss(0.01f)));
  }
}

void testQuantize(const Case &c) {
  Buffer source = makeTensorBuffer(c, c.source);
  ElementType type = typeOf(c.source);
  fillTensor(source.hostData(), type, tensorElements(c.map), c.data);
  ChunkSet dest(c.map.numChunks(), c.map.elementsPerChunk(), c.dest,
                c.destBlock, c.misalignment, c.gap);
  if (isQuantized(c.dest))
    dest.setRotation(c.rotate);
  source.upload();
  dest.buffer.upload();
  expectError(
      cudaSuccess,
      quantize({source.deviceData(), type}, c.map, dest.device, c.stream),
      c.describe("quantize"));
  reference::quantize(source.hostData(), type, c.map, dest.host);
  dest.buffer.compare(c.describe("quantize"));
}

void testDequantize(const Case &c) {
  ElementType type = typeOf(c.dest);
  ChunkSet source(c.map.numChunks(), c.map.elementsPerChunk(), c.source,
                  c.sourceBlock, c.misalignment, c.gap);
  if (isQuantized(c.source))
    source.setRotation(c.rotate);
  fillChunks(source.host, c.map.elementsPerChunk(), c.data, c.anyBits);
  Buffer dest = makeTensorBuffer(c, c.dest);
  source.buffer.upload();
  dest.upload();
  expectError(cudaSuccess,
              dequantize(ChunkSet::asConst(source.device), c.map,
                         {dest.deviceData(), type}, c.stream),
              c.describe("dequantize"));
  reference::dequantize(ChunkSet::asConst(source.host), c.map, dest.hostData(),
                        type);
  dest.compare(c.describe("dequantize"));
}

void testQuantizeDifference(const Case &c) {
  Buffer source = makeTensorBuffer(c, c.source);
  Buffer held = makeTensorBuffer(c, c.source, c.heldMisalignment);
  ElementType type = typeOf(c.source);
  fillTensor(source.hostData(), type, tensorElements(c.map), c.data);
  fillHeld(c, type, source.hostData(), held.hostData());
  ChunkSet dest(c.map.numChunks(), c.map.elementsPerChunk(), c.dest,
                c.destBlock, c.misalignment, c.gap);
  for (Buffer *buffer : {&source, &held, &dest.buffer})
    buffer->upload();
  expectError(cudaSuccess,
              quantizeDifference({source.deviceData(), type},
                                 {held.deviceData(), type}, c.map, dest.device,
                                 c.stream),
              c.describe("quantize-difference"));
  reference::quantize(source.hostData(), type, c.map, dest.host,
                      held.hostData());
  dest.buffer.compare(c.describe("quantize-difference"));
  held.compare(c.describe("quantize-difference: held"));
}

void testDequantizeAdd(const Case &c) {
  ElementType type = typeOf(c.dest);
  ChunkSet source(c.map.numChunks(), c.map.elementsPerChunk(), c.source,
                  c.sourceBlock, c.misalignment, c.gap);
  fillChunks(source.host, c.map.elementsPerChunk(), c.data, c.anyBits);
  Buffer held = makeTensorBuffer(c, c.dest, c.heldMisalignment);
  Buffer separate = makeTensorBuffer(c, c.dest);
  Buffer &dest = c.inPlace ? held : separate;
  fillHeld(c, type, /*values=*/nullptr, held.hostData());
  for (Buffer *buffer : {&source.buffer, &held, &separate})
    buffer->upload();
  expectError(cudaSuccess,
              dequantizeAdd(ChunkSet::asConst(source.device),
                            {held.deviceData(), type}, c.map,
                            {dest.deviceData(), type}, c.stream),
              c.describe("dequantize-add"));
  reference::dequantize(ChunkSet::asConst(source.host), c.map, dest.hostData(),
                        type, held.hostData());
  held.compare(c.describe("dequantize-add: held"));
  separate.compare(c.describe("dequantize-add"));
}

void testReduce(const Case &c) {
  ElementType type = typeOf(c.dest);
  ChunkSet source(c.sources, c.map.elementsPerChunk(), c.source, c.sourceBlock,
                  c.misalignment, c.gap);
  if (isQuantized(c.source))
    source.setRotation(c.rotate);
  fillChunks(source.host, c.map.elementsPerChunk(), c.data, c.anyBits);
  Buffer dest = makeTensorBuffer(c, c.dest);
  source.buffer.upload();
  dest.upload();
  expectError(cudaSuccess,
              dequantizeReduce(ChunkSet::asConst(source.device), c.map,
                               c.reduction, {dest.deviceData(), type},
                               c.stream),
              c.describe("reduce"));
  reference::dequantizeReduce(ChunkSet::asConst(source.host), c.map,
                              c.reduction, dest.hostData(), type);
  dest.compare(c.describe("reduce"));
}

void testReduceQuantize(const Case &c) {
  ChunkSet source(c.sources, tensorElements(c.map), c.source, c.sourceBlock,
                  c.misalignment, c.gap);
  fillChunks(source.host, tensorElements(c.map), c.data, c.anyBits);
  ChunkSet dest(c.map.numChunks(), c.map.elementsPerChunk(), c.dest,
                c.destBlock, /*misalignment=*/0, c.gap);
  source.buffer.upload();
  dest.buffer.upload();
  expectError(cudaSuccess,
              dequantizeReduceQuantize(ChunkSet::asConst(source.device), c.map,
                                       c.reduction, dest.device, c.stream),
              c.describe("reduce-quantize"));
  reference::dequantizeReduceQuantize(ChunkSet::asConst(source.host), c.map,
                                      c.reduction, dest.host);
  dest.buffer.compare(c.describe("reduce-quantize"));
}

void runCase(Operation operation, const Case &c) {
  switch (operation) {
  case Operation::Quantize:
    return testQuantize(c);
  case Operation::Dequantize:
    return testDequantize(c);
  case Operation::QuantizeDifference:
    return testQuantizeDifference(c);
  case Operation::DequantizeAdd:
    return testDequantizeAdd(c);
  case Operation::Reduce:
    return testReduce(c);
  case Operation::ReduceQuantize:
    return testReduceQuantize(c);
  }
}

//===----------------------------------------------------------------------===//
// The walks
//===----------------------------------------------------------------------===//

constexpr int64_t kBlocks[] = {32, 64, 128, 256, 512, 1024, 2048};

void pickFree(Case &c) {
  constexpr int64_t kSources[] = {1, 2, 3, 4, 7, 8, 9, 16, 17};
  constexpr float kDivisors[] = {1.0f, 2.0f, 3.0f, 8.0f, 12.0f};
  constexpr ElementType kPartials[] = {ElementType::F32, ElementType::F32,
                                       ElementType::BF16, ElementType::F16};
  c.sources = kSources[pick(std::size(kSources))];
  c.data = static_cast<Data>(pick(kNumData));
  c.anyBits = pick(4) == 0;
  c.misalignment = pick(2) ? 0 : pick(9);
  c.heldMisalignment = pick(3) ? c.misalignment : pick(9);
  c.inPlace = pick(2);
  c.gap = pick(2) ? 0 : pick(5);
  c.rotate = pick(2) ? kRotation : 0;
  c.reduction.divisor = kDivisors[pick(std::size(kDivisors))];
  c.reduction.partial = kPartials[pick(std::size(kPartials))];
}

void testRow(const SupportRow &row, const std::vector<SliceMap> &maps,
             bool quick) {
  size_t turn = 0;
  for (const SliceMap &map : maps) {
    if (row.operation == Operation::Reduce && map.numChunks() != 1) {
      // The tensor of the hop, whose slices stay in this rank's chunk.
      SliceMap one = map;
      one.chunkFactors.clear();
      Case c{one, row.source, row.dest};
      pickFree(c);
      c.sourceBlock = kBlocks[turn++ % std::size(kBlocks)];
      runCase(row.operation, c);
      continue;
    }
    for (size_t b = 0; b < std::size(kBlocks); ++b) {
      if (quick && (b + turn) % std::size(kBlocks) != 0)
        continue;
      Case c{map, row.source, row.dest};
      pickFree(c);
      // Both blocks matter where both sides are quantized.
      c.sourceBlock = kBlocks[b];
      c.destBlock = kBlocks[row.operation == Operation::ReduceQuantize &&
                                    isQuantized(row.source)
                                ? pick(std::size(kBlocks))
                                : b];
      runCase(row.operation, c);
    }
    ++turn;
  }
  if (quick)
    return;
  // Every kind of data and every number of sources on the aligned path.
  for (int data = 0; data < kNumData; ++data)
    for (int64_t block : kBlocks)
      for (int64_t sources = 1; sources <= 9; ++sources) {
        bool sums = row.operation == Operation::Reduce ||
                    row.operation == Operation::ReduceQuantize;
        if (sources > 1 && !sums)
          break;
        Case c{makeMap(1, {}, 4096 + 32 * sources, 1, {}), row.source,
               row.dest};
        c.data = static_cast<Data>(data);
        c.sourceBlock = block;
        c.destBlock = kBlocks[pick(std::size(kBlocks))];
        c.sources = sources;
        for (int64_t rotate : {int64_t(0), kRotation}) {
          c.rotate = rotate;
          runCase(row.operation, c);
        }
      }
}

/// Every possible scale, and values around each tie between two codes: the
/// kernels compute scales and reciprocals in another way than the reference.
void testScales() {
  constexpr int64_t kBlock = 32;
  for (Kind format : {Kind::I8, Kind::I4}) {
    int32_t largest = maxCode(formatOf(format));
    Case c{makeMap(1, {}, (0x7f80 - 0x80) * kBlock, 1, {}), Kind::F32, format};
    c.destBlock = kBlock;
    Buffer source = makeTensorBuffer(c, c.source);
    for (int64_t b = 0; b < 0x7f80 - 0x80; ++b) {
      float scale = floatOfBF16Bits(static_cast<uint16_t>(0x80 + b));
      float top = decodeValue(largest, scale);
      bool exists = std::isfinite(top);
      for (int64_t i = 0; i < kBlock; ++i) {
        float value = 0.0f;
        if (exists && i == 0) {
          value = top;
        } else if (exists) {
          value = (pick(2 * largest) - largest + 0.5f) * scale;
          for (int64_t step = pick(3); step > 0; --step)
            value = std::nextafter(value, pick(2) ? top : -top);
        }
        reference::store(ElementType::F32, source.hostData(), b * kBlock + i,
                         value);
      }
    }
    ChunkSet dest(1, c.map.elementsPerChunk(), format, kBlock, 0, 0);
    source.upload();
    dest.buffer.upload();
    expectError(cudaSuccess,
                quantize({source.deviceData(), ElementType::F32}, c.map,
                         dest.device, c.stream),
                "all scales");
    reference::quantize(source.hostData(), ElementType::F32, c.map, dest.host);
    dest.buffer.compare("all scales");
  }
}

/// Sums that need all available bits, and one more.
void testExactSums() {
  for (int64_t sources : {2, 3, 4, 7, 8, 9})
    for (int64_t block : {32, 64, 256}) {
      Case c{makeMap(1, {}, 1 << 19, 1, {}), Kind::I4, Kind::F32};
      c.sources = sources;
      c.sourceBlock = c.destBlock = block;
      c.data = Data::CloseScales;
      testReduce(c);
      c.dest = Kind::I4;
      testReduceQuantize(c);
    }
}

/// Tensors so large that a thread has several items, one after the other: in
/// one run, in runs that are shorter than what a thread block has, and with an
/// end within an item.
void testRows() {
  for (const SliceMap &map :
       {makeMap(1, {2, 4}, 4500, 1024, {1}), makeMap(4500, {2, 4}, 8, 128, {1}),
        makeMap(1, {2, 4}, 4608000, 1, {1}, /*missing=*/1000003)}) {
    for (auto [source, dest] : {std::pair(Kind::BF16, Kind::I4),
                                {Kind::F16, Kind::I8},
                                {Kind::F32, Kind::I4}}) {
      Case c{map, source, dest};
      c.data = Data::Ties;
      c.rotate = kRotation;
      testQuantize(c);
    }
    for (auto [sources, source] : {std::pair(2, Kind::I4),
                                   {3, Kind::I4},
                                   {4, Kind::I4},
                                   {2, Kind::I8}}) {
      Case c{map, source, Kind::I4};
      c.data = Data::CloseScales;
      c.sources = sources;
      testReduceQuantize(c);
    }
    Case c{map, Kind::I4, Kind::BF16};
    c.map.chunkFactors.clear();
    c.data = Data::CloseScales;
    c.sources = 2;
    c.rotate = kRotation;
    testReduce(c);
  }
}

/// More chunks than one dim of a grid has.
void testManyChunks() {
  SliceMap map = makeMap(1, {70000}, 1, 32, {0});
  Case c{map, Kind::BF16, Kind::I4};
  c.destBlock = 32;
  testQuantize(c);
  testQuantizeDifference(c);
  c = Case{map, Kind::I8, Kind::BF16};
  testDequantize(c);
  testDequantizeAdd(c);
  c = Case{map, Kind::I4, Kind::I8};
  c.sources = 2;
  testReduceQuantize(c);
  map = makeMap(1, {70000}, 1, 3, {0});
  c = Case{map, Kind::F16, Kind::F16};
  testQuantize(c);
}

void testErrors() {
  SliceMap map = makeMap(1, {2, 4}, 16, 16, {1});
  SliceMap one = makeMap(1, {}, 512, 1, {});
  Buffer memory(1 << 20, 0);
  uint8_t *data = memory.deviceData();
  cudaStream_t stream = nullptr;
  constexpr Kind kKinds[] = {Kind::F32, Kind::BF16, Kind::F16, Kind::I8,
                             Kind::I4};

  auto chunks = [&](Kind kind, int64_t count, int64_t block = 128) {
    return Chunks{data, count, 1 << 12, formatOf(kind), block, typeOf(kind)};
  };
  auto constChunks = [&](Kind kind, int64_t count, int64_t block = 128) {
    return ChunkSet::asConst(chunks(kind, count, block));
  };

  // Combinations that are not in the table.
  for (Kind source : kKinds)
    for (Kind dest : kKinds) {
      std::string what = std::string(str(source)) + " -> " + str(dest);
      if (!isQuantized(source) &&
          !isSupported(Operation::Quantize, source, dest))
        expectError(
            cudaErrorInvalidValue,
            quantize({data, typeOf(source)}, map, chunks(dest, 4), stream),
            "quantize " + what);
      if (!isQuantized(dest) &&
          !isSupported(Operation::Dequantize, source, dest))
        expectError(cudaErrorInvalidValue,
                    dequantize(constChunks(source, 4), map,
                               {data, typeOf(dest)}, stream),
                    "dequantize " + what);
      if (!isQuantized(source) &&
          !isSupported(Operation::QuantizeDifference, source, dest))
        expectError(cudaErrorInvalidValue,
                    quantizeDifference({data, typeOf(source)},
                                       {data, typeOf(source)}, map,
                                       chunks(dest, 4), stream),
                    "quantize-difference " + what);
      if (!isQuantized(dest) &&
          !isSupported(Operation::DequantizeAdd, source, dest))
        expectError(cudaErrorInvalidValue,
                    dequantizeAdd(constChunks(source, 4), {data, typeOf(dest)},
                                  map, {data, typeOf(dest)}, stream),
                    "dequantize-add " + what);
      if (!isQuantized(dest) && !isSupported(Operation::Reduce, source, dest))
        expectError(cudaErrorInvalidValue,
                    dequantizeReduce(constChunks(source, 4), one, {},
                                     {data, typeOf(dest)}, stream),
                    "reduce " + what);
      if (!isSupported(Operation::ReduceQuantize, source, dest))
        expectError(cudaErrorInvalidValue,
                    dequantizeReduceQuantize(constChunks(source, 4), map, {},
                                             chunks(dest, 4), stream),
                    "reduce-quantize " + what);
    }

  // Blocks.
  ConstTensor tensor{data, ElementType::BF16};
  for (int64_t block : {-128, 0, 1, 16, 48, 100, 4096}) {
    std::string what = "block " + std::to_string(block);
    expectError(cudaErrorInvalidValue,
                quantize(tensor, map, chunks(Kind::I8, 4, block), stream),
                what);
    expectError(cudaErrorInvalidValue,
                dequantize(constChunks(Kind::I4, 4, block), map,
                           {data, ElementType::F32}, stream),
                what);
    expectError(cudaErrorInvalidValue,
                dequantizeReduce(constChunks(Kind::I4, 4, block), one, {},
                                 {data, ElementType::F32}, stream),
                what);
    expectError(cudaErrorInvalidValue,
                dequantizeReduceQuantize(constChunks(Kind::I8, 4), map, {},
                                         chunks(Kind::I8, 4, block), stream),
                what);
    expectError(cudaErrorInvalidValue,
                dequantizeReduceQuantize(constChunks(Kind::I8, 4, block), map,
                                         {}, chunks(Kind::I8, 4), stream),
                what);
  }

  // Rotations: none but those of the format, and none between two hops.
  Chunks turned = chunks(Kind::I8, 4);
  turned.rotate = 64;
  expectError(cudaErrorInvalidValue, quantize(tensor, map, turned, stream),
              "groups of 64");
  turned.rotate = kRotation;
  expectError(cudaErrorInvalidValue,
              dequantizeReduceQuantize(ChunkSet::asConst(turned), map, {},
                                       chunks(Kind::I8, 4), stream),
              "rotated sources");
  expectError(cudaErrorInvalidValue,
              dequantizeReduceQuantize(constChunks(Kind::I8, 4), map, {},
                                       turned, stream),
              "rotated destination");

  // Differences are of two tensors of one type, and not rotated.
  ConstTensor other{data, ElementType::F16};
  expectError(
      cudaErrorInvalidValue,
      quantizeDifference(tensor, other, map, chunks(Kind::I8, 4), stream),
      "types of a difference");
  expectError(cudaErrorInvalidValue,
              dequantizeAdd(constChunks(Kind::I8, 4), other, map,
                            {data, ElementType::BF16}, stream),
              "types of a sum");
  expectError(cudaErrorInvalidValue,
              quantizeDifference(tensor, tensor, map, turned, stream),
              "rotated difference");
  expectError(cudaErrorInvalidValue,
              dequantizeAdd(ChunkSet::asConst(turned), tensor, map,
                            {data, ElementType::BF16}, stream),
              "rotated difference to add");
  other = {data + 1, ElementType::BF16};
  expectError(
      cudaErrorMisalignedAddress,
      quantizeDifference(tensor, other, map, chunks(Kind::I8, 4), stream),
      "misaligned held tensor");
  expectError(cudaErrorMisalignedAddress,
              dequantizeAdd(constChunks(Kind::I8, 4), other, map,
                            {data, ElementType::BF16}, stream),
              "misaligned held tensor");

  // Counts, strides, alignment.
  expectError(cudaErrorInvalidValue,
              quantize(tensor, map, chunks(Kind::I8, 3), stream), "count");
  expectError(cudaErrorInvalidValue,
              dequantizeReduce(constChunks(Kind::I8, 0), one, {},
                               {data, ElementType::F32}, stream),
              "no sources");
  Chunks bad = chunks(Kind::I8, 4);
  bad.stride = 256;
  expectError(cudaErrorInvalidValue, quantize(tensor, map, bad, stream),
              "short stride");
  bad.stride = 4096 + 8;
  expectError(cudaErrorMisalignedAddress, quantize(tensor, map, bad, stream),
              "misaligned stride");
  bad = chunks(Kind::I8, 4);
  bad.data = data + 8;
  expectError(cudaErrorMisalignedAddress, quantize(tensor, map, bad, stream),
              "misaligned chunks");
  bad = chunks(Kind::BF16, 4);
  bad.data = data + 1;
  expectError(cudaErrorMisalignedAddress, quantize(tensor, map, bad, stream),
              "misaligned chunks of elements");
  expectError(
      cudaErrorMisalignedAddress,
      quantize({data + 1, ElementType::BF16}, map, chunks(Kind::I8, 4), stream),
      "misaligned tensor");
  expectError(cudaErrorMisalignedAddress,
              dequantize(constChunks(Kind::I8, 4), map,
                         {data + 2, ElementType::F32}, stream),
              "misaligned tensor");

  // Maps and divisors.
  SliceMap invalid = map;
  invalid.chunkFactors = {2};
  expectError(cudaErrorInvalidValue,
              quantize(tensor, invalid, chunks(Kind::I8, 4), stream),
              "chunk factor");
  invalid = makeMap(1, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 16, 1, {});
  expectError(cudaErrorInvalidValue,
              quantize(tensor, invalid, chunks(Kind::I8, 1), stream),
              "nine factors");
  expectError(cudaErrorInvalidValue,
              dequantizeReduce(constChunks(Kind::I8, 4), map, {},
                               {data, ElementType::F32}, stream),
              "reduce to several chunks");
  for (float divisor : {0.0f, -1.0f, NAN, INFINITY})
    expectError(cudaErrorInvalidValue,
                dequantizeReduce(constChunks(Kind::I8, 4), one, {divisor},
                                 {data, ElementType::F32}, stream),
                "divisor");

  // None of this has launched anything or left an error.
  expectError(cudaSuccess, cudaDeviceSynchronize(), "after the errors");
  expectError(cudaSuccess, cudaGetLastError(), "after the errors");
}

/// Steps that send differences: what is held of a tensor follows it, with the
/// same bits wherever it is held, and does not drift away.
void testManyDifferences() {
  SliceMap map = makeMap(1, {2, 3}, 40, 32, {1});
  int64_t elements = tensorElements(map);
  Case c{map, Kind::BF16, Kind::I4};
  Buffer tensor = makeTensorBuffer(c, Kind::BF16);
  Buffer own = makeTensorBuffer(c, Kind::BF16);
  Buffer others = makeTensorBuffer(c, Kind::BF16);
  ChunkSet sent(map.numChunks(), map.elementsPerChunk(), Kind::I4, 128, 0, 0);
  std::vector<float> weights(elements);
  for (float &weight : weights)
    weight = gauss(1.0f);
  for (Buffer *buffer : {&own, &others}) {
    for (int64_t i = 0; i < elements; ++i)
      reference::store(ElementType::BF16, buffer->hostData(), i, weights[i]);
    buffer->upload();
  }
  sent.buffer.upload();
  for (int step = 0; step < 100; ++step) {
    for (int64_t i = 0; i < elements; ++i) {
      weights[i] += gauss(1e-3f);
      reference::store(ElementType::BF16, tensor.hostData(), i, weights[i]);
    }
    tensor.upload();
    ConstTensor held{own.deviceData(), ElementType::BF16};
    expectError(cudaSuccess,
                quantizeDifference({tensor.deviceData(), ElementType::BF16},
                                   held, map, sent.device, nullptr),
                "step");
    for (Buffer *buffer : {&own, &others}) {
      Tensor dest{buffer->deviceData(), ElementType::BF16};
      expectError(cudaSuccess,
                  dequantizeAdd(ChunkSet::asConst(sent.device),
                                {dest.data, dest.type}, map, dest, nullptr),
                  "step");
    }
    reference::quantize(tensor.hostData(), ElementType::BF16, map, sent.host,
                        own.hostData());
    for (Buffer *buffer : {&own, &others})
      reference::dequantize(ChunkSet::asConst(sent.host), map,
                            buffer->hostData(), ElementType::BF16,
                            buffer->hostData());
  }
  own.compare("what the owner holds after 100 steps");
  others.compare("what others hold after 100 steps");
  double error = 0;
  for (int64_t i = 0; i < elements; ++i)
    error = std::max<double>(
        error,
        std::fabs(reference::load(ElementType::BF16, own.hostData(), i) -
                  reference::load(ElementType::BF16, tensor.hostData(), i)));
  ++numChecks;
  // A step of i4 of the last difference, and one of bf16.
  if (error > 0.05)
    fail("expected differences without drift, but got " +
         std::to_string(error));
}

/// Kernels that follow each other become one launch if they are the same, and
/// give the same results as separate launches: large and small tensors, aligned
/// and not, more than kMaxBatch, different numbers of chunks.
void testBatches() {
  struct Tensors {
    SliceMap whole, partial, shard;
    Buffer tensor, result, gathered;
    ChunkSet hop1, hop2;

    Tensors(int64_t unit, int64_t inner, int64_t chunks, int64_t misalignment)
        : whole(makeMap(1, {2, chunks}, unit, inner, {1})),
          partial(makeMap(1, {2}, unit, inner, {0})),
          shard(makeMap(1, {}, unit, inner, {})),
          tensor(tensorElements(whole) * 2, misalignment * 2),
          result(tensorElements(shard) * 4, 0),
          gathered(tensorElements(whole) * 2, misalignment * 2),
          hop1(chunks, whole.elementsPerChunk(), Kind::I8, 128, 0, 0),
          hop2(2, partial.elementsPerChunk(), Kind::I4, 64, 0, 0) {}
  };
  std::deque<Tensors> all;
  all.emplace_back(64, 1, 2, 0);
  all.emplace_back(512, 96, 2, 0);
  all.emplace_back(16, 64, 2, 0);
  all.emplace_back(33, 7, 2, 1);
  for (int64_t rows = 1; rows <= 2 * kMaxBatch + 1; ++rows)
    all.emplace_back(rows, 128, 2, 0);
  all.emplace_back(16, 64, 4, 0);
  all.emplace_back(16, 64, 2, 0);

  for (Tensors &t : all) {
    fillTensor(t.tensor.hostData(), ElementType::BF16, tensorElements(t.whole),
               Data::Normal);
    for (Buffer *buffer :
         {&t.tensor, &t.hop1.buffer, &t.hop2.buffer, &t.result, &t.gathered})
      buffer->upload();
  }
  cudaStream_t stream;
  checkCuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  Launches launches;
  launches.setStream(stream);
  auto forAll = [&](const std::string &what, auto launch) {
    for (Tensors &t : all)
      expectError(cudaSuccess, launch(t), "batch: " + what);
    expectError(cudaSuccess, launches.flush(), "batch: flush of " + what);
  };
  forAll("quantize", [&](Tensors &t) {
    return quantize({t.tensor.deviceData(), ElementType::BF16}, t.whole,
                    t.hop1.device, launches);
  });
  forAll("reduce-quantize", [&](Tensors &t) {
    return dequantizeReduceQuantize(ChunkSet::asConst(t.hop1.device), t.partial,
                                    {}, t.hop2.device, launches);
  });
  forAll("reduce", [&](Tensors &t) {
    return dequantizeReduce(ChunkSet::asConst(t.hop2.device), t.shard, {8.0f},
                            {t.result.deviceData(), ElementType::F32},
                            launches);
  });
  forAll("dequantize", [&](Tensors &t) {
    return dequantize(ChunkSet::asConst(t.hop1.device), t.whole,
                      {t.gathered.deviceData(), ElementType::BF16}, launches);
  });
  checkCuda(cudaStreamSynchronize(stream), "batches");
  checkCuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  for (Tensors &t : all) {
    reference::quantize(t.tensor.hostData(), ElementType::BF16, t.whole,
                        t.hop1.host);
    reference::dequantizeReduceQuantize(ChunkSet::asConst(t.hop1.host),
                                        t.partial, {}, t.hop2.host);
    reference::dequantizeReduce(ChunkSet::asConst(t.hop2.host), t.shard, {8.0f},
                                t.result.hostData(), ElementType::F32);
    reference::dequantize(ChunkSet::asConst(t.hop1.host), t.whole,
                          t.gathered.hostData(), ElementType::BF16);
    std::string what =
        "batch: " + std::to_string(tensorElements(t.whole)) + " elements: ";
    t.hop1.buffer.compare(what + "quantize");
    t.hop2.buffer.compare(what + "reduce-quantize");
    t.result.compare(what + "reduce");
    t.gathered.compare(what + "dequantize");
  }
}

/// Everything can be captured, and replays of the graph give the same results.
void testGraph() {
  SliceMap map = makeMap(1, {2, 4}, 16, 32, {1});
  SliceMap partial = makeMap(1, {2}, 16, 32, {0});
  SliceMap shard = makeMap(1, {}, 16, 32, {});
  Buffer tensor(tensorElements(map) * 2, 0);
  fillTensor(tensor.hostData(), ElementType::BF16, tensorElements(map),
             Data::Normal);
  ChunkSet hop1(4, map.elementsPerChunk(), Kind::I8, 128, 0, 0);
  ChunkSet hop2(2, partial.elementsPerChunk(), Kind::I4, 64, 0, 0);
  Buffer result(tensorElements(shard) * 4, 0);
  Buffer gathered(tensorElements(map) * 4, 0);

  cudaStream_t stream;
  checkCuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  for (Buffer *buffer :
       {&tensor, &hop1.buffer, &hop2.buffer, &result, &gathered})
    buffer->upload();
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  checkCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
            "capture");
  expectError(cudaSuccess,
              quantize({tensor.deviceData(), ElementType::BF16}, map,
                       hop1.device, stream),
              "captured quantize");
  expectError(cudaSuccess,
              dequantizeReduceQuantize(ChunkSet::asConst(hop1.device), partial,
                                       {}, hop2.device, stream),
              "captured reduce-quantize");
  expectError(cudaSuccess,
              dequantizeReduce(ChunkSet::asConst(hop2.device), shard, {8.0f},
                               {result.deviceData(), ElementType::F32}, stream),
              "captured reduce");
  expectError(cudaSuccess,
              dequantize(ChunkSet::asConst(hop1.device), map,
                         {gathered.deviceData(), ElementType::F32}, stream),
              "captured dequantize");
  checkCuda(cudaStreamEndCapture(stream, &graph), "end of capture");
  checkCuda(cudaGraphInstantiate(&executable, graph, 0), "instantiate");

  reference::quantize(tensor.hostData(), ElementType::BF16, map, hop1.host);
  reference::dequantizeReduceQuantize(ChunkSet::asConst(hop1.host), partial, {},
                                      hop2.host);
  reference::dequantizeReduce(ChunkSet::asConst(hop2.host), shard, {8.0f},
                              result.hostData(), ElementType::F32);
  reference::dequantize(ChunkSet::asConst(hop1.host), map, gathered.hostData(),
                        ElementType::F32);
  for (int replay = 0; replay < 2; ++replay) {
    checkCuda(cudaGraphLaunch(executable, stream), "replay");
    checkCuda(cudaStreamSynchronize(stream), "replay");
    hop1.buffer.compare("graph: quantize");
    hop2.buffer.compare("graph: reduce-quantize");
    result.compare("graph: reduce");
    gathered.compare("graph: dequantize");
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

//===----------------------------------------------------------------------===//
// Above 2^32 elements
//===----------------------------------------------------------------------===//

/// A tensor of bf16 that repeats a pattern whose length has no factor in common
/// with anything, so that every wrapped index shows; results are checked in
/// samples.
class LargeTest {
public:
  explicit LargeTest(const SliceMap &map) : map(map) {
    pattern.resize(kPeriod * 2);
    fillTensor(pattern.data(), ElementType::BF16, kPeriod, Data::Normal);
    elements = tensorElements(map);
    tensor = allocate(elements * 2);
    uint8_t *period = allocate(kPeriod * 2);
    checkCuda(
        cudaMemcpy(period, pattern.data(), kPeriod * 2, cudaMemcpyHostToDevice),
        "pattern");
    for (int64_t i = 0; i < elements; i += kPeriod)
      checkCuda(cudaMemcpy(tensor + i * 2, period,
                           std::min(kPeriod, elements - i) * 2,
                           cudaMemcpyDeviceToDevice),
                "pattern");
  }
  ~LargeTest() {
    for (void *memory : allocations)
      cudaFree(memory);
  }

  void run() {
    WireFormat format = WireFormat::I4;
    int64_t perChunk = map.elementsPerChunk();
    ChunkLayout layout = getChunkLayout(perChunk, format, kBlock);
    Chunks chunks{allocate(layout.chunkBytes * map.numChunks()),
                  map.numChunks(),
                  layout.chunkBytes,
                  format,
                  kBlock,
                  ElementType::F32};
    expectError(cudaSuccess,
                quantize({tensor, ElementType::BF16}, map, chunks, nullptr),
                "large quantize");
    auto *bytes = static_cast<uint8_t *>(chunks.data);
    auto valueAt = [&](int64_t c, int64_t e) {
      int64_t index = map.tensorIndex(c, e);
      return index < 0 ? 0.0f
                       : reference::load(ElementType::BF16, pattern.data(),
                                         index % kPeriod);
    };
    checkBlocks("large quantize", chunks, layout, valueAt);

    uint8_t *copy = allocate(elements * 2);
    expectError(cudaSuccess,
                dequantize(ChunkSet::asConst(chunks), map,
                           {copy, ElementType::BF16}, nullptr),
                "large dequantize");
    for (int i = 0; i < kSamples; ++i) {
      int64_t c = pick(map.numChunks());
      int64_t e = sample(i, perChunk);
      int64_t index = map.tensorIndex(c, e);
      if (index < 0)
        continue;
      uint8_t expected[2], got[2];
      reference::store(ElementType::BF16, expected, 0,
                       decodeAt(bytes + c * layout.chunkBytes, layout, e));
      download(got, copy + 2 * index, 2);
      check("large dequantize", std::memcmp(expected, got, 2) == 0, e);
    }

    // Two equal sources.
    ChunkLayout whole = getChunkLayout(elements, format, kBlock);
    uint8_t *sources = allocate(2 * whole.chunkBytes);
    SliceMap identity = makeMap(1, {}, elements, 1, {});
    for (int s = 0; s < 2; ++s)
      expectError(cudaSuccess,
                  quantize({tensor, ElementType::BF16}, identity,
                           {sources + s * whole.chunkBytes, 1, 0, format,
                            kBlock, ElementType::F32},
                           nullptr),
                  "large source");
    ConstChunks pair{sources, 2,      whole.chunkBytes,
                     format,  kBlock, ElementType::F32};
    expectError(cudaSuccess,
                dequantizeReduceQuantize(pair, map, {}, chunks, nullptr),
                "large reduce-quantize");
    checkBlocks("large reduce-quantize", chunks, layout,
                [&](int64_t c, int64_t e) {
                  int64_t index = map.tensorIndex(c, e);
                  return index < 0 ? 0.0f : 2 * decodeAt(sources, whole, index);
                });
    expectError(cudaSuccess,
                dequantizeReduce(pair, identity, {}, {copy, ElementType::BF16},
                                 nullptr),
                "large reduce");
    for (int i = 0; i < kSamples; ++i) {
      int64_t e = sample(i, elements);
      uint8_t expected[2], got[2];
      reference::store(ElementType::BF16, expected, 0,
                       2 * decodeAt(sources, whole, e));
      download(got, copy + 2 * e, 2);
      check("large reduce", std::memcmp(expected, got, 2) == 0, e);
    }
  }

private:
  static constexpr int64_t kPeriod = 16777213; // prime
  static constexpr int64_t kBlock = 256;
  static constexpr int kSamples = 300;

  uint8_t *allocate(int64_t bytes) {
    void *memory;
    checkCuda(cudaMalloc(&memory, bytes), "cudaMalloc");
    checkCuda(cudaMemset(memory, kPoison, bytes), "cudaMemset");
    allocations.push_back(memory);
    return static_cast<uint8_t *>(memory);
  }
  static void download(void *host, const void *device, int64_t bytes) {
    checkCuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost),
              "download");
  }
  static void check(const char *what, bool equal, int64_t element) {
    ++numChecks;
    if (!equal)
      fail(std::string(what) + " at element " + std::to_string(element));
  }
  /// The first, the last, and any element.
  static int64_t sample(int i, int64_t count) {
    return i == 0 ? 0 : i == 1 ? count - 1 : pick(count);
  }
  static float decodeAt(const uint8_t *chunk, const ChunkLayout &layout,
                        int64_t e) {
    uint8_t byte;
    uint16_t scale;
    download(&byte, chunk + e / 2, 1);
    download(&scale, chunk + layout.scalesOffset + 2 * (e / kBlock), 2);
    return decodeValue(unpackNibble(byte, e % 2), floatOfBF16Bits(scale));
  }

  void checkBlocks(const char *what, const Chunks &chunks,
                   const ChunkLayout &layout,
                   const std::function<float(int64_t, int64_t)> &valueAt) {
    for (int i = 0; i < kSamples / 10; ++i) {
      int64_t c = pick(chunks.count);
      int64_t block = sample(i, layout.blocks);
      int64_t begin = block * chunks.block;
      int64_t count = std::min(chunks.block, layout.elements - begin);
      std::vector<float> values(count);
      for (int64_t e = 0; e < count; ++e)
        values[e] = valueAt(c, begin + e);
      ChunkLayout small = getChunkLayout(count, chunks.format, chunks.block);
      std::vector<uint8_t> expected(small.chunkBytes), got(small.chunkBytes);
      quantizeChunk(values.data(), count, chunks.format, chunks.block,
                    expected.data());
      auto *chunk = static_cast<uint8_t *>(chunks.data) + c * layout.chunkBytes;
      download(got.data(), chunk + begin / 2, small.payloadBytes);
      download(got.data() + small.scalesOffset,
               chunk + layout.scalesOffset + 2 * block, 2);
      check(what, expected == got, begin);
    }
  }

  SliceMap map;
  int64_t elements;
  std::vector<uint8_t> pattern;
  uint8_t *tensor;
  std::vector<void *> allocations;
};

//===----------------------------------------------------------------------===//
// Tests
//===----------------------------------------------------------------------===//

/// The part that the command line chooses.
enum class Mode { Full, Quick, Large };
Mode mode = Mode::Full;

class Kernels : public testing::Test {
protected:
  void SetUp() override {
    numFailures = 0;
    rng.seed(20240607);
  }
  void TearDown() override {
    if (numFailures > 20)
      ADD_FAILURE() << numFailures << " failures";
  }
};

TEST_F(Kernels, Errors) { testErrors(); }
TEST_F(Kernels, Graph) { testGraph(); }
TEST_F(Kernels, Batches) { testBatches(); }
TEST_F(Kernels, ManyDifferences) { testManyDifferences(); }

/// A row of the support matrix.
class Matrix : public Kernels,
               public testing::WithParamInterface<SupportRow> {};

TEST_P(Matrix, Row) {
  bool quick = mode == Mode::Quick;
  std::vector<SliceMap> maps = makeMaps(quick);
  // Rows of one operation differ in what is free.
  auto [operation, source, dest] = GetParam();
  rng.seed(static_cast<int>(operation) * 100 + static_cast<int>(source) * 10 +
           static_cast<int>(dest));
  testRow(GetParam(), maps, quick);
}

std::string describeRow(const testing::TestParamInfo<SupportRow> &info) {
  constexpr const char *kNames[] = {
      "Quantize",      "Dequantize", "QuantizeDifference",
      "DequantizeAdd", "Reduce",     "ReduceQuantize"};
  return std::string(kNames[static_cast<int>(info.param.operation)]) + "_" +
         str(info.param.source) + "_" + str(info.param.dest);
}
INSTANTIATE_TEST_SUITE_P(Support, Matrix, testing::ValuesIn(kSupport),
                         describeRow);

/// Tests that take too long for --quick.
class Full : public Kernels {};

TEST_F(Full, Scales) { testScales(); }
TEST_F(Full, ExactSums) { testExactSums(); }
TEST_F(Full, Rows) { testRows(); }
TEST_F(Full, ManyChunks) { testManyChunks(); }

class Large : public Kernels {};

TEST_F(Large, OneRun) {
  LargeTest(makeMap(1, {}, (int64_t(1) << 32) + 12345, 1, {})).run();
}
TEST_F(Large, SlicesOfAChunk) {
  LargeTest(makeMap(1, {2, 2, 2}, (int64_t(1) << 30) + 4096, 1, {2}, 77)).run();
}

} // namespace

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string argument = argc > 1 ? argv[1] : "";
  if (argc > 2 ||
      (!argument.empty() && argument != "--quick" && argument != "--large")) {
    std::printf("usage: zpp-kernels-test [--quick | --large] [--gtest_...]\n");
    return 2;
  }
  auto &filter = testing::GTEST_FLAG(filter);
  bool choosesTests = filter != "*";
  if (argument == "--large")
    mode = Mode::Large;
  if (argument == "--quick") {
    mode = Mode::Quick;
    slack = 0;
  }
  if (!choosesTests)
    filter = mode == Mode::Large   ? "Large.*"
             : mode == Mode::Quick ? "-Large.*:Full.*"
                                   : "-Large.*";
  if (!testing::GTEST_FLAG(list_tests)) {
    cudaDeviceProp properties;
    checkCuda(cudaGetDeviceProperties(&properties, 0), "no device");
    std::printf("%s\n", properties.name);
  }
  int result = RUN_ALL_TESTS();
  std::printf("%lld checks, %s\n", static_cast<long long>(numChecks),
              result == 0 ? "0 failures" : "FAILED");
  return result;
}
