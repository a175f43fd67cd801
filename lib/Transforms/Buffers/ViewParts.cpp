//===- ViewParts.cpp - Parts of a tensor as views of its buffer -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bufferization compares each access to a tensor with all others to the same
// buffer. Where an exchange brings many tensors, and each is only read, no
// comparison finds anything: here they become views before it looks.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_VIEWPARTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

static bool isZero(Operation *op) {
  return isa<zero::ZeroDialect>(op->getDialect());
}

/// Whether only zero ops use `part`, and none writes to it.
static bool isOnlyRead(Value part) {
  return llvm::all_of(part.getUses(), [](OpOperand &use) {
    auto reader = dyn_cast<DestinationStyleOpInterface>(use.getOwner());
    return reader && isZero(reader) && reader.isDpsInput(&use);
  });
}

/// Whether `whole` is in a buffer of its own, of which all that is read are
/// parts that are known here.
static bool isReadInParts(OpResult whole) {
  auto type = dyn_cast<RankedTensorType>(whole.getType());
  auto op = dyn_cast<DestinationStyleOpInterface>(whole.getOwner());
  if (!type || !type.hasStaticShape() || !op || !isZero(op))
    return false;
  Value init = op.getTiedOpOperand(whole)->get();
  if (!init.getDefiningOp<tensor::EmptyOp>() || !init.hasOneUse())
    return false;
  return llvm::all_of(whole.getUsers(), [&](Operation *user) {
    auto slice = dyn_cast<tensor::ExtractSliceOp>(user);
    return slice && slice->getBlock() == whole.getOwner()->getBlock() &&
           !ShapedType::isDynamicShape(slice.getStaticOffsets()) &&
           !ShapedType::isDynamicShape(slice.getStaticSizes()) &&
           !ShapedType::isDynamicShape(slice.getStaticStrides()) &&
           isOnlyRead(slice);
  });
}

static void viewParts(OpResult whole) {
  OpBuilder builder(whole.getOwner());
  builder.setInsertionPointAfter(whole.getOwner());
  auto type = cast<RankedTensorType>(whole.getType());
  auto slices = llvm::map_to_vector(whole.getUsers(), [](Operation *user) {
    return cast<tensor::ExtractSliceOp>(user);
  });
  auto bufferType = MemRefType::get(type.getShape(), type.getElementType());
  auto buffer = bufferization::ToBufferOp::create(
      builder, whole.getLoc(), bufferType, whole, /*read_only=*/true);
  for (tensor::ExtractSliceOp slice : slices) {
    builder.setInsertionPoint(slice);
    auto viewType = memref::SubViewOp::inferRankReducedResultType(
        slice.getType().getShape(), bufferType, slice.getStaticOffsets(),
        slice.getStaticSizes(), slice.getStaticStrides());
    Value view = memref::SubViewOp::create(
        builder, slice.getLoc(), viewType, buffer, slice.getMixedOffsets(),
        slice.getMixedSizes(), slice.getMixedStrides());
    // Nobody writes to the buffer or to a view of it.
    slice.replaceAllUsesWith(Value(bufferization::ToTensorOp::create(
        builder, slice.getLoc(), slice.getType(), view,
        /*restrict=*/true)));
    slice.erase();
  }
}

namespace {
class ViewPartsPass : public zpp::impl::ViewPartsPassBase<ViewPartsPass> {
public:
  using ViewPartsPassBase::ViewPartsPassBase;

  void runOnOperation() override {
    SmallVector<OpResult> wholes;
    getOperation()->walk([&](DestinationStyleOpInterface op) {
      for (OpResult result : op->getResults())
        if (result.hasNUsesOrMore(maxSlices + 1) && isReadInParts(result))
          wholes.push_back(result);
    });
    for (OpResult whole : wholes)
      viewParts(whole);
  }
};
} // namespace
