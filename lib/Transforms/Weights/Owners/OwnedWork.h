//===- OwnedWork.h - What devices compute of gathered momenta ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_OWNERS_OWNEDWORK_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_OWNERS_OWNEDWORK_H

#include "Import/SplitProducts.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/SameValues.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Decision.h"

namespace zpp {

/// A computation that all devices of a group do alike, on a tensor that they
/// gather, and of which each of them uses its own slice.
struct OwnedWork {
  zero::AllGatherOp gather;
  /// The gathered tensor, on each device.
  mlir::Value whole;
  /// All ops that read it or what follows from it, but for `slices`; in their
  /// order, in one block.
  llvm::SmallVector<mlir::Operation *> ops;
  /// The result, and the slices that a device cuts out of it.
  mlir::Value result;
  llvm::SmallVector<mlir::Operation *> slices;
  /// The dim of `result` in which they are cut.
  int64_t dim = -1;

  mlir::RankedTensorType getWholeType() const;
  mlir::RankedTensorType getResultType() const;
  /// The devices of the gather's groups, most significant axis first.
  std::vector<AxisRef> getAxes() const;
};

/// Finds such work. Valid while the module does not change.
class OwnedWorks {
public:
  explicit OwnedWorks(mlir::ModuleOp module);

  /// Returns what follows from `gather`, or why one device cannot do it for
  /// all.
  Decision<OwnedWork> read(zero::AllGatherOp gather);

private:
  std::optional<int64_t> getOwnSliceDim(mlir::OpOperand &use,
                                        const OwnedWork &work);
  mlir::Operation *findOtherReader(const OwnedWork &work);

  ModuleCopies copies;
  PartitionTables tables;
  SameValues sameValues;
};

/// True if both compute the same of different tensors.
bool isSameWork(const OwnedWork &a, const OwnedWork &b,
                ProvenanceAnalysis &provenances);

/// Returns what follows from the layers of a stack, if `work` computes each by
/// itself: all of it are slices, then.
Decision<SplitProducts> findLayers(const OwnedWork &work);

/// Has the work of `layers` be that of the layers of `stack`, which takes the
/// place of what is gathered.
void setLayers(const SplitProducts &layers, mlir::Value stack);

/// Inlines the functions that are called with what follows from `gather`, as
/// far as they are known to do nothing else than to compute.
void inlineWork(zero::AllGatherOp gather);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_OWNERS_OWNEDWORK_H
