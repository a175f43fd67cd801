//===- Provenance.cpp - Where values come from ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Provenance.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Analysis/Repeats.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "llvm/ADT/DenseSet.h"

#include <set>
#include <tuple>

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// One step
//===----------------------------------------------------------------------===//

/// Returns the operand of `call` that becomes its result `index`, if the callee
/// only moves its data; otherwise null.
Value ProvenanceAnalysis::getPassedOperand(func::CallOp call, unsigned index,
                                           bool &isSliced) {
  func::FuncOp callee = getCallee(call);
  if (!callee)
    return {};
  Value value = callee.getBody().front().back().getOperand(index);
  while (Operation *op = value.getDefiningOp()) {
    if (isBarrier(op)) {
      value = op->getOperand(cast<OpResult>(value).getResultNumber());
      continue;
    }
    if (!movesData(op) || isJoin(op))
      return {};
    isSliced |= isNamed(op, guest::kDynamicSlice);
    value = op->getOperand(0);
  }
  auto argument = cast<BlockArgument>(value);
  if (argument.getOwner() != &callee.getBody().front())
    return {};
  return call.getOperand(argument.getArgNumber());
}

func::CallOp ProvenanceAnalysis::findCall(func::FuncOp function) {
  if (!hasCalls) {
    hasCalls = true;
    if (auto module = function->getParentOfType<ModuleOp>())
      module.walk([&](func::CallOp call) {
        Operation *callee =
            SymbolTable::lookupNearestSymbolFrom(call, call.getCalleeAttr());
        if (callee && !callee->isAncestor(call))
          calls.try_emplace(callee, call);
      });
  }
  return calls.lookup(function);
}

/// Returns the value that the block argument `argument` has outside its region,
/// or null if it is an input of the step or changes in a loop.
Value ProvenanceAnalysis::getOuterValue(BlockArgument argument,
                                        bool &isStepInput) {
  Operation *parent = argument.getOwner()->getParentOp();
  unsigned index = argument.getArgNumber();
  isStepInput = false;
  if (auto function = dyn_cast_or_null<func::FuncOp>(parent)) {
    isStepInput = function.isPublic();
    if (isStepInput)
      return {};
    // All calls of a layer's function pass weights in the same position, so one
    // call is enough.
    func::CallOp call = findCall(function);
    return call && index < call->getNumOperands() ? call.getOperand(index)
                                                  : Value();
  }
  if (!parent)
    return {};
  if (isNamed(parent, guest::kSdyManualComputation) &&
      index < parent->getNumOperands())
    return parent->getOperand(index);
  if (isLoopInvariant(parent, index))
    return parent->getOperand(index);
  return {};
}

ProvenanceAnalysis::Link ProvenanceAnalysis::getLink(Value value) {
  Link link;
  link.provenance.root = value;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    link.next = getOuterValue(argument, link.provenance.isStepInput);
    return link;
  }
  auto result = cast<OpResult>(value);
  Operation *op = result.getOwner();
  unsigned index = result.getResultNumber();
  if (isBarrier(op) || isLoopInvariant(op, index)) {
    link.next = op->getOperand(index);
  } else if (auto call = dyn_cast<func::CallOp>(op)) {
    link.next = getPassedOperand(call, index, link.provenance.isSliced);
    link.op = call;
  } else if (movesData(op)) {
    link.next = op->getOperand(0);
    link.op = op;
    link.provenance.isSliced = isNamed(op, guest::kDynamicSlice);
  }
  return link;
}

//===----------------------------------------------------------------------===//
// The way to the root
//===----------------------------------------------------------------------===//

const ProvenanceAnalysis::Link &ProvenanceAnalysis::resolve(Value value) {
  // Use an explicit stack, since a step may be a longer chain of ops than the
  // program's stack can hold. Recursive functions lead back to a value that is
  // on the path already; the path ends there.
  SmallVector<Value> pending{value};
  llvm::SmallDenseSet<Value, 16> onPath;
  while (!pending.empty()) {
    Value top = pending.back();
    if (links.contains(top)) {
      pending.pop_back();
      continue;
    }
    Link link = getLink(top);
    bool joins = link.op && isJoin(link.op);
    if (onPath.insert(top).second) {
      size_t known = pending.size();
      auto need = [&](Value source) {
        if (!links.contains(source) && !onPath.contains(source))
          pending.push_back(source);
      };
      if (link.next)
        need(link.next);
      if (joins)
        llvm::for_each(link.op->getOperands().drop_front(), need);
      if (pending.size() > known)
        continue;
    }
    auto isFixed = [&](Value source) {
      auto it = links.find(source);
      if (it == links.end())
        return false;
      Operation *root = it->second.provenance.root.getDefiningOp();
      return it->second.provenance.isStepInput ||
             (root && isNamed(root, guest::kConstant));
    };
    auto next = link.next ? links.find(link.next) : links.end();
    // A concatenation of computed values is a new root.
    if (next == links.end() ||
        (joins &&
         !llvm::all_of(link.op->getOperands().drop_front(), isFixed))) {
      link.next = {};
      link.op = nullptr;
      link.provenance.isSliced = false;
    } else {
      link.provenance.root = next->second.provenance.root;
      link.provenance.isStepInput = next->second.provenance.isStepInput;
      link.provenance.isSliced |= next->second.provenance.isSliced;
    }
    links.try_emplace(top, link);
    onPath.erase(top);
    pending.pop_back();
  }
  return links.find(value)->second;
}

