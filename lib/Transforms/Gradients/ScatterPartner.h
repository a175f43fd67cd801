//===- ScatterPartner.h - Scatters that go with all-reduces -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_SCATTERPARTNER_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_SCATTERPARTNER_H

#include "zpp/Dialect/Zero/IR/Zero.h"

#include <optional>

namespace zpp {

/// A scatter that sums what an all-reduce does over other axes: before it
/// (HSDP), or after it, where the order of the two is of no use.
struct ScatterPartner {
  zero::ReduceScatterOp scatter;
  bool isAfter = false;
  /// The ops between the two, in order: casts, transposes, reshapes, and
  /// products with constants. Each has one operand that is no constant.
  llvm::SmallVector<mlir::Operation *> path;
  /// True if `path` has such a product.
  bool isScaled = false;
  /// The dim that is scattered, of what is summed first.
  int64_t dim = 0;
};

/// Returns the scatter that `allReduce` can be done together with, if there is
/// one.
std::optional<ScatterPartner> findPartner(zero::AllReduceOp allReduce);

/// Returns the operand of `op` that is no constant, if `op` multiplies it with
/// one or divides it by one, the same for all elements; null otherwise.
mlir::OpOperand *getScaled(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_SCATTERPARTNER_H
