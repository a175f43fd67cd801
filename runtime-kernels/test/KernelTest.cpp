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
#include "Step.h"

#include "../../unittests/Support/SliceMaps.h"

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
    writeElement(type, makeValue(data, i), bytes, i);
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
        writeElement(chunks.type, makeValue(data, i, c), chunk, i);
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
// Operations on the device and by the reference
//===----------------------------------------------------------------------===//

/// A row of the support matrix.
struct Row {
  Operation operation;
  Kind source;
  Kind dest;
};

/// All combinations that launchers can be called with.
std::vector<Row> makeAllRows() {
  std::vector<Row> rows;
  for (Operation operation :
       {Operation::Quantize, Operation::Dequantize,
        Operation::QuantizeDifference, Operation::DequantizeAdd,
        Operation::Reduce, Operation::ReduceQuantize})
    for (Kind source : kKinds)
      for (Kind dest : kKinds)
        // A tensor has no codes.
        if (!(isFromTensor(operation) && isQuantized(source)) &&
            !(isToTensor(operation) && isQuantized(dest)))
          rows.push_back({operation, source, dest});
  return rows;
}

bool isSupported(const Row &row) {
  return isSupported(row.operation, row.source, row.dest);
}

std::vector<Row> makeSupportedRows() {
  std::vector<Row> rows = makeAllRows();
  rows.erase(std::remove_if(rows.begin(), rows.end(),
                            [](const Row &row) { return !isSupported(row); }),
             rows.end());
  return rows;
}

const char *str(Operation operation) {
  constexpr const char *kNames[] = {
      "Quantize",      "Dequantize", "QuantizeDifference",
      "DequantizeAdd", "Reduce",     "ReduceQuantize"};
  return kNames[static_cast<int>(operation)];
}

/// A tensor or chunks on the device, and what they should be, on the host.
/// Misalignment is in elements.
struct Operand {
  static Operand tensor(Kind kind, int64_t elements, int64_t misalignment = 0) {
    int64_t size = elementBytes(typeOf(kind));
    return Operand({kind}, elements * size, misalignment * size);
  }
  /// Codes are always aligned. `gap` is in units of the alignment.
  static Operand chunks(Kind kind, int64_t count, int64_t elements,
                        int64_t block, int64_t misalignment = 0,
                        int64_t gap = 0, int64_t rotate = 0) {
    int64_t size = elementBytes(typeOf(kind));
    int64_t stride =
        reference::chunkBytes(elements, formatOf(kind), block, typeOf(kind)) +
        gap * (isQuantized(kind) ? kChunkAlignment : size);
    return Operand(
        {kind, nullptr, count, stride, block, isQuantized(kind) ? rotate : 0},
        count * stride, isQuantized(kind) ? 0 : misalignment * size);
  }

  Buffer buffer;
  Side device;
  Side host;

private:
  Operand(const Side &side, int64_t bytes, int64_t misalignment)
      : buffer(bytes, misalignment), device(side), host(side) {
    device.data = buffer.deviceData();
    host.data = buffer.hostData();
  }
};

/// A step on the device, and the same on the host.
struct TwinStep {
  TwinStep(Operation operation, const SliceMap &map, const Operand &source,
           const Operand &dest, const Operand &held, Reduction reduction = {})
      : device{operation,   map,         source.device,
               dest.device, held.device, reduction},
        host{operation, map, source.host, dest.host, held.host, reduction} {}
  /// Takes no tensor that is held.
  TwinStep(Operation operation, const SliceMap &map, const Operand &source,
           const Operand &dest, Reduction reduction = {})
      : TwinStep(operation, map, source, dest, source, reduction) {}

  void run(const std::string &what) const {
    launch(what, /*target=*/nullptr);
    refer();
  }
  void launch(const std::string &what, const LaunchTarget &target) const {
    expectError(cudaSuccess, device.launch(target), what);
  }
  void refer() const;

  Step device;
  Step host;
};

