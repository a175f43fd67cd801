//===- OverlapCollectives.cpp - Start early, wait late (4.1.1) ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block is scheduled in four steps: what moves with starts and waits is found
// (`Transfer`), each start and wait gets an op that it stands before (`plan`),
// everything is moved there (`place`), and values of the compute are tied
// through, which keeps it there (`tie`), and the compute too (`keepInPlace`).
//
//===----------------------------------------------------------------------===//

#include "Chains.h"
#include "FormatOptions.h"
#include "LocalValues.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/TypeUtilities.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Zero/IR/Contracts.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

#include <deque>

namespace zpp {
#define GEN_PASS_DEF_OVERLAPCOLLECTIVESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// A start and its wait.
struct Transfer {
  StartOp start;
  WaitOp wait;
  bool isGather = false;
  /// Of a gather: a barrier kept it apart from an earlier one.
  bool isRepeated = false;
  /// Memory that it takes while it is in flight: what is gathered, or what is
  /// scattered and its result.
  int64_t bytes = 0;
  /// Casts and shapes of what is started, which move with the start.
  llvm::SetVector<Operation *> sources;
  /// Ops on nothing but what is waited for, which move with the wait.
  llvm::SetVector<Operation *> derived;
  /// The first other op that needs what is waited for.
  Operation *need = nullptr;

