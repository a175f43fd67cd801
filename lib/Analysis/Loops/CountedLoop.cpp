//===- CountedLoop.cpp - Loops that count their iterations ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Loops/CountedLoop.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Analysis/Repeats.h"
#include "zpp/Dialect/Guest/Calls.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Counters
//===----------------------------------------------------------------------===//

std::optional<LoopCounter>
zpp::getLoopCounter(WhileView loop, ProvenanceAnalysis &provenances) {
  if (!loop || loop.getPredicates().size() != 1)
    return std::nullopt;
  Operation *compare = loop.getPredicates().front().getDefiningOp();
  if (!compare || !comparesLess(compare) || compare->getNumOperands() != 2)
    return std::nullopt;
  auto counter = dyn_cast<BlockArgument>(compare->getOperand(0));
  if (!counter || counter.getOwner() != &loop.getCondition())
    return std::nullopt;
  unsigned index = counter.getArgNumber();
  std::optional<int64_t> begin =
      provenances.getConstantInteger(loop.getInit(index));
  std::optional<int64_t> end =
      provenances.getConstantInteger(compare->getOperand(1));
  Operation *add = loop.getNext(index).getDefiningOp();
  if (!begin || !end || !add || !isNamed(add, guest::kAdd) ||
      add->getNumOperands() != 2)
    return std::nullopt;
  Value argument = loop.getCarried(index);
  if (!isIntegerScalar(loop.getInit(index)) || !isIntegerScalar(argument) ||
      !isIntegerScalar(compare->getOperand(1)) ||
      !isIntegerScalar(loop.getNext(index)))
    return std::nullopt;
  Value step = add->getOperand(0) == argument   ? add->getOperand(1)
               : add->getOperand(1) == argument ? add->getOperand(0)
                                                : Value();
  std::optional<int64_t> stride =
      step ? provenances.getConstantInteger(step) : std::optional<int64_t>();
  int64_t distance;
  if (!stride || *stride < 1 || llvm::SubOverflow(*end, *begin, distance))
    return std::nullopt;
  return LoopCounter{
      index, *begin, *stride,
      std::max<int64_t>(0, llvm::divideCeilSigned(distance, *stride))};
}

/// Other numbers are no indices of layers, and could overflow.
static bool isSmall(int64_t value) {
  constexpr int64_t kLimit = int64_t(1) << 31;
  return value > -kLimit && value < kLimit;
}

std::optional<int64_t> zpp::getTripCount(Operation *op,
                                         ProvenanceAnalysis &provenances) {
  int64_t trips = 1;
  for (Operation *parent = op->getParentOp(); parent;
       parent = parent->getParentOp()) {
    if (!isNamed(parent, guest::kWhile))
      continue;
    std::optional<LoopCounter> counter =
        getLoopCounter(WhileView::get(parent), provenances);
    if (!counter || llvm::MulOverflow(trips, counter->trips, trips))
      return std::nullopt;
  }
  return trips;
}

std::optional<int64_t> zpp::getTripCount(Operation *op) {
  ProvenanceAnalysis provenances;
  return getTripCount(op, provenances);
}

std::optional<CountedLoop>
zpp::getCountedLoop(Operation *op, ProvenanceAnalysis &provenances) {
  WhileView loop = WhileView::get(op);
  std::optional<LoopCounter> counter = getLoopCounter(loop, provenances);
  if (!counter || counter->begin != 0 || counter->step != 1 ||
      counter->trips < 1 || !isSmall(counter->trips))
    return std::nullopt;
  BlockArgument number = loop.getCarried(counter->index);
  auto type = dyn_cast<RankedTensorType>(number.getType());
  if (!type || type.getRank() != 0 || !type.getElementType().isInteger())
    return std::nullopt;
  return CountedLoop{loop, number, counter->trips};
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

/// The number of ops that an index may follow from: they take few.
static constexpr int kMostIndexOps = 64;

/// True if `value`, in the body of `loop`, is 0, 1, 2, ...:
/// `jnp.arange(layers)`, which a scan slices.
static bool isIota(Value value, const CountedLoop &loop) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && argument.getOwner() == &loop.getBody() &&
      loop.loop.isInvariant(argument.getArgNumber()))
    value = loop.loop.getInit(argument.getArgNumber());
  Operation *op = value.getDefiningOp();
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return op && isNamed(op, guest::kIota) && type && type.hasStaticShape() &&
         type.getRank() == 1 && type.getElementType().isInteger();
}

