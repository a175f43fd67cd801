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

/// The values of an index in the iterations of a loop, which follow from their
/// numbers: factor * number + offset.
struct IndexSequence {
  /// 1, 0 or -1.
  int64_t factor;
  int64_t offset, trips;

  int64_t at(int64_t number) const { return factor * number + offset; }
  /// True if all are among 0, 1, ... `count` - 1.
  bool areBelow(int64_t count) const {
    auto isIn = [&](int64_t value) { return value >= 0 && value < count; };
    return isIn(at(0)) && isIn(at(trips - 1));
  }
  /// True if no two are equal.
  bool areDistinct() const { return factor != 0; }
};

/// Returns the values of `index`, an integer in the body of `loop`, or nullopt
/// if they do not follow from the number of the iteration alone.
std::optional<IndexSequence> getIndices(mlir::Value index,
                                        const CountedLoop &loop,
                                        ProvenanceAnalysis &provenances);

/// Returns the one value that chooses what `value`, in the body of `loop`, is
/// made of in an iteration; null where it depends on the iteration in other
/// ways.
mlir::Value getIterationIndex(mlir::Value value, WhileView loop,
                              ProvenanceAnalysis &provenances);

} // namespace zpp

#endif // ZPP_ANALYSIS_LOOPS_COUNTEDLOOP_H
