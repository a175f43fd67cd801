//===- SameValues.h - What several devices have alike -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The program is the same on all devices, so what differs comes from their own
// parts of the step's arguments, from their numbers, or from ops of which
// nothing is known.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_SAMEVALUES_H
#define ZPP_ANALYSIS_SAMEVALUES_H

#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/StepSignature.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {

/// Proves that devices have the same of values.
class SameValues {
public:
  /// Returns true if the devices of each of `groups` are known to have the same
  /// of `value`. An argument of the step must be replicated among them, and so
  /// must be what the step returns in its place: that is the argument of the
  /// next step.
  bool contains(mlir::Value value, const ReplicaGroups &groups);

  /// Returns true if the devices of each of `groups` have the same part of
  /// operand `index` of `manual`, a manual computation.
  bool isReplicated(mlir::Operation *manual, unsigned index,
                    const ReplicaGroups &groups);

private:
  using Values = llvm::SetVector<mlir::Value>;
  bool addSources(mlir::Value value, const ReplicaGroups &groups,
                  Values &pending);
  bool addSources(mlir::BlockArgument argument, const ReplicaGroups &groups,
                  Values &pending);
  void addReplacements(mlir::func::FuncOp function, unsigned argument,
                       Values &pending);

  ManualComputations manuals;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<OperandShardings>>
      shardings;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<StepSignature>> signatures;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_SAMEVALUES_H
