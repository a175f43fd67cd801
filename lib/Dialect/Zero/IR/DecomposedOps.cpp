//===- DecomposedOps.cpp - Operations on local tensors and chunks ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpVerifiers.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Decomposed ops
//===----------------------------------------------------------------------===//

void zpp::zero::addLocalEffects(Operation *op, Effects &effects) {
  auto local = cast<DestinationStyleOpInterface>(op);
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (local.isDpsInit(&operand))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  }
  if (isa<CollectiveOpInterface>(op))
    addNetworkEffects(effects);
}

static std::string str(ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "[";
  llvm::interleaveComma(shape, os);
  os << "]";
  return text;
}

static LogicalResult verifyShape(Operation *op, StringRef what,
                                 ArrayRef<int64_t> expected, ShapedType type) {
  if (expected == type.getShape())
    return success();
  return op->emitOpError("expected the shape ")
         << str(expected) << " of the " << what << ", but got " << type;
}

static LogicalResult verifySameElement(Operation *op, ShapedType input,
                                       ShapedType init) {
  if (input.getElementType() == init.getElementType())
    return success();
  return op->emitOpError("expected the element type ")
         << input.getElementType() << " of the destination, but got "
         << init.getElementType();
}

/// Verifies that `slices` fits a tensor of type `type`.
static LogicalResult verifySlices(Operation *op, SlicesAttr slices,
                                  ShapedType type) {
  if (slices.getDim() >= type.getRank())
    return op->emitOpError("expected a dim of slices below the rank ")
           << type.getRank() << ", but got " << slices.getDim();
  std::string error = slices.getMap(type.getShape()).verify();
  if (!error.empty())
    return op->emitOpError("slices do not fit ") << type << ": " << error;
  return success();
}

/// Verifies that `slices` fits the type and covers all of it.
static LogicalResult verifyCoveringSlices(Operation *op, SlicesAttr slices,
                                          ShapedType type) {
  if (failed(verifySlices(op, slices, type)))
    return failure();
  if (slices.getStages() != 1)
    return op->emitOpError("expected 1 stage, but got ") << slices.getStages();
  return success();
}

/// Verifies that the elements of `type`, that of `what`, are bytes.
static LogicalResult verifyBytes(Operation *op, StringRef what,
                                 ShapedType type) {
  if (type.getElementType().isSignlessInteger(8))
    return success();
  return op->emitOpError("expected i8 elements of the ")
         << what << ", but got " << type.getElementType();
}

static LogicalResult emitWrongChunks(Operation *op, int64_t chunks,
                                     int64_t bytes, StringRef what,
                                     ShapedType type) {
  return op->emitOpError("expected ")
         << chunks << (chunks == 1 ? " chunk of " : " chunks of ") << bytes
         << " bytes in the " << what << ", but got " << type;
}

/// Verifies that `type` is a buffer of `chunks` wire chunks, numbered by its
/// leading dim.
static LogicalResult verifyWire(Operation *op, StringRef what, ShapedType type,
                                int64_t chunks, int64_t elements,
                                QuantAttr quant) {
  if (failed(verifyBytes(op, what, type)))
    return failure();
  int64_t bytes = quant.getLayout(elements).chunkBytes;
  if (ArrayRef<int64_t>{chunks, bytes} == type.getShape())
    return success();
  return emitWrongChunks(op, chunks, bytes, what, type);
}

/// Verifies that a buffer that is reduced has at least one row.
static LogicalResult verifySources(Operation *op, ShapedType type,
                                   int64_t elements, QuantAttr quant) {
  if (type.getRank() == 0 || type.getDimSize(0) == 0)
    return op->emitOpError("expected an input of at least 1 chunk, but got ")
           << type;
  return verifyWire(op, "input", type, type.getDimSize(0), elements, quant);
}

LogicalResult zpp::zero::verifySizes(Operation *op) {
  auto decomposed = cast<DecomposedOpInterface>(op);
  SmallVector<ShapedType> types{decomposed.getInputType(),
                                decomposed.getInitType()};
  if (auto fused = dyn_cast<DequantizeReduceQuantizeOp>(op))
    types.push_back(cast<ShapedType>(fused.getPartial()));
  for (ShapedType type : types) {
    // An element takes at most 64 bytes, even if it is padded or encoded.
    int64_t bytes = 64;
    for (int64_t size : type.getShape())
      bytes = zpp::multiplySaturating(bytes, std::max<int64_t>(size, 1));
    if (bytes == std::numeric_limits<int64_t>::max())
      return op->emitOpError("expected fewer than 2^57 elements, but got ")
             << type;
  }
  return success();
}

