//===- Reference.h - What operations must compute ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference: element by element, with the scalar functions and the index
// formula of Support, on bytes.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_RUNTIME_REFERENCE_H
#define ZPP_UNITTESTS_RUNTIME_REFERENCE_H

#include "../Support/Random.h"
#include "Harness.h"
#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Float16.h"
#include "zpp/Support/Mesh.h"
#include "zpp/Support/QuantReference.h"

#include <algorithm>

namespace zpp {

inline constexpr ElementType kTypes[] = {ElementType::F32, ElementType::BF16,
                                         ElementType::F16};

/// Content of outputs before an operation.
inline Bytes fill(int64_t bytes) { return Bytes(bytes, 0x5c); }

inline Mesh parseMesh(const char *text) {
  std::string error;
  std::optional<Mesh> mesh = Mesh::parse(text, error);
  EXPECT_TRUE(mesh) << error;
  return *mesh;
}

/// Returns the meshes of collectives that the back end has enough ranks for.
inline std::vector<const char *> getMeshes(const std::string &backend) {
  std::vector<const char *> meshes;
  for (const char *text : {"node:1,gpu:1", "node:1,gpu:3", "node:2,gpu:2",
                           "node:2,gpu:4", "rack:2,node:2,gpu:2"})
    if (parseMesh(text).numDevices() <= getMaxRanks(backend))
      meshes.push_back(text);
  return meshes;
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// Elements of a type with all magnitudes, and with special values if asked
/// for.
inline Bytes makeTensor(ElementType type, int64_t elements, uint64_t seed,
                        bool hasSpecials = false) {
  Random random(seed);
  Bytes data(elements * elementBytes(type));
  double magnitude = 1;
  for (int64_t i = 0; i < elements; ++i) {
    // Like gradients in practice: magnitudes differ from block to block.
    if (i % 50 == 0)
      magnitude = std::exp2(random.uniform(-20, 10));
    double value = random.studentT3() * magnitude;
    if (hasSpecials) {
      constexpr double specials[] = {NAN,      INFINITY, -INFINITY, 0.0,
                                     -0.0,     1e-40,    -1e-42,    0x1p-126,
                                     0x1p-149, 3e38,     -65504.0,  1e-9};
      uint64_t choice = random.bits() % 400;
      if (choice < std::size(specials))
        value = specials[choice];
    }
    writeElement(type, static_cast<float>(value), data.data(), i);
  }
  return data;
}

//===----------------------------------------------------------------------===//
// Local operations
//===----------------------------------------------------------------------===//

struct WireFormatAndBlock {
  WireFormat format;
  int64_t block;
  int64_t rotate = 0;
  int64_t chunkBytes(int64_t elements) const {
    return getChunkLayout(elements, format, block).chunkBytes;
  }
};

inline int64_t numElements(const SliceMap &map) {
  return map.outer * map.extent * map.inner;
}

inline Bytes packReference(const SliceMap &map, int64_t elementBytes,
                           const Bytes &tensor) {
  int64_t elements = map.elementsPerChunk();
  Bytes chunks(map.numChunks() * elements * elementBytes);
  for (int64_t c = 0; c < map.numChunks(); ++c)
    for (int64_t e = 0; e < elements; ++e)
      if (int64_t index = map.tensorIndex(c, e); index >= 0)
        std::copy_n(tensor.begin() + index * elementBytes, elementBytes,
                    chunks.begin() + (c * elements + e) * elementBytes);
  return chunks;
}

inline Bytes unpackReference(const SliceMap &map, int64_t elementBytes,
                             const Bytes &chunks, Bytes tensor) {
  int64_t elements = map.elementsPerChunk();
  for (int64_t c = 0; c < map.numChunks(); ++c)
    for (int64_t e = 0; e < elements; ++e)
      if (int64_t index = map.tensorIndex(c, e); index >= 0)
        std::copy_n(chunks.begin() + (c * elements + e) * elementBytes,
                    elementBytes, tensor.begin() + index * elementBytes);
  return tensor;
}

/// With `held`, of what the tensor differs from it.
inline Bytes quantizeReference(const SliceMap &map, ElementType type,
                               WireFormatAndBlock wire, const Bytes &tensor,
                               const Bytes *held = nullptr) {
  int64_t elements = map.elementsPerChunk();
  Bytes packed = packReference(map, elementBytes(type), tensor);
  Bytes others;
  if (held)
    others = packReference(map, elementBytes(type), *held);
  Bytes chunks(map.numChunks() * wire.chunkBytes(elements));
  std::vector<float> values(elements);
  for (int64_t c = 0; c < map.numChunks(); ++c) {
    for (int64_t e = 0; e < elements; ++e)
      values[e] = readElement(type, packed.data(), c * elements + e);
    if (held)
      for (int64_t e = 0; e < elements; ++e)
        values[e] = subtractHeld(
            values[e], readElement(type, others.data(), c * elements + e));
    if (wire.rotate)
      rotateChunk(values.data(), elements, Rotation::Forward);
    quantizeChunk(values.data(), elements, wire.format, wire.block,
                  chunks.data() + c * wire.chunkBytes(elements));
  }
  return chunks;
}

/// With `held`, the values are added to it.
inline Bytes dequantizeReference(const SliceMap &map, ElementType type,
                                 WireFormatAndBlock wire, const Bytes &chunks,
                                 Bytes tensor, const Bytes *held = nullptr) {
  int64_t elements = map.elementsPerChunk();
  Bytes packed(map.numChunks() * elements * elementBytes(type));
  Bytes others;
  if (held)
    others = packReference(map, elementBytes(type), *held);
  std::vector<float> values(elements);
  for (int64_t c = 0; c < map.numChunks(); ++c) {
    dequantizeChunk(chunks.data() + c * wire.chunkBytes(elements), elements,
                    wire.format, wire.block, values.data());
    if (wire.rotate)
      rotateChunk(values.data(), elements, Rotation::Back);
    if (held)
      for (int64_t e = 0; e < elements; ++e)
        values[e] = addHeld(readElement(type, others.data(), c * elements + e),
                            values[e]);
    for (int64_t e = 0; e < elements; ++e)
      writeElement(type, values[e], packed.data(), c * elements + e);
  }
  return unpackReference(map, elementBytes(type), packed, std::move(tensor));
}

/// Sources are of type `sourceType`, or wire chunks of a format other than
/// None.
inline Bytes reduceReference(bool isMean, int64_t sources, int64_t elements,
                             ElementType sourceType, WireFormatAndBlock wire,
                             ElementType type, const Bytes &input) {
  std::vector<float> sum(elements, 0.0f), values(elements);
  for (int64_t s = 0; s < sources; ++s) {
    if (wire.format == WireFormat::None)
      for (int64_t e = 0; e < elements; ++e)
        values[e] = readElement(sourceType, input.data(), s * elements + e);
    else
      dequantizeChunk(input.data() + s * wire.chunkBytes(elements), elements,
                      wire.format, wire.block, values.data());
    for (int64_t e = 0; e < elements; ++e)
      sum[e] += values[e];
  }
  Bytes output(elements * elementBytes(type));
  if (isMean)
    for (float &value : sum)
      value /= static_cast<float>(sources);
  if (wire.rotate)
    rotateChunk(sum.data(), elements, Rotation::Back);
  for (int64_t e = 0; e < elements; ++e)
    writeElement(type, sum[e], output.data(), e);
  return output;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Results of all ranks, given their inputs.
inline std::vector<Bytes> exchangeReference(const Mesh &mesh,
                                            const std::vector<AxisRef> &axes,
                                            int64_t chunkBytes, bool isGather,
                                            const std::vector<Bytes> &inputs) {
  std::vector<Bytes> outputs(inputs.size());
  for (const std::vector<int64_t> &group : mesh.getGroups(axes))
    for (size_t self = 0; self < group.size(); ++self)
      for (int64_t peer : group) {
        auto chunk = inputs[peer].begin() + (isGather ? 0 : self * chunkBytes);
        outputs[group[self]].insert(outputs[group[self]].end(), chunk,
                                    chunk + chunkBytes);
      }
  return outputs;
}

} // namespace zpp

#endif // ZPP_UNITTESTS_RUNTIME_REFERENCE_H
