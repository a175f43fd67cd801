//===- Operations.cpp - Checked descriptors -------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Operations.h"

#include <algorithm>
#include <tuple>
#include <type_traits>

using namespace zpp;
using namespace zpp::rt;

Run rt::getRun(const SliceMap &map, int64_t chunk, int64_t element) {
  int64_t part = map.partSize(), size = part * map.inner;
  int64_t offset = element % size;
  int64_t first = map.tensorIndex(chunk, element - offset);
  int64_t present = 0;
  if (first >= 0) {
    int64_t row = first / map.inner % map.extent;
    present = std::min(part, map.extent - row) * map.inner;
  }
  if (offset < present)
    return {element, first + offset, present - offset};
  return {element, -1, size - offset};
}

OperationName::OperationName(const char *kind, const char *name)
    : kind(kind), title(kind), label(kind) {
  if (!name)
    return;
  title += " " + quote(name);
  label += std::string(" ") + name;
}

OperationName::OperationName(const char *kind, const char *name,
                             const std::vector<AxisRef> &axes)
    : OperationName(kind, name) {
  title += " along";
  for (const AxisRef &axis : axes) {
    bool isFirst = &axis == &axes.front();
    title += (isFirst ? " " : ", ") + axis.name;
    along += (isFirst ? "" : ",") + axis.name;
  }
}

//===----------------------------------------------------------------------===//
// Parts of descriptors
//===----------------------------------------------------------------------===//

// The numbers of zpp_rt.h are cast to the enums of Support below.
static_assert(ZPP_RT_F32 == static_cast<int>(ElementType::F32) &&
              ZPP_RT_BF16 == static_cast<int>(ElementType::BF16) &&
              ZPP_RT_F16 == static_cast<int>(ElementType::F16));
static_assert(ZPP_RT_FORMAT_NONE == static_cast<int>(WireFormat::None) &&
              ZPP_RT_FORMAT_I8 == static_cast<int>(WireFormat::I8) &&
              ZPP_RT_FORMAT_I4 == static_cast<int>(WireFormat::I4));

static Status unsupported(std::string message) {
  return {ZPP_RT_UNSUPPORTED, std::move(message)};
}

static Status checkType(int64_t value, ElementType &type) {
  if (value != ZPP_RT_F32 && value != ZPP_RT_BF16 && value != ZPP_RT_F16)
    return unsupported(expected("element type F32, BF16 or F16", value));
  type = static_cast<ElementType>(value);
  return {};
}

static Status checkWire(int64_t format, int64_t block, Wire &wire) {
  if (std::find(std::begin(kCodedFormats), std::end(kCodedFormats),
                static_cast<WireFormat>(format)) == std::end(kCodedFormats))
    return unsupported(expected("wire format I8 or I4", format));
  if (!isValidBlock(block))
    return unsupported(expected("a block that is a power of two from " +
                                    std::to_string(kMinBlock) + " to " +
                                    std::to_string(kMaxBlock),
                                block));
  wire = {static_cast<WireFormat>(format), block};
  return {};
}

static Status checkRotation(int64_t rotate, Wire &wire) {
  if (!isValidRotation(rotate))
    return unsupported(expected("groups of 0 or " + std::to_string(kRotation) +
                                    " elements to rotate",
                                rotate));
  wire.isRotated = rotate != 0;
  return {};
}

static Status checkList(const int64_t *values, int64_t count, const char *what,
                        std::vector<int64_t> &list) {
  if (count < 0)
    return invalid(expected(std::string("a number of ") + what, count));
  if (count > 0 && !values)
    return invalid(expected(std::to_string(count) + " " + what, "NULL"));
  list.assign(values, values + count);
  return {};
}

static Status checkSlices(const zpp_rt_slices &desc, bool needsAll,
                          SliceMap &map) {
  map.outer = desc.outer;
  map.unit = desc.unit;
  map.inner = desc.inner;
  map.extent = desc.extent;
  map.stage = desc.stage;
  map.stages = desc.stages;
  ZPP_RT_TRY(checkList(desc.factors, desc.num_factors, "factors", map.factors));
  ZPP_RT_TRY(checkList(desc.chunk_factors, desc.num_chunk_factors,
                       "chunk factors", map.chunkFactors));
  std::string error = map.verify();
  if (!error.empty())
    return invalid(std::move(error));
  if (needsAll && map.stages != 1)
    return invalid(expected("1 stage", map.stages));
  return {};
}

