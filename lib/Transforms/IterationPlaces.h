//===- IterationPlaces.h - Where iterations leave a gradient ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is kept of a gradient from step to step belongs to a weight. In a loop,
// which weight it is shows where the iterations leave the gradient.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_ITERATIONPLACES_H
#define ZPP_LIB_TRANSFORMS_ITERATIONPLACES_H

#include "LoopStacks.h"

#include <string>

namespace zpp {

/// Where the iterations of a loop leave what they compute of a value.
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
  /// If they are `Own`.
  CountedLoop loop = {};
  /// Why they are not known.
  std::string reason = {};
};

/// Where the iterations of `loop`, a `stablehlo.while`, leave what follows from
/// `value`, which is computed in its body or in a loop there.
IterationPlaces getIterationPlaces(mlir::Value value, mlir::Operation *loop,
                                   ProvenanceAnalysis &provenances);

/// Why `manual`, the manual computation around `value`, may leave it at another
/// place in each step, or an empty string.
std::string getMovingPlace(mlir::Value value, mlir::Operation *manual,
                           ProvenanceAnalysis &provenances);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_ITERATIONPLACES_H
