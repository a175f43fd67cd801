//===- Overlap.h - Phases of zero-overlap-collectives -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block is scheduled in five phases:
//
//   find   what moves with starts and waits          (OverlapTransfers.cpp)
//   plan   the op that each start and wait is to      (OverlapPlan.cpp, no IR)
//          stand before
//   place  everything is moved there                  (OverlapPlace.cpp)
//   tie    values of the compute are passed through   (OverlapTies.cpp)
//          starts and waits, which keeps these there
//   keep   and through waits, which keeps compute     (OverlapKeep.cpp)
//          and other collectives where they are
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_H
#define ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_H

#include "OpOrder.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Transforms/Schedule/OverlapPlan.h"
#include "llvm/ADT/SetVector.h"

#include <memory>

namespace zpp {

/// A start and its wait, and what moves with them.
struct Transfer {
  zero::StartOp start;
  zero::WaitOp wait;
  bool isGather = false;
  /// Of a gather: a barrier kept it apart from an earlier one.
  bool isRepeated = false;
  /// Memory that it takes while it is in flight: what is gathered, or what is
  /// scattered and its result.
  int64_t bytes = 0;
  /// Casts and shapes of what is started, which move with the start; in order.
  llvm::SmallVector<mlir::Operation *> sources;
  /// Ops on nothing but what is waited for, which move with the wait; in order.
  llvm::SmallVector<mlir::Operation *> derived;
  /// The first other op that needs what is waited for.
  mlir::Operation *need = nullptr;
};

/// The transfers of a block, and what else moves.
class BlockTransfers {
public:
  /// Remarks of `pass` say what is not scheduled. Starts of gathers no longer
  /// read what is behind a barrier.
  BlockTransfers(mlir::Block &block, HeavyOps &compute, llvm::StringRef pass);

  mlir::Block &getBlock() const { return block; }
  bool empty() const { return transfers.empty(); }
  const Transfer &operator[](size_t index) const { return *transfers[index]; }

  /// The op that was at `position` before anything moved, and the reverse.
  mlir::Operation *getOp(int64_t position) const { return ops[position]; }
  int64_t getPosition(mlir::Operation *op) const { return index.lookup(op); }
  llvm::ArrayRef<mlir::Operation *> getOps() const { return ops; }

  /// The heavy ops of the block, in order.
  llvm::ArrayRef<mlir::Operation *> getHeavyOps() const { return heavy; }

  /// True if `value` depends on nothing but constants, so that what computes it
  /// can move up in front of what reads it.
  bool isConstant(mlir::Value value) const;

  /// True if `value` is computed in this block, and is no weight that is waited
  /// for.
  bool isComputed(mlir::Value value) const;

  /// True if `op` moves with a start.
  bool isMovedSource(mlir::Operation *op) const {
    return movedSources.contains(op);
  }

  OverlapProblem getProblem(int64_t budget) const;

  /// `call`, a start or wait, has taken the place of `old`, which is erased.
  void replaceCall(mlir::Operation *old, mlir::Operation *call);

private:
  void addTransfer(zero::StartOp start);
  void bypassBarriers(Transfer &transfer);
  mlir::Value getBeforeBarriers(mlir::Value value);
  void findDerived(Transfer &transfer);
  void findOwners(mlir::Value value,
                  llvm::SmallSetVector<Transfer *, 4> &found) const;
  void dropDependent();
  void findSources();
  bool isSource(mlir::Operation *op) const;
  bool isDerived(mlir::Operation *op,
                 const llvm::DenseSet<mlir::Value> &values) const;
  bool staysInPlace(mlir::Operation *op) const;
  int64_t getReady(mlir::ValueRange inputs) const;

  mlir::Block &block;
  llvm::StringRef pass;
  std::vector<std::unique_ptr<Transfer>> transfers;
  llvm::SetVector<mlir::Operation *> barriers;
  llvm::SmallVector<mlir::Operation *> ops, heavy;
  llvm::DenseMap<mlir::Operation *, int64_t> index;
  /// The transfers of starts and waits.
  llvm::DenseMap<mlir::Operation *, Transfer *> calls;
  /// What moves with a wait, and the wait itself.
  llvm::DenseMap<mlir::Operation *, Transfer *> owners;
  /// What moves with a start, and when its operands are there.
  llvm::DenseMap<mlir::Operation *, int64_t> movedSources;
  mutable llvm::DenseMap<mlir::Operation *, bool> constants;
};

/// A start or a wait in its place.
struct PlacedCall {
  mlir::Operation *op;
  OverlapPlan::Call::Kind kind;
  const Transfer *transfer;
  /// The op that it was placed before.
  mlir::Operation *before;
};

/// Moves starts, waits and what moves with them to where `plan` wants them.
/// Returns the starts and waits in their order.
llvm::SmallVector<PlacedCall> placeTransfers(const BlockTransfers &transfers,
                                             const OverlapPlan &plan);

/// Ties values of the compute through starts and waits, and keeps the order up
/// to date.
class Ties {
public:
  explicit Ties(BlockTransfers &transfers)
      : transfers(transfers), order(transfers.getBlock()) {}

  /// Ties a value through each of `calls` that would not stay without.
  void tieCalls(llvm::ArrayRef<PlacedCall> calls);

  /// True if `value` is computed, or passed on by a start or wait.
  bool isComputed(mlir::Value value) const;

  /// Ties `value` through `op`, a start or wait: what comes later reads the
  /// result. Returns what `op` has become.
  mlir::Operation *tie(mlir::Operation *op, mlir::Value value);

  /// Moves `ops`, in their order, directly behind `wait`.
  void moveBehind(llvm::ArrayRef<mlir::Operation *> ops,
                  mlir::Operation *wait) {
    order.moveBehind(ops, wait);
  }
  const OpOrder &getOrder() const { return order; }
  mlir::Block &getBlock() const { return transfers.getBlock(); }
  llvm::ArrayRef<mlir::Operation *> getHeavyOps() const {
    return transfers.getHeavyOps();
  }

private:
  bool canTie(mlir::Value value, mlir::Operation *op) const;
  bool canRetie(mlir::OpOperand &use, mlir::Operation *user,
                mlir::Operation *op) const;
  bool isReadLaterOnly(mlir::Value value, mlir::Operation *op) const;
  mlir::Value getTie(mlir::Operation *op, mlir::Operation *reader) const;
  mlir::Value getStartTie(mlir::Operation *start) const;
  mlir::Value getWaitTie(mlir::Operation *wait, mlir::Operation *reader) const;
  void note(mlir::Value value);
  void castAgain(zero::StartOp start, const Transfer &transfer);

  BlockTransfers &transfers;
  OpOrder order;
  /// The last op of the compute that the calls so far come after.
  mlir::Operation *latest = nullptr;
};

/// True if a start or wait passes `value` on.
bool isTied(mlir::Value value);

/// Keeps XLA from leaving for the end what nothing needs before, with all that
/// it is computed from in memory until then: products that products and
/// collectives read are computed before the wait that follows, collectives of
/// XLA that send gradients come after it, and are done once more than `budget`
/// bytes are in flight.
void keepInPlace(Ties &ties, int64_t budget);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_H
