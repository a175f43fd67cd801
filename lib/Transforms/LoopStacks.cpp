//===- LoopStacks.cpp - What a loop keeps of each iteration ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoopStacks.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

static std::optional<int64_t> getInteger(Value value,
                                         ProvenanceAnalysis &provenances) {
  Operation *op = provenances.getConstant(value);
  auto data = op ? op->getAttrOfType<DenseIntElementsAttr>("value")
                 : DenseIntElementsAttr();
  if (!data || !data.isSplat())
    return std::nullopt;
  return data.getSplatValue<APInt>().getSExtValue();
}

/// Other numbers are no indices of layers, and could overflow.
static bool isSmall(int64_t value) {
  constexpr int64_t kLimit = int64_t(1) << 31;
  return value > -kLimit && value < kLimit;
}

std::optional<CountedLoop>
zpp::getCountedLoop(Operation *loop, ProvenanceAnalysis &provenances) {
  if (!isWhile(loop))
    return std::nullopt;
  std::optional<LoopCounter> counter = provenances.getCounter(loop);
  if (!counter || counter->begin != 0 || counter->step != 1 ||
      counter->trips < 1 || !isSmall(counter->trips))
    return std::nullopt;
  BlockArgument number = loop->getRegion(1).front().getArgument(counter->index);
  auto type = dyn_cast<RankedTensorType>(number.getType());
  if (!type || type.getRank() != 0 || !type.getElementType().isInteger())
    return std::nullopt;
  return CountedLoop{loop, number, counter->trips};
}

namespace {
/// factor * (number of the iteration) + offset
struct Affine {
  int64_t factor, offset;
  int64_t at(int64_t iteration) const { return factor * iteration + offset; }
};
} // namespace

/// The number of ops that an index may follow from: they take few.
static constexpr int kMostIndexOps = 64;

/// True if `value`, in the body of `loop`, is 0, 1, 2, ...:
/// `jnp.arange(layers)`, which a scan slices.
static bool isIota(Value value, const CountedLoop &loop) {
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && argument.getOwner() == &loop.getBody() &&
      isLoopInvariant(loop.loop, argument.getArgNumber()))
    value = loop.loop->getOperand(argument.getArgNumber());
  Operation *op = value.getDefiningOp();
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return op && isNamed(op, guest::kIota) && type && type.hasStaticShape() &&
         type.getRank() == 1 && type.getElementType().isInteger();
}

/// Where `op` takes one element of a tensor of rank 1: the tensor and the
/// index. JAX calls a function for it.
static std::optional<std::pair<Value, Value>> getElementRead(Operation *op) {
  auto call = dyn_cast<func::CallOp>(op);
  Operation *slice = op;
  if (call) {
    auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
        call, call.getCalleeAttr());
    if (!callee || callee.isExternal() || !callee.getBody().hasOneBlock() ||
        callee.getBody().front().back().getNumOperands() != 1)
      return std::nullopt;
    slice = callee.getBody().front().back().getOperand(0).getDefiningOp();
    if (slice && isNamed(slice, guest::kReshape) &&
        slice->getNumOperands() == 1)
      slice = slice->getOperand(0).getDefiningOp();
  }
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!slice || !isNamed(slice, guest::kDynamicSlice) ||
      slice->getNumOperands() != 2 || !type || !type.hasStaticShape() ||
      type.getNumElements() != 1)
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

