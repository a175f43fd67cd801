//===- CarriedState.h - What a step keeps from call to call -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_CARRIEDSTATE_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_CARRIEDSTATE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Dialect/Guest/ManualComputation.h"

namespace zpp {

/// One tensor that a device keeps, of any shape.
struct CarriedTensor {
  /// The value held before the step, until it becomes an argument; null where
  /// the step begins it.
  mlir::UnrealizedConversionCastOp before;
  /// In the region of the manual computation.
  mlir::Value after;
  llvm::StringRef kind;
  /// Entries of `zpp.state` besides `kind` and `type`.
  llvm::SmallVector<mlir::NamedAttribute> more = {};
};

/// Why a collective is left alone for which getCarryingFunction returns null.
inline constexpr llvm::StringLiteral kCarryReason =
    "what is held of it cannot become an argument of the step: it is not "
    "gathered in a manual computation of the step itself";

/// The function whose arguments and results may stand for what is made at `op`:
/// `op` is in the body of a manual computation of the step itself, not in a
/// region there. Null if there is none.
mlir::func::FuncOp getCarryingFunction(mlir::Operation *op,
                                       ManualComputations &manuals);

/// A placeholder of what the manual computation around `op`, which is in its
/// body, holds before the step.
mlir::UnrealizedConversionCastOp createBefore(mlir::Operation *op,
                                              mlir::RankedTensorType type);

/// Makes `tensors`, which are in `manual`, arguments and results of the step,
/// after those that it has, and appends them to `zpp.state`.
void carryState(mlir::Operation *manual, llvm::ArrayRef<CarriedTensor> tensors);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_CARRIEDSTATE_H