void TwinStep::refer() const {
  const auto &[operation, map, source, dest, held, reduction] = host;
  switch (operation) {
  case Operation::Quantize:
    return reference::quantize(source, map, dest);
  case Operation::Dequantize:
    return reference::dequantize(source, map, dest);
  case Operation::QuantizeDifference:
    return reference::quantize(source, map, dest, held.data);
  case Operation::DequantizeAdd:
    return reference::dequantize(source, map, dest, held.data);
  case Operation::Reduce:
    return reference::dequantizeReduce(source, map, reduction, dest);
  case Operation::ReduceQuantize:
    return reference::dequantizeReduceQuantize(source, map, reduction, dest);
  }
}

int64_t tensorElements(const SliceMap &map) {
  return map.outer * map.extent * map.inner;
}

//===----------------------------------------------------------------------===//
// One case of an operation
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

  std::string describe(Operation operation) const {
    return std::string(str(operation)) + " " + str(source) + " -> " +
           str(dest) + " blocks " + std::to_string(sourceBlock) + " -> " +
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

/// Fills what is held before a difference arrives: close to `values`, equal to
/// them, or anything.
void fillHeld(ElementType type, int64_t elements, const uint8_t *values,
              uint8_t *held) {
  if (!values || pick(3) == 0)
    return fillTensor(held, type, elements, static_cast<Data>(pick(kNumData)));
  bool isEqual = pick(4) == 0;
  for (int64_t i = 0; i < elements; ++i) {
    float value = readElement(type, values, i);
    writeElement(type, isEqual ? value : value * (1.0f + gauss(0.01f)), held,
                 i);
  }
}

void testCase(Operation operation, const Case &c) {
  int64_t whole = tensorElements(c.map), part = c.map.elementsPerChunk();
  bool isBetweenHops = operation == Operation::ReduceQuantize;
  int64_t sent = isBetweenHops ? whole : part;
  int64_t rotate = isDifference(operation) || isBetweenHops ? 0 : c.rotate;
  Operand source =
      isFromTensor(operation)
          ? Operand::tensor(c.source, whole, c.misalignment)
          : Operand::chunks(c.source,
                            isSum(operation) ? c.sources : c.map.numChunks(),
                            sent, c.sourceBlock, c.misalignment, c.gap, rotate);
  Operand separate =
      isToTensor(operation)
          ? Operand::tensor(c.dest, whole, c.misalignment)
          : Operand::chunks(c.dest, c.map.numChunks(), part, c.destBlock,
                            c.misalignment, c.gap, rotate);
  Kind heldKind = isFromTensor(operation) ? c.source : c.dest;
  Operand held = Operand::tensor(heldKind, isDifference(operation) ? whole : 0,
                                 c.heldMisalignment);
  if (isFromTensor(operation))
    fillTensor(source.host.data, typeOf(c.source), whole, c.data);
  else
    fillChunks(source.host, sent, c.data, c.anyBits);
  if (isDifference(operation))
    fillHeld(typeOf(heldKind), whole,
             isFromTensor(operation) ? source.host.data : nullptr,
             held.host.data);
  bool isInPlace = c.inPlace && operation == Operation::DequantizeAdd;
  Operand &dest = isInPlace ? held : separate;
  for (Operand *each : {&source, &held, &separate})
    each->buffer.upload();
  std::string what = c.describe(operation);
  TwinStep(operation, c.map, source, dest, held, c.reduction).run(what);
  held.buffer.compare(what + ": held");
  separate.buffer.compare(what);
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

/// Every block on every map; one block after the other if that is too much.
void testMaps(const Row &row, const std::vector<SliceMap> &maps, bool quick) {
  size_t turn = 0;
  for (SliceMap map : maps) {
    bool isPart = row.operation == Operation::Reduce && map.numChunks() != 1;
    // The tensor of the hop, whose slices stay in this rank's chunk.
    if (isPart)
      map.chunkFactors.clear();
    for (size_t b = 0; b < std::size(kBlocks); ++b) {
      if ((quick || isPart) && (b + turn) % std::size(kBlocks) != 0)
        continue;
      Case c{map, row.source, row.dest};
      pickFree(c);
      // Both blocks matter where both sides are quantized.
      c.sourceBlock = kBlocks[b];
      c.destBlock = kBlocks[row.operation == Operation::ReduceQuantize &&
                                    isQuantized(row.source)
                                ? pick(std::size(kBlocks))
                                : b];
      testCase(row.operation, c);
    }
    ++turn;
  }
}

/// Every kind of data and every number of sources on the aligned path.
void testData(const Row &row) {
  for (int data = 0; data < kNumData; ++data)
    for (int64_t block : kBlocks)
      for (int64_t sources = 1; sources <= (isSum(row.operation) ? 9 : 1);
           ++sources)
        for (int64_t rotate : {int64_t(0), kRotation}) {
          Case c{makeMap(1, {}, 4096 + 32 * sources, 1, {}), row.source,
                 row.dest};
          c.data = static_cast<Data>(data);
          c.sourceBlock = block;
          c.destBlock = kBlocks[pick(std::size(kBlocks))];
          c.sources = sources;
          c.rotate = rotate;
          testCase(row.operation, c);
        }
}

/// Every possible scale, and values around each tie between two codes: the
/// kernels compute scales and reciprocals in another way than the reference.
void testScales() {
  constexpr int64_t kBlock = 32, kFirst = 0x80, kEnd = 0x7f80;
  constexpr int64_t kElements = (kEnd - kFirst) * kBlock;
  for (Kind format : {Kind::I8, Kind::I4}) {
    int32_t largest = maxCode(formatOf(format));
    Operand source = Operand::tensor(Kind::F32, kElements);
    for (int64_t b = 0; b < kEnd - kFirst; ++b) {
      float scale = floatOfBF16Bits(static_cast<uint16_t>(kFirst + b));
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
        writeElement(ElementType::F32, value, source.host.data, b * kBlock + i);
      }
    }
    Operand dest = Operand::chunks(format, 1, kElements, kBlock);
    source.buffer.upload();
    dest.buffer.upload();
    TwinStep(Operation::Quantize, makeMap(1, {}, kElements, 1, {}), source,
             dest)
        .run("all scales");
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
      testCase(Operation::Reduce, c);
      c.dest = Kind::I4;
      testCase(Operation::ReduceQuantize, c);
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
      testCase(Operation::Quantize, c);
    }
    Case c{map, Kind::I4, Kind::I4};
    c.data = Data::CloseScales;
    for (auto [sources, source] : {std::pair(2, Kind::I4),
                                   {3, Kind::I4},
                                   {4, Kind::I4},
                                   {2, Kind::I8}}) {
      c.source = source;
      c.sources = sources;
      testCase(Operation::ReduceQuantize, c);
    }
    c.source = Kind::I4;
    c.dest = Kind::BF16;
    c.map.chunkFactors.clear();
    c.rotate = kRotation;
    testCase(Operation::Reduce, c);
  }
}

