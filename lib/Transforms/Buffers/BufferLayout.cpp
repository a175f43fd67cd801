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

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

bool zpp::isDense(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)))
    return false;
  if (type.getNumElements() == 0)
    return true;
  int64_t expected = 1;
  for (auto [size, stride] :
       llvm::reverse(llvm::zip_equal(type.getShape(), strides))) {
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

/// The number of chunks of an operand whose chunks may lie apart; 0 if the
/// operand must be dense.
static int64_t getNumChunks(OpOperand &operand) {
  Operation *op = operand.getOwner();
  auto type = cast<ShapedType>(operand.get().getType());
  bool isInput = operand.getOperandNumber() == 0;
  if (isInput) {
    if (isa<ReduceOp, DequantizeReduceOp, DequantizeReduceQuantizeOp>(op))
      return type.getDimSize(0);
    if (isa<DequantizeOp>(op))
      return llvm::product_of(type.getShape().drop_back());
    if (auto unpack = dyn_cast<UnpackSlicesOp>(op))
      return unpack.getSlices()
          .getMap(unpack.getInitType().getShape())
          .numChunks();
    return 0;
  }
  if (isa<QuantizeOp, PackSlicesOp, DequantizeReduceQuantizeOp>(op))
    return type.getDimSize(0);
  return 0;
}

/// The distance, in elements, from the start of each row of a buffer to the
/// next, if the buffer consists of `rows` dense rows at equal distances.
static std::optional<int64_t> getRowStride(MemRefType type, int64_t rows) {
  SmallVector<int64_t> strides;
  int64_t offset;
  if (failed(type.getStridesAndOffset(strides, offset)))
    return std::nullopt;
  // The leading dims number the rows.
  ArrayRef<int64_t> shape = type.getShape();
  size_t split = 0;
  for (int64_t leading = 1; leading < rows; ++split)
    leading *= shape[split];
  auto row = MemRefType::get(
      shape.drop_front(split), type.getElementType(),
      StridedLayoutAttr::get(type.getContext(), 0,
                             ArrayRef(strides).drop_front(split)));
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
  bool isWire = isa<QuantizeOp, DequantizeOp, DequantizeReduceOp,
                    DequantizeReduceQuantizeOp>(operand.getOwner());
  if (isWire && bytes % kChunkAlignment != 0)
    return fail("chunks at multiples of 16 bytes");
  return bytes;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

std::optional<StridedCopy> StridedCopy::get(MemRefType target,
                                            MemRefType source) {
  SmallVector<int64_t> targetStrides, sourceStrides;
  int64_t offset;
  if (failed(target.getStridesAndOffset(targetStrides, offset)) ||
      failed(source.getStridesAndOffset(sourceStrides, offset)))
    return std::nullopt;
  int64_t elementBytes = getElementBytes(target);
  StridedCopy copy;
  copy.rowBytes = target.getNumElements() == 0 ? 0 : elementBytes;
  // From the innermost dim outwards, a dim that continues the previous one is
  // merged with it.
  SmallVector<Loop> loops;
  for (auto [size, targetStride, sourceStride] : llvm::reverse(
           llvm::zip_equal(target.getShape(), targetStrides, sourceStrides))) {
    if (size <= 1)
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
