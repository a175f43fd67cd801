//===- ConvertZeroToStablehlo.cpp - Decomposed ops as StableHLO -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A fused op is lowered as the composition of its parts.
//
// The arithmetic is that of BlockQuant.h to the bit, whatever XLA makes of it:
//   - magnitudes and scales are integers, so that neither the treatment of
//     subnormals nor that of NaN in a maximum matters;
//   - no quotient is left to a division of floating point, which XLA turns into
//     a multiplication by a rounded inverse or, on GPUs, approximates. A
//     constant divisor n is a multiplication by 1 / n in f64, rounded to f32: a
//     quotient of 24 bits by n < 2^20 that is not a power of two lies at least
//     2^-46 (relative) from any midpoint of two f32 numbers, so that this is
//     the correctly rounded quotient. The inverse of a scale, which has 8
//     significant bits, is a division of integers;
//   - sums are chains of additions, since a reduction has no order.
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/StablehloBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/DialectConversion.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Conversion/Passes.h"
#include "zpp/Conversion/Patterns.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/TypeSwitch.h"

namespace zpp {
#define GEN_PASS_DEF_CONVERTZEROTOSTABLEHLOPASS
#include "zpp/Conversion/Passes.h.inc"
} // namespace zpp

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

/// The chunk form of `tensor`, in some shape.
static Value packSlices(StablehloBuilder &b, Value tensor, SlicesAttr slices) {
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

/// The tensor of shape `shape` whose chunk form is `chunks`, in any shape.
static Value unpackSlices(StablehloBuilder &b, Value chunks, SlicesAttr slices,
                          ArrayRef<int64_t> shape) {
  SliceMap map = slices.getMap(shape);
  SmallVector<int64_t> dims, order;
  getSliceDims(map, dims, order);
  SmallVector<int64_t> chunkDims(dims.size()), inverse(dims.size());
  for (auto [position, dim] : llvm::enumerate(order)) {
    chunkDims[position] = dims[dim];
    inverse[dim] = position;
  }
  SmallVector<int64_t> padded(shape);
  padded[slices.getDim()] = map.paddedExtent();
  Value tensor = b.reshape(b.permute(chunks, chunkDims, inverse), padded);
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

/// The elements per block in a tensor. A chunk of a single block has a block
/// that is as short as the chunk.
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

/// `value` (f32 [chunks, elements]) with its whole groups rotated. Each stage
/// views a group as [.., 2, h] and adds the pair's other half, and this half or
/// its negative: a + b and a + -b.
static Value rotate(StablehloBuilder &b, Value value, zpp::Rotation rotation) {
  int64_t chunks = b.shapeOf(value)[0], elements = b.shapeOf(value)[1];
  int64_t rotated = elements / kRotation * kRotation;
  if (rotated == 0)
    return value;
  Value rest = b.slice(value, 1, rotated, elements);
  value = b.slice(value, 1, 0, rotated);
  Value magnitudes =
      b.withUI32("and", b.bitcast(value, b.ui32()), kMagnitudeMask);
  Value isTiny = b.compare(
      "LT", magnitudes,
      b.splatUI32(b.shapeOf(value), llvm::bit_cast<uint32_t>(0x1p-100f)));
  value = b.withF32("multiply", value,
                    rotation == zpp::Rotation::Forward ? 0x1p-3f : 0x1p-2f);
  Value zero = b.bitcast(
      b.withUI32("and", b.bitcast(value, b.ui32()), ~kMagnitudeMask), b.f32());
  value = b.select(isTiny, zero, value);
  for (int64_t h = 1; h < kRotation; h *= 2) {
    SmallVector<int64_t> pairs{chunks * rotated / (2 * h), 2, h};
    value = b.reshape(value, pairs);
    Value sign = b.broadcast(
        b.constant(DenseElementsAttr::get(RankedTensorType::get({2}, b.f32()),
                                          ArrayRef<float>{1.0f, -1.0f})),
        pairs, {1});
    value = b.elementwise(
        "add", {b.reverse(value, 1), b.elementwise("multiply", {value, sign})});
  }
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

/// Wire chunks tensor<chunks x bytes x i8> of `values`, which are float and in
/// any shape, as they are: rotated before, where the format says so.
static Value quantize(StablehloBuilder &b, Value values, int64_t chunks,
                      QuantAttr quant) {
  int64_t elements = b.typeOf(values).getNumElements() / chunks;
  ChunkLayout layout = quant.getLayout(elements);
  int64_t block = getBlockSize(quant, layout);
  values =
      b.padTo(b.reshape(values, {chunks, elements}), 1, layout.blocks * block);
  values = b.reshape(values, {chunks, layout.blocks, block});
  Value scales;
  Value codes = encode(b, b.convert(values, b.f32()), quant, scales);

  // Padded elements have code 0, as the gap behind the payload has.
  codes = b.reshape(codes, {chunks, layout.blocks * block});
  if (quant.getWireFormat() == WireFormat::I4) {
    int64_t even = llvm::alignTo(b.shapeOf(codes)[1], 2);
    codes = b.padTo(codes, 1, even);
    Value low = b.slice(codes, 1, 0, even, 2);
    Value high = b.slice(codes, 1, 1, even, 2);
    codes = b.elementwise(
        "or", {b.withI8("and", low, 0xf), b.withI8("shift_left", high, 4)});
  }
  codes = resize(b, codes, layout.scalesOffset);

  scales = b.withUI32("shift_right_logical", scales, 16);
  scales = b.bitcast(b.convert(scales, b.ui16()), b.i8());
  scales = b.reshape(scales, {chunks, 2 * layout.blocks});
  scales = resize(b, scales, layout.chunkBytes - layout.scalesOffset);
  return b.concatenate({codes, scales}, 1);
}

/// f32 values [chunks, elements] of wire chunks, in any shape.
static Value dequantize(StablehloBuilder &b, Value bytes, int64_t chunks,
                        int64_t elements, QuantAttr quant) {
  ChunkLayout layout = quant.getLayout(elements);
  int64_t block = getBlockSize(quant, layout);
  bytes = b.reshape(bytes, {chunks, layout.chunkBytes});
  Value codes = b.slice(bytes, 1, 0, layout.payloadBytes);
  if (quant.getWireFormat() == WireFormat::I4) {
    // The low nibble, then the high one: to the top and down with the sign.
    SmallVector<int64_t> pairs{chunks, layout.payloadBytes, 2};
    Value top = b.constant(DenseElementsAttr::get(
        RankedTensorType::get({2}, b.i8()), ArrayRef<int8_t>{4, 0}));
    codes = b.elementwise("shift_left", {b.broadcast(codes, pairs, {0, 1}),
                                         b.broadcast(top, pairs, {2})});
    codes = b.withI8("shift_right_arithmetic", codes, 4);
    codes = b.slice(b.reshape(codes, {chunks, 2 * layout.payloadBytes}), 1, 0,
                    elements);
  }

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

/// `values` (f32), rounded to `element`.
static Value roundTo(StablehloBuilder &b, Value values, Type element) {
  if (element.isBF16())
    values = b.roundToBF16(values);
  return b.convert(values, element);
}

/// Sum or mean over the leading dim, which becomes 1, in f32.
static Value reduce(StablehloBuilder &b, Value values, ReduceKind kind) {
  int64_t sources = b.shapeOf(values).front();
  values = b.convert(values, b.f32());
  Value sum = b.slice(values, 0, 0, 1);
  for (int64_t source = 1; source < sources; ++source)
    sum = b.elementwise("add", {sum, b.slice(values, 0, source, source + 1)});
  if (kind == ReduceKind::Sum || sources == 1)
    return sum;
  return divide(b, sum, sources);
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Copies the attributes that track a collective through the pipeline.
static void copyMarks(Operation *from, Operation *to) {
  for (NamedAttribute attribute : from->getDiscardableAttrs())
    if (attribute.getName().getValue().starts_with("zpp.") &&
        attribute.getName() != kSourceAttr)
      to->setDiscardableAttr(attribute.getName(), attribute.getValue());
}

static StablehloBuilder::Groups getGroups(CollectiveOpInterface op) {
  SmallVector<AxisRef> refs = op.getAxisRefs();
  return op.getMeshAttr().getMesh().getGroups({refs.begin(), refs.end()});
}

static Value lower(StablehloBuilder &b, PackSlicesOp op, Value input) {
  Value chunks = packSlices(b, input, op.getSlices());
  if (b.typeOf(chunks).getElementType() != op.getInitType().getElementType())
    chunks = b.bitcast(chunks, b.i8());
  return chunks;
}

static Value lower(StablehloBuilder &b, UnpackSlicesOp op, Value input) {
  Value chunks = input;
  ShapedType init = op.getInitType();
  Type element = init.getElementType();
  if (b.typeOf(chunks).getElementType() != element) {
    int64_t bytes = element.getIntOrFloatBitWidth() / 8;
    int64_t elements = b.typeOf(chunks).getNumElements() / bytes;
    SmallVector<int64_t> shape{elements};
    if (bytes > 1)
      shape.push_back(bytes);
    chunks = b.bitcast(b.reshape(chunks, shape), element);
  }
  return unpackSlices(b, chunks, op.getSlices(), init.getShape());
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

/// subtractHeld() and addHeld(): `operation` on `a` and `c`, with what is
/// subnormal as zero.
static Value combineFlushed(StablehloBuilder &b, StringRef operation, Value a,
                            Value c) {
  return flush(b, b.elementwise(operation, {flush(b, b.convert(a, b.f32())),
                                            flush(b, b.convert(c, b.f32()))}));
}

/// QuantizeOp, and QuantizeDifferenceOp of values that are subtracted already.
template <typename OpT>
static Value lowerQuantize(StablehloBuilder &b, OpT op, Value values) {
  if (SlicesAttr slices = op.getSlicesAttr())
    values = packSlices(b, values, slices);
  int64_t chunks =
      op.getInitType().getNumElements() / op.getInitType().getShape().back();
  if (op.getQuant().isRotated()) {
    values =
        b.reshape(values, {chunks, b.typeOf(values).getNumElements() / chunks});
    values = rotate(b, b.convert(values, b.f32()), zpp::Rotation::Forward);
  }
  return quantize(b, values, chunks, op.getQuant());
}

static Value lower(StablehloBuilder &b, QuantizeOp op, Value input) {
  return lowerQuantize(b, op, input);
}

static Value lower(StablehloBuilder &b, QuantizeDifferenceOp op, Value input,
                   Value held) {
  return lowerQuantize(b, op, combineFlushed(b, "subtract", input, held));
}

/// The values of wire chunks, as elements of type `rounded` in the order of the
/// tensor.
template <typename OpT>
static Value lowerDequantize(StablehloBuilder &b, OpT op, Value input,
                             Type rounded) {
  ShapedType init = op.getInitType();
  SmallVector<int64_t> chunkShape(init.getShape());
  if (SlicesAttr slices = op.getSlicesAttr())
    chunkShape = slices.getChunkShape(init.getShape());
  Value values = dequantize(b, input, chunkShape.front(),
                            llvm::product_of(ArrayRef(chunkShape).drop_front()),
                            op.getQuant());
  if (op.getQuant().isRotated())
    values = rotate(b, values, zpp::Rotation::Back);
  values = roundTo(b, values, rounded);
  if (SlicesAttr slices = op.getSlicesAttr())
    values = unpackSlices(b, values, slices, init.getShape());
  return values;
}

static Value lower(StablehloBuilder &b, DequantizeOp op, Value input) {
  return lowerDequantize(b, op, input, op.getInitType().getElementType());
}

static Value lower(StablehloBuilder &b, DequantizeAddOp op, Value input,
                   Value held) {
  ShapedType init = op.getInitType();
  Value values =
      b.reshape(lowerDequantize(b, op, input, b.f32()), init.getShape());
  return roundTo(b, combineFlushed(b, "add", held, values),
                 init.getElementType());
}

static Value lower(StablehloBuilder &b, ReduceOp op, Value input) {
  return roundTo(b, reduce(b, input, op.getKind()),
                 op.getInitType().getElementType());
}

static Value lower(StablehloBuilder &b, DequantizeReduceOp op, Value input) {
  ShapedType init = op.getInitType();
  Value values = dequantize(b, input, op.getInputType().getDimSize(0),
                            init.getNumElements(), op.getQuant());
  values = reduce(b, values, op.getKind());
  if (op.getQuant().isRotated())
    values = rotate(b, values, zpp::Rotation::Back);
  return roundTo(b, values, init.getElementType());
}

static Value lower(StablehloBuilder &b, DequantizeReduceQuantizeOp op,
                   Value input) {
  auto partial = cast<RankedTensorType>(op.getPartial());
  Value values = dequantize(b, input, op.getInputType().getDimSize(0),
                            partial.getNumElements(), op.getQuant());
  values =
      roundTo(b, reduce(b, values, op.getKind()), partial.getElementType());
  values = packSlices(b, b.reshape(values, partial.getShape()), op.getSlices());
  int64_t chunks = op.getSlices().getMap(partial.getShape()).numChunks();
  return quantize(b, values, chunks, op.getTo());
}

static Value lower(StablehloBuilder &b, AllToAllOp op, Value input) {
  if (op.getGroupSize() == 1)
    return input;
  Operation *exchange = b.allToAll(input, getGroups(op), 0);
  copyMarks(op, exchange);
  return exchange->getResult(0);
}

static Value lower(StablehloBuilder &b, AllGatherChunksOp op, Value input) {
  if (op.getGroupSize() == 1)
    return input;
  SmallVector<int64_t> shape{1};
  llvm::append_range(shape, op.getInputType().getShape());
  Operation *gather = b.allGather(b.reshape(input, shape), getGroups(op), 0);
  copyMarks(op, gather);
  return gather->getResult(0);
}

/// The op that puts the chunks of `op` in order, if the two still are the
/// gather that was imported. Null otherwise.
static UnpackSlicesOp getPlainOrder(Operation *op) {
  auto gather = dyn_cast_or_null<AllGatherChunksOp>(op);
  if (!gather || !gather->hasAttr(kSourceAttr) || !gather->hasOneUse())
    return {};
  return dyn_cast<UnpackSlicesOp>(*gather->user_begin());
}

/// What a decomposed op reads, among its `operands`: all but its destination.
static SmallVector<Value> getInputs(ValueRange operands) {
  SmallVector<Value> inputs{operands.front()};
  llvm::append_range(inputs, operands.drop_front(2));
  return inputs;
}

/// Lowers a decomposed op that reads `inputs`, and returns the result.
static Value lowerDecomposed(StablehloBuilder &b, DecomposedOpInterface op,
                             ValueRange inputs) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  // Without elements there is nothing to compute. A collective stays, because
  // all devices must take part in it.
  if (type.getNumElements() == 0 && !isa<CollectiveOpInterface>(*op))
    return b.zeros(type);
  Value value =
      llvm::TypeSwitch<Operation *, Value>(op)
          .Case<PackSlicesOp, UnpackSlicesOp, QuantizeOp, DequantizeOp,
                ReduceOp, DequantizeReduceOp, DequantizeReduceQuantizeOp,
                AllToAllOp, AllGatherChunksOp>(
              [&](auto local) { return lower(b, local, inputs[0]); })
          .Case<QuantizeDifferenceOp, DequantizeAddOp>([&](auto local) {
            return lower(b, local, inputs[0], inputs[1]);
          });
  return b.reshape(value, type.getShape());
}

/// True for the tensor ops between zero ops that have patterns here.
static bool isTensorOp(Operation *op) {
  auto isStatic = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.hasStaticShape();
  };
  if (!llvm::all_of(op->getOperandTypes(), isStatic) ||
      !llvm::all_of(op->getResultTypes(), isStatic))
    return false;
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return slice.getOffsets().empty() && slice.getSizes().empty() &&
           slice.getStrides().empty() && slice.hasUnitStride();
  return isa<tensor::ConcatOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
      op);
}

//===----------------------------------------------------------------------===//
// What can be converted
//===----------------------------------------------------------------------===//

/// True for a scatter that was left alone and is one reduce_scatter: a sum of
/// the whole tensor over all axes of its result, in their order, without
/// padding or format.
static bool isPlainScatter(ReduceScatterOp op) {
  ShardType from = op.getOperand().getType(), to = op.getType();
  zpp::Mesh mesh = op.getMeshAttr().getMesh();
  SmallVector<Attribute> axes =
      llvm::map_to_vector(to.getFactors(), [](FactorAttr factor) {
        return Attribute(factor.getAxis());
      });
  return op.getKind() == ReduceKind::Sum && !op.getWire() && from.isWhole() &&
         axes == op.getAlong().getValue() &&
         to.getGlobal().getElementType() == from.getGlobal().getElementType() &&
         to.getUnit() * llvm::product_of(to.getFactorSizes()) ==
             to.getGlobal().getDimSize(to.getDim()) &&
         op.getOperand().getDefiningOp<FromLocalOp>() &&
         llvm::all_of(op->getUsers(), llvm::IsaPred<ToLocalOp>);
}

/// True for a plain scatter and the ops at its border.
static bool isOfPlainScatter(Operation *op) {
  auto isPlain = [](Operation *other) {
    auto scatter = dyn_cast_or_null<ReduceScatterOp>(other);
    return scatter && isPlainScatter(scatter);
  };
  if (auto toLocal = dyn_cast<ToLocalOp>(op))
    return isPlain(toLocal.getShard().getDefiningOp());
  if (isa<FromLocalOp>(op))
    return !op->use_empty() && llvm::all_of(op->getUsers(), isPlain);
  return isPlain(op);
}

/// Sums become one op per source, in the order in which numerics define them.
static constexpr int64_t kMaxSources = int64_t(1) << 16;

static LogicalResult verifyConvertible(Operation *op) {
  auto emitError = [&]() {
    return op->emitError("failed to legalize '") << op->getName() << "': ";
  };
  auto verifyElements = [&](ShapedType type) -> LogicalResult {
    if (StablehloBuilder::hasZero(type.getElementType()))
      return success();
    return emitError() << "expected integer, float or complex elements, but "
                          "got "
                       << type.getElementType();
  };
  if (isOfPlainScatter(op))
    return success();
  if (StringRef pass = getMissingPass(op); !pass.empty())
    return emitError() << "run " << pass << " first";
  if (isa<StartOp, WaitOp>(op))
    return emitError() << "run convert-zero-to-xla-ffi first";
  if (auto decomposed = dyn_cast<DecomposedOpInterface>(op)) {
    if (decomposed.isOnBuffers())
      return emitError() << "expected tensors, but got buffers of type "
                         << decomposed.getInputType();
    if (isa<ReduceOp, DequantizeReduceOp, DequantizeReduceQuantizeOp>(op) &&
        decomposed.getInputType().getDimSize(0) > kMaxSources)
      return emitError() << "expected at most " << kMaxSources
                         << " sources, but got "
                         << decomposed.getInputType().getDimSize(0);
    return verifyElements(decomposed.getInputType());
  }
  if (holdsShard(op))
    return emitError() << "expected local tensors, but got a partitioned one; "
                          "run zero-decompose-all-gather and "
                          "zero-decompose-reduce-scatter first";
  if (isa_and_present<tensor::TensorDialect>(op->getDialect()) &&
      !isa<tensor::EmptyOp>(op) && !isTensorOp(op))
    return emitError() << "expected tensor.empty, or tensor.concat, a slice or "
                          "a reshape of static tensors without strides";
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return verifyElements(empty.getType());
  return success();
}

//===----------------------------------------------------------------------===//
// Shared arithmetic
//===----------------------------------------------------------------------===//

namespace {
/// Private functions with the arithmetic of decomposed ops, one for each kind,
/// attributes and types.
class OutlinedFunctions {
public:
  explicit OutlinedFunctions(ModuleOp module)
      : module(module), symbols(module) {}

  /// True if `op` is worth a function: not a collective, and more than a
  /// reshape.
  static bool canOutline(DecomposedOpInterface op) {
    if (isa<CollectiveOpInterface>(*op))
      return false;
    if (auto pack = dyn_cast<PackSlicesOp>(*op))
      return !isReshape(pack.getSlices(), pack.getInputType());
    if (auto unpack = dyn_cast<UnpackSlicesOp>(*op))
      return !isReshape(unpack.getSlices(), unpack.getInitType());
    return true;
  }

  /// Calls the function for `op` with `inputs`, and returns the result.
  Value call(OpBuilder &builder, DecomposedOpInterface op, ValueRange inputs) {
    func::FuncOp &function = functions[getKey(op)];
    if (!function)
      function = create(op);
    return func::CallOp::create(builder, op->getLoc(), function, inputs)
        .getResult(0);
  }

private:
  /// True if the chunk form of a tensor of `type` has its elements in order.
  static bool isReshape(SlicesAttr slices, ShapedType type) {
    SliceMap map = slices.getMap(type.getShape());
    if (map.paddedExtent() != map.extent || map.partSize() != map.unit)
      return false;
    return map.numChunks() == 1 ||
           (map.outer == 1 &&
            llvm::equal(slices.getChunk(),
                        llvm::seq<int64_t>(0, slices.getChunk().size())));
  }

  static Attribute getKey(Operation *op) {
    Builder builder(op->getContext());
    SmallVector<Attribute> key{
        builder.getStringAttr(op->getName().getStringRef()),
        TypeAttr::get(op->getOperand(0).getType()),
        TypeAttr::get(op->getResult(0).getType())};
    if (Attribute properties = op->getPropertiesAsAttribute())
      key.push_back(properties);
    return builder.getArrayAttr(key);
  }

  func::FuncOp create(DecomposedOpInterface op) {
    IRRewriter builder(OpBuilder::atBlockEnd(module.getBody()));
    SmallVector<Value> inputs = getInputs(op->getOperands());
    std::string name = op->getName().getStringRef().str();
    std::replace(name.begin(), name.end(), '.', '_');
    auto function = func::FuncOp::create(
        builder, op->getLoc(), name,
        builder.getFunctionType(ValueRange(inputs).getTypes(),
                                op->getResultTypes()));
    function.setPrivate();
    symbols.insert(function);
    builder.setInsertionPointToStart(function.addEntryBlock());
    StablehloBuilder b(builder, op->getLoc());
    Value value = lowerDecomposed(b, op, function.getArguments());
    func::ReturnOp::create(builder, op->getLoc(), value);
    return function;
  }

  ModuleOp module;
  SymbolTable symbols;
  llvm::DenseMap<Attribute, func::FuncOp> functions;
};

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

/// Lowers a decomposed op to its arithmetic or to a call of a function with it.
template <typename OpT>
struct LowerDecomposedOp : public OpConversionPattern<OpT> {
  LowerDecomposedOp(const TypeConverter &converter, MLIRContext *context,
                    std::shared_ptr<OutlinedFunctions> functions)
      : OpConversionPattern<OpT>(converter, context),
        functions(std::move(functions)) {}

  LogicalResult
  matchAndRewrite(OpT op, typename OpT::Adaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    if (op.isOnBuffers())
      return rewriter.notifyMatchFailure(op, "it is on buffers");
    if (!getMissingPass(op).empty())
      return rewriter.notifyMatchFailure(op, "it is not decomposed");
    SmallVector<Value> inputs = getInputs(adaptor.getOperands());
    if (functions && OutlinedFunctions::canOutline(op)) {
      rewriter.replaceOp(op, functions->call(rewriter, op, inputs));
      return success();
    }
    StablehloBuilder b(rewriter, op.getLoc());
    rewriter.replaceOp(op, lowerDecomposed(b, op, inputs));
    return success();
  }

  std::shared_ptr<OutlinedFunctions> functions;
};

/// Lowers a plain gather together with the op that orders its chunks.
struct LowerPlainGather : public OpConversionPattern<AllGatherChunksOp> {
  LowerPlainGather(const TypeConverter &converter, MLIRContext *context)
      : OpConversionPattern(converter, context, /*benefit=*/2) {}

  LogicalResult
  matchAndRewrite(AllGatherChunksOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    UnpackSlicesOp order = getPlainOrder(op);
    if (!order)
      return rewriter.notifyMatchFailure(op, "something was done to it");
    StablehloBuilder b(rewriter, op.getLoc());
    Operation *gather = b.allGather(adaptor.getInput(), getGroups(op),
                                    order.getSlices().getDim());
    restoreSource(op, gather);
    copyMarks(op, gather);
    rewriter.replaceOp(order, gather);
    rewriter.eraseOp(op);
    return success();
  }
};

/// Lowers a plain scatter on local tensors.
struct LowerPlainScatter : public OpConversionPattern<ReduceScatterOp> {
  using OpConversionPattern::OpConversionPattern;
  LogicalResult
  matchAndRewrite(ReduceScatterOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    if (!isPlainScatter(op))
      return rewriter.notifyMatchFailure(op, "it is not one reduce_scatter");
    StablehloBuilder b(rewriter, op.getLoc());
    Operation *scatter = b.reduceScatter(adaptor.getOperand(), getGroups(op),
                                         op.getType().getDim());
    restoreSource(op, scatter);
    copyMarks(op, scatter);
    rewriter.replaceOp(op, scatter);
    return success();
  }
};

/// Replaces a partitioned tensor by the local one.
template <typename OpT> struct LowerBorder : public OpConversionPattern<OpT> {
  using OpConversionPattern<OpT>::OpConversionPattern;
  LogicalResult
  matchAndRewrite(OpT op, typename OpT::Adaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOp(op, adaptor.getOperands());
    return success();
  }
};

struct LowerConcat : public OpConversionPattern<tensor::ConcatOp> {
  using OpConversionPattern::OpConversionPattern;
  LogicalResult
  matchAndRewrite(tensor::ConcatOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    StablehloBuilder b(rewriter, op.getLoc());
    // Elements that were never written are never read.
    SmallVector<Value> inputs =
        llvm::map_to_vector(adaptor.getInputs(), [&](Value input) {
          auto empty = input.getDefiningOp<tensor::EmptyOp>();
          return empty ? b.zeros(empty.getType()) : input;
        });
    rewriter.replaceOp(op, b.concatenate(inputs, op.getDim()));
    return success();
  }
};

struct LowerExtractSlice : public OpConversionPattern<tensor::ExtractSliceOp> {
  using OpConversionPattern::OpConversionPattern;
  LogicalResult
  matchAndRewrite(tensor::ExtractSliceOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    if (!isTensorOp(op))
      return rewriter.notifyMatchFailure(op, "it is dynamic or strided");
    StablehloBuilder b(rewriter, op.getLoc());
    Value value = adaptor.getSource();
    for (auto [dim, offset, size] :
         llvm::enumerate(op.getStaticOffsets(), op.getStaticSizes()))
      value = b.slice(value, dim, offset, offset + size);
    rewriter.replaceOp(op, b.reshape(value, op.getType().getShape()));
    return success();
  }
};

/// Lowers a tensor.expand_shape or tensor.collapse_shape.
template <typename OpT> struct LowerReshape : public OpConversionPattern<OpT> {
  using OpConversionPattern<OpT>::OpConversionPattern;
  LogicalResult
  matchAndRewrite(OpT op, typename OpT::Adaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    StablehloBuilder b(rewriter, op.getLoc());
    rewriter.replaceOp(
        op, b.reshape(adaptor.getSrc(), op.getResultType().getShape()));
    return success();
  }
};
} // namespace

void zpp::populateZeroToStablehloTypeConversions(TypeConverter &converter) {
  converter.addConversion([](Type type) { return type; });
  converter.addConversion(
      [](ShardType type) -> Type { return type.getLocalType(); });
}

void zpp::populateZeroToStablehloPatterns(const TypeConverter &converter,
                                          RewritePatternSet &patterns,
                                          ModuleOp sharedInto) {
  MLIRContext *context = patterns.getContext();
  std::shared_ptr<OutlinedFunctions> functions;
  if (sharedInto)
    functions = std::make_shared<OutlinedFunctions>(sharedInto);
  patterns
      .add<LowerDecomposedOp<PackSlicesOp>, LowerDecomposedOp<UnpackSlicesOp>,
           LowerDecomposedOp<QuantizeOp>, LowerDecomposedOp<DequantizeOp>,
           LowerDecomposedOp<QuantizeDifferenceOp>,
           LowerDecomposedOp<DequantizeAddOp>, LowerDecomposedOp<ReduceOp>,
           LowerDecomposedOp<DequantizeReduceOp>,
           LowerDecomposedOp<DequantizeReduceQuantizeOp>,
           LowerDecomposedOp<AllToAllOp>, LowerDecomposedOp<AllGatherChunksOp>>(
          converter, context, functions);
  patterns.add<LowerPlainGather, LowerPlainScatter, LowerBorder<FromLocalOp>,
               LowerBorder<ToLocalOp>, LowerConcat, LowerExtractSlice,
               LowerReshape<tensor::ExpandShapeOp>,
               LowerReshape<tensor::CollapseShapeOp>>(converter, context);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class ConvertZeroToStablehloPass
    : public zpp::impl::ConvertZeroToStablehloPassBase<
          ConvertZeroToStablehloPass> {
public:
  using ConvertZeroToStablehloPassBase::ConvertZeroToStablehloPassBase;

  LogicalResult initialize(MLIRContext *context) override {
    return requireStablehlo(context);
  }

  void runOnOperation() override {
    // Check everything, and emit all errors, before changing anything.
    bool isConvertible = true;
    walkStep(getOperation(), [&](Operation *op) {
      isConvertible &= succeeded(verifyConvertible(op));
      return WalkResult::advance();
    });
    if (!isConvertible)
      return signalPassFailure();

    ConversionTarget target(getContext());
    target.addIllegalDialect<ZeroDialect>();
    target.addDynamicallyLegalDialect<tensor::TensorDialect>(
        [](Operation *op) { return !isTensorOp(op); });
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    // Host code is not converted.
    target.addLegalOp<ModuleOp>();
    target.markOpRecursivelyLegal<ModuleOp>(isHostModule);
    TypeConverter converter;
    populateZeroToStablehloTypeConversions(converter);
    RewritePatternSet patterns(&getContext());
    populateZeroToStablehloPatterns(converter, patterns,
                                    outline ? getOperation() : ModuleOp());
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      return signalPassFailure();
    lowerEmptyTensors();
  }

private:
  /// Erases the destinations of lowered ops. Any other reader of a tensor.empty
  /// gets zeros.
  void lowerEmptyTensors() {
    SmallVector<tensor::EmptyOp> tensors;
    walkStep(getOperation(), [&](Operation *op) {
      if (auto empty = dyn_cast<tensor::EmptyOp>(op))
        tensors.push_back(empty);
      return WalkResult::advance();
    });
    IRRewriter rewriter(&getContext());
    for (tensor::EmptyOp empty : tensors) {
      if (empty->use_empty()) {
        rewriter.eraseOp(empty);
      } else if (empty.getType().hasStaticShape()) {
        rewriter.setInsertionPoint(empty);
        StablehloBuilder b(rewriter, empty.getLoc());
        rewriter.replaceOp(empty, b.zeros(empty.getType()));
      }
    }
  }
};
} // namespace
