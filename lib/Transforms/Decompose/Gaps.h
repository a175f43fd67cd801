//===- Gaps.h - Places between the compute of a block -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_DECOMPOSE_GAPS_H
#define ZPP_LIB_TRANSFORMS_DECOMPOSE_GAPS_H

#include "zpp/Analysis/Schedule.h"
#include "zpp/Support/DeviceModel.h"

namespace zpp {

/// The places between the heavy ops of a block, numbered in order, and the time
/// of the compute between them.
class Gaps {
public:
  Gaps(mlir::Block &block, HeavyOps &compute, const DeviceModel &device);

  /// Returns the gap of `op`, which is in the block: the number of heavy ops
  /// before it.
  int64_t get(mlir::Operation *op) const { return countBefore(heavy, op); }

  /// Returns the first gap in which the results of `op` are there.
  int64_t getAfter(mlir::Operation *op) const {
    return countBefore(heavy, op->getNextNode());
  }

  /// Returns a lower bound on the compute time between two gaps, of which
  /// `first` comes first. Infinite if nothing is known of an op.
  double getUsecBetween(int64_t first, int64_t second) const;

private:
  llvm::SmallVector<mlir::Operation *> heavy;
  /// The time of each of them.
  llvm::SmallVector<double> usec;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_DECOMPOSE_GAPS_H
