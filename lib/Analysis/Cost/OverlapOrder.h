//===- OverlapOrder.h - The order in which XLA runs ops ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_COST_OVERLAPORDER_H
#define ZPP_LIB_ANALYSIS_COST_OVERLAPORDER_H

#include "ComputeCosts.h"
#include "StoredValues.h"

namespace zpp {

/// Returns the ops of `block` in the order in which XLA runs them on GPUs:
/// first the one that its memory scheduler finds, then, where there are
/// collectives, that of its latency hiding scheduler. An XLA collective is
/// there twice, where it starts and where it is done.
///
/// Both are simplified: this is for what is alive at one time.
llvm::SmallVector<mlir::Operation *>
getOverlapOrder(mlir::Block &block, ComputeCosts &costs, StoredValues &stored);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_COST_OVERLAPORDER_H
