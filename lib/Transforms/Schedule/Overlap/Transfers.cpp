//===- Transfers.cpp - What moves with starts and waits -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Chains.h"
#include "LocalValues.h"
#include "Overlap.h"
#include "mlir/IR/TypeUtilities.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Analysis/Roles/Roles.h"
#include "zpp/Dialect/Guest/While.h"

#include <queue>

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

BlockTransfers::BlockTransfers(Block &block, HeavyOps &compute, StringRef pass)
    : block(block), pass(pass) {
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
  heavy = compute.getIn(block);
  for (auto &transfer : transfers) {
    calls[transfer->start] = transfer.get();
    calls[transfer->wait] = transfer.get();
  }
  for (auto &transfer : transfers)
    findDerived(*transfer);
  dropDependent();
  findSources();
}

void BlockTransfers::addTransfer(StartOp start) {
  bool isGather = hasRole(start, Role::Weight);
  // A momentum and an update are sent when they are there, and read at the end,
  // as a gradient is.
  if (!isGather && !hasRole(start, Role::Gradient) &&
      !hasRole(start, Role::Moment) && !hasRole(start, Role::Update)) {
    remarkMissed(start, pass, "not-scheduled")
        << "stays where it is: it moves no weights and no gradients";
    return;
  }
  auto transfer = std::make_unique<Transfer>();
  transfer->start = start;
  transfer->wait = start.getWait();
  transfer->isGather = isGather;
  SmallVector<Type> types(start.getOutputs().getTypes());
  if (!isGather)
    llvm::append_range(types, start.getInputs().getTypes());
  transfer->bytes = getBytes(types);
  transfers.push_back(std::move(transfer));
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

/// The barrier keeps XLA from merging (X1) the second gather of a weight with
/// the first one. Ties do this as well, so the second gather may start before
/// the barrier.
void BlockTransfers::bypassBarriers(Transfer &transfer) {
  if (!transfer.isGather)
    return;
  SmallVector<Value> inputs(transfer.start.getInputs()), before(inputs);
  for (Value &input : inputs)
    input = getBeforeBarriers(input);
  transfer.isRepeated = inputs != before;
  transfer.start.getInputsMutable().assign(inputs);
  transfer.wait.getInputsMutable().assign(inputs);
  eraseIfDead(before);
}

/// Returns the value that `value` has before the barriers of this block. Casts
/// and shape changes after a barrier are repeated before it.
Value BlockTransfers::getBeforeBarriers(Value value) {
  // Casts and shape changes on the way, and how many of them are after a
  // barrier.
  SmallVector<Operation *> path;
  size_t numAfter = 0;
  // The operand of the last of those, from before the barriers.
  Value before = value;
  for (Operation *op = value.getDefiningOp(); op && op->getBlock() == &block;
       op = value.getDefiningOp()) {
    if (isBarrier(op)) {
      barriers.insert(op);
      value = op->getOperand(cast<OpResult>(value).getResultNumber());
      numAfter = path.size();
      before = value;
      continue;
    }
    if (!movesData(op) || op->getNumRegions() > 0)
      break;
    path.push_back(op);
    value = op->getOperand(0);
  }
  path.truncate(numAfter);
  for (Operation *op : llvm::reverse(path)) {
    Operation *copy = OpBuilder(op).clone(*op);
    copy->setOperand(0, before);
    before = copy->getResult(0);
  }
  return before;
}

//===----------------------------------------------------------------------===//
// What moves
//===----------------------------------------------------------------------===//

/// True if the result of `op` is constant whenever its operands are: XLA
/// computes it cheaply and without side effects.
static bool isPlain(Operation *op) {
  return op->getNumRegions() == 0 &&
         op->getName().getDialectNamespace() == "stablehlo" && !isBarrier(op) &&
         !isCollective(op) && !HeavyOps::isHeavyItself(op) &&
         !isNamed(op, guest::kCustomCall);
}

bool BlockTransfers::isConstant(Value value) const {
  // Operands first, each op once.
  SmallVector<std::pair<Operation *, unsigned>> path;
  auto enter = [&](Value entered) -> std::optional<bool> {
    Operation *op = entered.getDefiningOp();
    if (!op)
      return false;
    auto [it, isNew] = constants.try_emplace(op, false);
    if (!isNew)
      return it->second;
    if (!isPlain(op))
      return false;
    path.emplace_back(op, 0);
    return std::nullopt;
  };
  std::optional<bool> result = enter(value);
  while (!path.empty()) {
    auto &[op, next] = path.back();
    if (result && !*result) {
      // Its readers are not constant either; false is already noted for them.
      path.pop_back();
      continue;
    }
    if (next < op->getNumOperands()) {
      result = enter(op->getOperand(next++));
      continue;
    }
    constants[op] = true;
    result = true;
    path.pop_back();
  }
  return *result;
}

bool BlockTransfers::isComputed(Value value) const {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  Operation *source = value.getDefiningOp();
  if (!type || !type.hasStaticShape() || !source ||
      source->getBlock() != &block)
    return false;
  // A tie would keep XLA from recognizing a loop counter (X8).
  if (type.getNumElements() <= 1)
    return false;
  return !isa<StartOp, WaitOp>(source) && !owners.contains(source) &&
         !movedSources.contains(source) && !isConstant(value);
}

/// True if `argument` is there after its block, or in the next iteration of a
/// loop: XLA would copy it where it is tied (X4).
static bool isKept(BlockArgument argument) {
  WhileView loop = WhileView::get(argument.getOwner()->getParentOp());
  return !loop || loop.isInvariant(argument.getArgNumber());
}

/// True if `value` is a slice, was sent by another device or is kept by who
/// passes it to the block, or was that before its shape changed. What XLA can
/// make of a transpose depends on layouts.
static bool isView(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isa<StartOp, WaitOp>(op))
      return !isTied(value);
    if (isNamed(op, guest::kSlice) || isNamed(op, guest::kDynamicSlice))
      return true;
    if (isBarrier(op)) {
      value = op->getOperand(cast<OpResult>(value).getResultNumber());
      continue;
    }
    if (!movesData(op) || isJoin(op) ||
        getElementTypeOrSelf(op->getOperand(0)) != getElementTypeOrSelf(value))
      return false;
    value = op->getOperand(0);
  }
  return isKept(cast<BlockArgument>(value));
}

