//===- HostReference.h - What kernels must compute --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The operations of zpp/kernels/Kernels.h on host memory, element by element,
// using BlockQuant.h, QuantReference.h and SliceMap.h.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_TEST_HOSTREFERENCE_H
#define ZPP_KERNELS_TEST_HOSTREFERENCE_H

#include "zpp/Support/Float16.h"
#include "zpp/Support/QuantReference.h"
#include "zpp/kernels/Kernels.h"

#include <cstring>
#include <vector>

namespace zpp::kernels::reference {

/// Copies all bits of element `from` of `source` to element `to` of `dest`.
inline void copyElement(ElementType type, uint8_t *dest, int64_t to,
                        const uint8_t *source, int64_t from) {
  int64_t bytes = elementBytes(type);
  std::memcpy(dest + to * bytes, source + from * bytes, bytes);
}

inline int64_t chunkBytes(int64_t elements, WireFormat format, int64_t block,
                          ElementType type) {
  return format == WireFormat::None
             ? elements * elementBytes(type)
             : getChunkLayout(elements, format, block).chunkBytes;
}

/// Returns the elements of a chunk as f32.
inline std::vector<float> decode(const uint8_t *chunk, int64_t elements,
                                 WireFormat format, int64_t block,
                                 ElementType type) {
  std::vector<float> values(elements);
  if (format == WireFormat::None)
    for (int64_t i = 0; i < elements; ++i)
      values[i] = readElement(type, chunk, i);
  else
    dequantizeChunk(chunk, elements, format, block, values.data());
  return values;
}

/// With `held`, of what `source` differs from it.
inline void quantize(const ConstTensor &tensor, const SliceMap &map,
                     const Chunks &dest, const uint8_t *held = nullptr) {
  auto *source = static_cast<const uint8_t *>(tensor.data);
  ElementType type = tensor.type;
  int64_t elements = map.elementsPerChunk();
  std::vector<float> values(elements);
  for (int64_t c = 0; c < map.numChunks(); ++c) {
    uint8_t *chunk = static_cast<uint8_t *>(dest.data) + c * dest.stride;
    for (int64_t e = 0; e < elements; ++e) {
      int64_t index = map.tensorIndex(c, e);
      if (dest.format != WireFormat::None) {
        values[e] = index < 0 ? 0.0f : readElement(type, source, index);
        if (held && index >= 0)
          values[e] = subtractHeld(values[e], readElement(type, held, index));
      } else if (index < 0) {
        writeElement(type, 0.0f, chunk, e);
      } else {
        copyElement(type, chunk, e, source, index);
      }
    }
    if (dest.rotate != 0)
      rotateChunk(values.data(), elements, Rotation::Forward);
    if (dest.format != WireFormat::None)
      quantizeChunk(values.data(), elements, dest.format, dest.block, chunk);
  }
}

/// With `held`, which may be `dest`, the values are added to it.
inline void dequantize(const ConstChunks &source, const SliceMap &map,
                       const Tensor &tensor, const uint8_t *held = nullptr) {
  auto *dest = static_cast<uint8_t *>(tensor.data);
  ElementType type = tensor.type;
  int64_t elements = map.elementsPerChunk();
  for (int64_t c = 0; c < map.numChunks(); ++c) {
    const uint8_t *chunk =
        static_cast<const uint8_t *>(source.data) + c * source.stride;
    std::vector<float> values;
    if (source.format != WireFormat::None)
      values = decode(chunk, elements, source.format, source.block, type);
    if (source.rotate != 0)
      rotateChunk(values.data(), elements, Rotation::Back);
    for (int64_t e = 0; e < elements; ++e) {
      int64_t index = map.tensorIndex(c, e);
      if (index < 0)
        continue;
      if (source.format == WireFormat::None)
        copyElement(type, dest, index, chunk, e);
      else
        writeElement(type,
                     held ? addHeld(readElement(type, held, index), values[e])
                          : values[e],
                     dest, index);
    }
  }
}

/// The sums of `elements` values of each source, divided by the divisor.
inline std::vector<float> reduce(const ConstChunks &sources, int64_t elements,
                                 float divisor) {
  std::vector<float> sum(elements, 0.0f);
  for (int64_t s = 0; s < sources.count; ++s) {
    std::vector<float> values =
        decode(static_cast<const uint8_t *>(sources.data) + s * sources.stride,
               elements, sources.format, sources.block, sources.type);
    for (int64_t e = 0; e < elements; ++e)
      sum[e] += values[e];
  }
  for (float &value : sum)
    value /= divisor;
  return sum;
}

inline void dequantizeReduce(const ConstChunks &sources, const SliceMap &map,
                             const Reduction &reduction, const Tensor &dest) {
  std::vector<float> sum =
      reduce(sources, map.elementsPerChunk(), reduction.divisor);
  if (sources.rotate != 0)
    rotateChunk(sum.data(), sum.size(), Rotation::Back);
  for (size_t e = 0; e < sum.size(); ++e) {
    int64_t index = map.tensorIndex(0, e);
    if (index >= 0)
      writeElement(dest.type, sum[e], dest.data, index);
  }
}

inline void dequantizeReduceQuantize(const ConstChunks &sources,
                                     const SliceMap &map,
                                     const Reduction &reduction,
                                     const Chunks &dest) {
  std::vector<float> sum =
      reduce(sources, map.outer * map.extent * map.inner, reduction.divisor);
  std::vector<uint8_t> tensor(sum.size() * 4 + 4);
  for (size_t i = 0; i < sum.size(); ++i)
    writeElement(ElementType::F32, roundTo(reduction.partial, sum[i]),
                 tensor.data(), i);
  quantize({tensor.data(), ElementType::F32}, map, dest);
}

} // namespace zpp::kernels::reference

#endif // ZPP_KERNELS_TEST_HOSTREFERENCE_H
