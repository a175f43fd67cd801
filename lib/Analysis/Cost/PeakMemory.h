//===- PeakMemory.h - What is alive at one time -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_COST_PEAKMEMORY_H
#define ZPP_LIB_ANALYSIS_COST_PEAKMEMORY_H

#include "ComputeCosts.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Dialect/Guest/ManualComputation.h"

namespace zpp {

/// Tells which results take memory when XLA has fused ops. What a function
/// does is looked up once, so an object must not outlive a change of it.
class StoredValues {
public:
  /// True if `result` is in memory. What moves or fuses others has none.
  bool isStored(mlir::OpResult result);
  /// True if a result of `op` is in memory.
  bool storesAny(mlir::Operation *op);
  /// Returns the bytes of a result that is stored. Where only casts read what a
  /// kernel computes, it writes what they make of it.
  int64_t getStoredBytes(mlir::OpResult result);

private:
  /// True if `op` can be part of a kernel of element-wise ops, as a call of a
  /// function of nothing but such ops can.
  bool isFused(mlir::Operation *op);

  llvm::DenseMap<mlir::Operation *, bool> functions;
  ManualComputations manuals;
};

/// Returns the ops of `block` in the order in which XLA runs them on GPUs:
/// first the one that its memory scheduler finds, then, where there are
/// collectives, that of its latency hiding scheduler. An XLA collective is
/// there twice, where it starts and where it is done.
///
/// Both are simplified: this is for what is alive at one time.
llvm::SmallVector<mlir::Operation *>
getOverlapOrder(mlir::Block &block, ComputeCosts &costs, StoredValues &stored);

/// Bytes that a device holds of the arguments of `function`, which runs on
/// `devices` devices.
int64_t getStateBytes(mlir::FunctionOpInterface function, int64_t devices);

/// Returns the most bytes that are alive at one time in `block`, without its
/// arguments, in the order in which XLA runs its ops on GPUs: a value that is
/// stored is alive from its op to the last op that reads it, or that reads what
/// moves or fuses it. Results of the block take the memory of its arguments, as
/// in a step whose arguments are donated, and so do the results of loops.
int64_t getPeakBytes(mlir::Block &block, ComputeCosts &costs,
                     StoredValues &stored);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_COST_PEAKMEMORY_H
