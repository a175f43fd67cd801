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

#include <functional>

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

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_RECOMPUTATION_H
