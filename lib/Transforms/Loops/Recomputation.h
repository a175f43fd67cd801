//===- Recomputation.h - Values computed once more --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A value that is needed at another place is computed there once more: its ops
// are cloned, down to values that are known there. Whether this is right, and
// cheap enough, is decided by mayRepeat alone.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOOPS_RECOMPUTATION_H
#define ZPP_LIB_TRANSFORMS_LOOPS_RECOMPUTATION_H

#include "mlir/IR/Builders.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "llvm/ADT/DenseSet.h"

#include <functional>
#include <optional>

namespace zpp {

/// The most work that is done a second time.
enum class Effort {
  /// Casts, slices, broadcasts, and arithmetic of scalars.
  Scalars,
  /// Arithmetic of whole tensors as well, element by element.
  Tensors,
};

/// True if `op` gives the same results wherever it is done, has no effect, and
/// takes no more work than `most`.
bool mayRepeat(mlir::Operation *op, Effort most);

/// Clones the ops that values follow from.
class Recomputation {
public:
  /// Returns what a value is at the other place, or null if its op is to be
  /// cloned. It may build ops.
  using Known = std::function<mlir::Value(mlir::OpBuilder &, mlir::Value)>;

  explicit Recomputation(Known known) : known(std::move(known)) {}

  /// `value` at the insertion point of `builder`. An op that several values
  /// follow from is cloned once, so that later calls must build after earlier
  /// ones. Values pass through barriers.
  mlir::Value get(mlir::OpBuilder &builder, mlir::Value value);

private:
  Known known;
  llvm::DenseMap<mlir::Value, mlir::Value> done;
};

/// Values of the body of a loop as they are in iteration `index`, computed
/// elsewhere.
class IterationValues {
public:
  /// `isRepeatable` says which ops may be done again.
  IterationValues(const CountedLoop &loop, mlir::Value index,
                  std::function<bool(mlir::Operation *)> isRepeatable);

  /// True if `value` follows by repeatable ops from the number of the iteration
  /// and from what is the same in all iterations.
  bool canGet(mlir::Value value) const;
  /// Such a value, at the insertion point.
  mlir::Value get(mlir::OpBuilder &builder, mlir::Value value) {
    return values.get(builder, value);
  }

private:
  static mlir::Value getKnown(const CountedLoop &loop, mlir::Value index,
                              mlir::Value value);

  CountedLoop loop;
  mlir::Value index;
  std::function<bool(mlir::Operation *)> isRepeatable;
  Recomputation values;
};

/// Values of the body of a loop as they are in its first or its next iteration.
class ShiftedValues {
public:
  /// With `readsStacks`, layers are known that an iteration reads from a stack,
  /// `stablehlo.dynamic_slice`, and then writes there. The next iteration reads
  /// what this one has written (getWrites).
  explicit ShiftedValues(mlir::Operation *loop, bool readsStacks = false);
  ShiftedValues(const ShiftedValues &) = delete;

  /// True if `value` depends only on values that the loop carries unchanged and
  /// on scalars, such as the loop's counter, that depend only on such values
  /// themselves.
  bool isPossible(mlir::Value value);

  /// Returns the ops that write to the stacks from which `value` takes layers.
  /// getNext(value) reads their results, wherever they are.
  llvm::SmallVector<mlir::Operation *> getWrites(mlir::Value value) const;

  /// True if `value` may differ between iterations. isPossible(value) must be
  /// true.
  bool changes(mlir::Value value);

  /// Returns the value that `value` has in the first iteration, computed before
  /// the loop.
  mlir::Value getFirst(mlir::OpBuilder &builder, mlir::Value value) {
    return first.get(builder, value);
  }

  /// Returns the value that `value` will have in the next iteration, computed
  /// in this one.
  mlir::Value getNext(mlir::OpBuilder &builder, mlir::Value value) {
    return next.get(builder, value);
  }

  /// Returns the value that `value` has in this iteration, computed once more,
  /// also if the loop has been replaced. `builder` must stand at the same op
  /// each time.
  mlir::Value getAgain(mlir::OpBuilder &builder, mlir::Value value) {
    return again.get(builder, value);
  }

private:
  /// Returns the op that writes a layer to a stack after `read` has taken it
  /// from there; null if `read` is something else.
  mlir::Operation *getWrite(mlir::Operation *read) const;
  bool argumentChanges(mlir::BlockArgument argument) const;
  /// A recomputation of values of the body. `getArgument` says what an argument
  /// of the body is at the other place.
  Recomputation
  recompute(std::function<mlir::Value(mlir::OpBuilder &, mlir::BlockArgument)>
                getArgument) const;

  WhileView loop;
  mlir::Block *body;
  bool readsStacks;
  llvm::DenseMap<mlir::Value, bool> possible;
  /// The ops of the body whose results differ between iterations; computed on
  /// the first use.
  std::optional<llvm::DenseSet<mlir::Operation *>> changing;
  Recomputation first, current, next, again;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_RECOMPUTATION_H