SmallVector<Operation *> ProvenanceAnalysis::getPath(Value value) {
  SmallVector<Operation *> path;
  while (value) {
    const Link &link = resolve(value);
    if (link.op)
      path.push_back(link.op);
    value = link.next;
  }
  return path;
}

Operation *ProvenanceAnalysis::getConstant(Value value) {
  Operation *op = get(value).root.getDefiningOp();
  return op && isNamed(op, guest::kConstant) ? op : nullptr;
}

std::optional<int64_t> ProvenanceAnalysis::getConstantInteger(Value value) {
  return zpp::getConstantInteger(get(value).root);
}

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

bool ProvenanceAnalysis::SliceQuery::operator<(const SliceQuery &other) const {
  return std::make_tuple(value.getAsOpaquePointer(), inAnyIteration, isExact) <
         std::make_tuple(other.value.getAsOpaquePointer(), other.inAnyIteration,
                         other.isExact);
}

/// Represents an index that differs between iterations.
static const char kAnyIndex = 0;

void ProvenanceAnalysis::describe(const SliceQuery &query,
                                  SmallVectorImpl<SliceQuery> &parts,
                                  SmallVectorImpl<const void *> &description) {
  bool inAnyIteration = query.inAnyIteration;
  if (DenseElementsAttr data = getSplatConstant(getConstant(query.value));
      data && !query.isExact) {
    description.push_back(data.getAsOpaquePointer());
    return;
  }
  Link link = resolve(query.value);
  if (!link.next) {
    // Computed values are equal if they are computed in the same way from the
    // same values.
    Operation *root = query.value.getDefiningOp();
    if (!root || !computesTheSame(root)) {
      description.push_back(query.value.getAsOpaquePointer());
      return;
    }
    describeOp(root, description);
    for (Value operand : root->getOperands())
      parts.push_back({operand, inAnyIteration, /*isExact=*/true});
    return;
  }
  Operation *op = link.op;
  bool isExact = query.isExact ||
                 (op && (op->getNumOperands() > 1 || isa<func::CallOp>(op) ||
                         isNamed(op, guest::kSlice) ||
                         isNamed(op, "tensor.extract_slice")));
  parts.push_back({link.next, inAnyIteration, isExact});
  if (!op || !isExact)
    return;
  describeOp(op, description);
  if (isa<func::CallOp>(op))
    description.push_back(op);
  // The other operands: indices, or data that is concatenated.
  bool isAnyIndex = inAnyIteration && !isJoin(op) && isInLoop(op);
  for (OpOperand &operand : op->getOpOperands().drop_front()) {
    if (isAnyIndex && !getConstant(operand.get())) {
      description.push_back(&kAnyIndex);
      description.push_back(reinterpret_cast<const void *>(
          static_cast<intptr_t>(operand.getOperandNumber())));
    } else {
      parts.push_back({operand.get(), inAnyIteration, /*isExact=*/false});
    }
  }
}

int64_t ProvenanceAnalysis::getId(const SliceQuery &first) {
  SmallVector<SliceQuery> pending{first};
  std::set<SliceQuery> onPath;
  while (!pending.empty()) {
    SliceQuery query = pending.back();
    if (slices.count(query)) {
      pending.pop_back();
      continue;
    }
    SmallVector<SliceQuery> parts;
    SmallVector<const void *> description;
    describe(query, parts, description);
    if (onPath.insert(query).second) {
      size_t known = pending.size();
      for (const SliceQuery &part : parts)
        if (!slices.count(part) && !onPath.count(part))
          pending.push_back(part);
      if (pending.size() > known)
        continue;
    }
    pending.pop_back();
    onPath.erase(query);
    // A value that only passes its source on has the same slice.
    if (description.empty() && slices.count(parts.front())) {
      slices[query] = slices[parts.front()];
      continue;
    }
    for (const SliceQuery &part : parts) {
      auto it = slices.find(part);
      // In recursive functions, nothing else has this index.
      description.push_back(it == slices.end()
                                ? part.value.getAsOpaquePointer()
                                : reinterpret_cast<const void *>(
                                      static_cast<intptr_t>(it->second)));
    }
    slices[query] =
        sliceIds.try_emplace(std::move(description), sliceIds.size())
            .first->second;
  }
  return slices[first];
}