/// result = a * b, both not negative.
static Status multiply(int64_t a, int64_t b, int64_t &result) {
  if (__builtin_mul_overflow(a, b, &result))
    return invalid("expected fewer than 2^63 bytes, but got " +
                   std::to_string(a) + " x " + std::to_string(b));
  return {};
}

/// Reads the stride of `count` chunks; 0 means dense.
static Status checkStride(const char *what, int64_t given, int64_t count,
                          int64_t chunkBytes, int64_t alignment,
                          Pieces &chunks) {
  if (given != 0 && given < chunkBytes)
    return invalid(expected("a " + std::string(what) + " of 0 or at least " +
                                std::to_string(chunkBytes) + " bytes",
                            given));
  if (given % alignment != 0)
    return invalid(expected("a " + std::string(what) +
                                " that is a multiple of " +
                                std::to_string(alignment) + " bytes",
                            given));
  chunks = {count, chunkBytes, given == 0 ? chunkBytes : given};
  int64_t bytes;
  ZPP_RT_TRY(multiply(std::max<int64_t>(count - 1, 0), chunks.stride, bytes));
  if (count > 0 && __builtin_add_overflow(bytes, chunkBytes, &bytes))
    return multiply(count, chunks.stride, bytes);
  return {};
}

/// Bytes of the tensor of a map, which has fewer than 2^63 elements even if it
/// is padded.
static Status getBytes(const SliceMap &map, int64_t elementBytes,
                       int64_t &bytes) {
  return multiply(map.outer * map.extent * map.inner, elementBytes, bytes);
}

/// With fewer elements than this, no layout overflows.
static Status checkElements(int64_t elements) {
  if (elements < 0 || elements > INT64_MAX / 8)
    return invalid(expected("a number of elements below 2^60", elements));
  return {};
}

static Status checkSources(int64_t kind, int64_t sources, bool &isMean) {
  if (kind != ZPP_RT_SUM && kind != ZPP_RT_MEAN)
    return invalid(expected("reduction SUM or MEAN", kind));
  if (sources < 1)
    return invalid(expected("at least 1 source", sources));
  isMean = kind == ZPP_RT_MEAN;
  return {};
}

bool rt::ByAxes::operator()(const std::vector<AxisRef> &a,
                            const std::vector<AxisRef> &b) const {
  return std::lexicographical_compare(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const AxisRef &a, const AxisRef &b) {
        return std::tie(a.name, a.preSize, a.size) <
               std::tie(b.name, b.preSize, b.size);
      });
}

//===----------------------------------------------------------------------===//
// Descriptors
//===----------------------------------------------------------------------===//

Status rt::parse(const zpp_rt_copy_desc &desc, Operation &operation) {
  if (desc.rows < 0)
    return invalid(expected("a number of rows", desc.rows));
  if (desc.row_bytes < 0)
    return invalid(expected("a number of bytes", desc.row_bytes));
  int64_t rows = desc.row_bytes > 0 ? desc.rows : 0;
  ZPP_RT_TRY(checkStride("source_stride", desc.source_stride, rows,
                         desc.row_bytes, 1, operation.footprint.input));
  return checkStride("dest_stride", desc.dest_stride, rows, desc.row_bytes, 1,
                     operation.footprint.output);
}

Status rt::parse(const zpp_rt_pack_desc &desc, Entrypoint entrypoint,
                 const Mesh &, PackOperation &operation) {
  bool isUnpack = entrypoint == Entrypoint::unpack_slices;
  operation.isUnpack = isUnpack;
  ZPP_RT_TRY(checkSlices(desc.slices, isUnpack, operation.slices));
  if (desc.element_bytes < 1)
    return invalid(
        expected("positive bytes of an element", desc.element_bytes));
  operation.elementBytes = desc.element_bytes;
  int64_t chunkBytes, tensor;
  Pieces chunks;
  ZPP_RT_TRY(multiply(operation.slices.elementsPerChunk(), desc.element_bytes,
                      chunkBytes));
  ZPP_RT_TRY(getBytes(operation.slices, desc.element_bytes, tensor));
  ZPP_RT_TRY(checkStride("chunk_stride", desc.chunk_stride,
                         operation.slices.numChunks(), chunkBytes,
                         desc.element_bytes, chunks));
  operation.footprint =
      isUnpack ? Footprint{chunks, tensor} : Footprint{tensor, chunks};
  return {};
}