  /// What the start and the wait stand before.
  Operation *startBefore = nullptr;
  Operation *waitBefore = nullptr;
};

/// Something that moves: at `before`, waits that make room come first, then
/// starts, then waits for what is needed there.
struct Move {
  enum Kind { Room, Start, Wait } kind;
  Transfer *transfer;
  Operation *before;
  size_t sequence = 0;
};

std::string formatBytes(int64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

/// One block.
class BlockScheduler {
public:
  BlockScheduler(Block &block, int64_t budget, StringRef pass)
      : block(block), budget(budget), pass(pass) {}

  void run() {
    // What is tied has its place.
    if (llvm::any_of(block.getOps<StartOp>(),
                     [](StartOp start) { return !start.getTies().empty(); }) ||
        llvm::any_of(block.getOps<WaitOp>(),
                     [](WaitOp wait) { return !wait.getTies().empty(); }))
      return;
    for (auto start : block.getOps<StartOp>())
      addTransfer(start);
    if (transfers.empty())
      return;
    for (auto &transfer : transfers)
      bypassBarriers(*transfer);
    for (Operation *barrier : barriers)
      shrinkBarrier(barrier);
    for (Operation &op : block) {
      index[&op] = ops.size();
      ops.push_back(&op);
    }
    heavy = getHeavyOps(block);
    for (auto &transfer : transfers)
      findDerived(*transfer);
    dropDependent();
    for (auto &transfer : transfers)
      findSources(*transfer);
    plan();
    place();
    tie();
    keepInPlace();
  }

private:
  //===--------------------------------------------------------------------===//
  // What moves
  //===--------------------------------------------------------------------===//

  void addTransfer(StartOp start) {
    SmallVector<Origin> origins = getStartedOrigins(start);
    auto hasRole = [&](Role role) {
      return !origins.empty() &&
             llvm::all_of(origins, [&](const Origin &origin) {
               return origin.role == getRoleName(role);
             });
    };
    bool isGather = hasRole(Role::Weight);
    if (!isGather && !hasRole(Role::Gradient)) {
      remark::missed(start.getLoc(),
                     remark::RemarkOpts::name("not-scheduled").category(pass))
          << "stays where it is: it moves no weights and no gradients";
      return;
    }
    auto transfer = std::make_unique<Transfer>();
    transfer->start = start;
    transfer->wait = start.getWait();
    transfer->isGather = isGather;
    transfer->bytes = getBytes(start.getOutputs().getTypes());
    if (!isGather)
      transfer->bytes += getBytes(start.getInputs().getTypes());
    transfers.push_back(std::move(transfer));
  }

  /// A barrier keeps XLA from gathering again at once what is gathered again
  /// later. Ties do so, and a later gather may start in front of the barrier.
  void bypassBarriers(Transfer &transfer) {
    if (!transfer.isGather)
      return;
    SmallVector<Value> inputs(transfer.start.getInputs()), behind(inputs);
    for (Value &input : inputs)
      input = getBeforeBarriers(input);
    transfer.isRepeated = inputs != behind;
    transfer.start.getInputsMutable().assign(inputs);
    transfer.wait.getInputsMutable().assign(inputs);
    eraseIfDead(behind);
  }

  /// `value` as it was before the barriers of this block; casts and shapes
  /// behind one are repeated in front of it.
  Value getBeforeBarriers(Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != &block)
      return value;
    if (isBarrier(op)) {
      unsigned number = cast<OpResult>(value).getResultNumber();
      barriers.insert(op);
      return getBeforeBarriers(op->getOperand(number));
    }
    if (!isDataMovement(op) || op->getNumRegions() > 0)
      return value;
    Value source = getBeforeBarriers(op->getOperand(0));
    if (source == op->getOperand(0))
      return value;
    Operation *copy = OpBuilder(op).clone(*op);
    copy->setOperand(0, source);
    return copy->getResult(0);
  }

  /// What a start may take along to an earlier place.
  bool isSource(Operation *op) const {
    return op && op->getBlock() == &block && isDataMovement(op) &&
           !isBarrier(op) && op->getNumRegions() == 0 && !owners.contains(op);
  }

  void findSources(Transfer &transfer) {
    SmallVector<Value> worklist(transfer.start.getInputs());
    while (!worklist.empty()) {
      Operation *op = worklist.pop_back_val().getDefiningOp();
      if (isSource(op) && transfer.sources.insert(op))
        llvm::append_range(worklist, op->getOperands());
    }
    SmallVector<Operation *> sorted = transfer.sources.takeVector();
    llvm::sort(sorted, [&](Operation *a, Operation *b) {
      return index.lookup(a) < index.lookup(b);
    });
    transfer.sources.insert_range(sorted);
  }

  /// True for ops of which only constants depend.
  static bool isConstant(Value value) {
    Operation *op = value.getDefiningOp();
    return op && op->getNumRegions() == 0 &&
           op->getName().getDialectNamespace() == "stablehlo" &&
           !isBarrier(op) && !isCollective(op) && !isHeavy(op) &&
           op->getName().getStringRef() != "stablehlo.custom_call" &&
           llvm::all_of(op->getOperands(), isConstant);
  }

  void findDerived(Transfer &transfer) {
    llvm::DenseSet<Value> values(llvm::from_range, transfer.wait.getOutputs());
    for (Operation *op = transfer.wait->getNextNode(); op;
         op = op->getNextNode()) {
      bool reads = false, readsOther = false;
      op->walk([&](Operation *nested) {
        for (Value operand : nested->getOperands()) {
          bool isDerived = values.contains(operand);
          reads |= isDerived;
          readsOther |= !isDerived && !isConstant(operand);
        }
      });
      if (!reads)
        continue;
      bool moves = !readsOther && op->getNumRegions() == 0 &&
                   op->getName().getDialectNamespace() == "stablehlo" &&
                   !isBarrier(op) && !isCollective(op) && !isHeavy(op) &&
                   op->getName().getStringRef() != "stablehlo.custom_call" &&
                   !op->hasTrait<OpTrait::IsTerminator>() &&
                   op != &block.back();
      if (!moves) {
        // What is kept for a later gather is not needed before that starts.
        auto again = llvm::find_if(transfers, [&](auto &other) {
          return other->isGather && (op == other->start || op == other->wait);
        });
        if (again != transfers.end())
          continue;
        transfer.need = op;
        break;
      }
      transfer.derived.insert(op);
      owners[op] = &transfer;
      values.insert_range(op->getResults());
    }
    owners[transfer.wait] = &transfer;
    if (!transfer.need)
      transfer.need = &block.back();
  }

  /// The transfers whose results `value` is, through casts and shapes.
  void findOwners(Value value, llvm::SmallPtrSetImpl<Transfer *> &found) const {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != &block)
      return;
    if (Transfer *owner = owners.lookup(op)) {
      found.insert(owner);
      return;
    }
    if (isDataMovement(op) && !isBarrier(op))
      for (Value operand : op->getOperands())
        findOwners(operand, found);
  }

