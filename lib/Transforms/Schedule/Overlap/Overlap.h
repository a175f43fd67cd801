//===- Overlap.h - Phases of zero-overlap-collectives -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block is scheduled in six phases:
//
//   sort   updates in the order of their gradients    (Updates.cpp)
//   find   the ops that move with starts and waits    (Transfers.cpp)
//   plan   before which op each start and wait is     (Plan.cpp, no IR)
//          to stand
//   place  move everything there                      (Place.cpp)
//   tie    pass values of the compute through starts  (TiedValues.cpp,
//          and waits, so that XLA keeps these there     Ties.cpp)
//   keep   pass further values through waits, so that (Keep.cpp)
//          XLA keeps compute and its own collectives
//          where they are
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OVERLAP_H
#define ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OVERLAP_H

#include "OpOrder.h"
#include "Plan.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/ADT/SetVector.h"

#include <memory>

namespace zpp {

/// True for ops that XLA may run anywhere between their operands and their
/// readers.
bool isFreelyPlaced(mlir::Operation *op);

/// Sorts what `block` computes after its last heavy op, the updates of weights,
/// by the scatters that it needs, in the order in which their gradients are
/// there. Then updates run while later gradients are still on the way.
void sortUpdates(mlir::Block &block, HeavyOps &compute);

/// A start, its wait, and the ops that move with them.
struct Transfer {
  zero::StartOp start;
  zero::WaitOp wait;
  bool isGather = false;
  /// True if a barrier kept this gather apart from an earlier one of the same
  /// weight.
  bool isRepeated = false;
  /// The memory that it takes while it is in flight: for a gather its result,
  /// for a scatter its operand and its result.
  int64_t bytes = 0;
  /// Casts, shape changes and elementwise ops that the operands follow from,
  /// which move with the start; in order.
  llvm::SmallVector<mlir::Operation *> sources;
  /// Ops that read only the results and constants, which move with the wait; in
  /// order.
  llvm::SmallVector<mlir::Operation *> derived;
  /// The first other op that needs the results.
  mlir::Operation *need = nullptr;
};

/// The transfers of a block, and the other ops that move.
class BlockTransfers {
public:
  /// Remarks of `pass` say which starts are not scheduled. The starts of
  /// gathers are changed to read their operands from before barriers.
  BlockTransfers(mlir::Block &block, HeavyOps &compute, llvm::StringRef pass);

  mlir::Block &getBlock() const { return block; }
  bool empty() const { return transfers.empty(); }
  const Transfer &operator[](size_t index) const { return *transfers[index]; }

  /// Returns the op that was at `position` before anything moved, and its
  /// position.
  mlir::Operation *getOp(int64_t position) const { return ops[position]; }
  int64_t getPosition(mlir::Operation *op) const { return index.lookup(op); }
  llvm::ArrayRef<mlir::Operation *> getOps() const { return ops; }

  /// Returns the heavy ops of the block, in order.
  llvm::ArrayRef<mlir::Operation *> getHeavyOps() const { return heavy; }

  /// True if `value` depends only on constants, so that the ops that compute it
  /// can move up to a reader.
  bool isConstant(mlir::Value value) const;

  /// True if `value` is computed in this block and does not come from a gather.
  bool isComputed(mlir::Value value) const;

  /// True if a start or wait can pass `value` on in its place. A slice cannot
  /// be: XLA gives the call a view of what the slice is taken from, and the
  /// result memory of its own. Nor can a weight that is held: the step returns
  /// it, too, and XLA would copy it (X4, X5).
  bool isTieable(mlir::Value value) const;

  /// True if `op` moves with a start.
  bool isMovedSource(mlir::Operation *op) const {
    return movedSources.contains(op);
  }

  OverlapProblem getProblem(int64_t budget) const;

  /// Records that `call`, a start or wait, has replaced `old`, which is erased.
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
  bool isSource(mlir::Operation *op, const Transfer &transfer,
                const llvm::SetVector<mlir::Operation *> &sources) const;
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
  /// The transfer of each start and wait.
  llvm::DenseMap<mlir::Operation *, Transfer *> calls;
  /// The transfer of each wait and of each op that moves with a wait.
  llvm::DenseMap<mlir::Operation *, Transfer *> owners;
  /// The ops that move with a start, and the positions from which on their
  /// operands are available.
  llvm::DenseMap<mlir::Operation *, int64_t> movedSources;
  mutable llvm::DenseMap<mlir::Operation *, bool> constants;
};

/// A start or wait that has been placed.
struct PlacedCall {
  mlir::Operation *op;
  OverlapPlan::Call::Kind kind;
  const Transfer *transfer;
  /// The op that it was placed before.
  mlir::Operation *before;
};

/// Moves starts, waits and the ops that move with them to the places of `plan`.
/// Returns the starts and waits in their new order.
llvm::SmallVector<PlacedCall> placeTransfers(const BlockTransfers &transfers,
                                             const OverlapPlan &plan);

/// The bytes of a value from which on its place is worth an op. Smaller ones
/// XLA may compute together.
inline constexpr int64_t kLeastTied = 1 << 20;

/// Ties values of the compute through starts and waits, and tracks the order of
/// the ops.
class Ties {
public:
  explicit Ties(BlockTransfers &transfers)
      : transfers(transfers), order(transfers.getBlock()) {}

