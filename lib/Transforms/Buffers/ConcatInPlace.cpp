//===- ConcatInPlace.cpp - Concatenations without copies ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// By default, bufferization copies the parts of a concatenation. Here each part
// is inserted directly after the op that computes it, so that
// eliminate-empty-tensors can let that op write to the final place.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_CONCATINPLACEPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

/// Upstream's bufferization needs more than cubic time to analyze a chain of
/// insertions, so longer chains are avoided.
static constexpr size_t kMaxInsertions = 16;

/// Whether zero-forward-parts can let the parts be computed in their places
/// once the concatenation is bufferized: each is computed in this block into a
/// tensor of its own, and only for this concatenation, whose result is only
/// read.
static bool isForwardedLater(tensor::ConcatOp concat) {
  auto isOwnPart = [&](Value part) {
    auto source = part.getDefiningOp<DestinationStyleOpInterface>();
    if (!source || !isa<zero::ZeroDialect>(source->getDialect()) ||
        source->getBlock() != concat->getBlock() || !part.hasOneUse())
      return false;
    Value init = source.getTiedOpOperand(cast<OpResult>(part))->get();
    return init.getDefiningOp<tensor::EmptyOp>() && init.hasOneUse();
  };
  auto isRead = [](OpOperand &use) {
    auto reader = dyn_cast<DestinationStyleOpInterface>(use.getOwner());
    return reader && isa<zero::ZeroDialect>(reader->getDialect()) &&
           reader.isDpsInput(&use);
  };
  return llvm::all_of(concat.getInputs(), isOwnPart) &&
         llvm::all_of(concat->getUses(), isRead);
}

/// Inserts part `index` at `offset`.
static Value insert(OpBuilder &builder, tensor::ConcatOp concat, unsigned index,
                    int64_t offset, Value whole) {
  Value part = concat.getInputs()[index];
  auto type = cast<RankedTensorType>(part.getType());
  SmallVector<OpFoldResult> offsets(type.getRank(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(type.getRank(), builder.getIndexAttr(1));
  offsets[concat.getDim()] = builder.getIndexAttr(offset);
  return tensor::InsertSliceOp::create(
      builder, concat.getLoc(), part, whole, offsets,
      getAsIndexOpFoldResult(builder.getContext(), type.getShape()), strides);
}

static void insertParts(tensor::ConcatOp concat) {
  struct Part {
    unsigned index;
    int64_t offset;
    /// The op of the same block that computes it, or null.
    Operation *source;
  };
  SmallVector<Part> parts;
  int64_t offset = 0;
  for (auto [index, input] : llvm::enumerate(concat.getInputs())) {
    Operation *source = input.getDefiningOp();
    if (source && source->getBlock() != concat->getBlock())
      source = nullptr;
    parts.push_back({static_cast<unsigned>(index), offset, source});
    offset +=
        cast<RankedTensorType>(input.getType()).getDimSize(concat.getDim());
  }
  // In the order in which the parts are computed. Parts that other blocks
  // compute are copied last.
  llvm::sort(parts, [](const Part &a, const Part &b) {
    if (a.source == b.source)
      return a.index < b.index;
    if (!a.source || !b.source)
      return a.source != nullptr;
    return a.source->isBeforeInBlock(b.source);
  });

  auto builder = OpBuilder::atBlockBegin(concat->getBlock());
  RankedTensorType type = concat.getResultType();
  Value whole = tensor::EmptyOp::create(builder, concat.getLoc(),
                                        type.getShape(), type.getElementType());
  for (const Part &part : parts) {
    builder.setInsertionPoint(concat);
    if (part.source) {
      Operation *before = whole.getDefiningOp();
      builder.setInsertionPointAfter(
          before->isBeforeInBlock(part.source) ? part.source : before);
    }
    whole = insert(builder, concat, part.index, part.offset, whole);
  }
  concat.replaceAllUsesWith(whole);
  concat.erase();
}

namespace {
class ConcatInPlacePass
    : public zpp::impl::ConcatInPlacePassBase<ConcatInPlacePass> {
public:
  void runOnOperation() override {
    SmallVector<tensor::ConcatOp> concats;
    getOperation()->walk([&](tensor::ConcatOp concat) {
      bool isStatic =
          concat.getResultType().hasStaticShape() &&
          llvm::all_of(concat.getInputs(), [](Value input) {
            return cast<RankedTensorType>(input.getType()).hasStaticShape();
          });
      bool isLong = concat.getInputs().size() > kMaxInsertions;
      if (isStatic && !(isLong && isForwardedLater(concat)))
        concats.push_back(concat);
    });
    for (tensor::ConcatOp concat : concats)
      insertParts(concat);
  }
};
} // namespace
