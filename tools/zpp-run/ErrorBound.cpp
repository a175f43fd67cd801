//===- ErrorBound.cpp - How far results may be from exact -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ErrorBound.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/QuantReference.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
/// The steps of which ops consist.
class BoundBuilder {
public:
  explicit BoundBuilder(int64_t ranks) : ranks(ranks) {}

  /// Relative bounds leave out values that are flushed or tiny. The error of
  /// each of these is less than `step`.
  Bound addRelative(Bound bound, double relative, double step,
                    int64_t elements) const {
    bound.error += relative * (bound.norm + bound.error) +
                   step * std::sqrt(static_cast<double>(elements * ranks));
    return bound;
  }

  /// One direction of a rotation, which keeps norms.
  Bound rotate(Bound bound, QuantAttr quant, int64_t elements) const {
    if (!quant.isRotated())
      return bound;
    return addRelative(bound, getRotationErrorBound(), 0x1p-100, elements);
  }

  Bound quantize(Bound bound, QuantAttr quant, int64_t elements) const {
    return addRelative(
        bound, getRelativeErrorBound(quant.getWireFormat(), quant.getBlock()),
        0x1p-119, elements);
  }

  Bound roundTo(Bound bound, Type type, int64_t elements) const {
    if (type.isBF16())
      return addRelative(bound, 0x1p-8, 0x1p-134, elements);
    if (type.isF16())
      return addRelative(bound, 0x1p-11, 0x1p-25, elements);
    return bound;
  }

  Bound scale(Bound bound, double factor) const {
    return {bound.norm * factor, bound.error * factor};
  }

  /// The sum or difference of two tensors in f32, in which what is subnormal is
  /// zero.
  Bound add(Bound a, Bound b, int64_t elements) const {
    Bound sum{a.norm + b.norm, a.error + b.error};
    return addRelative(sum, 0x1p-24, 0x1p-124, elements);
  }

  /// A sum or mean in f32.
  Bound reduce(Bound bound, ReduceKind kind, int64_t sources) const {
    bound = scale(bound, std::sqrt(static_cast<double>(sources)));
    int64_t roundings = sources - (kind == ReduceKind::Sum);
    bound.error +=
        (std::pow(1 + 0x1p-24, roundings) - 1) * (bound.norm + bound.error);
    return kind == ReduceKind::Mean ? scale(bound, 1.0 / sources) : bound;
  }

private:
  int64_t ranks;
};
} // namespace

static FailureOr<Bound> getBound(Operation *op, ArrayRef<Bound> operands,
                                 const BoundBuilder &builder) {
  return llvm::TypeSwitch<Operation *, FailureOr<Bound>>(op)
      .Case([&](PackSlicesOp) { return operands[0]; })
      .Case([&](UnpackSlicesOp) { return operands[0]; })
      .Case([&](QuantizeOp quantize) {
        int64_t elements = quantize.getInputType().getNumElements();
        return builder.quantize(
            builder.rotate(operands[0], quantize.getQuant(), elements),
            quantize.getQuant(), elements);
      })
      .Case([&](DequantizeOp dequantize) {
        int64_t elements = dequantize.getInitType().getNumElements();
        return builder.roundTo(
            builder.rotate(operands[0], dequantize.getQuant(), elements),
            dequantize.getInitType().getElementType(), elements);
      })
      .Case([&](QuantizeDifferenceOp quantize) {
        int64_t elements = quantize.getInputType().getNumElements();
        return builder.quantize(builder.add(operands[0], operands[2], elements),
                                quantize.getQuant(), elements);
      })
      .Case([&](DequantizeAddOp dequantize) {
        int64_t elements = dequantize.getInitType().getNumElements();
        return builder.roundTo(builder.add(operands[0], operands[2], elements),
                               dequantize.getInitType().getElementType(),
                               elements);
      })
      .Case<ReduceOp, DequantizeReduceOp>([&](auto reduce) {
        Bound sum = builder.reduce(operands[0], reduce.getKind(),
                                   reduce.getInputType().getDimSize(0));
        if constexpr (std::is_same_v<decltype(reduce), DequantizeReduceOp>)
          sum = builder.rotate(sum, reduce.getQuant(),
                               reduce.getInitType().getNumElements());
        return builder.roundTo(sum, reduce.getInitType().getElementType(),
                               reduce.getInitType().getNumElements());
      })
      .Case([&](DequantizeReduceQuantizeOp reduce) {
        auto partial = cast<RankedTensorType>(reduce.getPartial());
        Bound sum = builder.reduce(operands[0], reduce.getKind(),
                                   reduce.getInputType().getDimSize(0));
        sum = builder.roundTo(sum, partial.getElementType(),
                              partial.getNumElements());
        return builder.quantize(sum, reduce.getTo(), partial.getNumElements());
      })
      .Case([&](AllToAllOp exchange) -> FailureOr<Bound> {
        if (exchange.getWireAttr())
          return failure();
        return operands[0];
      })
      .Case([&](AllGatherChunksOp gather) {
        return builder.scale(
            operands[0], std::sqrt(static_cast<double>(gather.getGroupSize())));
      })
      .Case([&](tensor::EmptyOp) { return Bound(); })
      .Case<tensor::ExpandShapeOp, tensor::CollapseShapeOp,
            tensor::ExtractSliceOp>([&](auto) { return operands[0]; })
      .Case([&](tensor::InsertSliceOp) {
        // This also counts overwritten elements, so it is an upper bound.
        return Bound{std::hypot(operands[0].norm, operands[1].norm),
                     std::hypot(operands[0].error, operands[1].error)};
      })
      .Case([&](tensor::ConcatOp) {
        Bound all;
        for (Bound part : operands) {
          all.norm = std::hypot(all.norm, part.norm);
          all.error = std::hypot(all.error, part.error);
        }
        return all;
      })
      .Default([&](Operation *) { return failure(); });
}

FailureOr<SmallVector<Bound>> zpp::getResultBounds(func::FuncOp function,
                                                   ArrayRef<double> norms,
                                                   int64_t ranks) {
  BoundBuilder builder(ranks);
  DenseMap<Value, Bound> bounds;
  for (auto [argument, norm] : llvm::zip_equal(function.getArguments(), norms))
    bounds[argument] = {norm, 0};
  if (!function.getBody().hasOneBlock()) {
    function.emitError("no error bound for more than one block");
    return failure();
  }
  for (Operation &op : function.getBody().front()) {
    SmallVector<Bound> operands =
        llvm::map_to_vector(op.getOperands(), [&](Value operand) {
          return bounds.lookup(operand);
        });
    if (isa<func::ReturnOp>(op))
      return operands;
    FailureOr<Bound> bound = getBound(&op, operands, builder);
    if (failed(bound)) {
      op.emitError("no error bound for this op");
      return failure();
    }
    for (Value result : op.getResults())
      bounds[result] = *bound;
  }
  llvm_unreachable("a function ends in a return");
}