Status rt::parse(const zpp_rt_quantize_desc &desc, Entrypoint entrypoint,
                 const Mesh &, QuantizeOperation &operation) {
  bool isAddition = entrypoint == Entrypoint::dequantize_add;
  bool isDequantize = entrypoint == Entrypoint::dequantize || isAddition;
  bool isDifference =
      entrypoint == Entrypoint::quantize_difference || isAddition;
  operation.isDequantize = isDequantize;
  ZPP_RT_TRY(checkType(desc.element_type, operation.type));
  ZPP_RT_TRY(checkWire(desc.format, desc.block, operation.wire));
  ZPP_RT_TRY(checkRotation(desc.rotate, operation.wire));
  if (isDifference && operation.wire.isRotated)
    return unsupported(expected("nothing to rotate", desc.rotate));
  ZPP_RT_TRY(checkSlices(desc.slices, isDequantize, operation.slices));
  ZPP_RT_TRY(checkElements(operation.slices.elementsPerChunk()));
  int64_t tensor;
  Pieces chunks;
  ZPP_RT_TRY(getBytes(operation.slices, elementBytes(operation.type), tensor));
  ZPP_RT_TRY(checkStride(
      "chunk_stride", desc.chunk_stride, operation.slices.numChunks(),
      operation.wire.chunkBytes(operation.slices.elementsPerChunk()),
      kChunkAlignment, chunks));
  operation.footprint =
      isDequantize ? Footprint{chunks, tensor} : Footprint{tensor, chunks};
  if (isDifference)
    operation.footprint.held = tensor;
  return {};
}

Status rt::parse(const zpp_rt_reduce_desc &desc, Entrypoint entrypoint,
                 const Mesh &, ReduceOperation &operation) {
  ZPP_RT_TRY(checkSources(desc.kind, desc.sources, operation.isMean));
  ZPP_RT_TRY(checkElements(desc.elements));
  ZPP_RT_TRY(checkType(desc.element_type, operation.type));
  operation.sources = desc.sources;
  operation.elements = desc.elements;
  int64_t sourceBytes, alignment;
  if (entrypoint != Entrypoint::reduce) {
    ZPP_RT_TRY(checkWire(desc.format, desc.block, operation.wire));
    ZPP_RT_TRY(checkRotation(desc.rotate, operation.wire));
    operation.sourceType = ElementType::F32;
    sourceBytes = operation.wire.chunkBytes(desc.elements);
    alignment = kChunkAlignment;
  } else {
    if (desc.format != ZPP_RT_FORMAT_NONE)
      return unsupported(expected("wire format NONE", desc.format));
    ZPP_RT_TRY(checkType(desc.source_type, operation.sourceType));
    if (desc.rotate != 0)
      return unsupported(expected("nothing to rotate", desc.rotate));
    operation.wire = {WireFormat::None, 0};
    alignment = elementBytes(operation.sourceType);
    sourceBytes = desc.elements * alignment;
  }
  operation.footprint.output = desc.elements * elementBytes(operation.type);
  return checkStride("source_stride", desc.source_stride, desc.sources,
                     sourceBytes, alignment, operation.footprint.input);
}

Status rt::parse(const zpp_rt_reduce_quantize_desc &desc, Entrypoint,
                 const Mesh &mesh, ReduceQuantizeOperation &operation) {
  ZPP_RT_TRY(checkSlices(desc.slices, false, operation.slices));
  ZPP_RT_TRY(checkWire(desc.to_format, desc.to_block, operation.to));
  zpp_rt_reduce_desc reduce{};
  reduce.kind = desc.kind;
  reduce.sources = desc.sources;
  reduce.elements = desc.slices.outer * desc.slices.extent * desc.slices.inner;
  reduce.format = desc.format;
  reduce.block = desc.block;
  reduce.element_type = desc.element_type;
  reduce.source_stride = desc.source_stride;
  ZPP_RT_TRY(
      parse(reduce, Entrypoint::dequantize_reduce, mesh, operation.reduce));
  ZPP_RT_TRY(checkElements(operation.slices.elementsPerChunk()));
  operation.footprint.input = operation.reduce.footprint.input;
  return checkStride(
      "chunk_stride", desc.chunk_stride, operation.slices.numChunks(),
      operation.to.chunkBytes(operation.slices.elementsPerChunk()),
      kChunkAlignment, operation.footprint.output);
}

