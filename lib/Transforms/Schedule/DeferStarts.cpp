//===- DeferStarts.cpp - One order of starts and XLA's collectives --------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NCCL needs the same order of all collectives on all ranks (X12). As long as
// XLA's thread queues both its own collectives and those of the starts, there
// is one order. Another thread may queue those of the starts only if no
// collective of XLA can come between them. Therefore XLA's collectives are
// moved after the last wait: XLA's thread gets there only after all starts have
// been queued.
//
// The partitioner runs later and may add collectives. It has no reason to do so
// inside a computation that is manual along all axes, nor around one if every
// value already has the sharding that its readers expect.
//
//===----------------------------------------------------------------------===//

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Support/Decision.h"
#include "zpp/Support/Limits.h"
#include "zpp/Transforms/Passes.h"

namespace zpp {
#define GEN_PASS_DEF_DEFERSTARTSPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// The limits for collectives that are delayed until after the last wait: they
/// must be so small that latency dominates, and there must not be many.
constexpr int64_t kMostBytes = 64 << 10;
constexpr size_t kMostCollectives = 8;

/// Returns the name of the op, with the target if it is a custom call.
std::string describe(Operation *op) {
  std::string text = op->getName().getStringRef().str();
  if (StringRef target = getCallTarget(op); !target.empty())
    text += " '" + target.str() + "'";
  return text;
}

//===----------------------------------------------------------------------===//
// Shardings
//===----------------------------------------------------------------------===//

/// The shardings of values around the manual computation.
class Surroundings {
public:
  explicit Surroundings(Operation *manual) : manual(manual) {}

  /// Whether the partitioner has no reason to add collectives, or what may be
  /// one.
  Decision<> check(ModuleOp module) {
    auto function = dyn_cast<func::FuncOp>(manual->getParentOp());
    if (!function || !function.isPublic())
      return LeftAlone("the manual computation is not in a public function");
    for (auto other : module.getOps<func::FuncOp>())
      if (other != function && other.isPublic())
        return LeftAlone("there are several public functions");
    ArrayRef<std::string> wanted = getDims(manual->getAttr("in_shardings"));
    if (!passesOn(manual->getOperands(), wanted))
      return LeftAlone(
          "operands of the manual computation may have to be sharded anew");
    for (Operation &op : function.getOps()) {
      if (&op == manual || isNamed(&op, guest::kConstant))
        continue;
      if (isNamed(&op, guest::kSdyShardingConstraint)) {
        if (!passesOn(op.getOperands(), getDims(op.getAttr("sharding"))))
          return LeftAlone("a sharding_constraint may have to shard anew");
        continue;
      }
      if (!op.hasTrait<OpTrait::IsTerminator>())
        return LeftAlone(describe(&op) +
                         " is outside of the manual computation");
      for (OpOperand &operand : op.getOpOperands())
        if (!passesOn(operand.get(),
                      getDims(function.getResultAttr(operand.getOperandNumber(),
                                                     guest::kSdySharding)),
                      /*isUnknownFine=*/true))
          return LeftAlone("results may have to be sharded anew");
    }
    return Yes();
  }

private:
  /// True if each of `values` whose sharding is known has the wanted one.
  bool passesOn(ValueRange values, ArrayRef<std::string> wanted,
                bool isUnknownFine = false) {
    if (wanted.empty() && isUnknownFine)
      return true;
    return values.size() == wanted.size() &&
           llvm::all_of(llvm::zip_equal(values, wanted), [&](auto pair) {
             std::string sharding = getSharding(std::get<0>(pair));
             return sharding.empty() || sharding == std::get<1>(pair);
           });
  }

  /// Returns the sharding of `value`, or empty if it has none.
  std::string getSharding(Value value) {
    ArrayRef<std::string> shardings;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
      shardings = getDims(
          function.getArgAttr(argument.getArgNumber(), guest::kSdySharding));
      return shardings.empty() ? "" : shardings.front();
    }
    auto result = cast<OpResult>(value);
    if (result.getOwner() == manual) {
      shardings = getDims(manual->getAttr("out_shardings"));
      return result.getResultNumber() < shardings.size()
                 ? shardings[result.getResultNumber()]
                 : "";
    }
    shardings = getDims(result.getOwner()->getAttr("sharding"));
    return shardings.empty() ? "" : shardings.front();
  }

