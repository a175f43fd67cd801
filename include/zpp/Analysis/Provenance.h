//===- Provenance.h - Where values come from --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_PROVENANCE_H
#define ZPP_ANALYSIS_PROVENANCE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"

#include <map>
#include <optional>

namespace zpp {

/// Where a value comes from.
struct Provenance {
  /// The step input, or the first value that is computed.
  mlir::Value root;
  /// True if `root` is an input of the step.
  bool isStepInput = false;
  /// True if the value is a slice of `root` that a loop chooses.
  bool isSliced = false;
};

/// Follows values to where they come from, through casts, reshapes, slices,
/// barriers, calls and loops that carry them unchanged, and through the first
/// operand of a concatenation of nothing but step inputs and constants.
///
/// Every value is looked at once, so that questions about all values of a step
/// take linear time. Answers are valid while the module does not change.
class ProvenanceAnalysis {
public:
  Provenance get(mlir::Value value) { return resolve(value).provenance; }

  /// The ops between `value` and its root, from the value on, without barriers.
  llvm::SmallVector<mlir::Operation *> getPath(mlir::Value value);

  /// The constant that `value` is, also through loops; null if it is none.
  mlir::Operation *getConstant(mlir::Value value);

  /// A number that says which slice of which root `value` holds, however it is
  /// cast: equal for two values only if they hold the same. A root that is
  /// computed is the same as one that is computed in the same way from the same
  /// values, as a backward pass does again. With `inAnyIteration`, a slice that
  /// a loop chooses stands for those of all iterations, so that a forward and a
  /// backward loop over one stack agree.
  int64_t getSliceId(mlir::Value value, bool inAnyIteration);

  /// How often the loops around `op` execute it, or nullopt where a loop's trip
  /// count is not a constant.
  std::optional<int64_t> getTripCount(mlir::Operation *op);

private:
  /// One step on the way to the root.
  struct Link {
    /// Null at the root.
    mlir::Value next;
    /// The op that moves the data; null where a barrier or a region passes the
    /// value on.
    mlir::Operation *op = nullptr;
    Provenance provenance;
  };
  /// A value and how its slice is told from others.
  struct SliceQuery {
    mlir::Value value;
    bool inAnyIteration;
    /// False until the first slice: casts of a slice do not matter, what it is
    /// cut from does.
    bool isExact;
    bool operator<(const SliceQuery &other) const;
  };

  const Link &resolve(mlir::Value value);
  /// The value that `value` comes from directly, and the op between.
  Link getLink(mlir::Value value);
  mlir::Value getOuterValue(mlir::BlockArgument argument, bool &isStepInput);
  mlir::Value getPassedOperand(mlir::func::CallOp call, unsigned index,
                               bool &isSliced);
  mlir::func::CallOp findCall(mlir::func::FuncOp function);
  std::optional<int64_t> getInteger(mlir::Value value);
  std::optional<int64_t> getLoopTripCount(mlir::Operation *loop);

  /// The queries that the answer to `query` is made of, and the rest of what
  /// tells it from others.
  void describe(const SliceQuery &query,
                llvm::SmallVectorImpl<SliceQuery> &parts,
                llvm::SmallVectorImpl<const void *> &description);

  llvm::DenseMap<mlir::Value, Link> links;
  std::map<SliceQuery, int64_t> slices;
  std::map<llvm::SmallVector<const void *>, int64_t> sliceIds;
  /// The first call of each function from another one.
  llvm::DenseMap<mlir::Operation *, mlir::func::CallOp> calls;
  bool hasCalls = false;
  llvm::DenseMap<mlir::Operation *, std::optional<int64_t>> tripCounts;
};

/// See ProvenanceAnalysis; for a single question.
std::optional<int64_t> getTripCount(mlir::Operation *op);

} // namespace zpp

#endif // ZPP_ANALYSIS_PROVENANCE_H