static Status checkAxes(const zpp_rt_axis *axes, int64_t numAxes,
                        const Mesh &mesh, std::vector<AxisRef> &result) {
  if (numAxes < 1)
    return invalid(expected("at least 1 axis", numAxes));
  if (!axes)
    return invalid(expected(std::to_string(numAxes) + " axes", "NULL"));
  result.clear();
  for (int64_t i = 0; i < numAxes; ++i) {
    if (!axes[i].name)
      return invalid(expected("the name of an axis", "NULL"));
    result.push_back({axes[i].name, axes[i].pre_size, axes[i].size});
  }
  std::string error = mesh.verify(result);
  return error.empty() ? Status() : invalid(std::move(error));
}

Status rt::parse(const zpp_rt_exchange_desc &desc, Entrypoint entrypoint,
                 const Mesh &mesh, ExchangeOperation &operation) {
  bool isGather = entrypoint == Entrypoint::all_gather_chunks;
  if (desc.mesh && desc.mesh != mesh.str())
    return invalid(
        expected("a world of mesh " + quote(desc.mesh), quote(mesh.str())));
  ZPP_RT_TRY(checkAxes(desc.axes, desc.num_axes, mesh, operation.axes));
  if (desc.chunk_bytes < 0)
    return invalid(expected("bytes of a chunk", desc.chunk_bytes));
  operation.isGather = isGather;
  operation.chunkBytes = desc.chunk_bytes;
  int64_t all;
  ZPP_RT_TRY(multiply(numDevices(operation.axes), desc.chunk_bytes, all));
  operation.footprint = {isGather ? desc.chunk_bytes : all, all};
  return {};
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// A longer list is not worth a key, and probably a mistake.
static constexpr int64_t kMaxKeyList = 64;

/// These functions append what a field points to to the key and clear the
/// pointer. The count is a field of its own, so it is part of the key already.
static bool moveList(const int64_t *&list, int64_t count, std::string &key) {
  if (count < 0 || count > kMaxKeyList || (count > 0 && !list))
    return false;
  key.append(reinterpret_cast<const char *>(list), count * sizeof(int64_t));
  list = nullptr;
  return true;
}

static void moveText(const char *&text, std::string &key) {
  if (!text)
    return;
  key += text;
  key.push_back('\0');
  // Not null: there is a text.
  text = "";
}

static bool moveSlices(zpp_rt_slices &slices, std::string &key) {
  return moveList(slices.factors, slices.num_factors, key) &&
         moveList(slices.chunk_factors, slices.num_chunk_factors, key);
}

static bool moveAxes(const zpp_rt_axis *&axes, int64_t count,
                     std::string &key) {
  if (count < 0 || count > kMaxKeyList || (count > 0 && !axes))
    return false;
  for (int64_t i = 0; i < count; ++i) {
    zpp_rt_axis axis = axes[i];
    moveText(axis.name, key);
    key.append(reinterpret_cast<const char *>(&axis), sizeof(axis));
  }
  axes = nullptr;
  return true;
}

/// Appends the fields that are not pointers.
template <typename Desc>
static bool appendValues(Desc &desc, std::string &key) {
  static_assert(std::has_unique_object_representations_v<Desc>,
                "expected no padding");
  moveText(desc.name, key);
  key.append(reinterpret_cast<const char *>(&desc), sizeof(desc));
  return true;
}

bool rt::appendKey(zpp_rt_copy_desc desc, std::string &key) {
  return appendValues(desc, key);
}

bool rt::appendKey(zpp_rt_pack_desc desc, std::string &key) {
  return moveSlices(desc.slices, key) && appendValues(desc, key);
}

bool rt::appendKey(zpp_rt_quantize_desc desc, std::string &key) {
  return moveSlices(desc.slices, key) && appendValues(desc, key);
}

bool rt::appendKey(zpp_rt_reduce_desc desc, std::string &key) {
  return appendValues(desc, key);
}

bool rt::appendKey(zpp_rt_reduce_quantize_desc desc, std::string &key) {
  return moveSlices(desc.slices, key) && appendValues(desc, key);
}

bool rt::appendKey(zpp_rt_exchange_desc desc, std::string &key) {
  moveText(desc.mesh, key);
  return moveAxes(desc.axes, desc.num_axes, key) && appendValues(desc, key);
}
