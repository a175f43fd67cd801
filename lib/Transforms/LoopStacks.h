//===- LoopStacks.h - What a loop keeps of each iteration -------*- C++ -*-===//
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

#ifndef ZPP_LIB_TRANSFORMS_LOOPSTACKS_H
#define ZPP_LIB_TRANSFORMS_LOOPSTACKS_H

#include "mlir/IR/Builders.h"
#include "zpp/Analysis/Provenance.h"

namespace zpp {

/// A `stablehlo.while` whose iterations have the numbers 0, 1, ... `trips` - 1.
struct CountedLoop {
  mlir::Operation *loop = nullptr;
  /// The number of the iteration, an argument of the body.
  mlir::BlockArgument counter;
  int64_t trips = 0;

  mlir::Block &getBody() const { return loop->getRegion(1).front(); }
};
std::optional<CountedLoop> getCountedLoop(mlir::Operation *loop,
                                          ProvenanceAnalysis &provenances);

/// True if `index`, an integer in the body of `loop`, is one of 0, 1, ...
/// `count` - 1 in all iterations.
bool isIndexBelow(mlir::Value index, int64_t count, const CountedLoop &loop,
                  ProvenanceAnalysis &provenances);

/// True if `index`, an integer in the body of `loop`, follows from the number
/// of the iteration alone and differs in all of them.
bool isIndexOfIteration(mlir::Value index, const CountedLoop &loop,
                        ProvenanceAnalysis &provenances);

/// A read of one layer: a `stablehlo.dynamic_slice` in the body of a loop.
struct LayerRead {
  mlir::Operation *slice;
  mlir::Value index;

  /// Replaces it by `layer`, of the same type, and what reshapes it by what
  /// `layer` is a reshape of.
  void replace(mlir::Value layer) const;
};

/// A stack of as many layers as `loop` has iterations, of which each writes
/// one.
struct LoopStack {
  CountedLoop loop;
  /// Which of the values that the loop carries it is.
  unsigned index;
  /// The layer, in the body of the loop, with a first dim of size 1.
  mlir::Value layer;
  /// In other loops.
  llvm::SmallVector<LayerRead> reads;
  /// True if there is no other read of the stack.
  bool isReadByLayer = true;

  /// Makes the loop carry what it was given instead.
  void erase() const;
};

/// The stacks that `loop` writes.
llvm::SmallVector<LoopStack> getLoopStacks(const CountedLoop &loop,
                                           ProvenanceAnalysis &provenances);

/// Computes values of the body of a loop again elsewhere, as they are in the
/// iteration `index`.
class IterationRebuilder {
public:
  /// `isAllowed` says which ops may be done again, besides constants.
  IterationRebuilder(const CountedLoop &loop, mlir::Value index,
                     llvm::function_ref<bool(mlir::Operation *)> isAllowed)
      : loop(loop), index(index), isAllowed(isAllowed) {}

  /// True if `value` follows by allowed ops from the number of the iteration
  /// and from what is the same in all iterations.
  bool canRebuild(mlir::Value value);
  /// Such a value, at the insertion point. Ops that several values need are
  /// built once.
  mlir::Value rebuild(mlir::OpBuilder &builder, mlir::Value value);

private:
  /// What `value` is outside of the loop, the index, or null.
  mlir::Value getKnown(mlir::Value value) const;

  CountedLoop loop;
  mlir::Value index;
  llvm::function_ref<bool(mlir::Operation *)> isAllowed;
  llvm::DenseMap<mlir::Value, mlir::Value> built;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPSTACKS_H
