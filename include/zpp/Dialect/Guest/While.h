//===- While.h - StableHLO's loops ------------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A `stablehlo.while` carries values from one iteration to the next. Carried
// value i is operand i where the loop begins, argument i of the condition and
// of the body, operand i of the body's terminator for the next iteration, and
// result i where the loop ends.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_WHILE_H
#define ZPP_DIALECT_GUEST_WHILE_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/Operation.h"

namespace zpp {

/// True for a `stablehlo.while` whose regions fit its operands. Ops of guest
/// dialects have not been verified.
bool isWhile(mlir::Operation *op);

/// True if `op` is in a `stablehlo.while`.
bool isInLoop(mlir::Operation *op);

/// True if `loop` is a `stablehlo.while` whose carried value `index` is the
/// same in every iteration.
bool isLoopInvariant(mlir::Operation *loop, unsigned index);

/// A `stablehlo.while` with names for its parts. Copies of a view are cheap and
/// stand for the same op.
class WhileView {
public:
  /// A view of nothing.
  WhileView() = default;
  /// `loop` must be a `stablehlo.while` with two regions of one block each.
  explicit WhileView(mlir::Operation *loop) : loop(loop) {}

  /// Returns the view of `op`, or of nothing where `op` is null or no loop.
  static WhileView get(mlir::Operation *op) {
    return op && isWhile(op) ? WhileView(op) : WhileView();
  }
  explicit operator bool() const { return loop; }

  mlir::Operation *getOperation() const { return loop; }
  mlir::Operation *operator->() const { return loop; }

  mlir::Block &getCondition() const { return loop->getRegion(0).front(); }
  mlir::Block &getBody() const { return loop->getRegion(1).front(); }
  /// True if `value` is defined in the body, also in a region there.
  bool contains(mlir::Value value) const {
    return loop->getRegion(1).isAncestor(value.getParentRegion());
  }

  unsigned getNumCarried() const { return loop->getNumOperands(); }
  mlir::Value getInit(unsigned index) const { return loop->getOperand(index); }
  mlir::BlockArgument getCarried(unsigned index) const {
    return getBody().getArgument(index);
  }
  mlir::BlockArgument getConditionArgument(unsigned index) const {
    return getCondition().getArgument(index);
  }
  /// Returns the value of the next iteration, in the body.
  mlir::Value getNext(unsigned index) const {
    return getYield()->getOperand(index);
  }
  void setNext(unsigned index, mlir::Value value) const {
    getYield()->setOperand(index, value);
  }
  mlir::OpResult getResult(unsigned index) const {
    return loop->getResult(index);
  }
  bool isInvariant(unsigned index) const {
    return isLoopInvariant(loop, index);
  }

  /// Returns the terminator of the body.
  mlir::Operation *getYield() const { return &getBody().back(); }
  /// Returns the values that the condition returns: one, unless the loop is
  /// malformed.
  mlir::OperandRange getPredicates() const {
    return getCondition().back().getOperands();
  }
  /// Appends the values of the next iteration of those that extendLoop added.
  void addNext(mlir::ValueRange values) const {
    getYield()->insertOperands(getYield()->getNumOperands(), values);
  }

private:
  mlir::Operation *loop = nullptr;
};

/// Replaces `loop`, a `stablehlo.while`, by one that carries more values, which
/// start as `init`. Until the caller has added their values of the next
/// iteration (WhileView::addNext), isWhile is false for the new loop.
WhileView extendLoop(mlir::Operation *loop, mlir::ValueRange init);

/// Replaces `loop` by one that does not carry value `index`, which nothing but
/// the yield of the body reads.
WhileView dropCarried(WhileView loop, unsigned index);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_WHILE_H
