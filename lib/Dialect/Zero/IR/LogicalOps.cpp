//===- LogicalOps.cpp - Collectives on partitioned tensors ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpVerifiers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// FromLocalOp and ToLocalOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyLocalType(Operation *op, Type local,
                                     ShardType shard) {
  if (local != shard.getLocalType())
    return op->emitOpError("expected the local type ")
           << shard.getLocalType() << ", but got " << local;
  return success();
}

LogicalResult FromLocalOp::verify() {
  return verifyLocalType(*this, getLocal().getType(), getShard().getType());
}

LogicalResult ToLocalOp::verify() {
  return verifyLocalType(*this, getLocal().getType(), getShard().getType());
}

OpFoldResult FromLocalOp::fold(FoldAdaptor) {
  if (auto source = getLocal().getDefiningOp<ToLocalOp>())
    if (source.getShard().getType() == getType())
      return source.getShard();
  return {};
}

OpFoldResult ToLocalOp::fold(FoldAdaptor) {
  if (auto source = getShard().getDefiningOp<FromLocalOp>())
    return source.getLocal();
  return {};
}

//===----------------------------------------------------------------------===//
// AllGatherOp and ReduceScatterOp
//===----------------------------------------------------------------------===//

/// Returns the first axis of `along` that partitions no factor of `type`, or
/// null.
static AxisRefAttr findMissing(ShardType type, ArrayAttr along) {
  for (auto axis : along.getAsRange<AxisRefAttr>())
    if (llvm::none_of(type.getFactors(), [&](FactorAttr factor) {
          return factor.getAxis() == axis;
        }))
      return axis;
  return {};
}

LogicalResult AllGatherOp::verify() {
  ShardType from = getOperand().getType();
  if (AxisRefAttr missing = findMissing(from, getAlong()))
    return emitOpError("expected an operand partitioned over ")
           << missing << ", but got " << from;
  if (ShardType expected = from.withWhole(getAlong()); expected != getType())
    return emitOpError("expected the result type ")
           << expected << ", but got " << getType();
  return success();
}

/// A hop over axes of size 1 moves nothing, and the devices hold the same data
/// before and after it, unless a padded dim becomes whole.
template <typename OpT>
static LogicalResult removeTrivialHop(OpT op, PatternRewriter &rewriter) {
  if (op.getGroupSize() != 1)
    return rewriter.notifyMatchFailure(op, "more than one device takes part");
  RankedTensorType local = op.getOperand().getType().getLocalType();
  if (local != op.getType().getLocalType())
    return rewriter.notifyMatchFailure(op, "the local type changes");
  Value held = ToLocalOp::create(rewriter, op.getLoc(), local, op.getOperand());
  rewriter.replaceOpWithNewOp<FromLocalOp>(op, op.getType(), held);
  return success();
}

LogicalResult AllGatherOp::canonicalize(AllGatherOp op,
                                        PatternRewriter &rewriter) {
  return removeTrivialHop(op, rewriter);
}

LogicalResult ReduceScatterOp::verify() {
  ShardType from = getOperand().getType(), to = getType();
  if (from.getQuant() || to.getQuant())
    return emitOpError("expected tensors that are not encoded, but got ")
           << (from.getQuant() ? from : to);
  if (failed(verifyFloat(*this, "operand", from.getGlobal())) ||
      failed(verifyFloat(*this, "result", to.getGlobal())))
    return failure();
  Type read = from.getGlobal().getElementType();
  Type written = to.getGlobal().getElementType();
  if (written != read && !written.isF32() && !read.isF32())
    return emitOpError("expected the result element type ")
           << read << " or f32, but got " << written;
  if (AxisRefAttr missing = findMissing(to, getAlong()))
    return emitOpError("expected a result partitioned over ")
           << missing << ", but got " << to;
  ShardType expected = to.withWhole(getAlong()).withElementType(read);
  if (expected != from)
    return emitOpError("expected the operand type ")
           << expected << ", but got " << from;
  return success();
}

LogicalResult ReduceScatterOp::canonicalize(ReduceScatterOp op,
                                            PatternRewriter &rewriter) {
  // Rounding to the wire format changes the values.
  if (op.getWire())
    return rewriter.notifyMatchFailure(op, "values are rounded");
  return removeTrivialHop(op, rewriter);
}

//===----------------------------------------------------------------------===//
// AllReduceOp
//===----------------------------------------------------------------------===//

LogicalResult AllReduceOp::verify() {
  ShardType type = getType();
  if (type.getQuant())
    return emitOpError("expected a tensor that is not encoded, but got ")
           << type;
  if (failed(verifyFloat(*this, "operand", type.getGlobal())))
    return failure();
  std::vector<zpp::AxisRef> refs;
  llvm::append_range(refs, resolveAxes(getAlong(), type.getMesh()));
  llvm::append_range(refs, type.getAxes());
  std::string error = type.getMesh().getMesh().verify(refs);
  if (!error.empty())
    return emitOpError("expected an operand that no axis of the sum "
                       "partitions, but got ")
           << type << ": " << error;
  return success();
}

//===----------------------------------------------------------------------===//
// EncodeOp and DecodeOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyEncoding(Operation *op, ShardType encoded,
                                    ShardType decoded) {
  // Chunks have no element type: those of a sum in f32 may be read as bf16.
  Type element = encoded.getGlobal().getElementType();
  Type read = decoded.getGlobal().getElementType();
  if (!encoded.getQuant() || decoded.getQuant() || !isQuantizable(read) ||
      encoded != decoded.withElementType(element).withQuant(encoded.getQuant()))
    return op->emitOpError("expected the same partitioned tensor with and "
                           "without quantization, but got ")
           << encoded << " and " << decoded;
  return success();
}

/// Verifies what is held of a tensor, if there is such an operand.
static LogicalResult verifyHeld(Operation *op, Value held, ShardType encoded,
                                ShardType decoded) {
  if (!held)
    return success();
  if (held.getType() != decoded)
    return op->emitOpError("expected the type ")
           << decoded << " of what is held, but got " << held.getType();
  return verifyNoRotation(op, encoded.getQuant());
}

LogicalResult EncodeOp::verify() {
  if (failed(verifyEncoding(*this, getType(), getOperand().getType())))
    return failure();
  return verifyHeld(*this, getHeld(), getType(), getOperand().getType());
}

LogicalResult DecodeOp::verify() {
  if (failed(verifyEncoding(*this, getOperand().getType(), getType())))
    return failure();
  return verifyHeld(*this, getHeld(), getOperand().getType(), getType());
}