/// More chunks than one dim of a grid has.
void testManyChunks() {
  SliceMap map = makeMap(1, {70000}, 1, 32, {0});
  for (auto [operation, source, dest] :
       {Row{Operation::Quantize, Kind::BF16, Kind::I4},
        {Operation::QuantizeDifference, Kind::BF16, Kind::I4},
        {Operation::Dequantize, Kind::I8, Kind::BF16},
        {Operation::DequantizeAdd, Kind::I8, Kind::BF16},
        {Operation::ReduceQuantize, Kind::I4, Kind::I8}}) {
    Case c{map, source, dest};
    c.destBlock = 32;
    c.sources = 2;
    testCase(operation, c);
  }
  testCase(Operation::Quantize,
           {makeMap(1, {70000}, 1, 3, {0}), Kind::F16, Kind::F16});
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

constexpr cudaError_t kInvalid = cudaErrorInvalidValue;
constexpr cudaError_t kMisaligned = cudaErrorMisalignedAddress;

/// Expects an error of a step that is changed.
template <typename Change>
void refuse(const std::string &what, cudaError_t error, Step step,
            const Change &change) {
  change(step);
  expectError(error, step.launch(), what);
}

void testErrors() {
  Buffer memory(1 << 20, 0);
  auto makeSide = [&](Kind kind) {
    return Side{kind, memory.deviceData(), 4, 1 << 12, 128};
  };
  auto make = [&](Operation operation, Kind source, Kind dest) {
    SliceMap map = operation == Operation::Reduce
                       ? makeMap(1, {}, 512, 1, {})
                       : makeMap(1, {2, 4}, 16, 16, {1});
    return Step{operation, map, makeSide(source), makeSide(dest),
                makeSide(isFromTensor(operation) ? source : dest)};
  };
  for (auto [operation, source, dest] : makeAllRows())
    if (!isSupported({operation, source, dest}))
      expectError(kInvalid, make(operation, source, dest).launch(),
                  std::string(str(operation)) + " " + str(source) + " -> " +
                      str(dest));

  const Step quantizes = make(Operation::Quantize, Kind::BF16, Kind::I8);
  const Step dequantizes = make(Operation::Dequantize, Kind::I8, Kind::F32);
  const Step reduces = make(Operation::Reduce, Kind::I8, Kind::F32);
  const Step requantizes = make(Operation::ReduceQuantize, Kind::I8, Kind::I8);
  const Step subtracts =
      make(Operation::QuantizeDifference, Kind::BF16, Kind::I8);
  const Step adds = make(Operation::DequantizeAdd, Kind::I8, Kind::BF16);
  for (int64_t block : {-128, 0, 1, 16, 48, 100, 4096}) {
    std::string what = "block " + std::to_string(block);
    for (const Step &step : {quantizes, requantizes})
      refuse(what, kInvalid, step, [&](Step &s) { s.dest.block = block; });
    for (const Step &step : {dequantizes, reduces, requantizes})
      refuse(what, kInvalid, step, [&](Step &s) { s.source.block = block; });
  }

  // Rotations: none but those of the format, none between two hops, and none of
  // differences.
  refuse("groups of 64", kInvalid, quantizes,
         [](Step &s) { s.dest.rotate = 64; });
  for (const Step &step : {requantizes, subtracts})
    refuse("rotated destination", kInvalid, step,
           [](Step &s) { s.dest.rotate = kRotation; });
  for (const Step &step : {requantizes, adds})
    refuse("rotated source", kInvalid, step,
           [](Step &s) { s.source.rotate = kRotation; });

  for (const Step &step : {subtracts, adds}) {
    refuse("types of a difference", kInvalid, step,
           [](Step &s) { s.held.kind = Kind::F16; });
    refuse("misaligned held tensor", kMisaligned, step,
           [](Step &s) { s.held.data += 1; });
  }

  // Counts, strides, alignment.
  refuse("count", kInvalid, quantizes, [](Step &s) { s.dest.count = 3; });
  refuse("no sources", kInvalid, reduces, [](Step &s) { s.source.count = 0; });
  refuse("short stride", kInvalid, quantizes,
         [](Step &s) { s.dest.stride = 256; });
  refuse("misaligned stride", kMisaligned, quantizes,
         [](Step &s) { s.dest.stride += 8; });
  refuse("misaligned chunks", kMisaligned, quantizes,
         [](Step &s) { s.dest.data += 8; });
  refuse("misaligned chunks of elements", kMisaligned,
         make(Operation::Quantize, Kind::BF16, Kind::BF16),
         [](Step &s) { s.dest.data += 1; });
  refuse("misaligned tensor", kMisaligned, quantizes,
         [](Step &s) { s.source.data += 1; });
  refuse("misaligned tensor", kMisaligned, dequantizes,
         [](Step &s) { s.dest.data += 2; });

  // Maps and divisors.
  refuse("chunk factor", kInvalid, quantizes,
         [](Step &s) { s.map.chunkFactors = {2}; });
  refuse("nine factors", kInvalid, quantizes, [](Step &s) {
    s.map = makeMap(1, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 16, 1, {});
    s.dest.count = 1;
  });
  refuse("reduce to several chunks", kInvalid, reduces,
         [&](Step &s) { s.map = quantizes.map; });
  for (float divisor : {0.0f, -1.0f, NAN, INFINITY})
    refuse("divisor", kInvalid, reduces,
           [&](Step &s) { s.reduction.divisor = divisor; });

  // None of this has launched anything or left an error.
  expectError(cudaSuccess, cudaDeviceSynchronize(), "after the errors");
  expectError(cudaSuccess, cudaGetLastError(), "after the errors");
}

//===----------------------------------------------------------------------===//
// Several steps
//===----------------------------------------------------------------------===//

/// Steps that send differences: what is held of a tensor follows it, with the
/// same bits wherever it is held, and does not drift away.
void testManyDifferences() {
  SliceMap map = makeMap(1, {2, 3}, 40, 32, {1});
  int64_t elements = tensorElements(map);
  Operand tensor = Operand::tensor(Kind::BF16, elements);
  Operand own = Operand::tensor(Kind::BF16, elements);
  Operand others = Operand::tensor(Kind::BF16, elements);
  Operand sent =
      Operand::chunks(Kind::I4, map.numChunks(), map.elementsPerChunk(), 128);
  const TwinStep steps[] = {
      {Operation::QuantizeDifference, map, tensor, sent, own},
      {Operation::DequantizeAdd, map, sent, own, own},
      {Operation::DequantizeAdd, map, sent, others, others}};
  std::vector<float> weights(elements);
  for (float &weight : weights)
    weight = gauss(1.0f);
  auto writeWeights = [&](Operand &to) {
    for (int64_t i = 0; i < elements; ++i)
      writeElement(ElementType::BF16, weights[i], to.host.data, i);
    to.buffer.upload();
  };
  writeWeights(own);
  writeWeights(others);
  sent.buffer.upload();
  for (int round = 0; round < 100; ++round) {
    for (float &weight : weights)
      weight += gauss(1e-3f);
    writeWeights(tensor);
    for (const TwinStep &step : steps)
      step.run("step");
  }
  own.buffer.compare("what the owner holds after 100 steps");
  others.buffer.compare("what others hold after 100 steps");
  double error = 0;
  for (int64_t i = 0; i < elements; ++i)
    error = std::max<double>(
        error, std::fabs(readElement(ElementType::BF16, own.host.data, i) -
                         readElement(ElementType::BF16, tensor.host.data, i)));
  ++numChecks;
  // A step of i4 of the last difference, and one of bf16.
  if (error > 0.05)
    fail("expected differences without drift, but got " +
         std::to_string(error));
}

/// The steps of a reduce-scatter over two hops, and of a gather.
class Chain {
public:
  Chain(int64_t unit, int64_t inner, int64_t chunks, int64_t misalignment = 0)
      : elements(2 * chunks * unit * inner),
        tensor(Operand::tensor(Kind::BF16, elements, misalignment)),
        hop1(Operand::chunks(Kind::I8, chunks, 2 * unit * inner, 128)),
        hop2(Operand::chunks(Kind::I4, 2, unit * inner, 64)),
        result(Operand::tensor(Kind::F32, unit * inner)),
        gathered(Operand::tensor(Kind::BF16, elements, misalignment)) {
    SliceMap whole = makeMap(1, {2, chunks}, unit, inner, {1});
    SliceMap partial = makeMap(1, {2}, unit, inner, {0});
    SliceMap shard = makeMap(1, {}, unit, inner, {});
    steps = {{Operation::Quantize, whole, tensor, hop1},
             {Operation::ReduceQuantize, partial, hop1, hop2},
             {Operation::Reduce, shard, hop2, result, Reduction{8.0f}},
             {Operation::Dequantize, whole, hop1, gathered}};
    fillTensor(tensor.host.data, ElementType::BF16, elements, Data::Normal);
    for (Operand *each : {&tensor, &hop1, &hop2, &result, &gathered})
      each->buffer.upload();
  }

  /// Compares the results of all steps with the reference.
  void compare(const std::string &title) {
    for (const TwinStep &step : steps)
      step.refer();
    std::string what = title + ": " + std::to_string(elements) + " elements: ";
    hop1.buffer.compare(what + "quantize");
    hop2.buffer.compare(what + "reduce-quantize");
    result.buffer.compare(what + "reduce");
    gathered.buffer.compare(what + "dequantize");
  }

  std::vector<TwinStep> steps;

private:
  int64_t elements;
  Operand tensor, hop1, hop2, result, gathered;
};

/// Kernels that follow each other become one launch if they are the same, and
/// give the same results as separate launches: large and small tensors, aligned
/// and not, more than kMaxBatch, different numbers of chunks.
void testBatches() {
  std::deque<Chain> all;
  all.emplace_back(64, 1, 2);
  all.emplace_back(512, 96, 2);
  all.emplace_back(16, 64, 2);
  all.emplace_back(33, 7, 2, /*misalignment=*/1);
  for (int64_t rows = 1; rows <= 2 * kMaxBatch + 1; ++rows)
    all.emplace_back(rows, 128, 2);
  all.emplace_back(16, 64, 4);
  all.emplace_back(16, 64, 2);
  cudaStream_t stream;
  checkCuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  Launches launches;
  launches.setStream(stream);
  for (size_t step = 0; step < all.front().steps.size(); ++step) {
    for (Chain &chain : all)
      chain.steps[step].launch("batch", launches);
    expectError(cudaSuccess, launches.flush(), "flush of a batch");
  }
  checkCuda(cudaStreamSynchronize(stream), "batches");
  checkCuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  for (Chain &chain : all)
    chain.compare("batch");
}

/// Everything can be captured, and replays of the graph give the same results.
void testGraph() {
  Chain chain(16, 32, 4);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  checkCuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  checkCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
            "capture");
  for (const TwinStep &step : chain.steps)
    step.launch("captured step", stream);
  checkCuda(cudaStreamEndCapture(stream, &graph), "end of capture");
  checkCuda(cudaGraphInstantiate(&executable, graph, 0), "instantiate");
  for (int replay = 0; replay < 2; ++replay) {
    checkCuda(cudaGraphLaunch(executable, stream), "replay");
    checkCuda(cudaStreamSynchronize(stream), "replay");
    chain.compare("graph");
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
  explicit LargeTest(const SliceMap &map)
      : map(map), elements(tensorElements(map)), pattern(kPeriod * 2) {
    fillTensor(pattern.data(), ElementType::BF16, kPeriod, Data::Normal);
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
    Side input{Kind::BF16, tensor};
    Side copy{Kind::BF16, allocate(elements * 2)};
    Side chunks = makeChunks(map.numChunks(), map.elementsPerChunk());
    launch("large quantize", {Operation::Quantize, map, input, chunks});
    checkBlocks("large quantize", chunks, [&](int64_t index) {
      return readElement(ElementType::BF16, pattern.data(), index % kPeriod);
    });
    launch("large dequantize", {Operation::Dequantize, map, chunks, copy});
    checkElements("large dequantize", map, copy, [&](int64_t c, int64_t e) {
      return decodeAt(chunks.data + c * chunks.stride, map.elementsPerChunk(),
                      e);
    });

    // Two equal sources.
    SliceMap identity = makeMap(1, {}, elements, 1, {});
    Side sources = makeChunks(2, elements);
    for (int64_t s = 0; s < 2; ++s) {
      Side one = sources;
      one.data += s * sources.stride;
      one.count = 1;
      launch("large source", {Operation::Quantize, identity, input, one});
    }
    auto sumAt = [&](int64_t index) {
      return 2 * decodeAt(sources.data, elements, index);
    };
    launch("large reduce-quantize",
           {Operation::ReduceQuantize, map, sources, chunks});
    checkBlocks("large reduce-quantize", chunks, sumAt);
    launch("large reduce", {Operation::Reduce, identity, sources, copy});
    checkElements("large reduce", identity, copy,
                  [&](int64_t, int64_t e) { return sumAt(e); });
  }

private:
  static constexpr int64_t kPeriod = 16777213; // prime
  static constexpr int64_t kBlock = 256;
  static constexpr int kSamples = 300;
  static constexpr WireFormat kFormat = WireFormat::I4;

  uint8_t *allocate(int64_t bytes) {
    void *memory;
    checkCuda(cudaMalloc(&memory, bytes), "cudaMalloc");
    checkCuda(cudaMemset(memory, kPoison, bytes), "cudaMemset");
    allocations.push_back(memory);
    return static_cast<uint8_t *>(memory);
  }
  Side makeChunks(int64_t count, int64_t perChunk) {
    int64_t stride = getChunkLayout(perChunk, kFormat, kBlock).chunkBytes;
    return {Kind::I4, allocate(count * stride), count, stride, kBlock};
  }
  static void download(void *host, const void *device, int64_t bytes) {
    checkCuda(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost),
              "download");
  }
  static void launch(const char *what, const Step &step) {
    expectError(cudaSuccess, step.launch(), what);
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
  /// Element `e` of a chunk of so many.
  static float decodeAt(const uint8_t *chunk, int64_t perChunk, int64_t e) {
    int64_t scales = getChunkLayout(perChunk, kFormat, kBlock).scalesOffset;
    uint8_t byte;
    uint16_t scale;
    download(&byte, chunk + e / 2, 1);
    download(&scale, chunk + scales + 2 * (e / kBlock), 2);
    return decodeValue(unpackNibble(byte, e % 2), floatOfBF16Bits(scale));
  }

  /// Expects elements of a tensor that was written in the order `order`.
  static void
  checkElements(const char *what, const SliceMap &order, const Side &result,
                const std::function<float(int64_t, int64_t)> &valueAt) {
    for (int i = 0; i < kSamples; ++i) {
      int64_t c = pick(order.numChunks());
      int64_t e = sample(i, order.elementsPerChunk());
      int64_t index = order.tensorIndex(c, e);
      if (index < 0)
        continue;
      uint8_t expected[2], got[2];
      writeElement(ElementType::BF16, valueAt(c, e), expected, 0);
      download(got, result.data + 2 * index, 2);
      check(what, std::memcmp(expected, got, 2) == 0, e);
    }
  }

  /// Expects blocks of chunks of a tensor.
  void checkBlocks(const char *what, const Side &chunks,
                   const std::function<float(int64_t)> &valueOf) {
    ChunkLayout layout =
        getChunkLayout(map.elementsPerChunk(), kFormat, kBlock);
    for (int i = 0; i < kSamples / 10; ++i) {
      int64_t c = pick(chunks.count);
      int64_t block = sample(i, layout.blocks);
      int64_t begin = block * kBlock;
      int64_t count = std::min(kBlock, layout.elements - begin);
      std::vector<float> values(count, 0.0f);
      for (int64_t e = 0; e < count; ++e)
        if (int64_t index = map.tensorIndex(c, begin + e); index >= 0)
          values[e] = valueOf(index);
      ChunkLayout small = getChunkLayout(count, kFormat, kBlock);
      std::vector<uint8_t> expected(small.chunkBytes), got(small.chunkBytes);
      quantizeChunk(values.data(), count, kFormat, kBlock, expected.data());
      const uint8_t *chunk = chunks.data + c * chunks.stride;
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

class Matrix : public Kernels, public testing::WithParamInterface<Row> {};

TEST_P(Matrix, Row) {
  bool quick = mode == Mode::Quick;
  std::vector<SliceMap> maps = makeMaps(quick);
  // Rows of one operation differ in what is free.
  auto [operation, source, dest] = GetParam();
  rng.seed(static_cast<int>(operation) * 100 + static_cast<int>(source) * 10 +
           static_cast<int>(dest));
  testMaps(GetParam(), maps, quick);
  if (!quick)
    testData(GetParam());
}

std::string describeRow(const testing::TestParamInfo<Row> &info) {
  return std::string(str(info.param.operation)) + "_" + str(info.param.source) +
         "_" + str(info.param.dest);
}
INSTANTIATE_TEST_SUITE_P(Support, Matrix,
                         testing::ValuesIn(makeSupportedRows()), describeRow);

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
