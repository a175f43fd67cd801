//===- BufferLayout.cpp - Where the bytes of buffers lie ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Buffers/BufferLayout.h"

#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/BlockQuant.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

static bool isEmpty(MemRefType type) {
  return llvm::is_contained(type.getShape(), 0);
}

/// Returns the strides of `type`, in elements. Fails if there are none, or if
/// 64 bits do not hold the bytes of the elements, or those from the start to
/// the end of a dim: layouts may say anything.
static FailureOr<SmallVector<int64_t>> getStrides(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)))
    return failure();
  int64_t elementBytes = std::max<int64_t>(getElementBytes(type), 1);
  int64_t all = elementBytes;
  for (auto [size, stride] : llvm::zip_equal(type.getShape(), strides)) {
    int64_t bytes = 0;
    if (llvm::MulOverflow(all, std::max<int64_t>(size, 1), all) ||
        (!ShapedType::isDynamic(size) && !ShapedType::isDynamic(stride) &&
         (llvm::MulOverflow(size, stride, bytes) ||
          llvm::MulOverflow(bytes, elementBytes, bytes))))
      return failure();
  }
  return strides;
}

bool zpp::isDense(MemRefType type) {
  FailureOr<SmallVector<int64_t>> strides = getStrides(type);
  if (failed(strides))
    return false;
  if (isEmpty(type))
    return true;
  int64_t expected = 1;
  for (auto [size, stride] :
       llvm::reverse(llvm::zip_equal(type.getShape(), *strides))) {
    if (size == 1)
      continue;
    if (stride != expected)
      return false;
    expected *= size;
  }
  return true;
}

int64_t zpp::getElementBytes(MemRefType type) {
  return getElementBits(type.getElementType()) / 8;
}

bool zpp::isMovable(Type element) {
  return llvm::is_contained({8, 16, 32, 64}, getElementBits(element));
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

/// Returns the number of chunks of an operand whose chunks may lie apart; 0 if
/// the operand must be dense.
static int64_t getNumChunks(OpOperand &operand) {
  Operation *op = operand.getOwner();
  auto type = cast<ShapedType>(operand.get().getType());
  bool isInput = operand.getOperandNumber() == 0;
  if (isInput) {
    if (isa<ReduceOp, DequantizeReduceOp, DequantizeReduceQuantizeOp>(op))
      return type.getDimSize(0);
    if (isa<DequantizeOp, DequantizeAddOp>(op))
      return llvm::product_of(type.getShape().drop_back());
    if (auto unpack = dyn_cast<UnpackSlicesOp>(op))
      return unpack.getSlices()
          .getMap(unpack.getInitType().getShape())
          .numChunks();
    return 0;
  }
  // The third operand is what is held of a tensor.
  if (operand.getOperandNumber() == 1 &&
      isa<QuantizeOp, QuantizeDifferenceOp, PackSlicesOp,
          DequantizeReduceQuantizeOp>(op))
    return type.getDimSize(0);
  return 0;
}

/// Returns the distance, in elements, from the start of each row of a buffer to
/// the next, if the buffer consists of `rows` dense rows at equal distances.
static std::optional<int64_t> getRowStride(MemRefType type, int64_t rows) {
  FailureOr<SmallVector<int64_t>> layout = getStrides(type);
  if (failed(layout))
    return std::nullopt;
  ArrayRef<int64_t> strides = *layout;
  // The leading dims number the rows.
  ArrayRef<int64_t> shape = type.getShape();
  size_t split = 0;
  for (int64_t leading = 1; leading < rows; ++split)
    leading *= shape[split];
  auto row = MemRefType::get(
      shape.drop_front(split), type.getElementType(),
      StridedLayoutAttr::get(type.getContext(), 0, strides.drop_front(split)));
  if (row.getNumElements() * rows != type.getNumElements() || !isDense(row))
    return std::nullopt;
  std::optional<int64_t> stride;
  int64_t expected = 0;
  for (size_t dim = split; dim-- > 0;) {
    if (shape[dim] == 1)
      continue;
    if (ShapedType::isDynamic(strides[dim]) ||
        (stride && strides[dim] != expected))
      return std::nullopt;
    if (!stride)
      stride = strides[dim];
    expected = strides[dim] * shape[dim];
  }
  return stride;
}

std::optional<int64_t> zpp::getChunkStride(OpOperand &operand,
                                           std::string *expected) {
  auto type = cast<MemRefType>(operand.get().getType());
  if (isDense(type))
    return 0;
  auto fail = [&](const char *text) {
    if (expected)
      *expected = text;
    return std::nullopt;
  };
  int64_t chunks = getNumChunks(operand);
  if (chunks == 0)
    return fail("a dense buffer");
  std::optional<int64_t> stride = getRowStride(type, chunks);
  if (!stride)
    return fail("dense chunks at equal distances");
  int64_t bytes = *stride * getElementBytes(type);
  bool isWire =
      isa<QuantizeOp, DequantizeOp, QuantizeDifferenceOp, DequantizeAddOp,
          DequantizeReduceOp, DequantizeReduceQuantizeOp>(operand.getOwner());
  if (isWire && bytes % kChunkAlignment != 0)
    return fail("chunks at multiples of 16 bytes");
  return bytes;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

std::optional<StridedCopy> StridedCopy::get(MemRefType target,
                                            MemRefType source) {
  FailureOr<SmallVector<int64_t>> targetStrides = getStrides(target),
                                  sourceStrides = getStrides(source);
  if (failed(targetStrides) || failed(sourceStrides))
    return std::nullopt;
  int64_t elementBytes = getElementBytes(target);
  StridedCopy copy;
  if (isEmpty(target))
    return copy;
  copy.rowBytes = elementBytes;
  // From the innermost dim outwards, a dim that continues the previous one is
  // merged with it.
  SmallVector<Loop> loops;
  for (auto [size, targetStride, sourceStride] : llvm::reverse(llvm::zip_equal(
           target.getShape(), *targetStrides, *sourceStrides))) {
    if (size == 1)
      continue;
    if (ShapedType::isDynamic(targetStride) ||
        ShapedType::isDynamic(sourceStride))
      return std::nullopt;
    Loop loop{size, targetStride * elementBytes, sourceStride * elementBytes};
    if (loops.empty() && loop.targetStride == copy.rowBytes &&
        loop.sourceStride == copy.rowBytes) {
      copy.rowBytes *= size;
    } else if (!loops.empty() &&
               loop.targetStride ==
                   loops.back().size * loops.back().targetStride &&
               loop.sourceStride ==
                   loops.back().size * loops.back().sourceStride) {
      loops.back().size *= size;
    } else {
      loops.push_back(loop);
    }
  }
  copy.loops.assign(loops.rbegin(), loops.rend());
  return copy;
}
