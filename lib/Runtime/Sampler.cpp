//===- Sampler.cpp - Samples of what operations quantize ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sampler.h"

#include "zpp/Support/Float16.h"
#include "zpp/Support/QuantReference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace zpp;
using namespace zpp::rt;

/// Elements of a sample, and of all its sources together.
static constexpr int64_t kMostElements = 2048;
static constexpr int64_t kMostOfSources = 1 << 14;
/// A tensor that is cut finer is sampled in fewer elements.
static constexpr size_t kMostRuns = 8;
/// The samples between two waits of a rank.
static constexpr int64_t kRoom = 16 << 20;

static int64_t align(int64_t bytes) { return (bytes + 15) / 16 * 16; }

/// A number that looks random (splitmix64).
static uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

/// Returns the value of code `code` of `codes` with scale `scale` of `scales`.
static float decode(WireFormat format, const uint8_t *codes, int64_t index,
                    const uint8_t *scales, int64_t scale) {
  uint16_t bits;
  std::memcpy(&bits, scales + 2 * scale, sizeof(bits));
  return decodeValue(loadCode(codes, index, format), floatOfBF16Bits(bits));
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

/// Returns the runs of `count` elements of a chunk, of the first of them if
/// there are many, by their places among these elements.
static std::vector<Run> getRuns(const SliceMap &map, int64_t chunk,
                                int64_t begin, int64_t count) {
  std::vector<Run> runs;
  for (int64_t done = 0; done < count;) {
    Run run = getRun(map, chunk, begin + done);
    run.element = done;
    run.count = std::min(run.count, count - done);
    bool follows = !runs.empty() && run.index >= 0 && runs.back().index >= 0 &&
                   runs.back().index + runs.back().count == run.index;
    if (follows)
      runs.back().count += run.count;
    else if (runs.size() == kMostRuns)
      break;
    else
      runs.push_back(run);
    done += run.count;
  }
  return runs;
}

bool Sampler::choose(const SliceMap &map, int64_t rank, int64_t most,
                     int64_t &chunk, int64_t &begin, Sample &sample) {
  int64_t elements = map.elementsPerChunk();
  if (elements == 0 || map.extent == 0)
    return false;
  int64_t block = sample.wire.block;
  uint64_t number = mix(mix(static_cast<uint64_t>(rank)) + numTaken++);
  chunk = static_cast<int64_t>(number % map.numChunks());
  int64_t blocks = (elements + block - 1) / block;
  begin = static_cast<int64_t>(mix(number) % blocks) * block;
  // All of it may be padding; the first element is not.
  if (map.tensorIndex(chunk, begin) < 0)
    chunk = begin = 0;
  int64_t count = std::min(most, elements - begin);
  sample.runs = getRuns(map, chunk, begin, count);
  count = sample.runs.back().element + sample.runs.back().count;
  // The groups of a rotation are whole, but for the last elements of a chunk.
  if (sample.wire.isRotated && begin + count < elements)
    count = count / kRotation * kRotation;
  while (!sample.runs.empty() && sample.runs.back().element >= count)
    sample.runs.pop_back();
  if (sample.runs.empty())
    return false;
  sample.runs.back().count = count - sample.runs.back().element;
  sample.runs.erase(
      std::remove_if(sample.runs.begin(), sample.runs.end(),
                     [](const Run &run) { return run.index < 0; }),
      sample.runs.end());
  sample.elements = count;
  return true;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

static Operation makeCopy(const Pieces &from, const Pieces &to) {
  static const auto name =
      std::make_shared<const OperationName>("measure", nullptr);
  return {name, {from, to}};
}

bool Sampler::reserve(RankBackend &backend, int64_t size) {
  if (!memory && !backend.allocate(kRoom, memory).ok())
    memory = nullptr; // Measuring must not end a training.
  return memory && used + size <= kRoom;
}

Status Sampler::copy(RankBackend &backend, const void *source, int64_t rows,
                     int64_t rowBytes, int64_t stride, int64_t to) {
  return backend.copy(
      makeCopy({rows, rowBytes, stride}, {rows, rowBytes, rowBytes}), source,
      bytesAt(memory, to));
}

Status Sampler::add(RankBackend &backend, const void *output,
                    const Pieces &chunks, int64_t elementsPerChunk,
                    int64_t chunk, int64_t begin, Sample sample) {
  const uint8_t *base = bytesAt(output, chunk * chunks.stride);
  WireFormat format = sample.wire.format;
  int64_t block = sample.wire.block;
  ZPP_RT_TRY(copy(backend, base + codeBytes(format, begin), 1,
                  codeBytes(format, sample.elements), 0, sample.codes));
  int64_t scales = getChunkLayout(elementsPerChunk, format, block).scalesOffset;
  int64_t blocks = (sample.elements + block - 1) / block;
  ZPP_RT_TRY(copy(backend, base + scales + 2 * (begin / block), 1, 2 * blocks,
                  0, sample.scales));
  samples.push_back(std::move(sample));
  return {};
}

bool Sampler::place(Measures &measures, RankBackend &backend, Sample &sample,
                    int64_t inputBytes) {
  sample.input = used;
  sample.codes = used + inputBytes;
  sample.scales =
      sample.codes + align(codeBytes(sample.wire.format, sample.elements));
  int64_t end =
      sample.scales + align(2 * (sample.elements / sample.wire.block + 1));
  if (reserve(backend, end - used)) {
    used = end;
    return true;
  }
  Measure leftOut;
  leftOut.leftOut = 1;
  measures.add(sample.start, {sample.name->label, sample.wire.format}, leftOut);
  return false;
}

Status Sampler::take(Measures &measures, RankBackend &backend, int64_t rank,
                     LocalOperation operation, const void *input,
                     const void *held, const void *output) {
  if (!measures.isOn() || !backend.canMeasure())
    return {};
  if (auto *quantize = std::get_if<const QuantizeOperation *>(&operation);
      quantize && !(*quantize)->isDequantize)
    return take(measures, backend, rank, **quantize, input, held, output);
  if (auto *last = std::get_if<const ReduceQuantizeOperation *>(&operation))
    return take(measures, backend, rank, **last, input, output);
  return {};
}

Status Sampler::take(Measures &measures, RankBackend &backend, int64_t rank,
                     const QuantizeOperation &operation, const void *input,
                     const void *held, const void *output) {
  Sample sample{operation.name, measures.getNumStarts(), operation.type,
                operation.wire};
  int64_t chunk, begin;
  if (!choose(operation.slices, rank, kMostElements, chunk, begin, sample))
    return {};
  int64_t size = elementBytes(operation.type);
  int64_t inputBytes = align(sample.elements * size);
  if (held)
    sample.held = used + inputBytes;
  if (!place(measures, backend, sample, (held ? 2 : 1) * inputBytes))
    return {};
  for (const Run &run : sample.runs)
    for (auto [source, to] :
         {std::pair(input, sample.input), std::pair(held, sample.held)}) {
      if (source)
        ZPP_RT_TRY(copy(backend, bytesAt(source, run.index * size), 1,
                        run.count * size, 0, to + run.element * size));
    }
  return add(backend, output, operation.footprint.output,
             operation.slices.elementsPerChunk(), chunk, begin,
             std::move(sample));
}

/// The codes and scales of a run in a source: where they begin, their numbers.
namespace {
struct Part {
  Part(const Wire &wire, int64_t index, int64_t count)
      : begin(index / 2 * 2), firstBlock(index / wire.block),
        codes(codeBytes(wire.format, index + count - begin)),
        scales(2 * ((index + count - 1) / wire.block - firstBlock + 1)) {}

  /// The first element whose code is copied, which begins a byte.
  int64_t begin;
  int64_t firstBlock;
  int64_t codes;
  int64_t scales;
};
} // namespace

Status Sampler::take(Measures &measures, RankBackend &backend, int64_t rank,
                     const ReduceQuantizeOperation &operation,
                     const void *input, const void *output) {
  const ReduceOperation &reduce = operation.reduce;
  Sample sample{operation.name, measures.getNumStarts(), reduce.type,
                operation.to};
  sample.sources = reduce.sources;
  sample.isMean = reduce.isMean;
  sample.from = reduce.wire;
  int64_t chunk, begin;
  int64_t most = std::clamp<int64_t>(kMostOfSources / reduce.sources, kRotation,
                                     kMostElements);
  if (!choose(operation.slices, rank, most, chunk, begin, sample))
    return {};
  int64_t inputBytes = 0;
  for (const Run &run : sample.runs) {
    Part part(sample.from, run.index, run.count);
    inputBytes += align(sample.sources * part.codes);
    inputBytes += align(sample.sources * part.scales);
  }
  if (!place(measures, backend, sample, inputBytes))
    return {};
  int64_t to = sample.input;
  int64_t stride = reduce.footprint.input.stride;
  ChunkLayout from =
      getChunkLayout(reduce.elements, sample.from.format, sample.from.block);
  for (const Run &run : sample.runs) {
    Part part(sample.from, run.index, run.count);
    ZPP_RT_TRY(copy(backend,
                    bytesAt(input, codeBytes(sample.from.format, part.begin)),
                    sample.sources, part.codes, stride, to));
    to += align(sample.sources * part.codes);
    ZPP_RT_TRY(copy(backend,
                    bytesAt(input, from.scalesOffset + 2 * part.firstBlock),
                    sample.sources, part.scales, stride, to));
    to += align(sample.sources * part.scales);
  }
  return add(backend, output, operation.footprint.output,
             operation.slices.elementsPerChunk(), chunk, begin,
             std::move(sample));
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

std::vector<float> Sampler::readInput(const Sample &sample) const {
  std::vector<float> values(sample.elements, 0.0f);
  for (const Run &run : sample.runs)
    for (int64_t i = run.element; i < run.element + run.count; ++i)
      values[i] = readElement(sample.type, bytes.data() + sample.input, i);
  return values;
}

std::vector<float> Sampler::readSum(const Sample &sample) const {
  std::vector<float> values(sample.elements, 0.0f);
  int64_t from = sample.input;
  for (const Run &run : sample.runs) {
    Part part(sample.from, run.index, run.count);
    const uint8_t *codes = bytes.data() + from;
    from += align(sample.sources * part.codes);
    const uint8_t *scales = bytes.data() + from;
    from += align(sample.sources * part.scales);
    for (int64_t i = 0; i < run.count; ++i) {
      int64_t index = run.index + i;
      float sum = 0.0f;
      for (int64_t source = 0; source < sample.sources; ++source)
        sum += decode(sample.from.format, codes + source * part.codes,
                      index - part.begin, scales + source * part.scales,
                      index / sample.from.block - part.firstBlock);
      if (sample.isMean)
        sum /= static_cast<float>(sample.sources);
      values[run.element + i] = roundTo(sample.type, sum);
    }
  }
  return values;
}

Measure Sampler::compare(const Sample &sample) const {
  const uint8_t *codes = bytes.data() + sample.codes;
  const uint8_t *scales = bytes.data() + sample.scales;
  std::vector<float> values =
      sample.sources > 0 ? readSum(sample) : readInput(sample);
  std::vector<float> received(sample.elements);
  for (int64_t i = 0; i < sample.elements; ++i)
    received[i] =
        decode(sample.wire.format, codes, i, scales, i / sample.wire.block);
  if (sample.wire.isRotated)
    rotateChunk(received.data(), sample.elements, Rotation::Back);
  if (sample.held >= 0)
    for (const Run &run : sample.runs)
      for (int64_t i = run.element; i < run.element + run.count; ++i)
        received[i] =
            addHeld(readElement(sample.type, bytes.data() + sample.held, i),
                    received[i]);
  // Nobody gets what is padded.
  std::vector<bool> isPadded(sample.elements, true);
  for (const Run &run : sample.runs)
    std::fill_n(isPadded.begin() + run.element, run.count, false);
  Measure measure;
  measure.samples = 1;
  for (int64_t begin = 0; begin < sample.elements; begin += sample.wire.block) {
    int64_t end = std::min(begin + sample.wire.block, sample.elements);
    bool isFinite =
        std::all_of(values.begin() + begin, values.begin() + end,
                    [](float value) { return std::isfinite(value); });
    uint16_t scale;
    std::memcpy(&scale, scales + 2 * (begin / sample.wire.block),
                sizeof(scale));
    // A value that is not finite makes all of its block NaN. That is not the
    // format's doing; it may stand beyond the sample, too, but a block without
    // one is NaN only where its rotation has overflowed.
    bool isWhole = end - begin == sample.wire.block;
    bool isOverflow = sample.wire.isRotated && isWhole;
    if (!isFinite || (std::isnan(floatOfBF16Bits(scale)) && !isOverflow))
      continue;
    for (int64_t i = begin; i < end; ++i) {
      if (isPadded[i])
        continue;
      float value =
          sample.sources > 0 ? received[i] : roundTo(sample.type, received[i]);
      ++measure.elements;
      if (!std::isfinite(value)) {
        ++measure.notFinite;
        continue;
      }
      double error = static_cast<double>(value) - values[i];
      measure.squaredError += error * error;
      measure.squared += static_cast<double>(values[i]) * values[i];
    }
  }
  return measure;
}

Status Sampler::collect(Measures &measures, RankBackend &backend) {
  if (!memory)
    return {};
  bytes.resize(used);
  if (used > 0) {
    ZPP_RT_TRY(backend.copy(makeCopy(used, used), memory, bytes.data()));
    ZPP_RT_TRY(backend.synchronize());
  }
  for (const Sample &sample : samples)
    measures.add(sample.start, {sample.name->label, sample.wire.format},
                 compare(sample));
  samples.clear();
  bytes.clear();
  used = 0;
  if (measures.isOn())
    return {};
  void *freed = memory;
  memory = nullptr;
  return backend.free(freed);
}
