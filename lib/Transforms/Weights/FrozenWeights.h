//===- FrozenWeights.h - Weights that a step does not change ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_FROZENWEIGHTS_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_FROZENWEIGHTS_H

#include "mlir/IR/BuiltinOps.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "llvm/ADT/DenseMap.h"

namespace zpp {

/// The arguments of a step that it returns as they came, and the weights that
/// it takes and does not return. Valid while the module does not change.
class FrozenWeights {
public:
  explicit FrozenWeights(mlir::ModuleOp module);

  /// An argument of the step and the result that is equal to it, or -1 if it
  /// does not return it.
  struct Source {
    int64_t argument;
    int64_t result;
  };

  /// Returns the parts of `value`, if these are such arguments and constants
  /// alone; otherwise nothing. With `anySlice`, it may be a slice that
  /// something else chooses, such as the counter of a loop.
  llvm::SmallVector<Source> getSources(mlir::Value value,
                                       bool anySlice = false);

private:
  /// By argument: the first result that it is, or -1.
  llvm::DenseMap<mlir::Value, int64_t> results;
  ManualComputations manuals;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_FROZENWEIGHTS_H
