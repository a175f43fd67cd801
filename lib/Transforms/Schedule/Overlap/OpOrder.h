//===- OpOrder.h - The order of ops that move -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OPORDER_H
#define ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OPORDER_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"

namespace zpp {

/// The order of the ops of a block while some of them move and others are
/// replaced. Operation::isBeforeInBlock() would number the whole block again
/// after each move.
class OpOrder {
public:
  explicit OpOrder(mlir::Block &block) : block(block) { numberAll(); }

  bool isBefore(mlir::Operation *a, mlir::Operation *b) const {
    return getNumber(a) < getNumber(b);
  }
  /// Returns the number of `ops` that come before `op`; `ops` must be in order.
  size_t countBefore(llvm::ArrayRef<mlir::Operation *> ops,
                     mlir::Operation *op) const;

  /// Notes where `op` is, which is new or has moved.
  void note(mlir::Operation *op);
  /// Moves `op` directly before `next`.
  void moveBefore(mlir::Operation *op, mlir::Operation *next);
  /// Moves `ops` directly after `previous`, and keeps their order.
  void moveAfter(llvm::ArrayRef<mlir::Operation *> ops,
                 mlir::Operation *previous);

private:
  int64_t getNumber(mlir::Operation *op) const {
    assert(numbers.contains(op) && "expected an op of the block");
    return numbers.lookup(op);
  }
  void numberAll();

  mlir::Block &block;
  /// They grow with the places of ops, and have room for others in between.
  llvm::DenseMap<mlir::Operation *, int64_t> numbers;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OPORDER_H
