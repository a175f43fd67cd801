//===- Ties.cpp - What keeps starts and waits in their places -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "Overlap.h"
#include "mlir/IR/TypeUtilities.h"
#include "zpp/Dialect/Guest/LayerOps.h"

#include <utility>

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// The most ops in a row that move with the store of a layer.
static constexpr unsigned kDeepestStore = 16;

/// Returns the ops that follow from what scatters bring.
static llvm::DenseSet<Operation *> getUpdates(Block &block,
                                              ArrayRef<PlacedCall> calls) {
  llvm::DenseSet<Operation *> updates;
  for (const PlacedCall &call : calls)
    if (!call.transfer->isGather)
      updates.insert(WaitOp(call.transfer->wait));
  for (Operation &op : block)
    if (llvm::any_of(op.getOperands(), [&](Value operand) {
          return updates.contains(operand.getDefiningOp());
        }))
      updates.insert(&op);
  return updates;
}

/// True if something else than starts and waits reads `value`, a stack of
/// layers, possibly cast and layer by layer. It may read it late.
static bool isReadBesideCalls(Value value) {
  SmallVector<Value> worklist{value};
  llvm::SmallDenseSet<Value, 32> visited{value};
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers()) {
      if (isa<StartOp, WaitOp>(user))
        continue;
      if (!isElementwise(user) && !movesData(user) && !getReadLayer(user))
        return true;
      for (Value result : user->getResults())
        if (visited.insert(result).second)
          worklist.push_back(result);
    }
  return false;
}

/// True if `value` replaces, element by element, one that barriers pass on, as
/// they do with the stacks of loops that have become layers, to what may read
/// it late. XLA would copy it where the new one is tied (X4).
static bool replacesBarred(Value value) {
  SmallVector<Value> worklist{value};
  llvm::SmallDenseSet<Value, 32> visited{value};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (!op || !isElementwise(op))
      continue;
    for (Value operand : op->getOperands()) {
      for (OpOperand &use : operand.getUses())
        if (isBarrier(use.getOwner()) &&
            isReadBesideCalls(
                use.getOwner()->getResult(use.getOperandNumber())))
          return true;
      if (visited.insert(operand).second)
        worklist.push_back(operand);
    }
  }
  return false;
}

/// A gradient from before `start` that `update` follows from, or null.
Value Ties::getGradient(Value update, Operation *start) const {
  SmallVector<Value> worklist{update};
  llvm::SmallDenseSet<Value, 32> visited{update};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      // It comes after `start` already.
      if (source == start)
        return {};
      if (!source || source->getBlock() != &getBlock() ||
          !visited.insert(operand).second)
        continue;
      auto wait = dyn_cast<WaitOp>(source);
      if (wait && hasRole(wait.getStart(), Role::Gradient) &&
          getBytes(operand.getType()) >= kLeastTied &&
          order.isBefore(wait, start))
        return operand;
      if (isFreelyPlaced(source))
        worklist.push_back(operand);
    }
  }
  return {};
}

/// Returns the ops in front of `start` that follow from `value`, in order, if
/// they can move behind it; else nullopt.
std::optional<SmallVector<Operation *>>
Ties::getUpdatesBefore(Operation *start, Value value) const {
  llvm::SetVector<Operation *> found;
  SmallVector<Value> worklist{value};
  while (!worklist.empty())
    for (OpOperand &use : worklist.pop_back_val().getUses()) {
      Operation *user = getBlock().findAncestorOpInBlock(*use.getOwner());
      if (user == start)
        return std::nullopt;
      if (canRetie(use, start))
        continue;
      if (!isFreelyPlaced(user) || transfers.isMovedSource(user))
        return std::nullopt;
      if (found.insert(user))
        llvm::append_range(worklist, user->getResults());
    }
  SmallVector<Operation *> ops = found.takeVector();
  llvm::sort(ops,
             [&](Operation *a, Operation *b) { return order.isBefore(a, b); });
  return ops;
}

/// Has XLA compute `update`, which comes after `start`, after it (X3).
/// Otherwise XLA would compute all updates whose gradients are there, and then
/// start. Returns the op that replaces `start`.
Operation *Ties::tieUpdateAfter(Operation *start, Value update) {
  Value gradient = getGradient(update, start);
  if (!gradient)
    return start;
  std::optional<SmallVector<Operation *>> before =
      getUpdatesBefore(start, gradient);
  if (!before)
    return start;
  order.moveAfter(*before, start);
  return tie(start, gradient);
}

