//===- OpOrder.h - The order of ops that move -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OPORDER_H
#define ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OPORDER_H

#include "mlir/IR/Operation.h"

#include <tuple>

namespace zpp {

/// The order of the ops of a block while some of them move and others are
/// replaced. Operation::isBeforeInBlock() would number the whole block again
/// after each change.
class OpOrder {
public:
  explicit OpOrder(mlir::Block &block);

  bool isBefore(mlir::Operation *a, mlir::Operation *b) const {
    return getPlace(a) < getPlace(b);
  }
  /// Returns the number of `ops` that come before `op`; `ops` must be in order.
  size_t countBefore(llvm::ArrayRef<mlir::Operation *> ops,
                     mlir::Operation *op) const;

  /// Gives `op` the place of `old`, which has been erased.
  void replace(mlir::Operation *old, mlir::Operation *op);
  /// Moves `op` directly before `next`, which must not have moved.
  void moveBefore(mlir::Operation *op, mlir::Operation *next);
  /// Records that `op` was created directly before `next`. At most one op may
  /// be created before each `next`.
  void insertBefore(mlir::Operation *op, mlir::Operation *next);
  /// Moves `ops` directly after `previous`, which must not have moved, and
  /// keeps their order.
  void moveAfter(llvm::ArrayRef<mlir::Operation *> ops,
                 mlir::Operation *previous);

private:
  /// For an op that has not moved, its number. For others, the number of the op
  /// that they were moved to, the side of it on which they stand, and their
  /// order there.
  struct Place {
    int64_t number = 0;
    enum Side { Before, Itself, After } side = Itself;
    int64_t batch = 0, position = 0;
    bool operator<(const Place &other) const {
      return std::tie(number, side, batch, position) <
             std::tie(other.number, other.side, other.batch, other.position);
    }
  };

  const Place &getPlace(mlir::Operation *op) const {
    auto it = places.find(op);
    assert(it != places.end() && "expected an op of the block");
    return it->second;
  }

  llvm::DenseMap<mlir::Operation *, Place> places;
  int64_t numMoves = 0;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OPORDER_H
