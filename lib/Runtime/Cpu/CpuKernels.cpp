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

/// Calls `visit(element, index, count)` for each run of a chunk.
template <typename Visitor>
static void forEachRun(const SliceMap &map, int64_t chunk,
                       const Visitor &visit) {
  for (int64_t element = 0, e = map.elementsPerChunk(); element < e;) {
    Run run = getRun(map, chunk, element);
    visit(element, run.index, run.count);
    element += run.count;
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

/// dest[begin + i] = values[i], rounded.
static void narrow(ElementType type, const float *values, int64_t count,
                   void *dest, int64_t begin) {
  for (int64_t i = 0; i < count; ++i)
    writeElement(type, values[i], dest, begin + i);
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
      if (index >= 0)
        narrow(operation.type, values.data() + element, count, output, index);
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
  narrow(operation.type, sum.data(), operation.elements, output, 0);
}

static void compute(const ReduceQuantizeOperation &operation, const void *input,
                    const void *held, void *output) {
  std::vector<float> sum = reduceToFloat(operation.reduce, input);
  std::vector<uint8_t> partial(operation.reduce.elements *
                               elementBytes(operation.reduce.type));
  narrow(operation.reduce.type, sum.data(), operation.reduce.elements,
         partial.data(), 0);
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