/// What `value` is in the iterations of `loop`. Takes the ops that it looks at
/// from `budget`.
static std::optional<Affine> getAffine(Value value, const CountedLoop &loop,
                                       ProvenanceAnalysis &provenances,
                                       int &budget) {
  if (--budget < 0)
    return std::nullopt;
  if (value == loop.counter)
    return Affine{1, 0};
  if (std::optional<int64_t> constant = getInteger(value, provenances))
    return isSmall(*constant) ? std::optional(Affine{0, *constant})
                              : std::nullopt;
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumResults() != 1)
    return std::nullopt;
  if (isNamed(op, guest::kConvert) || isNamed(op, guest::kReshape) ||
      (isNamed(op, guest::kBroadcastInDim) && movesData(op)))
    return op->getNumOperands() == 1
               ? getAffine(op->getOperand(0), loop, provenances, budget)
               : std::nullopt;
  if (auto read = getElementRead(op)) {
    if (!isIota(read->first, loop))
      return std::nullopt;
    std::optional<Affine> index =
        getAffine(read->second, loop, provenances, budget);
    int64_t count = cast<ShapedType>(read->first.getType()).getNumElements();
    auto isIn = [&](int64_t at) { return at >= 0 && at < count; };
    return index && isIn(index->at(0)) && isIn(index->at(loop.trips - 1))
               ? index
               : std::nullopt;
  }
  if (isNamed(op, guest::kSelect) && op->getNumOperands() == 3) {
    // `where(i < 0, i + count, i)`
    Operation *compare = op->getOperand(0).getDefiningOp();
    std::optional<Affine> index =
        getAffine(op->getOperand(2), loop, provenances, budget);
    if (!index || index->at(0) < 0 || index->at(loop.trips - 1) < 0 ||
        !compare || !comparesLess(compare) ||
        compare->getOperand(0) != op->getOperand(2) ||
        getInteger(compare->getOperand(1), provenances) != 0)
      return std::nullopt;
    return index;
  }
  bool isAdd = isNamed(op, guest::kAdd);
  if ((!isAdd && !isNamed(op, guest::kSubtract)) || op->getNumOperands() != 2)
    return std::nullopt;
  std::optional<Affine> a =
      getAffine(op->getOperand(0), loop, provenances, budget);
  std::optional<Affine> b =
      getAffine(op->getOperand(1), loop, provenances, budget);
  if (!a || !b)
    return std::nullopt;
  int64_t sign = isAdd ? 1 : -1;
  Affine sum{a->factor + sign * b->factor, a->offset + sign * b->offset};
  if (std::abs(sum.factor) > 1 || !isSmall(sum.offset))
    return std::nullopt;
  return sum;
}

bool zpp::isIndexBelow(Value index, int64_t count, const CountedLoop &loop,
                       ProvenanceAnalysis &provenances) {
  int budget = kMostIndexOps;
  std::optional<Affine> affine = getAffine(index, loop, provenances, budget);
  auto isIn = [&](int64_t value) { return value >= 0 && value < count; };
  return affine && isIn(affine->at(0)) && isIn(affine->at(loop.trips - 1));
}

bool zpp::isIndexOfIteration(Value index, const CountedLoop &loop,
                             ProvenanceAnalysis &provenances) {
  int budget = kMostIndexOps;
  std::optional<Affine> affine = getAffine(index, loop, provenances, budget);
  return affine && affine->factor != 0;
}

//===----------------------------------------------------------------------===//
// Stacks
//===----------------------------------------------------------------------===//

/// The index of the first dim at which `op`, a slice or an update of one layer,
/// has it; `first` is the number of the operand. Null where `op` is something
/// else.
static Value getLayerIndex(Operation *op, RankedTensorType stack,
                           RankedTensorType layer, unsigned first,
                           ProvenanceAnalysis &provenances) {
  if (!stack || !layer || !stack.hasStaticShape() || stack.getRank() < 1 ||
      layer.getRank() != stack.getRank() || layer.getDimSize(0) != 1 ||
      layer.getElementType() != stack.getElementType() ||
      layer.getShape().drop_front() != stack.getShape().drop_front() ||
      static_cast<int64_t>(op->getNumOperands()) != first + stack.getRank())
    return {};
  for (Value offset : op->getOperands().drop_front(first + 1))
    if (getInteger(offset, provenances) != 0)
      return {};
  return op->getOperand(first);
}

static RankedTensorType typeOf(Value value) {
  return dyn_cast<RankedTensorType>(value.getType());
}

/// Adds the reads of `value`, which holds the stack.
static void findReads(Value value, LoopStack &stack,
                      ProvenanceAnalysis &provenances) {
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isNamed(user, guest::kDynamicSlice) && user->getNumResults() == 1 &&
        use.getOperandNumber() == 0) {
      std::optional<CountedLoop> loop =
          getCountedLoop(user->getParentOp(), provenances);
      Value index =
          loop && user->getBlock() == &loop->getBody()
              ? getLayerIndex(user, typeOf(value), typeOf(user->getResult(0)),
                              1, provenances)
              : Value();
      if (index && isIndexBelow(index, stack.loop.trips, *loop, provenances)) {
        stack.reads.push_back({user, index});
        continue;
      }
    }
    // Another loop has it in all iterations, and passes it on.
    if (isLoopInvariant(user, use.getOperandNumber()) &&
        user->getResult(use.getOperandNumber()).use_empty()) {
      unsigned index = use.getOperandNumber();
      if (user->getRegion(0).front().getArgument(index).use_empty()) {
        Block &body = user->getRegion(1).front();
        findReads(body.getArgument(index), stack, provenances);
        continue;
      }
    }
    // The terminator of that loop.
    if (auto argument = dyn_cast<BlockArgument>(value);
        argument && user == &argument.getOwner()->back() &&
        use.getOperandNumber() == argument.getArgNumber())
      continue;
    stack.isReadByLayer = false;
  }
}

