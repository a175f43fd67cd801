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

/// The origin of a value.
struct Provenance {
  /// The step input, or the value that is computed, from which it comes.
  mlir::Value root;
  /// True if `root` is an input of the step.
  bool isStepInput = false;
  /// True if the value is a slice of `root` whose index a loop chooses.
  bool isSliced = false;
};

/// Follows values back to their roots: through casts, reshapes, slices,
/// barriers, calls, loops that carry them unchanged, and the first operand of a
/// concatenation of step inputs and constants only.
///
/// Every value is visited once, so queries about all values of a step take
/// linear time. Results are valid while the module does not change.
class ProvenanceAnalysis {
public:
  Provenance get(mlir::Value value) { return resolve(value).provenance; }

  /// Returns the ops between `value` and its root, from the value on, without
  /// barriers.
  llvm::SmallVector<mlir::Operation *> getPath(mlir::Value value);

  /// Returns the constant that defines `value`, also through loops, or null.
  mlir::Operation *getConstant(mlir::Value value);
  /// Returns the integer that all of its elements are, or nullopt.
  std::optional<int64_t> getConstantInteger(mlir::Value value);

  /// A number that identifies the slice of the root that `value` holds,
  /// regardless of casts. It is equal for two values only if they hold the same
  /// data. Computed roots are equal if they are computed in the same way from
  /// the same values, as a backward pass may repeat it. With `inAnyIteration`,
  /// a slice whose index a loop chooses represents the slices of all
  /// iterations, so that a forward and a backward loop over one stack agree.
  int64_t getSliceId(mlir::Value value, bool inAnyIteration) {
    return getId({value, inAnyIteration, /*isExact=*/false});
  }
  /// The same with casts, of which two values must have the same.
  int64_t getValueId(mlir::Value value, bool inAnyIteration) {
    return getId({value, inAnyIteration, /*isExact=*/true});
  }
  /// True if both values are known to be equal.
  bool areEqual(mlir::Value a, mlir::Value b) {
    return getValueId(a, false) == getValueId(b, false);
  }

private:
  /// One step on the way to the root.
  struct Link {
    /// The value that this one comes from, or null at the root.
    mlir::Value next;
    /// The op that moves the data, or null if a barrier or a region passes the
    /// value on.
    mlir::Operation *op = nullptr;
    Provenance provenance;
  };
  /// A value, and how its slice is distinguished from others.
  struct SliceQuery {
    mlir::Value value;
    bool inAnyIteration;
    /// False until the first slice. Casts of the slice do not matter, but the
    /// value that it is cut from does.
    bool isExact;
    bool operator<(const SliceQuery &other) const;
  };

  const Link &resolve(mlir::Value value);
  /// Returns the value that `value` comes from directly, and the op between.
  Link getLink(mlir::Value value);
  mlir::Value getOuterValue(mlir::BlockArgument argument, bool &isStepInput);
  mlir::Value getPassedOperand(mlir::func::CallOp call, unsigned index,
                               bool &isSliced);
  mlir::func::CallOp findCall(mlir::func::FuncOp function);

  int64_t getId(const SliceQuery &first);
  /// The queries that the result of `query` depends on, and a description of
  /// what else distinguishes it.
  void describe(const SliceQuery &query,
                llvm::SmallVectorImpl<SliceQuery> &parts,
                llvm::SmallVectorImpl<const void *> &description);

  llvm::DenseMap<mlir::Value, Link> links;
  std::map<SliceQuery, int64_t> slices;
  std::map<llvm::SmallVector<const void *>, int64_t> sliceIds;
  /// The first call of each function from another one.
  llvm::DenseMap<mlir::Operation *, mlir::func::CallOp> calls;
  bool hasCalls = false;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_PROVENANCE_H
