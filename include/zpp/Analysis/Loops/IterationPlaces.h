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

/// The places at which the iterations of a loop leave what they compute of a
/// value.
struct IterationPlaces {
  /// The loop, if each has its own place, which is the same in every run of the
  /// loop: they write the layers of a stack. Nullopt if all have the same
  /// place: they add to one sum.
  std::optional<CountedLoop> stack;
};

/// The places at which the iterations of `loop`, a `stablehlo.while`, leave
/// what follows from `value`, which is computed in its body or in a loop there,
/// or why they are not known.
Decision<IterationPlaces> getIterationPlaces(mlir::Value value,
                                             mlir::Operation *loop,
                                             ProvenanceAnalysis &provenances);

} // namespace zpp

#endif // ZPP_ANALYSIS_LOOPS_ITERATIONPLACES_H
