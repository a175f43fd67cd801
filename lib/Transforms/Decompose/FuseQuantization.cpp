//===- FuseQuantization.cpp - Fused local ops (4.2) -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "UnitSlices.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_FUSEQUANTIZATIONPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// Returns the op that defines `value`, if it is an OpT and `value` has only
/// one reader; otherwise null.
template <typename OpT> OpT getOnlySource(Value value) {
  auto source = value.getDefiningOp<OpT>();
  return source && source->hasOneUse() ? source : OpT();
}

/// Erases `op`, and its destination if that has no other use.
void eraseSource(PatternRewriter &rewriter, DestinationStyleOpInterface op) {
  auto empty = op.getDpsInits().front().getDefiningOp<tensor::EmptyOp>();
  rewriter.eraseOp(op);
  if (empty && empty->use_empty())
    rewriter.eraseOp(empty);
}

/// quantize(pack_slices(x)) -> quantize(x) with slices
struct FusePackIntoQuantize : public OpRewritePattern<QuantizeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(QuantizeOp op,
                                PatternRewriter &rewriter) const override {
    auto pack = getOnlySource<PackSlicesOp>(op.getInput());
    if (!pack || op.getSlices())
      return rewriter.notifyMatchFailure(op, "input is not packed for it");
    rewriter.modifyOpInPlace(op, [&] {
      op.getInputMutable().assign(pack.getInput());
      op.setSlicesAttr(pack.getSlices());
    });
    eraseSource(rewriter, pack);
    return success();
  }
};

/// unpack_slices(dequantize(b)) -> dequantize(b) with slices
struct FuseUnpackIntoDequantize : public OpRewritePattern<UnpackSlicesOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(UnpackSlicesOp op,
                                PatternRewriter &rewriter) const override {
    auto source = getOnlySource<DequantizeOp>(op.getInput());
    if (!source || source.getSlices())
      return rewriter.notifyMatchFailure(op, "input is not dequantized for it");
    SmallVector<int64_t> chunks =
        op.getSlices().getChunkShape(op.getInitType().getShape());
    ArrayRef<int64_t> decoded = source.getInitType().getShape();
    if (chunks.front() != decoded.front() ||
        llvm::product_of(chunks) != llvm::product_of(decoded))
      return rewriter.notifyMatchFailure(op, "wire chunks are other ones");
    rewriter.replaceOpWithNewOp<DequantizeOp>(
        op, op->getResultTypes(), source.getInput(), op.getInit(),
        source.getQuant(), op.getSlices());
    eraseSource(rewriter, source);
    return success();
  }
};

/// dequantize(unpack_slices(b)) of whole chunks -> dequantize(b), whose slices
/// take the chunks in the order in which they are; dequantize_add too
template <typename OpT>
struct FuseChunkOrderIntoDequantize : public OpRewritePattern<OpT> {
  using OpRewritePattern<OpT>::OpRewritePattern;
  LogicalResult matchAndRewrite(OpT op,
                                PatternRewriter &rewriter) const override {
    auto unpack = getOnlySource<UnpackSlicesOp>(op.getInput());
    SlicesAttr slices = op.getSlicesAttr();
    if (!unpack || !slices)
      return rewriter.notifyMatchFailure(op, "no reordered chunks with slices");
    SlicesAttr order = unpack.getSlices();
    // The unpack must only permute whole chunks, in the order of the factors
    // that number them.
    if (order.getDim() != 0 || order.getFactors() != slices.getFactors() ||
        slices.getChunk() != getUnits(slices).getChunk())
      return rewriter.notifyMatchFailure(op, "chunks are not in factor order");
    ArrayRef<int64_t> from = unpack.getInputType().getShape();
    if (from.empty() || from.back() != op.getInputType().getShape().back())
      return rewriter.notifyMatchFailure(op, "rows are not wire chunks");
    rewriter.modifyOpInPlace(op, [&] {
      op.getInputMutable().assign(unpack.getInput());
      op.setSlicesAttr(SlicesAttr::get(op.getContext(), slices.getDim(),
                                       slices.getFactors(),
                                       getUnitOrder(order).getChunk(),
                                       slices.getStage(), slices.getStages()));
    });
    eraseSource(rewriter, unpack);
    return success();
  }
};

/// reduce(dequantize(b)) -> dequantize_reduce(b)
struct FuseDequantizeIntoReduce : public OpRewritePattern<ReduceOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ReduceOp op,
                                PatternRewriter &rewriter) const override {
    auto source = getOnlySource<DequantizeOp>(op.getInput());
    // The fused sum reads f32 values. If dequantized values are rounded to a
    // smaller type, the result would differ.
    if (!source || source.getSlices() || source.getInputType().getRank() != 2 ||
        !source.getInitType().getElementType().isF32())
      return rewriter.notifyMatchFailure(op, "input is not dequantized to f32");
    rewriter.replaceOpWithNewOp<DequantizeReduceOp>(
        op, op->getResultTypes(), source.getInput(), op.getInit(), op.getKind(),
        source.getQuant());
    eraseSource(rewriter, source);
    return success();
  }
};

/// quantize(dequantize_reduce(b)) -> dequantize_reduce_quantize(b)
struct FuseReduceIntoQuantize : public OpRewritePattern<QuantizeOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(QuantizeOp op,
                                PatternRewriter &rewriter) const override {
    auto source = getOnlySource<DequantizeReduceOp>(op.getInput());
    if (!source || !op.getSlices())
      return rewriter.notifyMatchFailure(op, "input is not a sum");
    // To rotate a sum back and then again is to leave it, whole groups that is,
    // and but for rounding.
    auto partial = cast<RankedTensorType>(source.getInitType());
    if (source.getQuant().getRotate() != op.getQuant().getRotate())
      return rewriter.notifyMatchFailure(op, "only one of both rotates");
    if (op.getQuant().isRotated() &&
        (!partial.getElementType().isF32() ||
         !op.getSlices()->getMap(partial.getShape()).movesWhole(kRotation)))
      return rewriter.notifyMatchFailure(op, "rotated groups do not stay");
    rewriter.replaceOpWithNewOp<DequantizeReduceQuantizeOp>(
        op, op->getResultTypes(), source.getInput(), op.getInit(),
        source.getKind(), source.getQuant(), partial, op.getQuant(),
        op.getSlicesAttr());
    eraseSource(rewriter, source);
    return success();
  }
};

class FuseQuantizationPass
    : public zpp::impl::FuseQuantizationPassBase<FuseQuantizationPass> {
public:
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<FusePackIntoQuantize, FuseUnpackIntoDequantize,
                 FuseChunkOrderIntoDequantize<DequantizeOp>,
                 FuseChunkOrderIntoDequantize<DequantizeAddOp>,
                 FuseDequantizeIntoReduce, FuseReduceIntoQuantize>(
        &getContext());
    // Apply the patterns to zero ops only. The step's own graph must not be
    // folded.
    SmallVector<Operation *> ops;
    getOperation().walk([&](DecomposedOpInterface op) { ops.push_back(op); });
    GreedyRewriteConfig config;
    config.setStrictness(GreedyRewriteStrictness::ExistingAndNewOps);
    config.enableFolding(false);
    if (failed(applyOpPatternsGreedily(ops, std::move(patterns), config)))
      signalPassFailure();
  }
};
} // namespace
