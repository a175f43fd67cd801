//===- Accumulator.h - Gradients added up before they travel ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_ACCUMULATOR_H
#define ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_ACCUMULATOR_H

#include "Gradients/Accumulate/GradientSum.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "llvm/ADT/DenseSet.h"

namespace zpp::zero {

/// The partial sums that a loop adds up of one of its sums, by groups of terms.
struct LoopPartials {
  /// The location of the sum.
  mlir::Location loc;
  /// Values that each iteration adds, and those that the loop begins with.
  llvm::SmallVector<mlir::Value> partials, begin;
  /// The numbers of gradients that the loop has added up; 0 if not known.
  llvm::SmallVector<int64_t> counts;
};

/// Rewrites the sums of one module, from the innermost loops outwards.
class Accumulator {
public:
  explicit Accumulator(const AccumulationGroup &group) : finder(group) {}

  void run(mlir::Block &block) {
    llvm::SmallVector<mlir::Operation *> nested;
    for (mlir::Operation &op : block)
      if (op.getNumRegions() > 0)
        nested.push_back(&op);
    for (mlir::Operation *op : nested) {
      for (mlir::Region &region : op->getRegions())
        for (mlir::Block &inner : region)
          run(inner);
      if (isWhile(op))
        leaveLoop(op);
    }
    addFirst(block);
  }

  /// Sends what has been added up, and erases what this replaces.
  void finish();

  /// True if some gradients are added up before they are sent.
  bool hasSums() const { return !made.empty() || sendsInLoops; }
  /// Returns the bytes that all partial sums take beyond the gradients.
  int64_t getMoreBytes() const { return moreBytes; }
  /// Returns the number of micro-batches of an update: the least of gradients
  /// that are added up, as weights may be used more than once. 0 if it is not
  /// known.
  int64_t getMicroBatches() const { return microBatches.value_or(0); }

private:
  void leaveLoop(mlir::Operation *op);
  LoopPartials takePartials(WhileView loop, unsigned number,
                            const GradientSum &sum,
                            const std::optional<LoopCounter> &counter);
  WhileView carryPartials(WhileView loop, unsigned number,
                          const GradientSum &sum, const LoopPartials &partials);
  void addPartials(WhileView loop, unsigned number, const GradientSum &sum,
                   const LoopPartials &partials);
  void addFirst(mlir::Block &block);
  GradientSum findSumInFront(mlir::Value init, const GradientSum &sum);
  mlir::Value sendInLoop(llvm::ArrayRef<GradientTerm> terms);
  mlir::Value getPartial(const GradientTerm &term);
  mlir::Value getSumOfPartials(llvm::ArrayRef<GradientTerm> terms);
  mlir::Value makeTerm(mlir::OpBuilder &builder, GradientTerm like,
                       int64_t count, mlir::Value partial, mlir::Type type);
  mlir::Value addAll(mlir::OpBuilder &builder, mlir::Location loc,
                     llvm::ArrayRef<mlir::Value> values);
  void discard(const OuterHops &hops);
  /// Notes that a sum of `count` gradients is sent.
  void noteCount(int64_t count) {
    microBatches = std::min(microBatches.value_or(count), count);
  }
  /// A value that stays valid when the loop that it is a result of is rebuilt.
  mlir::Value hold(mlir::OpBuilder &builder, mlir::Value result);

  TermFinder finder;
  /// Values that stand for terms, and for results of loops.
  llvm::SmallVector<std::pair<mlir::UnrealizedConversionCastOp, GradientTerm>>
      made;
  llvm::SmallVector<mlir::UnrealizedConversionCastOp> held;
  /// The partial sums of terms that are part of others.
  llvm::DenseSet<mlir::Value> consumed;
  llvm::SmallVector<mlir::Operation *> obsolete;
  int64_t moreBytes = 0;
  std::optional<int64_t> microBatches;
  /// Whether an iteration sends a layer of a sum.
  bool sendsInLoops = false;
};

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_GRADIENTS_ACCUMULATE_ACCUMULATOR_H
