//===- UpdatedWeights.h - What devices hold of updated weights --*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With ZeRO-1 and ZeRO-2 every device has all weights, updates a slice of them,
// and gathers the new slices. This finds the weights from before the step.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_UPDATEDWEIGHTS_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_UPDATEDWEIGHTS_H

#include "zpp/Analysis/Collectives.h"
#include "zpp/Analysis/Roles/ValueGraph.h"
#include "zpp/Analysis/SameValues.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"
#include "zpp/Support/Decision.h"

namespace zpp {

/// A gather of updated slices, and what every device holds of its result.
struct UpdatedWeight {
  /// Gathers of one tensor, the last one first: its axes are the most
  /// significant ones.
  llvm::SmallVector<CollectiveView> gathers;
  /// For each device where its slice begins, in the dim that is gathered.
  std::vector<int64_t> offsets;
  /// The value that is held, the same on all devices of a group, up to `path`.
  mlir::Value held;
  /// The op that cuts a device's slice out of `held`, or null.
  mlir::Operation *slice = nullptr;
  /// Without `slice`: the casts, reshapes and transposes from what is gathered
  /// to what the step returns for `held`.
  llvm::SmallVector<mlir::Operation *> path;

  mlir::RankedTensorType getWhole() const {
    return mlir::cast<mlir::RankedTensorType>(
        gathers.front().op->getResult(0).getType());
  }
  mlir::Value getOperand() const { return gathers.back().op->getOperand(0); }
  int64_t getDim() const { return gathers.front().dim; }
  /// Returns the axes of all gathers, most significant first.
  std::vector<AxisRef> getAxes() const;
};

/// Finds what devices hold. Valid while the module does not change.
class UpdatedWeights {
public:
  UpdatedWeights(mlir::ModuleOp module, const Mesh &mesh);

  /// Finds the value held of the result of `gather`, together with the gathers
  /// of `isGather` that its operand comes from alone; no value where that is
  /// not certain.
  Decision<UpdatedWeight>
  find(mlir::Operation *gather,
       llvm::function_ref<bool(mlir::Operation *)> isGather);

private:
  /// A result of the step.
  struct Returned {
    /// Numbers of a result of the function, and of the manual computation.
    unsigned result, number;
    llvm::SmallVector<mlir::Operation *> path;
    /// False if `path` drops a part.
    bool isWhole = true;
  };
  /// A slice from which what is gathered is made, and the arguments of the
  /// manual computation that it is cut from.
  struct Source {
    mlir::Operation *slice;
    llvm::SmallVector<unsigned> arguments;
  };

  /// A held value, and the arguments of the manual computation that it is made
  /// of. For `slice` and `path` see UpdatedWeight.
  struct Held {
    mlir::Value value;
    mlir::Operation *slice = nullptr;
    llvm::SmallVector<mlir::Operation *> path;
    llvm::SmallVector<unsigned> arguments;
  };

  Decision<UpdatedWeight>
  readGathers(mlir::Operation *gather,
              llvm::function_ref<bool(mlir::Operation *)> isGather);
  Decision<CollectiveView> readGather(mlir::Operation *op);
  Decision<std::vector<int64_t>> getOffsets(const UpdatedWeight &weight) const;
  bool isAtOffsets(const PartitionSlice &slice, const UpdatedWeight &weight);
  llvm::SmallVector<mlir::Operation *> findSlices(mlir::Value value);
  std::optional<llvm::SmallVector<unsigned>>
  getArguments(mlir::Value value, mlir::Operation *manual);
  llvm::SmallVector<Returned> findReturned(mlir::Value value,
                                           mlir::Operation *manual);
  std::optional<unsigned> getOperand(unsigned argument,
                                     mlir::Operation *manual);
  bool mayReplace(const Returned &returned, unsigned argument,
                  mlir::Operation *manual, const StepSignature &signature);
  bool isReplicated(unsigned argument, const UpdatedWeight &weight,
                    mlir::Operation *manual);
  bool isWeight(unsigned argument, mlir::Operation *manual);
  Decision<llvm::SmallVector<Source>>
  findSources(const UpdatedWeight &weight, llvm::ArrayRef<Returned> returned,
              mlir::Operation *manual, const StepSignature &signature);
  Decision<Held> findReplaced(llvm::ArrayRef<Returned> returned,
                              mlir::Operation *manual,
                              const StepSignature &signature);
  Decision<Held> findHeld(const UpdatedWeight &weight, mlir::Operation *manual,
                          const StepSignature &signature);

  const Mesh &mesh;
  CollectiveReader reader;
  ModuleCopies copies;
  PartitionTables tables;
  const ValueGraph graph;
  /// The values that gradients are computed from, if the step has any.
  std::optional<NodeSet> ancestors;
  ManualComputations manuals;
  SameValues sameValues;
  AutomaticAxes automatic;
  /// By argument of the step.
  llvm::DenseMap<mlir::Operation *, llvm::DenseMap<unsigned, unsigned>>
      operands;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<StepSignature>> signatures;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_UPDATEDWEIGHTS_H
