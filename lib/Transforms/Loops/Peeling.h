//===- Peeling.h - Iterations written outside of their loop -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first iteration of a loop can be written in front of it, the last one
// after it. What is done is the same, in the same order.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOOPS_PEELING_H
#define ZPP_LIB_TRANSFORMS_LOOPS_PEELING_H

#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Support/Decision.h"

namespace zpp {

/// True if all that `loop` carries has the same type before, in and after it.
/// Nothing has verified ops of guest dialects.
bool hasOneTypePerValue(WhileView loop);

/// The counter of `loop` if an iteration can be written outside of it, another
/// one is left, and the hops of `usec` microseconds that the iteration would
/// hide take at least `minUsec`.
Decision<LoopCounter> canPeel(WhileView loop, double usec, int64_t minUsec,
                              ProvenanceAnalysis &provenances);

/// Says, in a remark of `pass`, that an iteration of `loop` is `peeled`, or
/// what it `costs` that none is, and why.
void remarkPeeling(const Decision<LoopCounter> &counter, WhileView loop,
                   llvm::StringRef pass, const char *peeled, const char *costs);

/// Writes the first iteration of `loop`, which counts with `counter`, in front
/// of it. If only one other is left, that one is written without a loop, too.
void peelFirst(WhileView loop, const LoopCounter &counter);

/// Writes the last iteration after it, likewise. It reads what the loop leaves,
/// the number of the iteration too, so that nothing of it is computed before
/// the loop has ended.
void peelLast(WhileView loop, const LoopCounter &counter);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_PEELING_H
