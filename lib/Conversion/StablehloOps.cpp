//===- StablehloOps.cpp - Each decomposed op in StableHLO -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A fused op is lowered as the composition of its parts.
//
//===----------------------------------------------------------------------===//

#include "StablehloOps.h"

#include "StablehloArithmetic.h"
#include "zpp/Analysis/Origin.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;
using namespace zpp::stablehlo_arith;

void zpp::copyMarks(Operation *from, Operation *to) {
  for (NamedAttribute attribute : from->getDiscardableAttrs())
    if (attribute.getName().getValue().starts_with("zpp.") &&
        attribute.getName() != kSourceAttr)
      to->setDiscardableAttr(attribute.getName(), attribute.getValue());
}

WrittenGroups zpp::getGroups(CollectiveOpInterface op) {
  return writeGroups(op->getParentOfType<ModuleOp>(),
                     op.getMeshAttr().getMesh(), op.getAxisRefs());
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
  return lowerQuantize(b, op, subtractHeld(b, input, held));
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
  return roundTo(b, addHeld(b, held, values), init.getElementType());
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
  Operation *exchange =
      b.allToAll(input, getGroups(op), /*split=*/0, /*join=*/0);
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

SmallVector<Value> zpp::getInputs(ValueRange operands) {
  SmallVector<Value> inputs{operands.front()};
  llvm::append_range(inputs, operands.drop_front(2));
  return inputs;
}

Value zpp::lowerDecomposed(StablehloBuilder &b, DecomposedOpInterface op,
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
