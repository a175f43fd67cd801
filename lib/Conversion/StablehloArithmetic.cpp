//===- StablehloArithmetic.cpp - Slices and formats in StableHLO ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The arithmetic is that of BlockQuant.h to the bit, whatever XLA makes of it:
//   - magnitudes and scales are integers, so that neither the treatment of
//     subnormals nor that of NaN in a maximum matters;
//   - no quotient is left to a division of floating point (X16), which XLA
//     turns into a multiplication by a rounded inverse or, on GPUs,
//     approximates. A constant divisor n is a multiplication by 1 / n in f64,
//     rounded to f32: a quotient of 24 bits by n < 2^20 that is not a power of
//     two lies at least 2^-46 (relative) from any midpoint of two f32 numbers,
//     so that this is the correctly rounded quotient. The inverse of a scale,
//     which has 8 significant bits, is a division of integers;
//   - sums are chains of additions, since a reduction has no order.
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/StablehloBuilder.h"

#include "StablehloArithmetic.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "zpp/Support/BlockQuant.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

/// The tensor as SliceMap sees it, [outer, factors..., part, inner], and the
/// order of these dims in chunk form.
static void getSliceDims(const SliceMap &map, SmallVectorImpl<int64_t> &dims,
                         SmallVectorImpl<int64_t> &order) {
  dims.push_back(map.outer);
  llvm::append_range(dims, map.factors);
  dims.push_back(map.partSize());
  dims.push_back(map.inner);
  for (int64_t factor : map.chunkFactors)
    order.push_back(1 + factor);
  for (int64_t dim : llvm::seq<int64_t>(dims.size()))
    if (!llvm::is_contained(map.chunkFactors, dim - 1))
      order.push_back(dim);
}

Value zpp::stablehlo_arith::packSlices(StablehloBuilder &b, Value tensor,
                                       SlicesAttr slices) {
  SliceMap map = slices.getMap(b.shapeOf(tensor));
  tensor = b.padTo(tensor, slices.getDim(), map.paddedExtent());
  if (map.partSize() != map.unit) {
    tensor =
        b.reshape(tensor, {map.outer * map.numSlices(), map.unit, map.inner});
    tensor =
        b.slice(tensor, 1, map.partBegin(), map.partBegin() + map.partSize());
  }
  SmallVector<int64_t> dims, order;
  getSliceDims(map, dims, order);
  return b.permute(tensor, dims, order);
}