bool BlockTransfers::isTieable(Value value) const {
  return isComputed(value) && !isView(value);
}

/// True if `op` reads only `values` and constants and can move.
bool BlockTransfers::isDerived(Operation *op,
                               const llvm::DenseSet<Value> &values) const {
  return isPlain(op) && !op->hasTrait<OpTrait::IsTerminator>() &&
         op != &block.back() &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           return values.contains(operand) || isConstant(operand);
         });
}

void BlockTransfers::findDerived(Transfer &transfer) {
  llvm::DenseSet<Value> values;
  // The readers, ordered by position.
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> readers;
  auto addValues = [&](ValueRange added) {
    values.insert_range(added);
    for (Value value : added)
      for (Operation *user : value.getUsers())
        readers.push(index.lookup(block.findAncestorOpInBlock(*user)));
  };
  owners[transfer.wait] = &transfer;
  transfer.need = &block.back();
  addValues(transfer.wait.getOutputs());
  for (int64_t last = -1; !readers.empty(); readers.pop()) {
    if (readers.top() == last)
      continue;
    last = readers.top();
    Operation *op = ops[last];
    if (isDerived(op, values)) {
      transfer.derived.push_back(op);
      owners[op] = &transfer;
      addValues(op->getResults());
      continue;
    }
    // A secondary partition that a later gather reads is not needed before that
    // gather starts.
    if (Transfer *other = calls.lookup(op); other && other->isGather)
      continue;
    transfer.need = op;
    return;
  }
}

/// The transfers whose results reach `value` through casts and shape changes.
void BlockTransfers::findOwners(
    Value value, llvm::SmallSetVector<Transfer *, 4> &found) const {
  SmallVector<Value> worklist{value};
  llvm::SmallPtrSet<Operation *, 8> visited;
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (!op || op->getBlock() != &block || !visited.insert(op).second)
      continue;
    if (Transfer *owner = owners.lookup(op))
      found.insert(owner);
    else if (movesData(op))
      llvm::append_range(worklist, op->getOperands());
  }
}

/// A gather that starts from the result of another gather, and is needed no
/// later than that one, stays where it is, because the other one is needed at
/// its start. So does a scatter of gathered values.
void BlockTransfers::dropDependent() {
  llvm::DenseSet<Transfer *> dropped;
  for (auto &transfer : transfers) {
    llvm::SmallSetVector<Transfer *, 4> sources;
    for (Value input : transfer->start.getInputs())
      findOwners(input, sources);
    for (Transfer *source : sources) {
      if (transfer->isGather &&
          getPosition(source->need) < getPosition(transfer->need))
        continue;
      if (getPosition(transfer->start) < getPosition(source->need))
        source->need = transfer->start;
      dropped.insert(transfer.get());
    }
  }
  llvm::erase_if(transfers, [&](std::unique_ptr<Transfer> &transfer) {
    if (!dropped.contains(transfer.get()))
      return false;
    remarkMissed(transfer->start, pass, "not-scheduled")
        << "stays where it is: its operand is gathered just before it";
    calls.erase(transfer->start);
    calls.erase(transfer->wait);
    owners.erase(transfer->wait);
    for (Operation *op : transfer->derived)
      owners.erase(op);
    return true;
  });
}

