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

#include <string>

namespace zpp {

/// The places at which the iterations of a loop leave what they compute of a
/// value.
struct IterationPlaces {
  enum Kind {
    /// All at the same place: they add to one sum.
    Same,
    /// Each at its own, which is the same in every run of the loop: they write
    /// the layers of a stack.
    Own,
    /// Neither is known.
    Unknown,
  };
  Kind kind = Same;
  /// The loop, if they are `Own`.
  CountedLoop loop = {};
  /// The reason, if they are `Unknown`.
  std::string reason = {};
};

/// The places at which the iterations of `loop`, a `stablehlo.while`, leave
/// what follows from `value`, which is computed in its body or in a loop there.
IterationPlaces getIterationPlaces(mlir::Value value, mlir::Operation *loop,
                                   ProvenanceAnalysis &provenances);

} // namespace zpp

#endif // ZPP_ANALYSIS_LOOPS_ITERATIONPLACES_H
