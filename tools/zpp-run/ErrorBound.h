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

/// Bounds for a tensor, seen as the vector of its elements on all ranks.
struct Bound {
  /// Upper bound on the L2 norm of its value in exact arithmetic.
  double norm = 0;
  /// Upper bound on the L2 distance of the computed value from that.
  double error = 0;
};

/// Derives bounds for the results of a function from the norms of its
/// arguments, which are exact, op by op:
///
///   quantize       adds r (norm + error), with r = getRelativeErrorBound of
///                  QuantReference.h
///   rounding       to a type with unit roundoff u adds u (norm + error)
///   sums           of n sources let the norm grow by at most sqrt(n), by the
///                  Cauchy-Schwarz inequality; n - 1 additions in f32 add
///                  (1 + 2^-24)^(n - 1) - 1 of that
///   all_to_all     moves elements and changes nothing
///   all_gather     of n ranks has every element n times: sqrt(n)
///
/// Fails, with an error at the op, if the function has other ops. `ranks` is
/// the size of the mesh.
llvm::FailureOr<llvm::SmallVector<Bound>>
getResultBounds(mlir::func::FuncOp function, llvm::ArrayRef<double> norms,
                int64_t ranks);

} // namespace zpp

#endif // ZPP_TOOLS_ZPP_RUN_ERRORBOUND_H