  /// What starts from the result of another gather, and is needed no later than
  /// that, stays where it is: the other one is needed there. So does a scatter
  /// of what is gathered.
  void dropDependent() {
    SmallVector<Transfer *> dropped;
    for (auto &transfer : transfers) {
      llvm::SmallPtrSet<Transfer *, 4> sources;
      for (Value input : transfer->start.getInputs())
        findOwners(input, sources);
      for (Transfer *source : sources) {
        if (transfer->isGather &&
            indexOf(source->need) < indexOf(transfer->need))
          continue;
        if (indexOf(transfer->start) < indexOf(source->need))
          source->need = transfer->start;
        dropped.push_back(transfer.get());
      }
    }
    llvm::erase_if(transfers, [&](std::unique_ptr<Transfer> &transfer) {
      if (!llvm::is_contained(dropped, transfer.get()))
        return false;
      remark::missed(transfer->start.getLoc(),
                     remark::RemarkOpts::name("not-scheduled").category(pass))
          << "stays where it is: what it starts from is gathered just before";
      owners.erase(transfer->wait);
      for (Operation *op : transfer->derived)
        owners.erase(op);
      return true;
    });
  }

  //===--------------------------------------------------------------------===//
  // Where to
  //===--------------------------------------------------------------------===//

  int64_t indexOf(Operation *op) const { return index.lookup(op); }

  /// True if `op` stays where it is, so that others may stand before it.
  bool staysInPlace(Operation *op) const {
    return !scheduled.contains(op) && !owners.contains(op) &&
           !movedSources.contains(op) &&
           (op->getNumResults() == 0 || !isConstant(op->getResult(0)));
  }

  /// The first op behind `op` that stays in place.
  Operation *getNext(Operation *op) const {
    do
      op = op->getNextNode();
    while (!staysInPlace(op));
    return op;
  }

  /// The first slot behind position `position`.
  size_t getSlotAfter(int64_t position) const {
    return llvm::partition_point(
               slots, [&](Operation *op) { return indexOf(op) <= position; }) -
           slots.begin();
  }

  /// The first slot in which `value` is there.
  size_t getSlotOf(Value value) const {
    Operation *op = value.getDefiningOp();
    // Constants are moved along.
    if (!op || op->getBlock() != &block || isConstant(value))
      return 0;
    // It comes after its wait, the waits of a slot after the starts.
    if (Transfer *owner = owners.lookup(op))
      return getSlotAfter(indexOf(owner->need) - 1) + 1;
    if (movedSources.contains(op)) {
      size_t slot = 0;
      for (Value operand : op->getOperands())
        slot = std::max(slot, getSlotOf(operand));
      return slot;
    }
    return getSlotAfter(indexOf(op));
  }

  void plan() {
    for (auto &transfer : transfers) {
      movedSources.insert_range(transfer->sources);
      scheduled.insert(transfer->start);
      scheduled.insert(transfer->wait);
    }
    // Places that make a difference: where something is computed or needed.
    slots.assign(heavy.begin(), heavy.end());
    for (auto &transfer : transfers)
      slots.push_back(transfer->need);
    slots.push_back(&block.back());
    llvm::sort(slots, [&](Operation *a, Operation *b) {
      return indexOf(a) < indexOf(b);
    });
    slots.erase(llvm::unique(slots), slots.end());
    planGathers();
    planScatters();
  }

  /// In the order of their needs, each as early as its input and the memory
  /// allow.
  void planGathers() {
    SmallVector<Transfer *> gathers;
    for (auto &transfer : transfers)
      if (transfer->isGather)
        gathers.push_back(transfer.get());
    auto getOrder = [&](Transfer *gather) {
      return std::make_pair(indexOf(gather->need), indexOf(gather->start));
    };
    llvm::sort(gathers, [&](Transfer *a, Transfer *b) {
      return getOrder(a) < getOrder(b);
    });
    SmallVector<int64_t> inFlight(slots.size(), 0);
    size_t previous = 0;
    for (Transfer *gather : gathers) {
      size_t need = getSlotAfter(indexOf(gather->need) - 1);
      size_t first = previous;
      for (Value input : gather->start.getInputs())
        first = std::max(first, getSlotOf(input));
      // What it reads may be there just where it is needed.
      first = std::min(first, need);
      size_t slot = need;
      while (slot > first && inFlight[slot - 1] + gather->bytes <= budget)
        --slot;
      previous = slot;
      for (size_t i = slot; i < need; ++i)
        inFlight[i] += gather->bytes;
      gather->startBefore = slots[slot];
      gather->waitBefore = gather->need;
      moves.push_back({Move::Start, gather, slots[slot]});
      moves.push_back({Move::Wait, gather, gather->need});
      remarkGather(*gather, slot, need, first,
                   slot < need ? inFlight[slot] : gather->bytes);
    }
  }

