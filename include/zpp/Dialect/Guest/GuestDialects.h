//===- GuestDialects.h - Dialects that pass through -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_GUESTDIALECTS_H
#define ZPP_DIALECT_GUEST_GUESTDIALECTS_H

#include "mlir/Support/LLVM.h"

namespace mlir {
class DialectRegistry;
class Operation;
} // namespace mlir

namespace zpp {

/// Registers dialects with the names of StableHLO's, Shardy's and JAX's
/// dialects. They accept any op, type and attribute in generic form. The ops of
/// Assembly.h can have their pretty form, in which they are written, so that an
/// exported step can be read without those projects. A dialect that the
/// registry has already stays what it is: register your own ones first. The
/// passes match ops by name and work with either.
void registerGuestDialects(mlir::DialectRegistry &registry);

/// Verifies that in regions of guests' ops values are defined before they are
/// used, as passes expect. MLIR's verifier takes regions of ops that it does
/// not know for graphs without an order.
mlir::LogicalResult verifyGuestOrder(mlir::Operation *root);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_GUESTDIALECTS_H