  /// Ties a value through each of `calls` that XLA could move otherwise.
  void tieCalls(llvm::ArrayRef<PlacedCall> calls);

  /// True if `value` is computed in the block, or tied through a start or wait.
  bool isComputed(mlir::Value value) const;

  /// Ties `value` through `op`, a start or wait: later ops read the tied result
  /// instead. Returns the op that replaces `op`.
  mlir::Operation *tie(mlir::Operation *op, mlir::Value value);

  /// Moves `ops` directly after `wait` and keeps their order.
  void moveAfter(llvm::ArrayRef<mlir::Operation *> ops, mlir::Operation *wait) {
    order.moveAfter(ops, wait);
  }
  const OpOrder &getOrder() const { return order; }
  mlir::Block &getBlock() const { return transfers.getBlock(); }
  llvm::ArrayRef<mlir::Operation *> getHeavyOps() const {
    return transfers.getHeavyOps();
  }

private:
  bool isTiedHere(mlir::Value value) const;
  bool canTie(mlir::Value value, mlir::Operation *op) const;
  bool canRetie(mlir::OpOperand &use, mlir::Operation *op) const;
  bool isReadLaterOnly(mlir::Value value, mlir::Operation *op) const;
  mlir::Value getStorage(mlir::Value value, mlir::Operation *op) const;
  mlir::Value getTie(mlir::Operation *op, mlir::Operation *reader) const;
  mlir::Value getStartTie(mlir::Operation *start) const;
  mlir::Value getWaitTie(mlir::Operation *wait, mlir::Operation *reader) const;
  mlir::Value bringSent(llvm::ArrayRef<PlacedCall> calls);
  mlir::Value getGradient(mlir::Value update, mlir::Operation *start) const;
  std::optional<llvm::SmallVector<mlir::Operation *>>
  getUpdatesBefore(mlir::Operation *start, mlir::Value value) const;
  mlir::Operation *tieUpdateAfter(mlir::Operation *start, mlir::Value update);
  mlir::Operation *tieUpdates(const llvm::DenseSet<mlir::Operation *> &updates,
                              mlir::Operation *wait, mlir::Operation *previous);
  bool canStandAt(mlir::Operation *op, mlir::Operation *wait, unsigned depth,
                  llvm::SetVector<mlir::Operation *> &brought) const;
  llvm::SmallVector<mlir::Value> storeAt(zero::WaitOp wait);
  void moveReaders(mlir::Value value, mlir::Operation *op);
  void note(mlir::Value value);
  bool readsKeptStack(mlir::Operation *op);
  void readLate(zero::StartOp start, const Transfer &transfer);

  BlockTransfers &transfers;
  OpOrder order;
  /// Whether stacks of layers are kept beyond their reads in the block.
  llvm::DenseMap<mlir::Value, bool> keptStacks;
  /// The last op of the compute that the calls so far depend on.
  mlir::Operation *latest = nullptr;
};

/// True if `value` is a tied result of a start or wait.
bool isTied(mlir::Value value);

/// True for ops that move data and keep its element type. XLA may compute (X7)
/// the operand of a cast with higher precision; a tie before the cast would
/// round it.
bool isShape(mlir::Operation *op);

/// Without further ties, XLA would leave ops that nothing needs soon (X3) for
/// the end and keep all their operands in memory until then. This makes sure
/// that products that are read by products and collectives are computed before
/// the next wait, that XLA's own collectives of gradients come after it, and
/// that these are done once more than `budget` bytes are in flight.
void keepInPlace(Ties &ties, int64_t budget);

/// Has stacks of layers in the block begin as zeros of their own (X2), late.
/// XLA computes equal zeros together, before the first stack: with a
/// micro-batch in front of their loop or behind it, all gradients would have
/// their memory twice from the start. Of stacks that one op reads, one begins
/// when the one before is complete, whose layers need no memory then.
void delayZeros(const BlockTransfers &transfers);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_SCHEDULE_OVERLAP_OVERLAP_H
