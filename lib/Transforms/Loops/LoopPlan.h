//===- LoopPlan.h - What becomes of the iterations of a loop ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOOPS_LOOPPLAN_H
#define ZPP_LIB_TRANSFORMS_LOOPS_LOOPPLAN_H

#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Support/Decision.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {

/// A plan for the iterations of a loop. zero-plan-loops makes it,
/// zero-write-loops carries it out, and passes in between see what will be
/// there.
struct LoopPlan {
  /// The iterations that are written in front of the loop, and after it: none
  /// or one.
  int64_t first = 0, last = 0;
  /// The iterations that follow each other as layers, without a loop: all that
  /// are left, or none.
  int64_t layers = 0;

  /// Returns the plan that `loop` carries; of one that carries none, that it
  /// stays.
  static LoopPlan get(WhileView loop);
  void set(WhileView loop) const;
  /// Returns the attribute that `set` notes; empty for a loop that stays.
  mlir::DictionaryAttr getAttr(mlir::MLIRContext *context) const;
};

/// True if all that `loop` carries has the same type before, in and after it.
/// Nothing has verified ops of guest dialects.
bool hasOneTypePerValue(WhileView loop);

/// Emits an error at each loop in `root` with a plan that cannot be written.
llvm::LogicalResult verifyLoopPlans(mlir::Operation *root);

/// Plans that the iterations of `loop` become layers where they are those of a
/// model, few enough for XLA to compile each: each gathers weights of its own,
/// or leaves gradients of its own. The collectives may be in any form. Returns
/// the number of layers.
Decision<int64_t> planLayers(WhileView loop, ProvenanceAnalysis &provenances);

/// True if `op` gathers or scatters, as a collective of the dialect or a start
/// of some.
bool communicates(mlir::Operation *op);

/// Returns the values in `body` that `values` follow from, with the arguments
/// of `body`.
llvm::SetVector<mlir::Value> getSources(mlir::ValueRange values,
                                        mlir::Block &body);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_LOOPPLAN_H