/// Ties those of `updates` that are computed between `previous` and `wait`,
/// after the last heavy op, through `wait` (X3): XLA would compute all of them
/// after the last wait. One value is enough of those that another one follows
/// from. If `previous` is a start, they come after it.
Operation *Ties::tieUpdates(const llvm::DenseSet<Operation *> &updates,
                            Operation *wait, Operation *previous) {
  if (order.countBefore(getHeavyOps(), wait) < getHeavyOps().size())
    return wait;
  SmallVector<Value> tied;
  llvm::SmallPtrSet<Operation *, 32> computed;
  for (Operation *op = wait->getPrevNode(); op != previous;
       op = op->getPrevNode()) {
    if (!computed.contains(op)) {
      auto result = llvm::find_if(op->getResults(), [&](Value result) {
        return updates.contains(op) &&
               getBytes(result.getType()) >= kLeastTied &&
               canTie(result, wait) && isReadLaterOnly(result, wait) &&
               !replacesBarred(result);
      });
      if (result == op->result_end())
        continue;
      tied.push_back(*result);
    }
    for (Value operand : op->getOperands())
      if (Operation *source = operand.getDefiningOp())
        computed.insert(source);
  }
  for (Value value : llvm::reverse(tied)) {
    if (isa<StartOp>(previous))
      previous = tieUpdateAfter(previous, value);
    wait = tie(wait, value);
  }
  return wait;
}

/// Returns the start that follows the first of `calls`, a wait, in the same
/// place; null if there is none.
static const PlacedCall *getNextStart(ArrayRef<PlacedCall> calls) {
  for (const PlacedCall &call : calls.drop_front()) {
    if (call.before != calls.front().before)
      return nullptr;
    if (call.kind != OverlapPlan::Call::Room)
      return call.kind == OverlapPlan::Call::Start ? &call : nullptr;
  }
  return nullptr;
}

/// The gradient that the next start of `calls` sends, to tie it through the
/// first one, a wait: this then comes after the product that computes it, and
/// before the start. An operand of the next product, which the one before may
/// have read, XLA would copy (X4). Casts and changes of shape move in front of
/// the wait. Null if it is not computed directly before the wait.
Value Ties::bringSent(ArrayRef<PlacedCall> calls) {
  Operation *wait = calls.front().op;
  const PlacedCall *next = getNextStart(calls);
  size_t numBefore = order.countBefore(getHeavyOps(), wait);
  if (!next || next->transfer->isGather || numBefore == 0 ||
      !getStartTie(next->op))
    return {};
  ValueRange inputs = cast<StartOp>(next->op).getInputs();
  if (inputs.empty())
    return {};
  Value sent = *llvm::max_element(inputs, [](Value a, Value b) {
    return getBytes(a.getType()) < getBytes(b.getType());
  });
  if (getBytes(sent.getType()) < kLeastTied || !isReadLaterOnly(sent, wait))
    return {};
  // From the last to the first.
  SmallVector<Operation *> moved;
  Value computed = sent;
  while (Operation *op = computed.getDefiningOp()) {
    if (!transfers.isMovedSource(op) || op->getNumOperands() != 1)
      break;
    if (order.isBefore(wait, op))
      moved.push_back(op);
    computed = op->getOperand(0);
  }
  if (!canTie(computed, wait) ||
      order.isBefore(computed.getDefiningOp(), getHeavyOps()[numBefore - 1]))
    return {};
  for (Operation *op : llvm::reverse(moved))
    order.moveBefore(op, wait);
  return sent;
}

/// True if `op` is available directly behind `wait`, or can move there after
/// ops that are added to `brought`, it being the last one. There may be `depth`
/// ops in a row: casts, and arithmetic of indices.
bool Ties::canStandAt(Operation *op, Operation *wait, unsigned depth,
                      llvm::SetVector<Operation *> &brought) const {
  if (op == wait || order.isBefore(op, wait) || brought.contains(op))
    return true;
  // Layers are stored in the order of their waits.
  bool isOtherStore = depth < kDeepestStore && getWrittenLayer(op);
  size_t numBefore = order.countBefore(getHeavyOps(), op);
  bool isHeavy =
      numBefore < getHeavyOps().size() && getHeavyOps()[numBefore] == op;
  if (depth == 0 || isOtherStore || isHeavy || !isFreelyPlaced(op) ||
      transfers.isMovedSource(op))
    return false;
  for (Value operand : op->getOperands())
    if (Operation *source = operand.getDefiningOp();
        source && source->getBlock() == &getBlock() &&
        !canStandAt(source, wait, depth - 1, brought))
      return false;
  brought.insert(op);
  return true;
}

