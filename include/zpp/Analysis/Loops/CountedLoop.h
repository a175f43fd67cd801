//===- CountedLoop.h - Loops that count their iterations --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `lax.scan` and `lax.fori_loop` become a `stablehlo.while` that counts. The
// numbers of its iterations are the indices of the layers that it works on.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_LOOPS_COUNTEDLOOP_H
#define ZPP_ANALYSIS_LOOPS_COUNTEDLOOP_H

#include "zpp/Analysis/Provenance.h"
#include "zpp/Dialect/Guest/While.h"

#include <optional>

namespace zpp {

/// The counter of a loop: begin, begin + step, ... in `trips` iterations.
struct LoopCounter {
  /// The number of the carried value.
  unsigned index;
  int64_t begin, step, trips;
};

/// Returns the counter of `loop`, which may be the view of nothing: a value
/// that starts at a constant, grows by a constant, and is compared with a
/// constant. nullopt if there is none.
std::optional<LoopCounter> getLoopCounter(WhileView loop,
                                          ProvenanceAnalysis &provenances);

/// A loop whose iterations have the numbers 0, 1, ... `trips` - 1.
struct CountedLoop {
  WhileView loop;
  /// The number of the iteration, an argument of the body.
  mlir::BlockArgument counter;
  int64_t trips = 0;

  mlir::Block &getBody() const { return loop.getBody(); }
};

/// nullopt if `op` is no such loop.
std::optional<CountedLoop> getCountedLoop(mlir::Operation *op,
                                          ProvenanceAnalysis &provenances);

/// Returns the number of times that the loops around `op` execute it, or
/// nullopt if a trip count is not constant.
std::optional<int64_t> getTripCount(mlir::Operation *op,
                                    ProvenanceAnalysis &provenances);
/// The same for a single query.
std::optional<int64_t> getTripCount(mlir::Operation *op);

/// True if `index`, an integer in the body of `loop`, is one of 0, 1, ...
/// `count` - 1 in all iterations.
bool isIndexBelow(mlir::Value index, int64_t count, const CountedLoop &loop,
                  ProvenanceAnalysis &provenances);

/// True if `index`, an integer in the body of `loop`, follows from the number
/// of the iteration alone and differs in all of them.
bool isIndexOfIteration(mlir::Value index, const CountedLoop &loop,
                        ProvenanceAnalysis &provenances);

/// True if `index`, an integer in the body of `loop`, equals the number of the
/// iteration.
bool isNumberOfIteration(mlir::Value index, const CountedLoop &loop,
                         ProvenanceAnalysis &provenances);

/// Returns the values of `index`, an integer in the body of `loop`, in all
/// iterations; empty if it does not follow from their numbers alone.
llvm::SmallVector<int64_t> getIndices(mlir::Value index,
                                      const CountedLoop &loop,
                                      ProvenanceAnalysis &provenances);

/// Returns the one value that chooses what `value`, in the body of `loop`, is
/// made of in an iteration; null where it depends on the iteration in other
/// ways.
mlir::Value getIterationIndex(mlir::Value value, WhileView loop,
                              ProvenanceAnalysis &provenances);

} // namespace zpp

#endif // ZPP_ANALYSIS_LOOPS_COUNTEDLOOP_H
