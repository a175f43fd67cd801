//===- ScatterHops.h - The hops of a gradient scatter -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_SCATTERHOPS_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_SCATTERHOPS_H

#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/LinkModel.h"

namespace zpp {

/// A scatter from one partitioned tensor to another, hop by hop.
struct ScatterHops {
  zero::ShardType from, to;
  llvm::SmallVector<mlir::ArrayAttr> along;
  /// The format of each hop; null where its elements travel unquantized.
  llvm::SmallVector<zero::QuantAttr> quants;
  /// The elements of what each hop yields, unless these stay in f32.
  llvm::SmallVector<mlir::Type> elements;

  void append(mlir::ArrayAttr axes, zero::QuantAttr quant, mlir::Type element) {
    along.push_back(axes);
    quants.push_back(quant);
    elements.push_back(element);
  }

  /// Elements that a device holds of the scattered tensor.
  int64_t getElements() const;

  /// True if a hop is quantized.
  bool isQuantized() const;

  /// Leaves those hops unquantized of which a chunk is no smaller in the hop's
  /// format.
  void dropFormatsThatDoNotPay();

  /// True if all hops take less time on the links of `model` than they take to
  /// start.
  bool isMostlyLatency(const LinkModel &model) const;

  /// Time of the exchange of each hop on the links of `model`, and of what the
  /// kernels of all hops count.
  std::vector<double> getExchanges(const LinkModel &model) const;
  double getKernelUsec() const;

  /// Scatters `operand`. A sum that is quantized next stays in f32, also that
  /// of the last hop if `isEncodedNext`. With `inF32`, so do all between hops
  /// but on the slowest links. `visit` is called with each hop and its number.
  mlir::Value
  build(mlir::OpBuilder &builder, mlir::Location loc, zero::ReduceKind kind,
        mlir::Value operand, bool isEncodedNext, bool inF32,
        llvm::function_ref<void(zero::ReduceScatterOp, size_t)> visit) const;

private:
  /// For each hop the axes, and the bytes of a chunk.
  llvm::SmallVector<std::pair<std::vector<AxisRef>, int64_t>> getChunks() const;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_SCATTERHOPS_H
