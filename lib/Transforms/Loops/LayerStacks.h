//===- LayerStacks.h - Stacks that loops write and read ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The loop of a forward pass (`lax.scan`) leaves stacks to that of the backward
// pass: in each iteration it writes one layer, which the other loop reads.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOOPS_LAYERSTACKS_H
#define ZPP_LIB_TRANSFORMS_LOOPS_LAYERSTACKS_H

#include "mlir/IR/Builders.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {

/// The layers of a loop over layers, as one tensor [layers..., layer...].
struct LayerStack {
  mlir::Value value;
  /// The number of layers of each loop, the outermost first; empty for a single
  /// layer.
  llvm::SmallVector<int64_t> layers;
};

/// The layer of `stack` at `indices`, one for each of its dims of layers.
mlir::Value createLayerSlice(mlir::OpBuilder &builder, mlir::Location loc,
                             const LayerStack &stack,
                             llvm::ArrayRef<mlir::Value> indices);

/// A read of one layer: a `stablehlo.dynamic_slice` in the body of a loop.
struct LayerRead {
  mlir::Operation *slice;
  mlir::Value index;

  /// Replaces it by `layer`, of the same type, and what reshapes it by what
  /// `layer` is a reshape of.
  void replace(mlir::Value layer) const;
};

/// A write of a layer to a stack that a loop carries, in each iteration.
struct LayerWrite {
  /// The `stablehlo.dynamic_update_slice`, in the body of the loop.
  mlir::Operation *update;
  /// The layer, with a first dim of size 1, and its index.
  mlir::Value layer, index;
  /// True if nothing else in the loop reads the stack, before or after it.
  bool isOnlyUse;
};

/// Returns the write that carried value `index` of `loop` gets; nullopt if it
/// gets something else, or changes its type, or if the condition reads it.
std::optional<LayerWrite> getLayerWrite(WhileView loop, unsigned index);

/// Returns the write that carried value `index` of `counted` gets, if each
/// layer of the stack is written once and nothing else in the loop reads the
/// stack.
std::optional<LayerWrite> getWriteOfAll(const CountedLoop &counted,
                                        unsigned index,
                                        ProvenanceAnalysis &provenances);

/// Has `loop` carry one more stack of so many `layers`, zeros before it, to
/// which each iteration writes `layer` at `index`, at the insertion point in
/// its body. Returns the loop that replaces it.
WhileView writeNewStack(mlir::OpBuilder &builder, mlir::Location loc,
                        WhileView loop, mlir::Value layer, int64_t layers,
                        mlir::Value index);

/// A stack of as many layers as `loop` has iterations, of which each writes
/// one.
struct WrittenStack {
  CountedLoop loop;
  /// The number of the carried value.
  unsigned index;
  /// The layer, in the body of the loop, with a first dim of size 1.
  mlir::Value layer;

  /// Makes the loop carry what it was given instead.
  void erase() const;
};

/// Returns the stack that carried value `index` of `loop` is, or nullopt.
std::optional<WrittenStack> getWrittenStack(const CountedLoop &loop,
                                            unsigned index,
                                            ProvenanceAnalysis &provenances);

/// Returns the gather of which each iteration writes the result to `stack`;
/// null if it writes something else.
zero::AllGatherOp getGathered(const WrittenStack &stack);

/// The reads of a stack in other loops.
struct StackReads {
  llvm::SmallVector<LayerRead> layers;
  /// True if there is no other read.
  bool areComplete = true;
};
StackReads getReads(const WrittenStack &stack, ProvenanceAnalysis &provenances);

/// Returns the stacks that `loop` writes, and who reads them.
llvm::SmallVector<std::pair<WrittenStack, StackReads>>
getWrittenStacks(const CountedLoop &loop, ProvenanceAnalysis &provenances);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_LAYERSTACKS_H
