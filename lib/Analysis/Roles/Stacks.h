//===- Stacks.h - Tensors that have several parameters ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_STACKS_H
#define ZPP_LIB_ANALYSIS_ROLES_STACKS_H

#include "zpp/Analysis/Roles/ValueGraph.h"
#include "llvm/ADT/DenseMap.h"

namespace zpp {

/// The tensors of a step that are stacks of parameters, such as the gains of
/// all layers: it reads them one by one, or computes with all of them at once
/// but with none together. One parameter may be many times as large as its
/// neighbor, so a block that both share has a step too coarse for one of them.
class Stacks {
public:
  explicit Stacks(const ValueGraph &graph);

  /// Returns the elements of a parameter in the `part` that a device has of a
  /// tensor of type `whole`: in row-major order, each parameter begins at a
  /// multiple of it. `value` has this tensor, or a part or a sum of it. Returns
  /// 0 if it is no stack.
  int64_t getPartSize(mlir::Value value, mlir::RankedTensorType whole,
                      mlir::RankedTensorType part) const;

  /// Returns the stacks among the inputs of the step and what it gathers.
  llvm::ArrayRef<mlir::Value> getValues() const { return values; }

private:
  /// For each stack the elements of a parameter: in row-major order, each
  /// parameter begins at a multiple of it.
  llvm::DenseMap<mlir::Value, int64_t> parameters;
  llvm::SmallVector<mlir::Value> values;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_STACKS_H