Value zpp::stablehlo_arith::unpackSlices(StablehloBuilder &b, Value chunks,
                                         SlicesAttr slices,
                                         ArrayRef<int64_t> shape) {
  SliceMap map = slices.getMap(shape);
  SmallVector<int64_t> dims, order;
  getSliceDims(map, dims, order);
  SmallVector<int64_t> padded(shape);
  padded[slices.getDim()] = map.paddedExtent();
  Value tensor =
      b.permute(chunks, applyPermutation(ArrayRef<int64_t>(dims), order),
                invertPermutationVector(order));
  tensor = b.reshape(tensor, padded);
  return b.slice(tensor, slices.getDim(), 0, map.extent);
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

/// The bits of the smallest f32 number that is not flushed.
static constexpr uint32_t kMinNormalBits = 0x00800000;
static constexpr uint32_t kInfinityBits = 0x7f800000;
static constexpr uint32_t kNaNBits = 0x7fc00000;
static constexpr uint32_t kMagnitudeMask = 0x7fffffff;

/// Returns the elements per block in a tensor. A chunk of a single block has a
/// block that is as short as the chunk.
static int64_t getBlockSize(QuantAttr quant, const ChunkLayout &layout) {
  return layout.blocks == 1 ? layout.elements : quant.getBlock();
}

/// value / divisor in f32, correctly rounded (see above).
static Value divide(StablehloBuilder &b, Value value, int64_t divisor) {
  if (llvm::isPowerOf2_64(divisor))
    return b.withF32("multiply", value, 1.0f / divisor);
  value = b.convert(value, b.f64());
  Value quotient = b.elementwise(
      "multiply", {value, b.splatF64(b.shapeOf(value), 1.0 / divisor)});
  return b.convert(quotient, b.f32());
}

/// 1 / scale in f32, correctly rounded, for the bits of scales; any number for
/// 0 and NaN. A scale m * 2^(e - 134) with 128 <= m < 256 has the inverse
/// 2^31 / m * 2^(103 - e). The quotient 2^31 / m, rounded to nearest, is an f32
/// (no m gives a tie), to whose exponent 103 - e is added.
static Value invert(StablehloBuilder &b, Value scales) {
  Value m = b.withUI32("shift_right_logical", scales, 16);
  m = b.withUI32("or", b.withUI32("and", m, 0x7f), 0x80);
  Value half = b.withUI32("shift_right_logical", m, 1);
  Value quotient =
      b.elementwise("divide", {b.withUI32("add", half, 0x80000000), m});
  Value bits = b.bitcast(b.convert(quotient, b.f32()), b.ui32());
  Value exponent = b.withUI32("and", scales, kInfinityBits);
  bits = b.elementwise("subtract",
                       {b.withUI32("add", bits, 103u << 23), exponent});
  return b.bitcast(bits, b.f32());
}

/// scaleBits for magnitudes `amax` (ui32), as bits of an f32. `isFinite` tells
/// magnitudes of numbers.
static Value getScaleBits(StablehloBuilder &b, Value amax, Value isFinite,
                          QuantAttr quant) {
  ArrayRef<int64_t> shape = b.shapeOf(amax);
  Value exact =
      divide(b, b.bitcast(amax, b.f32()), maxCode(quant.getWireFormat()));
  Value up = b.withUI32("add", b.bitcast(exact, b.ui32()), 0xffff);
  up = b.withUI32("and", up, 0xffff0000);
  up = b.withUI32("maximum", up, kMinNormalBits);
  Value isZero = b.compare("LT", amax, b.splatUI32(shape, kMinNormalBits));
  Value scale = b.select(isZero, b.splatUI32(shape, 0), up);
  return b.select(isFinite, scale, b.splatUI32(shape, kNaNBits));
}

/// f32 of `signs`, along dims 1 and 2 of a tensor [.., pairs, 2, h].
static Value signsOfPairs(StablehloBuilder &b, ArrayRef<float> signs,
                          ArrayRef<int64_t> shape) {
  auto type = RankedTensorType::get(shape.slice(1, 2), b.f32());
  return b.broadcast(b.constant(DenseElementsAttr::get(type, signs)), shape,
                     {1, 2});
}

/// Stage `h` of a rotation of f32 [groups, kRotation]. It views a group as
/// [pairs, 2, h] and adds the pair's other half and this half, negated where it
/// is subtracted: a + b and a + -b, or b + -a.
static Value addStage(StablehloBuilder &b, Value value, int64_t h,
                      zpp::Rotation rotation) {
  SmallVector<int64_t> groups(b.shapeOf(value));
  SmallVector<int64_t> shape{groups[0], kRotation / (2 * h), 2, h};
  SmallVector<float> own, other;
  bool anyReversed = false;
  for (int64_t i = 0; i < kRotation; i += 2 * h) {
    bool reversed = rotation == zpp::Rotation::Back && zpp::isReversed(i, h);
    anyReversed |= reversed;
    own.append({1.0f, reversed ? 1.0f : -1.0f});
    other.append({1.0f, reversed ? -1.0f : 1.0f});
  }
  value = b.reshape(value, shape);
  Value others = b.reverse(value, 2);
  if (anyReversed)
    others = b.elementwise("multiply", {others, signsOfPairs(b, other, shape)});
  Value owns = b.elementwise("multiply", {value, signsOfPairs(b, own, shape)});
  return b.reshape(b.elementwise("add", {others, owns}), groups);
}

/// Scales `value`, f32 [groups, kRotation], for the first stage of a rotation.
static Value scaleForRotation(StablehloBuilder &b, Value value,
                              zpp::Rotation rotation) {
  ArrayRef<int64_t> shape = b.shapeOf(value);
  Value magnitudes =
      b.withUI32("and", b.bitcast(value, b.ui32()), kMagnitudeMask);
  Value isTiny =
      b.compare("LT", magnitudes,
                b.splatUI32(shape, llvm::bit_cast<uint32_t>(0x1p-100f)));
  SmallVector<float> factors;
  for (int64_t i = 0; i < kRotation; ++i)
    factors.push_back(enterRotation(1.0f, rotation, i));
  auto type = RankedTensorType::get({kRotation}, b.f32());
  Value factor = b.broadcast(
      b.constant(DenseElementsAttr::get(type, ArrayRef(factors))), shape, {1});
  value = b.elementwise("multiply", {value, factor});
  Value zero = b.bitcast(
      b.withUI32("and", b.bitcast(value, b.ui32()), ~kMagnitudeMask), b.f32());
  return b.select(isTiny, zero, value);
}

Value zpp::stablehlo_arith::rotate(StablehloBuilder &b, Value value,
                                   zpp::Rotation rotation) {
  int64_t chunks = b.shapeOf(value)[0], elements = b.shapeOf(value)[1];
  int64_t rotated = elements / kRotation * kRotation;
  if (rotated == 0)
    return value;
  Value rest = b.slice(value, 1, rotated, elements);
  value = b.reshape(b.slice(value, 1, 0, rotated),
                    {chunks * rotated / kRotation, kRotation});
  value = scaleForRotation(b, value, rotation);
  for (int64_t step = 1; step < kRotation; step *= 2)
    value = addStage(
        b, value, rotation == zpp::Rotation::Back ? kRotation / 2 / step : step,
        rotation);
  value = b.reshape(value, {chunks, rotated});
  if (rotated == elements)
    return value;
  return b.concatenate({value, rest}, 1);
}

/// Codes (i8) of f32 blocks [chunks, blocks, elements] and, in `scales`, the
/// bits of each block's scale as an f32.
static Value encode(StablehloBuilder &b, Value blocks, QuantAttr quant,
                    Value &scales) {
  SmallVector<int64_t> shape(b.shapeOf(blocks));
  ArrayRef<int64_t> blockShape = ArrayRef(shape).drop_back();
  Value magnitudes =
      b.withUI32("and", b.bitcast(blocks, b.ui32()), kMagnitudeMask);
  Value amax = b.reduceMax(magnitudes);
  Value isFinite =
      b.compare("LT", amax, b.splatUI32(blockShape, kInfinityBits));
  scales = getScaleBits(b, amax, isFinite, quant);
  Value inverse = invert(b, scales);
  Value scaled =
      b.elementwise("multiply", {blocks, b.broadcast(inverse, shape, {0, 1})});
  Value rounded = b.elementwise("round_nearest_even", scaled);

  // Subnormals, and everything in a block that is not finite, have code 0. The
  // scaled values of the latter may not be converted to integers.
  Value least = b.select(isFinite, b.splatUI32(blockShape, kMinNormalBits),
                         b.splatUI32(blockShape, kMagnitudeMask + 1));
  Value hasCode =
      b.compare("GE", magnitudes, b.broadcast(least, shape, {0, 1}));
  Value codes = b.select(hasCode, rounded, b.splatF32(shape, 0.0f));
  return b.convert(codes, b.i8());
}

/// Changes the size of dim 1 to `size`: cuts off or appends zeros.
static Value resize(StablehloBuilder &b, Value value, int64_t size) {
  if (b.shapeOf(value)[1] < size)
    return b.padTo(value, 1, size);
  return b.slice(value, 1, 0, size);
}

/// Puts `codes`, of which each is a byte of [chunks, count], together as they
/// travel.
static Value packCodes(StablehloBuilder &b, Value codes, QuantAttr quant) {
  switch (quant.getWireFormat()) {
  case WireFormat::None:
  case WireFormat::I8:
    return codes;
  case WireFormat::I4:
    break;
  }
  int64_t even = llvm::alignTo(b.shapeOf(codes)[1], 2);
  codes = b.padTo(codes, 1, even);
  Value low = b.slice(codes, 1, 0, even, 2);
  Value high = b.slice(codes, 1, 1, even, 2);
  return b.elementwise(
      "or", {b.withI8("and", low, 0xf), b.withI8("shift_left", high, 4)});
}

/// Takes the `elements` codes of each chunk apart that `bytes` has.
static Value unpackCodes(StablehloBuilder &b, Value bytes, int64_t elements,
                         QuantAttr quant) {
  switch (quant.getWireFormat()) {
  case WireFormat::None:
  case WireFormat::I8:
    return bytes;
  case WireFormat::I4:
    break;
  }
  // The low nibble, then the high one: to the top and down with the sign.
  int64_t chunks = b.shapeOf(bytes)[0], size = b.shapeOf(bytes)[1];
  SmallVector<int64_t> pairs{chunks, size, 2};
  Value top = b.constant(DenseElementsAttr::get(
      RankedTensorType::get({2}, b.i8()), ArrayRef<int8_t>{4, 0}));
  Value codes = b.elementwise("shift_left", {b.broadcast(bytes, pairs, {0, 1}),
                                             b.broadcast(top, pairs, {2})});
  codes = b.withI8("shift_right_arithmetic", codes, 4);
  return b.slice(b.reshape(codes, {chunks, 2 * size}), 1, 0, elements);
}

Value zpp::stablehlo_arith::quantize(StablehloBuilder &b, Value values,
                                     int64_t chunks, QuantAttr quant) {
  int64_t elements = b.typeOf(values).getNumElements() / chunks;
  ChunkLayout layout = quant.getLayout(elements);
  int64_t block = getBlockSize(quant, layout);
  values =
      b.padTo(b.reshape(values, {chunks, elements}), 1, layout.blocks * block);
  values = b.reshape(values, {chunks, layout.blocks, block});
  Value scales;
  Value codes = encode(b, b.convert(values, b.f32()), quant, scales);

  // Padded elements have code 0, as the gap after the payload has.
  codes = b.reshape(codes, {chunks, layout.blocks * block});
  codes = resize(b, packCodes(b, codes, quant), layout.scalesOffset);

  scales = b.withUI32("shift_right_logical", scales, 16);
  scales = b.bitcast(b.convert(scales, b.ui16()), b.i8());
  scales = b.reshape(scales, {chunks, 2 * layout.blocks});
  scales = resize(b, scales, layout.chunkBytes - layout.scalesOffset);
  return b.concatenate({codes, scales}, 1);
}

Value zpp::stablehlo_arith::dequantize(StablehloBuilder &b, Value bytes,
                                       int64_t chunks, int64_t elements,
                                       QuantAttr quant) {
  ChunkLayout layout = quant.getLayout(elements);
  int64_t block = getBlockSize(quant, layout);
  bytes = b.reshape(bytes, {chunks, layout.chunkBytes});
  Value codes = b.slice(bytes, 1, 0, layout.payloadBytes);
  codes = unpackCodes(b, codes, elements, quant);

  Value scales = b.slice(bytes, 1, layout.scalesOffset,
                         layout.scalesOffset + 2 * layout.blocks);
  scales = b.bitcast(b.reshape(scales, {chunks, layout.blocks, 2}), b.ui16());
  // Widened as an integer: LLVM may compute the product of an i8 and a bf16 in
  // f16 where that is what it is converted to, however small the bf16 is.
  scales = b.withUI32("shift_left", b.convert(scales, b.ui32()), 16);
  scales = b.broadcast(b.bitcast(scales, b.f32()),
                       {chunks, layout.blocks, block}, {0, 1});
  scales = b.reshape(scales, {chunks, layout.blocks * block});
  scales = b.slice(scales, 1, 0, elements);
  return b.elementwise("multiply", {b.convert(codes, b.f32()), scales});
}

//===----------------------------------------------------------------------===//
// Reduction
//===----------------------------------------------------------------------===//

Value zpp::stablehlo_arith::roundTo(StablehloBuilder &b, Value values,
                                    Type element) {
  if (element.isBF16())
    values = b.roundToBF16(values);
  return b.convert(values, element);
}

Value zpp::stablehlo_arith::reduce(StablehloBuilder &b, Value values,
                                   ReduceKind kind) {
  int64_t sources = b.shapeOf(values).front();
  values = b.convert(values, b.f32());
  Value sum = b.slice(values, 0, 0, 1);
  for (int64_t source = 1; source < sources; ++source)
    sum = b.elementwise("add", {sum, b.slice(values, 0, source, source + 1)});
  if (kind == ReduceKind::Sum || sources == 1)
    return sum;
  return divide(b, sum, sources);
}

/// `values` (f32) with zeros of their sign where they are subnormal.
static Value flush(StablehloBuilder &b, Value values) {
  Value bits = b.bitcast(values, b.ui32());
  Value magnitudes = b.withUI32("and", bits, kMagnitudeMask);
  Value isTiny = b.compare("LT", magnitudes,
                           b.splatUI32(b.shapeOf(values), kMinNormalBits));
  Value zero = b.bitcast(b.withUI32("and", bits, ~kMagnitudeMask), b.f32());
  return b.select(isTiny, zero, values);
}

/// `values` in f32, with those that are subnormal or not finite as zero.
static Value flushHeld(StablehloBuilder &b, Value values) {
  values = flush(b, b.convert(values, b.f32()));
  ArrayRef<int64_t> shape = b.shapeOf(values);
  Value magnitudes =
      b.withUI32("and", b.bitcast(values, b.ui32()), kMagnitudeMask);
  Value isFinite =
      b.compare("LT", magnitudes, b.splatUI32(shape, kInfinityBits));
  return b.select(isFinite, values, b.splatF32(shape, 0));
}

Value zpp::stablehlo_arith::subtractHeld(StablehloBuilder &b, Value a,
                                         Value held) {
  return flush(b, b.elementwise("subtract", {flush(b, b.convert(a, b.f32())),
                                             flushHeld(b, held)}));
}

Value zpp::stablehlo_arith::addHeld(StablehloBuilder &b, Value held,
                                    Value value) {
  return flush(b, b.elementwise("add", {flushHeld(b, held),
                                        flush(b, b.convert(value, b.f32()))}));
}
