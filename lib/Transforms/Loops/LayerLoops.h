//===- LayerLoops.h - Loops over the layers of a model ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOOPS_LAYERLOOPS_H
#define ZPP_LIB_TRANSFORMS_LOOPS_LAYERLOOPS_H

#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Support/Decision.h"
#include "llvm/ADT/SetVector.h"

namespace zpp {

/// The values in `body` that `values` follow from, with the arguments of
/// `body`.
llvm::SetVector<mlir::Value> getSources(mlir::ValueRange values,
                                        mlir::Block &body);

/// The counter of `loop` where its iterations are the layers of a model, of
/// which there are at most `maxTrips`: each gathers weights of its own, or
/// leaves gradients of its own. Such a loop becomes layers
/// (zero-unroll-loops). Collectives may be outlined or not.
Decision<LoopCounter> getLayers(WhileView loop, int64_t maxTrips,
                                ProvenanceAnalysis &provenances);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_LAYERLOOPS_H