/// True if `op` may move up together with the start of `transfer`, as its other
/// `sources` do. Computed weights, such as `1 + gain`, take their arithmetic
/// along: each device computes its own part only. So do gradients that a step
/// scales after the backward pass, unless compute reads the result, too.
bool BlockTransfers::isSource(
    Operation *op, const Transfer &transfer,
    const llvm::SetVector<Operation *> &sources) const {
  if (!op || op->getBlock() != &block || op->getNumRegions() > 0 ||
      owners.contains(op))
    return false;
  if (movesData(op) || isNamed(op, guest::kBroadcastInDim))
    return true;
  return isElementwise(op) &&
         (transfer.isGather ||
          llvm::all_of(op->getUsers(), [&](Operation *user) {
            return user == transfer.start || user == transfer.wait ||
                   sources.contains(user);
          }));
}

void BlockTransfers::findSources() {
  auto inOrder = [&](Operation *a, Operation *b) {
    return getPosition(a) < getPosition(b);
  };
  SmallVector<Operation *> all;
  for (auto &transfer : transfers) {
    llvm::SetVector<Operation *> sources;
    SmallVector<Value> worklist(transfer->start.getInputs());
    while (!worklist.empty()) {
      Operation *op = worklist.pop_back_val().getDefiningOp();
      if (isSource(op, *transfer, sources) && sources.insert(op))
        llvm::append_range(worklist, op->getOperands());
    }
    transfer->sources = sources.takeVector();
    llvm::sort(transfer->sources, inOrder);
    for (Operation *op : transfer->sources)
      if (movedSources.try_emplace(op, -1).second)
        all.push_back(op);
  }
  // Operands first.
  llvm::sort(all, inOrder);
  for (Operation *op : all)
    movedSources[op] = getReady(op->getOperands());
}

//===----------------------------------------------------------------------===//
// What is to be planned
//===----------------------------------------------------------------------===//

/// Returns the position of the last op that stays in place and must be done
/// before `values` are available, or -1.
int64_t BlockTransfers::getReady(ValueRange values) const {
  int64_t ready = -1;
  for (Value value : values) {
    Operation *op = value.getDefiningOp();
    // Constants move along.
    if (!op || op->getBlock() != &block || isConstant(value))
      continue;
    if (Transfer *owner = owners.lookup(op))
      ready = std::max(ready, getPosition(owner->need));
    else if (auto it = movedSources.find(op); it != movedSources.end())
      ready = std::max(ready, it->second);
    else
      ready = std::max(ready, getPosition(op));
  }
  return ready;
}

/// True if `op` stays where it is, so that others can be placed before it.
bool BlockTransfers::staysInPlace(Operation *op) const {
  return !calls.contains(op) && !owners.contains(op) &&
         !movedSources.contains(op) &&
         (op->getNumResults() == 0 || !isConstant(op->getResult(0)));
}

OverlapProblem BlockTransfers::getProblem(int64_t budget) const {
  OverlapProblem problem;
  problem.budget = budget;
  for (const auto &transfer : transfers)
    problem.transfers.push_back(
        {transfer->isGather, transfer->bytes, getPosition(transfer->start),
         getReady(transfer->start.getInputs()), getPosition(transfer->need)});
  for (Operation *op : heavy) {
    OverlapProblem::HeavyOp heavyOp;
    heavyOp.position = getPosition(op);
    for (Value operand : op->getOperands())
      if (isTieable(operand))
        heavyOp.firstTie =
            std::min(heavyOp.firstTie, getPosition(operand.getDefiningOp()));
    problem.heavy.push_back(heavyOp);
  }
  for (Operation *op : ops)
    problem.stays.push_back(staysInPlace(op));
  return problem;
}

void BlockTransfers::replaceCall(Operation *old, Operation *call) {
  for (auto *map : {&calls, &owners})
    if (Transfer *transfer = map->lookup(old)) {
      map->erase(old);
      map->try_emplace(call, transfer);
    }
}