/// Moves the stores of what `wait` brings in stacks of layers directly behind
/// it, if nothing else reads the stack as it was before. Returns the stacks
/// that are worth a tie. Without one XLA would store all layers at the end
/// (X3), and keep them until then. That is best for a stack which begins as a
/// constant, since it has no memory before, and at the end activations are
/// gone.
SmallVector<Value> Ties::storeAt(WaitOp wait) {
  SmallVector<Value> worklist(wait.getOutputs()), stacks;
  llvm::SetVector<Operation *> seen, brought;
  auto isOnlyReadFor = [&](Value stack, Operation *store) {
    return !transfers.isConstant(stack) &&
           llvm::all_of(stack.getUsers(), [&](Operation *user) {
             return user == store || brought.contains(user);
           });
  };
  while (!worklist.empty())
    for (OpOperand &use : worklist.pop_back_val().getUses()) {
      Operation *user = use.getOwner();
      if (user->getBlock() != &getBlock() || !seen.insert(user))
        continue;
      if (getWrittenLayer(user) && use.getOperandNumber() == 1) {
        size_t numBrought = brought.size();
        if (canStandAt(user, wait, kDeepestStore, brought) &&
            isOnlyReadFor(user->getOperand(0), user))
          stacks.push_back(user->getResult(0));
        else
          while (brought.size() > numBrought)
            brought.pop_back();
      } else if (isElementwise(user) || (movesData(user) && !isJoin(user))) {
        llvm::append_range(worklist, user->getResults());
      }
    }
  order.moveAfter(brought.getArrayRef(), wait);
  llvm::erase_if(stacks, [](Value stack) {
    return getBytes(stack.getType()) < kLeastTied;
  });
  return stacks;
}

void Ties::tieCalls(ArrayRef<PlacedCall> calls) {
  llvm::DenseSet<Operation *> updates = getUpdates(getBlock(), calls);
  Operation *previous = nullptr;
  SmallVector<Value> stored;
  for (auto [index, call] : llvm::enumerate(calls)) {
    Operation *op = call.op;
    bool isStart = call.kind == OverlapPlan::Call::Start;
    // A wait that makes room must do so before the heavy op that follows.
    Value value;
    if (call.kind == OverlapPlan::Call::Room)
      value = bringSent(calls.drop_front(index));
    if (!value && call.kind != OverlapPlan::Call::Wait)
      value = getStartTie(op);
    // Note which values the calls so far depend on.
    if (isStart)
      for (Value input : cast<StartOp>(op).getInputs())
        note(input);
    // If no operand of that op is available yet, the order of the calls keeps a
    // start from coming late. It must not come early either.
    if (!value)
      value = getWaitTie(op, call.before);
    if (value) {
      op = tie(op, value);
      note(value);
    }
    if (!isStart && previous)
      op = tieUpdates(updates, op, previous);
    if (!isStart) {
      for (Value stack : std::exchange(stored, {}))
        if (canTie(stack, op) && isReadLaterOnly(stack, op))
          op = tie(op, stack);
      if (call.kind == OverlapPlan::Call::Room)
        stored = storeAt(cast<WaitOp>(op));
    }
    previous = op;
    if (isStart && call.transfer->isGather)
      readLate(cast<StartOp>(op), *call.transfer);
  }
}

void Ties::note(Value value) {
  SmallVector<Value> worklist{value};
  llvm::SmallPtrSet<Operation *, 8> visited;
  while (!worklist.empty()) {
    value = worklist.pop_back_val();
    Operation *source = value.getDefiningOp();
    if (transfers.isMovedSource(source)) {
      if (visited.insert(source).second)
        llvm::append_range(worklist, source->getOperands());
      continue;
    }
    if (isComputed(value) && (!latest || order.isBefore(latest, source)))
      latest = source;
  }
}

