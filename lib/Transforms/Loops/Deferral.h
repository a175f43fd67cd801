//===- Deferral.h - Scatters left to the next iteration ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `zero-write-loops` leaves a scatter whose result the loop only stores to the
// next iteration, with all that follows from it.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_LOOPS_DEFERRAL_H
#define ZPP_LIB_TRANSFORMS_LOOPS_DEFERRAL_H

#include "Loops/Recomputation.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Roles/Roles.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Decision.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <optional>

namespace zpp {

/// Values that the loop is to carry in addition: those that enter the first
/// iteration, and those that each iteration hands to the next one.
struct Carried {
  llvm::SmallVector<mlir::Value> init, next;

  /// Returns the number of the new value.
  size_t add(mlir::Value initial, mlir::Value value) {
    init.push_back(initial);
    next.push_back(value);
    return init.size() - 1;
  }
};

/// A scatter and all that follows from its result, if the loop only stores what
/// this makes: in a slice of a stack, or added to a sum.
///
/// All of it is done one iteration later, in the order in which it was. There
/// is one iteration more of it: the first one, which has no gradient. It works
/// on zeros. What it stores is overwritten later, or are zeros that are added
/// to a sum.
class Deferral {
public:
  Deferral(mlir::Operation *loop, zero::StartOp start)
      : loop(loop), body(WhileView(loop).getBody()), start(start) {}

  zero::StartOp getStart() const { return start; }
  /// All scatters that are deferred with it, in order.
  llvm::SmallVector<zero::StartOp> getStarts() const;

  /// Finds the ops to defer. Returns whether they can be moved to the next
  /// iteration.
  Decision<> analyze(ShiftedValues &inputs);

  llvm::ArrayRef<mlir::Operation *> getOps() const { return ops; }
  bool contains(mlir::Operation *op) const { return members.contains(op); }
  /// Returns the values that the iteration computes for the ops.
  llvm::ArrayRef<mlir::Value> getData() const { return data.getArrayRef(); }
  /// Returns the memory that is live from one iteration to the next.
  int64_t getCarriedBytes() const;

  /// Adds to `carried` what is to be scattered and where to store the result.
  /// The loop starts with zeros, which are stored where the result of the first
  /// iteration goes. `shared` has the numbers of values that are already
  /// carried.
  void carry(mlir::OpBuilder &outside, ShiftedValues &inputs, Carried &carried,
             llvm::MapVector<mlir::Value, size_t> &shared);

  /// Lets each iteration of `extended`, the loop, do the ops for the one
  /// before. The loop carries the additional values from its operand `first`
  /// on. The first scatter starts before `front`. If another one follows from
  /// it, they share the compute of the iteration: it starts before one of
  /// `heavy`. Results are stored at the end.
  void rewrite(mlir::Operation *extended, size_t first, mlir::Operation *front,
               llvm::ArrayRef<mlir::Operation *> heavy, ShiftedValues &inputs);

  /// Does the ops for the last iteration after the loop; stores come just
  /// before the first reader.
  void finish(mlir::Operation *extended);

private:
  Decision<> findOps();
  Decision<> canDefer(mlir::Operation *op) const;
  void addCasts(ShiftedValues &inputs);
  Decision<> checkUpdates() const;
  Decision<> findOperands(ShiftedValues &inputs);
  bool isSum(unsigned number) const;
  bool keepsSums() const;
  void findLevels();
  std::optional<unsigned> getYielded(mlir::Operation *op) const;
  bool isIndex(mlir::OpOperand &operand) const;
  bool isOutside(mlir::Value value) const;

  mlir::Operation *loop;
  mlir::Block &body;
  zero::StartOp start;
  /// The deferred ops, in order.
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::DenseSet<mlir::Operation *> members;
  /// Their results, and the values that they update.
  llvm::SetVector<mlir::Value> values;
  /// The numbers of carried values that they update.
  llvm::SetVector<unsigned> updated;
  /// Other values that they read: those of the iteration alone, those that can
  /// be computed anywhere and differ between iterations, and those that do not
  /// differ.
  llvm::SetVector<mlir::Value> data, liveIns, constants;
  /// The number of starts that each op needs one after the other, and the
  /// largest one of a start, plus 1.
  llvm::DenseMap<mlir::Operation *, unsigned> levels;
  unsigned numLevels = 1;
  /// The carried values and their numbers.
  llvm::SmallVector<std::pair<mlir::Value, size_t>> numbers;
  /// Maps values of the body to their values after the loop.
  mlir::IRMapping known;
};

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_LOOPS_DEFERRAL_H
