//===- Gathers.h - The gathers of each weight -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_GATHERS_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_GATHERS_H

#include "Loops/WeightPath.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/MapVector.h"

namespace zpp::zero {

/// Returns the local tensor that `gather` reads, before it is quantized, or
/// null.
FromLocalOp getSource(AllGatherOp gather);

/// The gathers of a module, grouped by the weight that they read. Valid while
/// the module does not change.
class WeightGathers {
public:
  explicit WeightGathers(mlir::ModuleOp module);

  /// Returns the gathers of one weight each, in the order of the module.
  llvm::SmallVector<llvm::SmallVector<AllGatherOp>> getGroups() const;

  /// True if `gather` lies in a loop over a stack of weights and another loop
  /// gathers from this stack.
  bool readsOtherSlices(AllGatherOp gather);

  /// True if `group` gathers more often than there are `layers`.
  bool areGatheredAgain(llvm::ArrayRef<AllGatherOp> group, int64_t layers);

  /// Returns the path from the argument of the step, or of its manual
  /// computation, to the layer that `gather` gathers, which it chooses first.
  std::optional<WeightPath> getLayerPath(AllGatherOp gather);

  ProvenanceAnalysis &getProvenances() { return provenances; }
  ManualComputations &getManuals() { return manuals; }

private:
  using Groups =
      llvm::MapVector<mlir::Attribute, llvm::SmallVector<AllGatherOp>>;

  mlir::Attribute getKey(AllGatherOp gather);
  void mergeLayers();

  ManualComputations manuals;
  ProvenanceAnalysis provenances;
  /// The blocks of loops that gather from each root.
  llvm::DenseMap<mlir::Value, llvm::SmallPtrSet<mlir::Block *, 2>> loopsOver;
  /// The gathers of each weight, by its key; may be empty.
  Groups gathers;
};

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_GATHERS_H
