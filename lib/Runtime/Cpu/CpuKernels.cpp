//===- CpuKernels.cpp - Local operations on the host ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CpuRank.h"

#include "zpp/Support/Float16.h"
#include "zpp/Support/QuantReference.h"

#include <algorithm>
#include <cstring>

using namespace zpp;
using namespace zpp::rt;

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

/// Cuts a chunk into runs that lie together in the tensor, and calls
/// visit(element of the chunk, index in the tensor, count) for each; the index
/// is -1 where it is padding.
template <typename Visitor>
static void forEachRun(const SliceMap &map, int64_t chunk,
                       const Visitor &visit) {
  int64_t part = map.partSize();
  int64_t run = part * map.inner;
  for (int64_t begin = 0, e = map.elementsPerChunk(); begin < e; begin += run) {
    int64_t index = map.tensorIndex(chunk, begin);
    int64_t present = 0;
    if (index >= 0) {
      int64_t row = index / map.inner % map.extent;
      present = std::min(part, map.extent - row) * map.inner;
      visit(begin, index, present);
    }
    if (present < run)
      visit(begin + present, int64_t(-1), run - present);
  }
}

/// Reads chunk `chunk` of a tensor as f32.
static void gatherChunk(ElementType type, const void *tensor,
                        const SliceMap &map, int64_t chunk, float *values) {
  forEachRun(map, chunk, [&](int64_t element, int64_t index, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      values[element + i] =
          index < 0 ? 0.0f : readElement(type, tensor, index + i);
  });
}

static void compute(const PackOperation &operation, const void *input,
                    const void *, void *output) {
  const SliceMap &map = operation.slices;
  const Footprint &footprint = operation.footprint;
  int64_t bytes = operation.elementBytes;
  for (int64_t chunk = 0, e = map.numChunks(); chunk < e; ++chunk)
    forEachRun(map, chunk, [&](int64_t element, int64_t index, int64_t count) {
      int64_t inTensor = index * bytes, inChunk = element * bytes;
      if (!operation.isUnpack) {
        uint8_t *dest =
            bytesAt(output, chunk * footprint.output.stride + inChunk);
        if (index < 0)
          std::memset(dest, 0, count * bytes);
        else
          std::memcpy(dest, bytesAt(input, inTensor), count * bytes);
      } else if (index >= 0) {
        std::memcpy(bytesAt(output, inTensor),
                    bytesAt(input, chunk * footprint.input.stride + inChunk),
                    count * bytes);
      }
    });
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

static void quantize(const QuantizeOperation &operation, const void *input,
                     const void *held, void *output) {
  const SliceMap &map = operation.slices;
  const Wire &wire = operation.wire;
  int64_t elements = map.elementsPerChunk();
  std::vector<float> values(elements), others(held ? elements : 0);
  for (int64_t chunk = 0, e = map.numChunks(); chunk < e; ++chunk) {
    gatherChunk(operation.type, input, map, chunk, values.data());
    if (held) {
      gatherChunk(operation.type, held, map, chunk, others.data());
      std::transform(values.begin(), values.end(), others.begin(),
                     values.begin(), subtractHeld);
    }
    if (wire.isRotated)
      rotateChunk(values.data(), elements, Rotation::Forward);
    quantizeChunk(values.data(), elements, wire.format, wire.block,
                  bytesAt(output, chunk * operation.footprint.output.stride));
  }
}

static void dequantize(const QuantizeOperation &operation, const void *input,
                       const void *held, void *output) {
  const SliceMap &map = operation.slices;
  const Wire &wire = operation.wire;
  int64_t elements = map.elementsPerChunk();
  std::vector<float> values(elements), others(held ? elements : 0);
  for (int64_t chunk = 0, e = map.numChunks(); chunk < e; ++chunk) {
    dequantizeChunk(bytesAt(input, chunk * operation.footprint.input.stride),
                    elements, wire.format, wire.block, values.data());
    if (wire.isRotated)
      rotateChunk(values.data(), elements, Rotation::Back);
    if (held) {
      gatherChunk(operation.type, held, map, chunk, others.data());
      std::transform(others.begin(), others.end(), values.begin(),
                     values.begin(), addHeld);
    }
    forEachRun(map, chunk, [&](int64_t element, int64_t index, int64_t count) {
      for (int64_t i = 0; i < count && index >= 0; ++i)
        writeElement(operation.type, values[element + i], output, index + i);
    });
  }
}

static void compute(const QuantizeOperation &operation, const void *input,
                    const void *held, void *output) {
  (operation.isDequantize ? dequantize : quantize)(operation, input, held,
                                                   output);
}

//===----------------------------------------------------------------------===//
// Reduction
//===----------------------------------------------------------------------===//

/// dest[i] = values[i], rounded.
static void narrow(ElementType type, const std::vector<float> &values,
                   void *dest) {
  for (size_t i = 0; i < values.size(); ++i)
    writeElement(type, values[i], dest, i);
}

/// The sum or mean in f32.
static std::vector<float> reduceToFloat(const ReduceOperation &operation,
                                        const void *input) {
  std::vector<float> sum(operation.elements, 0.0f);
  if (operation.wire.format != WireFormat::None) {
    dequantizeReduceChunks(bytesAt(input, 0), operation.sources,
                           operation.footprint.input.stride, operation.elements,
                           operation.wire.format, operation.wire.block,
                           sum.data());
  } else {
    for (int64_t s = 0; s < operation.sources; ++s)
      for (int64_t i = 0; i < operation.elements; ++i)
        sum[i] += readElement(
            operation.sourceType,
            bytesAt(input, s * operation.footprint.input.stride), i);
  }
  if (operation.isMean)
    for (float &value : sum)
      value /= static_cast<float>(operation.sources);
  if (operation.wire.isRotated)
    rotateChunk(sum.data(), operation.elements, Rotation::Back);
  return sum;
}

static void compute(const ReduceOperation &operation, const void *input,
                    const void *, void *output) {
  std::vector<float> sum = reduceToFloat(operation, input);
  narrow(operation.type, sum, output);
}

static void compute(const ReduceQuantizeOperation &operation, const void *input,
                    const void *held, void *output) {
  std::vector<float> sum = reduceToFloat(operation.reduce, input);
  std::vector<uint8_t> partial(operation.reduce.elements *
                               elementBytes(operation.reduce.type));
  narrow(operation.reduce.type, sum, partial.data());
  QuantizeOperation last{};
  last.type = operation.reduce.type;
  last.wire = operation.to;
  last.slices = operation.slices;
  last.footprint.output = operation.footprint.output;
  quantize(last, partial.data(), held, output);
}

void rt::computeOnCpu(LocalOperation operation, const void *input,
                      const void *held, void *output) {
  std::visit([&](auto *one) { compute(*one, input, held, output); }, operation);
}
