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

  /// For each dim of `type`, whether it numbers parameters, where it is the
  /// type of `value` or of a part or a sum of it. Empty if `value` is no stack.
  llvm::SmallVector<bool> getNumberingDims(mlir::Value value,
                                           mlir::RankedTensorType type) const;

  /// The stacks among the inputs of the step and what it gathers.
  llvm::ArrayRef<mlir::Value> getValues() const { return values; }

private:
  /// For each stack the elements of a parameter: in row-major order, each
  /// parameter begins at a multiple of it.
  llvm::DenseMap<mlir::Value, int64_t> parameters;
  llvm::SmallVector<mlir::Value> values;
};

/// The elements after those of `numbering` dims in row-major order; of a tensor
/// of `shape`, all where there is none.
int64_t getParameterSize(llvm::ArrayRef<int64_t> shape,
                         llvm::ArrayRef<bool> numbering);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_STACKS_H
