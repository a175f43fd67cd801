//===- HopsAfterLoops.h - What a step sends after its loops -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_HOPSAFTERLOOPS_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_HOPSAFTERLOOPS_H

#include "Gradients/Accumulate/OuterHops.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Dialect/Guest/While.h"

#include <vector>

namespace zpp::zero {

/// The hops that the step itself writes after a loop, for one of the sums that
/// the loop leaves.
struct HopsAfterLoop {
  OuterHops hops;
  /// Whether the sum is there only at the end of an iteration: nothing of it
  /// hides the hops.
  bool isLate;
};

std::vector<HopsAfterLoop> findHopsAfter(WhileView loop,
                                         ProvenanceAnalysis &provenances);

/// Moves the first hops of `all` that are not late up, once the last iteration
/// stands after the loop: to where the last gradient of each sum is there, or
/// into the loop over layers that leaves it, which has a plan for them then.
void moveHopsUp(llvm::ArrayRef<HopsAfterLoop> all);

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_HOPSAFTERLOOPS_H