static int64_t numElements(ArrayRef<int64_t> shape) {
  return llvm::product_of(shape);
}

/// Returns the bytes of a chunk of `chunkShape`, whose leading dim numbers
/// chunks, with the elements of `type`; 0 if these do not fill whole bytes.
static int64_t getChunkBytes(ArrayRef<int64_t> chunkShape, ShapedType type) {
  Type element = type.getElementType();
  if (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() % 8 != 0)
    return 0;
  return numElements(chunkShape.drop_front()) *
         (element.getIntOrFloatBitWidth() / 8);
}

/// True if `bytes` has bytes as elements and `type` has other elements.
static bool isInBytes(ShapedType bytes, ShapedType type) {
  return bytes.getElementType().isSignlessInteger(8) &&
         !type.getElementType().isInteger(8);
}

LogicalResult PackSlicesOp::verify() {
  ShapedType input = getInputType(), init = getInitType();
  if (failed(verifySlices(*this, getSlices(), input)))
    return failure();
  SmallVector<int64_t> chunkShape = getSlices().getChunkShape(input.getShape());
  if (isInBytes(init, input))
    return verifyShape(*this, "destination",
                       {chunkShape.front(), getChunkBytes(chunkShape, input)},
                       init);
  if (failed(verifySameElement(*this, input, init)))
    return failure();
  return verifyShape(*this, "destination", chunkShape, init);
}

LogicalResult UnpackSlicesOp::verify() {
  ShapedType input = getInputType(), init = getInitType();
  if (failed(verifyCoveringSlices(*this, getSlices(), init)))
    return failure();
  SmallVector<int64_t> chunkShape = getSlices().getChunkShape(init.getShape());
  if (isInBytes(input, init)) {
    int64_t bytes = getChunkBytes(chunkShape, init);
    if (input.getRank() > 0 && input.getShape().back() == bytes &&
        numElements(input.getShape().drop_back()) == chunkShape.front())
      return success();
    return emitWrongChunks(*this, chunkShape.front(), bytes, "input", input);
  }
  if (failed(verifySameElement(*this, input, init)))
    return failure();
  if (input.getNumElements() != numElements(chunkShape))
    return emitOpError("expected an input with the elements of ")
           << str(chunkShape) << ", but got " << input;
  return success();
}

/// Verifies an op that quantizes the chunks of its input.
template <typename OpT> static LogicalResult verifyQuantize(OpT op) {
  ShapedType input = op.getInputType();
  if (failed(verifyFloat(op, "input", input)))
    return failure();
  SmallVector<int64_t> chunkShape(input.getShape());
  if (SlicesAttr slices = op.getSlicesAttr()) {
    if (failed(verifySlices(op, slices, input)))
      return failure();
    chunkShape = slices.getChunkShape(input.getShape());
  } else if (input.getRank() == 0) {
    return op.emitOpError("expected a leading dim of chunks, but got ")
           << input;
  }
  return verifyWire(op, "destination", op.getInitType(), chunkShape.front(),
                    numElements(ArrayRef(chunkShape).drop_front()),
                    op.getQuant());
}

/// Verifies an op that reads chunks of its destination.
template <typename OpT> static LogicalResult verifyDequantize(OpT op) {
  ShapedType init = op.getInitType();
  if (failed(verifyFloat(op, "destination", init)))
    return failure();
  SmallVector<int64_t> chunkShape(init.getShape());
  if (SlicesAttr slices = op.getSlicesAttr()) {
    if (failed(verifyCoveringSlices(op, slices, init)))
      return failure();
    chunkShape = slices.getChunkShape(init.getShape());
  } else if (init.getRank() == 0) {
    return op.emitOpError("expected a leading dim of chunks, but got ") << init;
  }
  // A gathered tensor has two leading dims of chunks: by device and by unit.
  ShapedType input = op.getInputType();
  if (failed(verifyBytes(op, "input", input)))
    return failure();
  int64_t chunks = chunkShape.front();
  int64_t bytes = op.getQuant()
                      .getLayout(numElements(ArrayRef(chunkShape).drop_front()))
                      .chunkBytes;
  if (input.getRank() > 0 && input.getShape().back() == bytes &&
      numElements(input.getShape().drop_back()) == chunks)
    return success();
  return emitWrongChunks(op, chunks, bytes, "input", input);
}