SmallVector<LoopStack> zpp::getLoopStacks(const CountedLoop &loop,
                                          ProvenanceAnalysis &provenances) {
  SmallVector<LoopStack> stacks;
  Block &body = loop.getBody();
  for (BlockArgument argument : body.getArguments()) {
    unsigned index = argument.getArgNumber();
    Operation *update = body.back().getOperand(index).getDefiningOp();
    auto type = typeOf(argument);
    if (!update || !isNamed(update, guest::kDynamicUpdateSlice) ||
        update->getNumOperands() < 3 || update->getOperand(0) != argument ||
        update->getResultTypes() != TypeRange(argument.getType()) ||
        !argument.hasOneUse() || !update->getResult(0).hasOneUse() ||
        !loop.loop->getRegion(0).front().getArgument(index).use_empty() ||
        !type || type.getDimSize(0) != loop.trips)
      continue;
    Value at = getLayerIndex(update, type, typeOf(update->getOperand(1)), 2,
                             provenances);
    int budget = kMostIndexOps;
    std::optional<Affine> affine =
        at ? getAffine(at, loop, provenances, budget) : std::nullopt;
    if (!affine || affine->factor != 1 || affine->offset != 0)
      continue;
    LoopStack stack{loop, index, update->getOperand(1), {}};
    findReads(loop.loop->getResult(index), stack, provenances);
    stacks.push_back(std::move(stack));
  }
  return stacks;
}

void LoopStack::erase() const {
  Block &body = loop.getBody();
  Operation *update = body.back().getOperand(index).getDefiningOp();
  body.back().setOperand(index, body.getArgument(index));
  update->erase();
}

void LayerRead::replace(Value layer) const {
  Value read = slice->getResult(0);
  Operation *reshape = layer.getDefiningOp();
  if (reshape && movesData(reshape) && reshape->getNumOperands() == 1)
    for (Operation *user : llvm::make_early_inc_range(read.getUsers()))
      if (isNamed(user, guest::kReshape) &&
          user->getResultTypes() == reshape->getOperandTypes()) {
        user->replaceAllUsesWith(reshape->getOperands());
        user->erase();
      }
  read.replaceAllUsesWith(layer);
  slice->erase();
}

//===----------------------------------------------------------------------===//
// Iterations
//===----------------------------------------------------------------------===//

Value IterationRebuilder::getKnown(Value value) const {
  if (value == loop.counter)
    return index;
  if (!loop.loop->getRegion(1).isAncestor(value.getParentRegion()))
    return value;
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument && argument.getOwner() == &loop.getBody() &&
      isLoopInvariant(loop.loop, argument.getArgNumber()))
    return loop.loop->getOperand(argument.getArgNumber());
  return {};
}

bool IterationRebuilder::canRebuild(Value value) {
  llvm::SetVector<Value> pending;
  pending.insert(value);
  for (size_t i = 0; i < pending.size(); ++i) {
    if (getKnown(pending[i]))
      continue;
    Operation *op = pending[i].getDefiningOp();
    if (!op || op->getBlock() != &loop.getBody() || op->getNumRegions() > 0 ||
        !(isNamed(op, guest::kConstant) || isAllowed(op)))
      return false;
    pending.insert(op->operand_begin(), op->operand_end());
  }
  return true;
}

Value IterationRebuilder::rebuild(OpBuilder &builder, Value value) {
  SmallVector<Value> pending{value};
  while (!pending.empty()) {
    Value next = pending.back();
    if (built.contains(next)) {
      pending.pop_back();
      continue;
    }
    if (Value known = getKnown(next)) {
      // Loops may count in different types.
      if (known.getType() != next.getType()) {
        OperationState state(known.getLoc(), guest::kConvert);
        state.addOperands(known);
        state.addTypes(next.getType());
        known = builder.create(state)->getResult(0);
      }
      built[next] = known;
      continue;
    }
    Operation *op = next.getDefiningOp();
    size_t count = pending.size();
    for (Value operand : op->getOperands())
      if (!built.contains(operand))
        pending.push_back(operand);
    if (pending.size() > count)
      continue;
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, built.lookup(operand));
    Operation *again = builder.clone(*op, mapping);
    for (auto [from, to] :
         llvm::zip_equal(op->getResults(), again->getResults()))
      built[from] = to;
  }
  return built.lookup(value);
}
