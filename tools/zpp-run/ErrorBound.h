//===- ErrorBound.h - How far results may be from exact ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_RUN_ERRORBOUND_H
#define ZPP_TOOLS_ZPP_RUN_ERRORBOUND_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace zpp {

/// About a tensor, as the vector of its elements on all ranks: upper bounds on
/// the L2 norm of what it is in exact arithmetic, and on the L2 distance of
/// what is computed from that.
struct Bound {
  double norm = 0;
  double error = 0;
};

/// Follows bounds from the arguments of a function (`norms`, which are exact)
/// to its results, op by op:
///
///   quantize       r of QuantReference's getRelativeErrorBound: adds
///                  r (norm + error)
///   rounding       to a type with unit roundoff u: adds u (norm + error)
///   sums           of n sources: the norm grows by at most sqrt(n), by Cauchy
///                  and Schwarz, and n - 1 additions in f32 add
///                  (1 + 2^-24)^(n - 1) - 1 of that
///   all_to_all     moves elements
///   all_gather     of n ranks: everything is there n times, sqrt(n)
///
/// Fails, with an error at the op, where a program has ops of which it knows
/// nothing. `ranks` is the size of the mesh.
llvm::FailureOr<llvm::SmallVector<Bound>>
getResultBounds(mlir::func::FuncOp function, llvm::ArrayRef<double> norms,
                int64_t ranks);

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_RUN_ERRORBOUND_H
