//===- Branches.h - Regions that end in an op's results ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_BRANCHES_H
#define ZPP_DIALECT_GUEST_BRANCHES_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace zpp {

/// An op that runs one of its regions, once: a manual computation, which has
/// only one, a `case` or an `if`. Operand i of the terminator there is result
/// i.
class BranchesView {
public:
  /// Returns the view of `op`, or nullopt for other ops.
  static std::optional<BranchesView> get(mlir::Operation *op);

  /// Returns the regions' blocks. Regions without a terminator are left out.
  llvm::ArrayRef<mlir::Block *> getBodies() const { return bodies; }

  /// Calls `visit` for each operand that is an argument of a body: those of a
  /// manual computation.
  void forEachEntry(
      llvm::function_ref<void(mlir::Value operand, mlir::Value argument)> visit)
      const;
  /// Calls `visit` for each result with what it may be.
  void forEachExit(
      llvm::function_ref<void(mlir::Value yielded, mlir::Value result)> visit)
      const;

private:
  explicit BranchesView(mlir::Operation *op) : op(op) {}

  mlir::Operation *op;
  llvm::SmallVector<mlir::Block *, 2> bodies;
};

/// Replaces `op` by the same with more operands and results behind its own. It
/// takes over the regions; what they lack for these is for the caller to add.
mlir::Operation *extendOp(mlir::Operation *op, mlir::ValueRange operands,
                          mlir::TypeRange results);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_BRANCHES_H
