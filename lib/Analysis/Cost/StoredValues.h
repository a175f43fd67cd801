//===- StoredValues.h - What ops write to memory ----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_COST_STOREDVALUES_H
#define ZPP_LIB_ANALYSIS_COST_STOREDVALUES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
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

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_COST_STOREDVALUES_H