  /// The last op in place that has to be done before `value` is there, or -1.
  int64_t getPosition(Value value) const {
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != &block || isConstant(value))
      return -1;
    if (Transfer *owner = owners.lookup(op))
      return indexOf(owner->need);
    if (!movedSources.contains(op))
      return indexOf(op);
    int64_t position = -1;
    for (Value operand : op->getOperands())
      position = std::max(position, getPosition(operand));
    return position;
  }

  /// Where a scatter of what is there at `position` starts: at once if an
  /// operand of the heavy op that follows is there to be tied, else before that
  /// op.
  Operation *getScatterPlace(int64_t position, Transfer &scatter) const {
    Operation *before = ops[position + 1];
    if (!staysInPlace(before))
      before = getNext(before);
    auto *next = llvm::find_if(
        heavy, [&](Operation *op) { return indexOf(op) >= indexOf(before); });
    if (next == heavy.end() || indexOf(*next) > indexOf(scatter.need) ||
        llvm::any_of((*next)->getOperands(), [&](Value operand) {
          return isComputed(operand) &&
                 indexOf(operand.getDefiningOp()) < indexOf(before);
        }))
      return before;
    return *next;
  }

  /// In the order of their gradients, each at once; the oldest are waited for
  /// where the memory is used up.
  void planScatters() {
    SmallVector<std::pair<int64_t, Transfer *>> scatters;
    for (auto &transfer : transfers) {
      if (transfer->isGather)
        continue;
      int64_t position = -1;
      for (Value input : transfer->start.getInputs())
        position = std::max(position, getPosition(input));
      scatters.push_back({position, transfer.get()});
    }
    llvm::sort(scatters, [&](const auto &a, const auto &b) {
      return std::make_pair(a.first, indexOf(a.second->start)) <
             std::make_pair(b.first, indexOf(b.second->start));
    });
    std::deque<Transfer *> queue;
    int64_t inFlight = 0;
    for (auto [position, scatter] : scatters) {
      Operation *before = getScatterPlace(position, *scatter);
      // What has been needed until here has been waited for.
      llvm::erase_if(queue, [&](Transfer *earlier) {
        if (indexOf(earlier->need) >= indexOf(before))
          return false;
        inFlight -= earlier->bytes;
        return true;
      });
      while (!queue.empty() && inFlight + scatter->bytes > budget) {
        Transfer *oldest = queue.front();
        queue.pop_front();
        inFlight -= oldest->bytes;
        oldest->waitBefore = before;
        moves.push_back({Move::Room, oldest, before});
      }
      inFlight += scatter->bytes;
      queue.push_back(scatter);
      scatter->startBefore = before;
      moves.push_back({Move::Start, scatter, before});
      inFlightAt[scatter] = inFlight;
    }
    for (auto [position, scatter] : scatters) {
      if (!scatter->waitBefore) {
        scatter->waitBefore = scatter->need;
        moves.push_back({Move::Wait, scatter, scatter->need});
      }
      remarkScatter(*scatter);
    }
  }

  //===--------------------------------------------------------------------===//
  // Remarks
  //===--------------------------------------------------------------------===//

  int64_t countHeavy(Operation *from, Operation *to) const {
    return llvm::count_if(heavy, [&](Operation *op) {
      return indexOf(op) >= indexOf(from) && indexOf(op) < indexOf(to);
    });
  }

  void remarkGather(Transfer &gather, size_t slot, size_t need, size_t first,
                    int64_t inFlight) {
    int64_t hidden = countHeavy(gather.startBefore, gather.waitBefore);
    std::string text = "gather starts before " +
                       describeOp(gather.startBefore) + ", waits before " +
                       describeOp(gather.waitBefore) + ", under " +
                       std::to_string(hidden) + " heavy ops; " +
                       formatBytes(inFlight) + " in flight";
    if (hidden > 0) {
      remark::passed(gather.start.getLoc(),
                     remark::RemarkOpts::name("scheduled").category(pass))
          << text;
      return;
    }
    std::string reason =
        slot > first && need > 0
            ? "more in flight would exceed prefetch-bytes = " +
                  std::to_string(budget)
            : "nothing heavy is computed between its input and its use";
    remark::missed(gather.start.getLoc(),
                   remark::RemarkOpts::name("exposed").category(pass))
        << (text + ": " + reason);
  }

  void remarkScatter(Transfer &scatter) {
    int64_t hidden = countHeavy(scatter.startBefore, scatter.waitBefore);
    std::string text = "scatter starts before " +
                       describeOp(scatter.startBefore) + ", waits before " +
                       describeOp(scatter.waitBefore) + ", under " +
                       std::to_string(hidden) + " heavy ops; " +
                       formatBytes(inFlightAt.lookup(&scatter)) + " in flight";
    if (hidden > 0) {
      remark::passed(scatter.start.getLoc(),
                     remark::RemarkOpts::name("scheduled").category(pass))
          << text;
      return;
    }
    remark::missed(scatter.start.getLoc(),
                   remark::RemarkOpts::name("exposed").category(pass))
        << (text + ": nothing heavy is computed after its gradient");
  }

  //===--------------------------------------------------------------------===//
  // Moving
  //===--------------------------------------------------------------------===//

  void place() {
    for (auto [sequence, move] : llvm::enumerate(moves))
      move.sequence = sequence;
    auto getOrder = [&](const Move &move) {
      return std::make_tuple(indexOf(move.before), move.kind, move.sequence);
    };
    llvm::sort(moves, [&](const Move &a, const Move &b) {
      return getOrder(a) < getOrder(b);
    });
    for (const Move &move : moves) {
      Transfer &transfer = *move.transfer;
      if (move.kind == Move::Start) {
        for (Operation *op : transfer.sources)
          // Others may read it where it was.
          if (!op->isBeforeInBlock(move.before)) {
            bringConstants(op, move.before);
            op->moveBefore(move.before);
          }
        transfer.start->moveBefore(move.before);
        order.push_back(transfer.start);
        continue;
      }
      transfer.wait->moveBefore(move.before);
      for (Operation *op : transfer.derived) {
        bringConstants(op, move.before);
        op->moveBefore(move.before);
      }
      order.push_back(transfer.wait);
    }
  }

  /// Moves the constants that `op` reads in front of `before`, where they are
  /// not there already.
  void bringConstants(Operation *op, Operation *before) {
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (!source || source->getBlock() != &block ||
          source->isBeforeInBlock(before) || !isConstant(operand))
        continue;
      bringConstants(source, before);
      source->moveBefore(before);
    }
  }

  //===--------------------------------------------------------------------===//
  // Ties
  //===--------------------------------------------------------------------===//

  /// True if `value` is computed in this block, and no weight that is waited
  /// for.
  bool isComputed(Value value) const {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    Operation *source = value.getDefiningOp();
    if (!type || !type.hasStaticShape() || !source ||
        source->getBlock() != &block)
      return false;
    // A counter stays what XLA knows as one.
    if (type.getNumElements() <= 1)
      return false;
    if (isa<StartOp, WaitOp>(source))
      return isTied(value);
    return !owners.contains(source) && !movedSources.contains(source) &&
           !isConstant(value);
  }

  static bool isTied(Value value) {
    if (auto start = value.getDefiningOp<StartOp>())
      return llvm::is_contained(start.getTied(), value);
    auto wait = value.getDefiningOp<WaitOp>();
    return wait && llvm::is_contained(wait.getTied(), value);
  }

  bool canTie(Value value, Operation *op) const {
    return isComputed(value) && value.getDefiningOp()->isBeforeInBlock(op);
  }

  /// True if all that reads `value` comes after `op` and may read what `op`
  /// passes on instead: XLA need not copy it then.
  bool isReadLaterOnly(Value value, Operation *op) const {
    return llvm::all_of(value.getUses(), [&](OpOperand &use) {
      Operation *user = block.findAncestorOpInBlock(*use.getOwner());
      return user != op && canRetie(use, user, op);
    });
  }

  /// True if `use`, in or below `user`, may read what `op` passes on. A wait
  /// has the inputs of its start.
  static bool canRetie(OpOperand &use, Operation *user, Operation *op) {
    auto wait = dyn_cast<WaitOp>(use.getOwner());
    if (wait && llvm::is_contained(wait.getInputs(), use.get()))
      user = wait.getStart();
    return op->isBeforeInBlock(user);
  }

  /// True for what XLA makes one with the op that reads it.
  static bool isFolded(Operation *op) {
    StringRef name = op->getName().getStringRef();
    return name == "stablehlo.transpose" ||
           name == "stablehlo.broadcast_in_dim";
  }

  /// The operand of `reader` to tie `op` to, or null: one that only later ops
  /// read, so that XLA need not copy it, and that is computed as it is read; of
  /// these the one computed last.
  Value getTie(Operation *op, Operation *reader) const {
    Value best;
    std::pair<bool, bool> bestRank;
    for (Value operand : reader->getOperands()) {
      if (!canTie(operand, op))
        continue;
      Operation *source = operand.getDefiningOp();
      std::pair rank(!isFolded(source), isReadLaterOnly(operand, op));
      if (!best || rank > bestRank ||
          (rank == bestRank && best.getDefiningOp()->isBeforeInBlock(source))) {
        best = operand;
        bestRank = rank;
      }
    }
    return best;
  }

  Operation *getNextHeavy(Operation *op) const {
    for (Operation *candidate : heavy)
      if (op->isBeforeInBlock(candidate))
        return candidate;
    return nullptr;
  }

  Operation *getLastHeavy(Operation *op) const {
    Operation *last = nullptr;
    for (Operation *candidate : heavy)
      if (candidate->isBeforeInBlock(op))
        last = candidate;
    return last;
  }

  /// A start must not come later than the heavy op that it is to run beside.
  Value getStartTie(Operation *start) const {
    Operation *next = getNextHeavy(start);
    return next ? getTie(start, next) : Value();
  }

  /// A wait must not come earlier than the heavy op that it is to come after.
  Value getWaitTie(Operation *wait, Operation *reader) const {
    Operation *last = getLastHeavy(wait);
    // It comes after the starts and waits before it anyway.
    if (!last || (latest && !latest->isBeforeInBlock(last)))
      return {};
    Value operand = getTie(wait, reader);
    if (operand && !operand.getDefiningOp()->isBeforeInBlock(last) &&
        isReadLaterOnly(operand, wait))
      return operand;
    // What is computed since and not read yet, else what is computed then.
    // Casts and shapes stay with what they are of: XLA makes them one.
    for (Operation *op = wait->getPrevNode(); op; op = op->getPrevNode()) {
      for (Value result : op->getResults())
        if (canTie(result, wait) && isReadLaterOnly(result, wait) &&
            llvm::none_of(result.getUsers(), isDataMovement))
          return result;
      if (op == last)
        break;
    }
    for (Value result : last->getResults())
      if (canTie(result, wait))
        return result;
    return {};
  }

  void tie() {
    for (auto [position, op] : llvm::enumerate(order)) {
      auto start = dyn_cast<StartOp>(op);
      // What makes room does so before the heavy op that follows.
      Value value;
      if (start || moves[position].kind == Move::Room)
        value = getStartTie(op);
      // Where nothing of that op is there yet, calls before its wait keep a
      // start from coming late; it must not come early either.
      if (!value)
        value = getWaitTie(op, moves[position].before);
      if (value)
        op = tie(op, value);
      // What the calls so far come after.
      if (start)
        for (Value input : cast<StartOp>(op).getInputs())
          note(input);
      if (value)
        note(value);
      if (start && moves[position].transfer->isRepeated)
        castAgain(cast<StartOp>(op), *moves[position].transfer);
    }
  }

  void note(Value value) {
    Operation *source = value.getDefiningOp();
    if (movedSources.contains(source)) {
      for (Value operand : source->getOperands())
        note(operand);
      return;
    }
    if (isComputed(value) && (!latest || latest->isBeforeInBlock(source)))
      latest = source;
  }

  /// Casts what `start` gathers when it starts: without the barrier XLA would
  /// make one of this cast and that for the earlier gather, and keep the result
  /// from one to the other.
  static void castAgain(StartOp start, const Transfer &transfer) {
    SmallVector<Operation *> own, casts;
    for (Operation *op : llvm::reverse(transfer.sources))
      if (llvm::all_of(op->getUsers(), [&](Operation *user) {
            return user == start || user == start.getWait() ||
                   llvm::is_contained(own, user);
          }))
        own.push_back(op);
    SmallVector<Value> operands;
    for (Operation *op : llvm::reverse(own)) {
      op->moveBefore(start);
      if (!isNamed(op, "stablehlo.convert"))
        continue;
      // What a loop slices is of this iteration anyway.
      Operation *source = op->getOperand(0).getDefiningOp();
      if (source && source->getBlock() == start->getBlock())
        continue;
      casts.push_back(op);
      operands.push_back(op->getOperand(0));
    }
    if (casts.empty())
      return;
    MutableOperandRange ties = start.getTiesMutable();
    if (!ties.empty())
      operands.push_back(ties[ties.size() - 1].get());
    OpBuilder builder(casts.front());
    Operation *barrier = createBarrier(builder, start->getLoc(), operands);
    for (auto [cast, result] : llvm::zip(casts, barrier->getResults()))
      cast->setOperand(0, result);
    if (!ties.empty())
      ties[ties.size() - 1].set(barrier->getResults().back());
  }

  /// Ties `value` through `op`: what comes later reads the result.
  Operation *tie(Operation *op, Value value) {
    Operation *tied = addTie(op, value);
    value.replaceUsesWithIf(tied->getResults().back(), [&](OpOperand &use) {
      Operation *user = block.findAncestorOpInBlock(*use.getOwner());
      return user != tied && canRetie(use, user, tied);
    });
    return tied;
  }

  //===--------------------------------------------------------------------===//
  // What XLA is left to order
  //===--------------------------------------------------------------------===//

  /// Keeps XLA from leaving for the end what nothing needs before, with all
  /// that it is computed from in memory until then: products that products and
  /// collectives read are computed before the wait that follows, collectives of
  /// XLA that send gradients come after it, and are done once more is in flight
  /// than may be.
  void keepInPlace() {
    Operation *end = nullptr;
    SmallVector<Operation *> others;
    for (Operation &op : block)
      if (isa<WaitOp>(op))
        end = op.getNextNode();
      else if (isCollective(&op))
        others.push_back(&op);
    llvm::SmallPtrSet<Operation *, 32> isNeed(heavy.begin(), heavy.end());
    llvm::erase_if(others, [&](Operation *collective) {
      llvm::SetVector<Operation *> slice;
      getForwardSlice(collective, &slice);
      // What the compute needs, as an activation, is not to come later.
      return llvm::any_of(slice, [&](Operation *user) {
        Operation *ancestor = block.findAncestorOpInBlock(*user);
        return ancestor && ancestor->isBeforeInBlock(end) &&
               (isa<StartOp, WaitOp>(ancestor) || isNeed.contains(ancestor));
      });
    });
    llvm::SmallPtrSet<Operation *, 32> isLate(others.begin(), others.end());
    for (Operation *collective : others)
      for (Value operand : collective->getOperands()) {
        while (Operation *source = operand.getDefiningOp()) {
          if (source->getBlock() != &block || !isShape(source))
            break;
          operand = source->getOperand(0);
        }
        if (isComputed(operand) && !isReceived(operand))
          tieBehind(operand, getNextWait(operand.getDefiningOp()), isLate);
      }
    for (Operation *op : heavy)
      if (op->getNumResults() == 1 && !op->use_empty() &&
          isComputed(op->getResult(0)) &&
          llvm::all_of(op->getUsers(), [&](Operation *user) {
            return isa<StartOp, WaitOp>(user) || isCollective(user) ||
                   isNeed.contains(user);
          }))
        tieBehind(op->getResult(0), getNextWait(op), isLate);
    limitInFlight(isLate);
  }

  /// True for what moves data and keeps its type. XLA may compute in more bits
  /// what a cast follows: a tie in front of that would round.
  static bool isShape(Operation *op) {
    return isDataMovement(op) && !isBarrier(op) &&
           getElementTypeOrSelf(op->getOperand(0)) ==
               getElementTypeOrSelf(op->getResult(0));
  }

  static Operation *getNextWait(Operation *op) {
    while (op && !isa<WaitOp>(op))
      op = op->getNextNode();
    return op;
  }

  /// Ties the results of the oldest of `collectives` through waits behind which
  /// more bytes would be in flight than may be.
  void limitInFlight(const llvm::SmallPtrSetImpl<Operation *> &collectives) {
    std::deque<std::pair<Operation *, int64_t>> queue;
    int64_t inFlight = 0;
    for (Operation *op = &block.front(); op; op = op->getNextNode()) {
      if (collectives.contains(op) && op->getNumResults() == 1) {
        int64_t bytes =
            getBytes(op->getOperandTypes()) + getBytes(op->getResultTypes());
        queue.push_back({op, bytes});
        inFlight += bytes;
        continue;
      }
      if (!isa<WaitOp>(op))
        continue;
      for (; inFlight > budget; queue.pop_front()) {
        auto [oldest, bytes] = queue.front();
        inFlight -= bytes;
        Value result = oldest->getResult(0);
        if (auto type = dyn_cast<RankedTensorType>(result.getType());
            type && type.hasStaticShape())
          op = tieBehind(result, op, collectives);
      }
    }
  }

  /// True if `value` comes out of a collective, and no call has passed it on.
  static bool isReceived(Value value) {
    Operation *op = value.getDefiningOp();
    return isCollective(op) ||
           (isa<ZeroDialect>(op->getDialect()) && !isTied(value));
  }

  /// Ties `value` through `wait`, if all that reads it is behind that, or can
  /// be: shapes, `collectives`, and casts of what these result in. Returns the
  /// wait.
  Operation *tieBehind(Value value, Operation *wait,
                       const llvm::SmallPtrSetImpl<Operation *> &collectives) {
    if (!wait)
      return wait;
    auto reads = [](Operation *op, const llvm::DenseSet<Value> &values) {
      auto isReader = [&](Operation *nested) {
        bool isOne = llvm::any_of(nested->getOperands(), [&](Value operand) {
          return values.contains(operand);
        });
        return isOne ? WalkResult::interrupt() : WalkResult::advance();
      };
      return op->walk(isReader).wasInterrupted();
    };
    // What has to move, in the order of the block.
    SmallVector<Operation *> moved;
    llvm::DenseSet<Value> shapes{value}, received;
    if (collectives.contains(value.getDefiningOp()))
      std::swap(shapes, received);
    for (Operation *op = value.getDefiningOp()->getNextNode(); op != wait;
         op = op->getNextNode()) {
      bool readsShape = reads(op, shapes);
      if (!readsShape && !reads(op, received))
        continue;
      bool isResult = collectives.contains(op) || !readsShape;
      if (!collectives.contains(op) && !isShape(op) &&
          (readsShape || !isDataMovement(op) || isBarrier(op)))
        return wait;
      moved.push_back(op);
      (isResult ? received : shapes).insert_range(op->getResults());
    }
    if (reads(wait, shapes) || reads(wait, received))
      return wait;
    Operation *end = wait;
    for (Operation *op : moved) {
      op->moveAfter(end);
      end = op;
    }
    return tie(wait, value);
  }

  Block &block;
  int64_t budget;
  StringRef pass;
  std::vector<std::unique_ptr<Transfer>> transfers;
  llvm::SetVector<Operation *> barriers;
  SmallVector<Operation *> ops, heavy, slots;
  llvm::DenseMap<Operation *, int64_t> index;
  /// What moves with a wait, and the wait itself.
  llvm::DenseMap<Operation *, Transfer *> owners;
  llvm::DenseSet<Operation *> movedSources, scheduled;
  llvm::DenseMap<Transfer *, int64_t> inFlightAt;
  SmallVector<Move> moves;
  /// The starts and waits of `moves`.
  SmallVector<Operation *> order;
  Operation *latest = nullptr;
};

class OverlapCollectivesPass
    : public zpp::impl::OverlapCollectivesPassBase<OverlapCollectivesPass> {
public:
  using OverlapCollectivesPassBase::OverlapCollectivesPassBase;

  void runOnOperation() override {
    if (failed(verifyPrefetchBytes(getOperation(), prefetchBytes)) ||
        failed(zero::verifySchedule(getOperation())))
      return signalPassFailure();
    llvm::SetVector<Block *> blocks;
    getOperation()->walk(
        [&](StartOp start) { blocks.insert(start->getBlock()); });
    if (!blocks.empty())
      getOperation()->setAttr(
          kPrefetchAttr,
          Builder(&getContext()).getI64IntegerAttr(prefetchBytes));
    for (Block *block : blocks)
      BlockScheduler(*block, prefetchBytes, getArgument()).run();
  }
};
} // namespace