  /// The same of each attribute, which many values share, once.
  ArrayRef<std::string> getDims(Attribute attribute) {
    auto [it, isNew] = dims.try_emplace(attribute);
    if (isNew) {
      SmallVector<std::string> found = getShardingDims(attribute);
      it->second.assign(found.begin(), found.end());
    }
    return it->second;
  }

  Operation *manual;
  llvm::DenseMap<Attribute, std::vector<std::string>> dims;
};

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

/// The collectives of XLA that have to come after the last wait.
struct Delay {
  /// The last wait; null if there are none.
  WaitOp wait;
  /// The collectives, and the ops that depend on them.
  llvm::DenseSet<Operation *> ops;
  /// The operands to tie through the wait.
  SmallVector<Value> ties;
};

class DeferStartsPass : public zpp::impl::DeferStartsPassBase<DeferStartsPass> {
public:
  using DeferStartsPassBase::DeferStartsPassBase;

  void runOnOperation() override {
    if (failed(zero::verifySchedule(getOperation())))
      return signalPassFailure();
    SmallVector<StartOp> starts;
    getOperation()->walk([&](StartOp start) { starts.push_back(start); });
    if (starts.empty())
      return;
    Decision<Delay> delay = getDelay(starts);
    if (!delay) {
      remarkMissed(starts.front(), getArgument(), "not-deferred")
          << "starts are queued on XLA's thread: " + delay.getReason();
      return;
    }
    if (delay->wait)
      moveAfterWait(*delay);
    for (StartOp start : starts)
      start.setDeferrable(true);
  }

private:
  /// Returns the collectives of XLA that have to come after the last wait, or
  /// why they cannot.
  Decision<Delay> getDelay(ArrayRef<StartOp> starts) {
    llvm::SetVector<Block *> blocks;
    // Starts, waits, and the loops that contain them. All of these pass on a
    // token.
    llvm::DenseSet<Operation *> scheduled;
    for (StartOp start : starts) {
      Operation *op = start;
      for (scheduled.insert(op); isWhile(op->getParentOp());
           scheduled.insert(op))
        op = op->getParentOp();
      scheduled.insert(start.getWait());
      blocks.insert(op->getBlock());
    }
    Block &block = *blocks.front();
    Operation *manual = block.getParentOp();
    if (blocks.size() > 1 || !isNamed(manual, guest::kSdyManualComputation))
      return LeftAlone("they are not all in one sdy.manual_computation");
    if (std::string axes = AutomaticAxes().get(&block.front()); !axes.empty())
      return LeftAlone("the partitioner may add collectives along the axes " +
                       axes);
    if (Decision<> decision = Surroundings(manual).check(getOperation());
        !decision)
      return decision.getLeftAlone();

    llvm::SetVector<Operation *> others;
    std::optional<LeftAlone> why;
    walkStep(getOperation(), [&](Operation *op) {
      if (mayCommunicate(op))
        why.emplace(describe(op) + " may be a collective");
      else if (!isCollective(op))
        return WalkResult::advance();
      else if (Operation *ancestor = block.findAncestorOpInBlock(*op))
        others.insert(ancestor);
      else
        why.emplace(describe(op) + " is in a function");
      return why ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (why)
      return *why;
    if (others.empty())
      return Delay();
    return getDelay(block, others, scheduled);
  }

  /// Returns the ops of `block` that depend on `op`, or contain one that does.
  static llvm::DenseSet<Operation *> getDependent(Block &block, Operation *op) {
    llvm::DenseSet<Operation *> dependent;
    SmallVector<Operation *> worklist{op};
    while (!worklist.empty())
      for (Operation *user : worklist.pop_back_val()->getUsers())
        if (Operation *ancestor = block.findAncestorOpInBlock(*user);
            ancestor && dependent.insert(ancestor).second)
          worklist.push_back(ancestor);
    return dependent;
  }

  /// True for a collective, not within another op, that moves few bytes.
  static bool isLight(Operation *op) {
    auto hasBytes = [](Type type) {
      return hasStaticShape(type) && getElementTypeOrSelf(type).isIntOrFloat();
    };
    return isCollective(op) && llvm::all_of(op->getOperandTypes(), hasBytes) &&
           llvm::all_of(op->getResultTypes(), hasBytes) &&
           addSaturating(getBytes(op->getOperandTypes()),
                         getBytes(op->getResultTypes())) <= kMostBytes;
  }

  /// Moves the ops that compute `value` before `op`. They must not depend on
  /// `op`.
  static void moveInFront(Value value, Operation *op) {
    SetVector<Operation *> slice;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.omitUsesFromAbove = false;
    options.filter = [&](Operation *source) {
      return source->getBlock() == op->getBlock() &&
             op->isBeforeInBlock(source);
    };
    (void)getBackwardSlice(value, &slice, options);
    for (Operation *source : topologicalSort(slice))
      source->moveBefore(op);
  }

  /// The same for `others`, which are ops of `block`, or contain such
  /// collectives.
  static Decision<Delay>
  getDelay(Block &block, const llvm::SetVector<Operation *> &others,
           const llvm::DenseSet<Operation *> &scheduled) {
    Operation *last = nullptr;
    for (Operation &op : block)
      if (scheduled.contains(&op))
        last = &op;
    auto wait = dyn_cast<WaitOp>(last);
    if (!wait)
      return LeftAlone(
          "there is a collective of XLA, and no wait after the last loop");
    llvm::DenseSet<Operation *> later = getDependent(block, wait);
    SmallVector<Operation *> moved = llvm::filter_to_vector(
        others, [&](Operation *op) { return !later.contains(op); });
    for (Operation *op : moved)
      if (!isLight(op))
        return LeftAlone(describe(op) +
                         " would come too late after the last wait");
    if (moved.size() > kMostCollectives)
      return LeftAlone(
          std::to_string(moved.size()) +
          " collectives of XLA would come too late after the last wait");

    Delay delay;
    delay.wait = wait;
    for (Operation *op : moved) {
      // Only collectives that do not depend on another one need a tie.
      bool isTied = !delay.ops.insert(op).second;
      llvm::DenseSet<Operation *> dependent = getDependent(block, op);
      if (llvm::any_of(dependent, [&](Operation *other) {
            return scheduled.contains(other);
          }))
        return LeftAlone("a start or wait depends on " + describe(op));
      delay.ops.insert_range(dependent);
      if (isTied)
        continue;
      auto tie = llvm::find_if(op->getOperands(), [](Value operand) {
        return hasStaticShape(operand.getType());
      });
      if (tie == op->operand_end())
        return LeftAlone(describe(op) + " has no operand to tie");
      if (!llvm::is_contained(delay.ties, *tie))
        delay.ties.push_back(*tie);
    }
    return delay;
  }

  /// Moves the ops of `delay` after its wait, and ties them to it.
  static void moveAfterWait(const Delay &delay) {
    WaitOp wait = delay.wait;
    Block &block = *wait->getBlock();
    Operation *end = wait;
    for (Operation &op : llvm::make_early_inc_range(
             llvm::make_range(block.begin(), wait->getIterator())))
      if (delay.ops.contains(&op)) {
        op.moveAfter(end);
        end = &op;
      }
    for (Value value : delay.ties) {
      moveInFront(value, wait);
      wait = cast<WaitOp>(addTie(wait, value));
      value.replaceUsesWithIf(wait.getTied().back(), [&](OpOperand &use) {
        Operation *user = block.findAncestorOpInBlock(*use.getOwner());
        return user && wait->isBeforeInBlock(user);
      });
    }
  }
};
} // namespace