/// True if `op` reads one of several layers of a stack that is there longer
/// than these reads need it. Others are gone as soon as all layers have been
/// read, and what was read goes layer by layer.
bool Ties::readsKeptStack(Operation *op) {
  if (!getReadLayer(op))
    return false;
  Value stack = op->getOperand(0);
  auto [it, isNew] = keptStacks.try_emplace(stack, false);
  if (!isNew)
    return it->second;
  int64_t numReads = 0;
  bool isKept = isa<BlockArgument>(stack);
  for (Operation *user : stack.getUsers()) {
    bool isRead = user->getBlock() == op->getBlock() && getReadLayer(user);
    numReads += isRead;
    isKept |= !isRead;
  }
  int64_t layers = cast<ShapedType>(stack.getType()).getDimSize(0);
  return it->second = numReads > 1 && (isKept || numReads > layers);
}

/// Has XLA read and cast the operands of `start` when it starts, by a barrier
/// in front of what reads and casts. Otherwise it would merge (X1) the casts of
/// a `transfer` that is repeated with those for the earlier gather, and read
/// all layers of a stack at once, and keep the results until they are sent.
void Ties::readLate(StartOp start, const Transfer &transfer) {
  MutableOperandRange ties = start.getTiesMutable();
  llvm::SmallSetVector<Operation *, 4> own;
  SmallVector<Operation *> readers;
  SmallVector<Value> operands;
  for (Operation *op : llvm::reverse(transfer.sources))
    if (llvm::all_of(op->getUsers(), [&](Operation *user) {
          return user == start || user == start.getWait() || own.contains(user);
        }))
      own.insert(op);
  for (Operation *op : llvm::reverse(own)) {
    bool isCast = transfer.isRepeated && isNamed(op, guest::kConvert);
    if (!isCast && (ties.empty() || !readsKeptStack(op)))
      continue;
    // A slice that the loop takes belongs to this iteration anyway, and a stack
    // of which only this start reads is computed for it.
    Operation *source = op->getOperand(0).getDefiningOp();
    if (source && (isCast ? source->getBlock() == start->getBlock()
                          : own.contains(source)))
      continue;
    readers.push_back(op);
    operands.push_back(op->getOperand(0));
  }
  if (readers.empty())
    return;
  for (Operation *op : llvm::reverse(own))
    order.moveBefore(op, start);
  if (!ties.empty())
    operands.push_back(ties[ties.size() - 1].get());
  OpBuilder builder(readers.front());
  Operation *barrier = createBarrier(builder, start->getLoc(), operands);
  order.note(barrier);
  for (auto [reader, result] : llvm::zip(readers, barrier->getResults()))
    reader->setOperand(0, result);
  if (!ties.empty())
    ties[ties.size() - 1].set(barrier->getResults().back());
}

/// True for a change of shape, a slice, or a sum whose result is small.
static bool isCheap(Operation *op) {
  if (isNamed(op, guest::kReduce))
    return getBytes(op->getResultTypes()) < kLeastTied;
  return isShape(op) && !isJoin(op);
}

/// Moves changes of shape, slices and sums of `value` up to `op` that only
/// later ops read behind `op`, so that they read the tied value.
void Ties::moveReaders(Value value, Operation *op) {
  // Each comes after what it reads.
  llvm::SetVector<Operation *> readers;
  SmallVector<Value> worklist{value};
  while (!worklist.empty())
    for (Operation *user : worklist.pop_back_val().getUsers())
      if (user->getBlock() == &getBlock() && order.isBefore(user, op) &&
          isCheap(user) && !transfers.isMovedSource(user) &&
          readers.insert(user))
        llvm::append_range(worklist, user->getResults());
  llvm::DenseSet<Operation *> movable;
  for (Operation *reader : llvm::reverse(readers))
    if (llvm::all_of(reader->getUses(), [&](OpOperand &use) {
          return canRetie(use, op) ||
                 movable.contains(
                     getBlock().findAncestorOpInBlock(*use.getOwner()));
        }))
      movable.insert(reader);
  SmallVector<Operation *> moved;
  llvm::DenseSet<Value> read{value};
  for (Operation *reader : readers)
    if (movable.contains(reader) && read.contains(reader->getOperand(0))) {
      moved.push_back(reader);
      read.insert_range(reader->getResults());
    }
  llvm::sort(moved,
             [&](Operation *a, Operation *b) { return order.isBefore(a, b); });
  order.moveAfter(moved, op);
}

Operation *Ties::tie(Operation *op, Value value) {
  value = getStorage(value, op);
  Operation *old = op;
  op = addTie(op, value);
  order.note(op);
  transfers.replaceCall(old, op);
  moveReaders(value, op);
  value.replaceUsesWithIf(op->getResults().back(),
                          [&](OpOperand &use) { return canRetie(use, op); });
  return op;
}
