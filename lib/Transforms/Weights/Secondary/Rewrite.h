//===- Rewrite.h - The rewrites that keep secondary partitions --*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per way to keep a partition, each in a file of its own; what
// they share is in Rewrite.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_REWRITE_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_REWRITE_H

#include "Weights/Secondary/Plan.h"

namespace zpp::zero {

/// A kept partition that leaves a manual computation, and its placeholders in
/// the computations that it enters, until these are rebuilt: it may be read in
/// another one (`jax.grad` of a `shard_map`) than it is made in.
struct Passage {
  mlir::Operation *from;
  /// The value in the region of `from`.
  mlir::Value local;
  llvm::MapVector<mlir::Operation *, mlir::UnrealizedConversionCastOp> entries;

  /// Returns the value in `computation`: the value itself in the computation
  /// that it comes from, otherwise a placeholder for an argument.
  mlir::Value getValueIn(mlir::Operation *computation);
};

/// Rebuilds the manual computations that partitions leave and enter. A
/// partition is passed as a flat tensor, sharded over all axes, because each
/// device has its own.
void openPassages(mlir::ModuleOp module,
                  llvm::MutableArrayRef<Passage> passages);

/// Splits the gathers of a module as planned.
class SecondaryRewriter {
public:
  /// Remarks are those of `pass`.
  SecondaryRewriter(mlir::ModuleOp module, llvm::StringRef pass)
      : module(module), pass(pass) {}

  /// Rewrites all weights with a plan, and says of the others why they are left
  /// alone. Once per module.
  void run(llvm::ArrayRef<WeightDecision> decisions);

private:
  // The ways to keep a partition.
  void keepInBlock(const SecondaryPlan &plan, const KeepInBlock &way);
  void hoistStack(const SecondaryPlan &plan, const HoistStack &way);
  /// All plans of one loop, which is rebuilt once.
  void keepInLoop(mlir::Operation *loop,
                  llvm::ArrayRef<const SecondaryPlan *> plans);

  /// Gathers the primary partition `local` over the axes outside the group.
  AllGatherOp gatherOuter(mlir::OpBuilder &builder, AllGatherOp like,
                          ShardType primary, mlir::Value local,
                          mlir::ArrayAttr outer);
  /// The gather of what is kept within its group, which may be one device.
  mlir::Value gatherInner(mlir::OpBuilder &builder, AllGatherOp like,
                          mlir::Value operand, mlir::ArrayAttr inner);
  /// Replaces a gather by a value of the same local tensor whose type may have
  /// an axis cut in two.
  void replaceGather(mlir::OpBuilder &builder, AllGatherOp gather,
                     mlir::Value value);
  /// True if anything reads what `gather` returns.
  static bool isRead(AllGatherOp gather);
  /// Replaces a later gather by one within the group that reads `layer` of a
  /// stack of kept partitions.
  void gatherLayer(mlir::OpBuilder &builder, AllGatherOp gather,
                   mlir::Value layer, ShardType type, mlir::ArrayAttr inner);
  /// Replaces `gather` by one within the group that reads the kept partition
  /// `local`, which passes through `crossed` or else a barrier of its own.
  void gatherWithin(AllGatherOp gather, mlir::Operation *crossed,
                    mlir::Value local, ShardType kept, mlir::ArrayAttr inner);
  /// Has the barrier in front of `gather` rebuilt at the end.
  void noteBarrier(AllGatherOp gather);
  void extendBarrier(mlir::Operation *barrier,
                     llvm::ArrayRef<mlir::UnrealizedConversionCastOp> added);

  mlir::ModuleOp module;
  llvm::StringRef pass;
  /// The kept partitions that pass through each barrier in addition.
  llvm::MapVector<mlir::Operation *,
                  llvm::SmallVector<mlir::UnrealizedConversionCastOp>>
      barriers;
  std::vector<Passage> passages;
};

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_SECONDARY_REWRITE_H
