//===- SameValues.cpp - What several devices have alike -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/SameValues.h"

#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"

using namespace mlir;
using namespace zpp;

using Values = llvm::SetVector<Value>;

/// True if the devices of each of `groups` are known to have the same of
/// `numbers`.
static bool areAlike(const ReplicaGroups &groups,
                     const llvm::DenseMap<int64_t, size_t> &numbers) {
  return llvm::all_of(groups, [&](const std::vector<int64_t> &group) {
    return llvm::all_of(group, [&](int64_t device) {
      auto first = numbers.find(group.front()), number = numbers.find(device);
      return number != numbers.end() && first->second == number->second;
    });
  });
}

void SameValues::addReplacements(func::FuncOp function, unsigned argument,
                                 Values &pending) {
  std::unique_ptr<StepSignature> &signature = signatures[function];
  if (!signature)
    signature = std::make_unique<StepSignature>(function);
  Operation *end = function.getBody().front().getTerminator();
  for (auto [result, value] : llvm::enumerate(end->getOperands())) {
    if (value == function.getArgument(argument) ||
        value.getType() != function.getArgument(argument).getType() ||
        !signature->mayReplace(result, argument))
      continue;
    std::optional<unsigned> replaced =
        signature->getReplaced(result, [](unsigned) { return true; });
    if (!replaced || *replaced == argument)
      pending.insert(value);
  }
}

bool SameValues::isReplicated(Operation *manual, unsigned index,
                              const ReplicaGroups &groups) {
  if (!StringRef(manuals.getOperandShardings(manual)[index]).contains('"'))
    return true;
  std::unique_ptr<OperandShardings> &known = shardings[manual];
  if (!known)
    known = std::make_unique<OperandShardings>(manual);
  const ReplicaGroups *parts = known->getGroups(index);
  llvm::DenseMap<int64_t, size_t> numbers;
  if (parts)
    for (const std::vector<int64_t> &devices : *parts)
      for (auto [part, device] : llvm::enumerate(devices))
        numbers[device] = part;
  return parts && areAlike(groups, numbers);
}

bool SameValues::addSources(BlockArgument argument, const ReplicaGroups &groups,
                            Values &pending) {
  Operation *parent = argument.getOwner()->getParentOp();
  unsigned index = argument.getArgNumber();
  if (WhileView loop = WhileView::get(parent)) {
    if (argument.getOwner() == &loop.getBody()) {
      pending.insert(loop.getInit(index));
      pending.insert(loop.getNext(index));
      pending.insert_range(loop.getPredicates());
    }
    // What a condition reads, the body has too.
    pending.insert(loop.getCarried(index));
    return true;
  }
  auto function = dyn_cast<func::FuncOp>(parent);
  if (function) {
    if (!isReplicatedArgument(function, index))
      return false;
    addReplacements(function, index, pending);
    return true;
  }
  if (!manuals.contains(parent) || !isReplicated(parent, index, groups))
    return false;
  auto input = dyn_cast<BlockArgument>(parent->getOperand(index));
  function = input ? dyn_cast<func::FuncOp>(input.getOwner()->getParentOp())
                   : func::FuncOp();
  if (function)
    addReplacements(function, input.getArgNumber(), pending);
  else
    pending.insert(parent->getOperand(index));
  return true;
}

bool SameValues::addSources(Value value, const ReplicaGroups &groups,
                            Values &pending) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return addSources(argument, groups, pending);
  Operation *op = value.getDefiningOp();
  unsigned index = cast<OpResult>(value).getResultNumber();
  if (WhileView loop = WhileView::get(op)) {
    pending.insert(loop.getInit(index));
    pending.insert(loop.getNext(index));
    pending.insert_range(loop.getPredicates());
    return true;
  }
  if (std::optional<CollectiveKind> kind = getGuestCollective(op);
      kind == CollectiveKind::AllReduce || kind == CollectiveKind::AllGather) {
    std::string error;
    std::optional<ReplicaGroups> all = readReplicaGroups(op, error);
    llvm::DenseMap<int64_t, size_t> numbers;
    if (all)
      for (auto [number, devices] : llvm::enumerate(*all))
        for (int64_t device : devices)
          numbers[device] = number;
    return all && areAlike(groups, numbers);
  }
  if (manuals.contains(op)) {
    pending.insert(ManualView(op).getYielded(index));
    return true;
  }
  if (isBarrier(op)) {
    pending.insert(op->getOperand(index));
    return true;
  }
  // A border gives each device its own part, and so may what is not known.
  if (isNamed(op, guest::kCustomCall) ||
      op->getName().getDialectNamespace() != "stablehlo" ||
      (!isDeterministic(op) && !isNamed(op, guest::kReduce)))
    return false;
  pending.insert(op->operand_begin(), op->operand_end());
  return true;
}

bool SameValues::contains(Value value, const ReplicaGroups &groups) {
  Values pending;
  pending.insert(value);
  for (size_t i = 0; i < pending.size(); ++i)
    if (!addSources(pending[i], groups, pending))
      return false;
  return true;
}
