//===- IterationPlaces.h - Places of a loop's gradients ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gradients that iterations add to one sum are those of micro-batches; those
// that they write to places of their own are those of layers.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_LOOPS_ITERATIONPLACES_H
#define ZPP_ANALYSIS_LOOPS_ITERATIONPLACES_H

#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Support/Decision.h"

#include <optional>

namespace zpp {

/// The places where iterations store their results for a value.
struct IterationPlaces {
  /// The loop, if each iteration writes its own layer of a stack, the same in
  /// every run of the loop; nullopt if all add to one sum.
  std::optional<CountedLoop> stack;
};

/// Returns where each iteration of `loop`, a `stablehlo.while`, stores what
/// follows from `value`, which is computed in its body or in a loop there, or
/// why that is not known.
Decision<IterationPlaces> getIterationPlaces(mlir::Value value,
                                             mlir::Operation *loop,
                                             ProvenanceAnalysis &provenances);

} // namespace zpp

#endif // ZPP_ANALYSIS_LOOPS_ITERATIONPLACES_H
