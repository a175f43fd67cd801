//===- ComputeCosts.h - How long ops take on a device -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_COST_COMPUTECOSTS_H
#define ZPP_LIB_ANALYSIS_COST_COMPUTECOSTS_H

#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Support/DeviceModel.h"

namespace zpp {

/// True if `op` is no kernel: it moves data, which the op that reads them does,
/// or it has no data.
bool isFree(mlir::Operation *op);

/// True if `op` can be part of a kernel of element-wise ops.
bool isFusible(mlir::Operation *op);

/// Returns the value that `value` holds the data of, before they are moved.
mlir::Value getStoredSource(mlir::Value value);

/// True if `value` is in memory. A chain of ops that `fuses` accepts is one
/// kernel: what only such ops read is never stored.
bool isStored(mlir::Value value,
              llvm::function_ref<bool(mlir::Operation *)> fuses = isFusible);

/// The time that ops take on the device.
class ComputeCosts {
public:
  /// `scale` multiplies all times. `devices` take part in the step.
  ComputeCosts(const DeviceModel &device, double scale, int64_t devices)
      : device(device), scale(scale), devices(devices) {}

  /// For an op without communication. Regions are not looked into.
  double getUsec(mlir::Operation *op);
  /// Returns the floating-point operations that a device does for `op`.
  double getFlops(mlir::Operation *op);

private:
  double getLocalUsec(mlir::Operation *op);
  double getFunctionUsec(mlir::func::CallOp call);
  /// True if the types of `op` are those of all devices together: it is outside
  /// of the manual computations of a step that has some. Functions that these
  /// call have local types, and so has all of a step that was partitioned.
  bool isGlobal(mlir::Operation *op);

  const DeviceModel &device;
  double scale;
  int64_t devices;
  mlir::SymbolTableCollection symbols;
  llvm::DenseMap<mlir::Operation *, double> functions;
  /// By the op around them, whether ops have global types.
  llvm::DenseMap<mlir::Operation *, bool> global;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_COST_COMPUTECOSTS_H
