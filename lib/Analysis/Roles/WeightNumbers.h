//===- WeightNumbers.h - Which gathers are of one weight --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_WEIGHTNUMBERS_H
#define ZPP_LIB_ANALYSIS_ROLES_WEIGHTNUMBERS_H

#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/Roles/Roles.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {

/// Numbers weights in the order of their first gathers.
class WeightNumbering {
public:
  explicit WeightNumbering(ProvenanceAnalysis &provenance)
      : provenance(provenance) {}

  /// The number of the weight that `gather` gathers, and whether this is its
  /// first gather.
  std::pair<int64_t, bool> insert(mlir::Operation *gather);

private:
  ProvenanceAnalysis &provenance;
  llvm::DenseMap<std::pair<mlir::Block *, int64_t>,
                 llvm::MapVector<int64_t, int64_t>>
      inBlock;
  llvm::DenseMap<std::pair<int64_t, int64_t>, int64_t> weights;
};

/// Forward and backward loops may cut one stack of weights into overlapping
/// slices, if the number of layers is not a multiple of scan's `unroll`. All
/// weights of an input together have at most the bytes of the input. `roots`
/// has the input of each gather, `inLoops` those that loops cut.
void limitModelBytes(llvm::ArrayRef<StepCollective *> gathers,
                     llvm::ArrayRef<mlir::Value> roots,
                     const llvm::DenseSet<mlir::Value> &inLoops);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_WEIGHTNUMBERS_H