/// Returns the tensor of rank 1 of which `op` takes one element, and the index.
/// JAX calls a function for it.
static std::optional<std::pair<Value, Value>> getElementRead(Operation *op) {
  auto call = dyn_cast<func::CallOp>(op);
  Operation *slice = op;
  if (call) {
    func::FuncOp callee = getCallee(call);
    if (!callee || callee.getBody().front().back().getNumOperands() != 1)
      return std::nullopt;
    slice = callee.getBody().front().back().getOperand(0).getDefiningOp();
    if (slice && isNamed(slice, guest::kReshape) &&
        slice->getNumOperands() == 1)
      slice = slice->getOperand(0).getDefiningOp();
  }
  if (!slice || !isNamed(slice, guest::kDynamicSlice) ||
      slice->getNumOperands() != 2 ||
      !hasOneElement(op->getResult(0).getType()))
    return std::nullopt;
  Value from = slice->getOperand(0), at = slice->getOperand(1);
  if (!call)
    return std::pair(from, at);
  auto fromArgument = dyn_cast<BlockArgument>(from);
  auto atArgument = dyn_cast<BlockArgument>(at);
  if (!fromArgument || !atArgument)
    return std::nullopt;
  return std::pair(call.getOperand(fromArgument.getArgNumber()),
                   call.getOperand(atArgument.getArgNumber()));
}

/// The values of `value`. Takes the ops that it looks at from `budget`.
static std::optional<IndexSequence> getIndices(Value value,
                                               const CountedLoop &loop,
                                               ProvenanceAnalysis &provenances,
                                               int &budget) {
  if (--budget < 0)
    return std::nullopt;
  if (value == loop.counter)
    return IndexSequence{1, 0, loop.trips};
  if (std::optional<int64_t> constant = provenances.getConstantInteger(value))
    return isSmall(*constant)
               ? std::optional(IndexSequence{0, *constant, loop.trips})
               : std::nullopt;
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumResults() != 1)
    return std::nullopt;
  if (isNamed(op, guest::kConvert) || isNamed(op, guest::kReshape) ||
      (isNamed(op, guest::kBroadcastInDim) && movesData(op)))
    return op->getNumOperands() == 1
               ? getIndices(op->getOperand(0), loop, provenances, budget)
               : std::nullopt;
  if (auto read = getElementRead(op)) {
    if (!isIota(read->first, loop))
      return std::nullopt;
    std::optional<IndexSequence> index =
        getIndices(read->second, loop, provenances, budget);
    int64_t count = cast<ShapedType>(read->first.getType()).getNumElements();
    return index && index->areBelow(count) ? index : std::nullopt;
  }
  if (isNamed(op, guest::kSelect) && op->getNumOperands() == 3) {
    // `where(i < 0, i + count, i)`
    Operation *compare = op->getOperand(0).getDefiningOp();
    std::optional<IndexSequence> index =
        getIndices(op->getOperand(2), loop, provenances, budget);
    if (!index || !index->areBelow(INT64_MAX) || !compare ||
        !comparesLess(compare) || compare->getOperand(0) != op->getOperand(2) ||
        provenances.getConstantInteger(compare->getOperand(1)) != 0)
      return std::nullopt;
    return index;
  }
  bool isAdd = isNamed(op, guest::kAdd);
  if ((!isAdd && !isNamed(op, guest::kSubtract)) || op->getNumOperands() != 2)
    return std::nullopt;
  std::optional<IndexSequence> a =
      getIndices(op->getOperand(0), loop, provenances, budget);
  std::optional<IndexSequence> b =
      getIndices(op->getOperand(1), loop, provenances, budget);
  if (!a || !b)
    return std::nullopt;
  int64_t sign = isAdd ? 1 : -1;
  IndexSequence sum{a->factor + sign * b->factor, a->offset + sign * b->offset,
                    loop.trips};
  if (std::abs(sum.factor) > 1 || !isSmall(sum.offset))
    return std::nullopt;
  return sum;
}

std::optional<IndexSequence> zpp::getIndices(Value index,
                                             const CountedLoop &loop,
                                             ProvenanceAnalysis &provenances) {
  int budget = kMostIndexOps;
  return ::getIndices(index, loop, provenances, budget);
}

Value zpp::getIterationIndex(Value value, WhileView loop,
                             ProvenanceAnalysis &provenances) {
  llvm::SetVector<Value> pending;
  pending.insert(value);
  Value index;
  for (size_t i = 0; i < pending.size(); ++i) {
    Value next = pending[i];
    if (!loop.contains(next))
      continue;
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      if (argument.getOwner() != &loop.getBody() ||
          !loop.isInvariant(argument.getArgNumber()))
        return {};
      continue;
    }
    Operation *op = next.getDefiningOp();
    if (isBarrier(op)) {
      pending.insert(op->getOperand(cast<OpResult>(next).getResultNumber()));
    } else if (isNamed(op, guest::kDynamicSlice)) {
      pending.insert(op->getOperand(0));
      for (Value offset : op->getOperands().drop_front()) {
        if (provenances.getConstant(offset))
          continue;
        if (index && index != offset)
          return {};
        index = offset;
      }
    } else if (computesTheSame(op)) {
      pending.insert(op->operand_begin(), op->operand_end());
    } else {
      return {};
    }
  }
  return index;
}
