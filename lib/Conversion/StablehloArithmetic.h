//===- StablehloArithmetic.h - Slices and formats in StableHLO --*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_CONVERSION_STABLEHLOARITHMETIC_H
#define ZPP_LIB_CONVERSION_STABLEHLOARITHMETIC_H

#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp::stablehlo_arith {

/// The chunk form of `tensor`, in some shape.
mlir::Value packSlices(StablehloBuilder &b, mlir::Value tensor,
                       zero::SlicesAttr slices);

/// The tensor of shape `shape` whose chunk form is `chunks`, in any shape.
mlir::Value unpackSlices(StablehloBuilder &b, mlir::Value chunks,
                         zero::SlicesAttr slices,
                         llvm::ArrayRef<int64_t> shape);

/// `value` (f32 [chunks, elements]) with its whole groups rotated.
mlir::Value rotate(StablehloBuilder &b, mlir::Value value, Rotation rotation);

/// Wire chunks tensor<chunks x bytes x i8> of `values`, which are float and in
/// any shape, as they are: rotated before, where the format says so.
mlir::Value quantize(StablehloBuilder &b, mlir::Value values, int64_t chunks,
                     zero::QuantAttr quant);

/// f32 values [chunks, elements] of wire chunks, in any shape.
mlir::Value dequantize(StablehloBuilder &b, mlir::Value bytes, int64_t chunks,
                       int64_t elements, zero::QuantAttr quant);

/// `values` (f32), rounded to `element`.
mlir::Value roundTo(StablehloBuilder &b, mlir::Value values,
                    mlir::Type element);

/// Sum or mean over the leading dim, which becomes 1, in f32.
mlir::Value reduce(StablehloBuilder &b, mlir::Value values,
                   zero::ReduceKind kind);

/// Those of BlockQuant.h.
mlir::Value subtractHeld(StablehloBuilder &b, mlir::Value a, mlir::Value held);
mlir::Value addHeld(StablehloBuilder &b, mlir::Value held, mlir::Value value);

} // namespace zpp::stablehlo_arith

#endif // ZPP_LIB_CONVERSION_STABLEHLOARITHMETIC_H