/// Verifies what is held of a tensor of type `type`.
template <typename OpT>
static LogicalResult verifyDifference(OpT op, ShapedType type) {
  auto held = cast<ShapedType>(op.getHeld().getType());
  if (isa<TensorType>(held) != isa<TensorType>(type) ||
      held.getShape() != type.getShape() ||
      held.getElementType() != type.getElementType())
    return op.emitOpError("expected what is held to have the shape and "
                          "elements of ")
           << type << ", but got " << held;
  return verifyNoRotation(op, op.getQuant());
}

LogicalResult QuantizeOp::verify() { return verifyQuantize(*this); }

LogicalResult DequantizeOp::verify() { return verifyDequantize(*this); }

LogicalResult QuantizeDifferenceOp::verify() {
  if (failed(verifyQuantize(*this)))
    return failure();
  return verifyDifference(*this, getInputType());
}

LogicalResult DequantizeAddOp::verify() {
  if (failed(verifyDequantize(*this)))
    return failure();
  return verifyDifference(*this, getInitType());
}

LogicalResult ReduceOp::verify() {
  ShapedType input = getInputType(), init = getInitType();
  if (failed(verifyFloat(*this, "input", input)) ||
      failed(verifyFloat(*this, "destination", init)))
    return failure();
  if (input.getRank() == 0 || input.getDimSize(0) == 0)
    return emitOpError("expected an input of at least 1 source, but got ")
           << input;
  return verifyShape(*this, "destination", input.getShape().drop_front(), init);
}

LogicalResult DequantizeReduceOp::verify() {
  if (failed(verifyFloat(*this, "destination", getInitType())))
    return failure();
  return verifySources(*this, getInputType(), getInitType().getNumElements(),
                       getQuant());
}

LogicalResult DequantizeReduceQuantizeOp::verify() {
  auto partial = cast<RankedTensorType>(getPartial());
  if (failed(verifySlices(*this, getSlices(), partial)) ||
      failed(verifySources(*this, getInputType(), partial.getNumElements(),
                           getQuant())))
    return failure();
  if (getQuant().getRotate() != getTo().getRotate())
    return emitOpError("expected both formats to rotate or none, but got ")
           << getQuant() << " and " << getTo();
  if (getQuant().isRotated() &&
      !getSlices().getMap(partial.getShape()).movesWhole(kRotation))
    return emitOpError("expected slices of whole groups of ")
           << kRotation << " elements, but got " << getSlices() << " of "
           << partial;
  SmallVector<int64_t> chunkShape =
      getSlices().getChunkShape(partial.getShape());
  return verifyWire(*this, "destination", getInitType(), chunkShape.front(),
                    numElements(ArrayRef(chunkShape).drop_front()), getTo());
}

LogicalResult AllToAllOp::verify() {
  ShapedType input = getInputType(), init = getInitType();
  SmallVector<int64_t> chunkShape(input.getShape());
  if (SlicesAttr slices = getSlicesAttr()) {
    if (failed(verifySlices(*this, slices, input)))
      return failure();
    chunkShape = slices.getChunkShape(input.getShape());
  } else if (input.getRank() == 0) {
    return emitOpError("expected a leading dim of chunks, but got ") << input;
  }
  int64_t size = getGroupSize();
  if (chunkShape.front() != size)
    return emitOpError("expected a chunk for each of ")
           << size << " devices, but got " << chunkShape.front();
  if (getWire()) {
    if (failed(verifyFloat(*this, "input", input)) ||
        failed(verifyFloat(*this, "destination", init)))
      return failure();
  } else if (failed(verifySameElement(*this, input, init))) {
    return failure();
  }
  return verifyShape(*this, "destination", chunkShape, init);
}

LogicalResult AllGatherChunksOp::verify() {
  if (failed(verifySameElement(*this, getInputType(), getInitType())))
    return failure();
  SmallVector<int64_t> shape{getGroupSize()};
  llvm::append_range(shape, getInputType().getShape());
  return verifyShape(*this, "destination", shape, getInitType());
}
