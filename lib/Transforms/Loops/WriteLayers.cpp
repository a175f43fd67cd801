//===- WriteLayers.cpp - Short loops over layers as layers (4.1.1) --------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "Loops/LayerStacks.h"
#include "Loops/LoopPlan.h"
#include "Loops/Recomputation.h"
#include "Loops/WriteLoops.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// True if a product, a loop or a collective is among what `value` follows
/// from. Masks and zeros, which loops take too, are no such values: a barrier
/// would keep XLA from fusing them (X6).
static bool isActivation(Value value) {
  llvm::SetVector<Value> sources = getSources(value, *value.getParentBlock());
  return llvm::any_of(sources, [](Value source) {
    Operation *op = source.getDefiningOp();
    return op && (op->getNumRegions() > 0 || isa<WaitOp>(op) ||
                  HeavyOps::isHeavyItself(op));
  });
}

/// True if `value` is an argument of its function or computation, possibly cast
/// or rearranged.
static bool isInput(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!movesData(op) || isJoin(op))
      return false;
    value = op->getOperand(0);
  }
  return true;
}

/// Replaces `values` at `indices` by what one barrier makes of them.
static void addBarrier(OpBuilder &builder, Location loc,
                       ArrayRef<unsigned> indices,
                       MutableArrayRef<Value> values) {
  if (indices.empty())
    return;
  SmallVector<Value> operands = llvm::map_to_vector(
      indices, [&](unsigned index) { return values[index]; });
  Operation *barrier = createBarrier(builder, loc, operands);
  for (auto [index, result] : llvm::zip_equal(indices, barrier->getResults()))
    values[index] = result;
}

/// Returns the ops of the body of `loop` that only store gradients in stacks:
/// updates of a stack with what a wait returns, and casts and products in
/// between.
static llvm::DenseSet<Operation *> getGradientStores(WhileView loop) {
  llvm::DenseSet<Operation *> stores;
  for (unsigned index = 0; index < loop.getNumCarried(); ++index) {
    std::optional<LayerWrite> write = getLayerWrite(loop, index);
    if (!write || !write->isOnlyUse)
      continue;
    llvm::SetVector<Operation *> ops;
    ops.insert(write->update);
    bool storesGradient = false;
    for (size_t i = 0; i < ops.size(); ++i)
      for (Value operand : ops[i]->getOperands()) {
        Operation *op = operand.getDefiningOp();
        if (auto wait = dyn_cast_or_null<WaitOp>(op)) {
          storesGradient |= hasRole(wait.getStart(), Role::Gradient);
          continue;
        }
        if (op && op->getBlock() == &loop.getBody() &&
            mayRepeat(op, Effort::Tensors) &&
            llvm::all_of(op->getUsers(),
                         [&](Operation *user) { return ops.contains(user); }))
          ops.insert(op);
      }
    if (storesGradient)
      stores.insert_range(ops);
  }
  return stores;
}

/// Moves `builder` up to the first place of its block that comes after
/// `values`.
static void setAfterAll(OpBuilder &builder, ArrayRef<Value> values) {
  Block *block = builder.getInsertionBlock();
  Operation *last = nullptr;
  for (Value value : values) {
    Operation *op = value.getDefiningOp();
    if (op && op->getBlock() == block && (!last || last->isBeforeInBlock(op)))
      last = op;
  }
  if (last)
    builder.setInsertionPointAfter(last);
  else
    builder.setInsertionPointToStart(block);
}

/// The values that enter a loop.
struct Entering {
  /// Those of the first iteration.
  SmallVector<Value> values;
  /// Those that XLA is not to know in each iteration (X10): its number, and
  /// inputs of the step.
  std::vector<SmallVector<Value>> hidden;
};

/// Hides what enters `loop` by barriers in front of it.
static Entering enter(OpBuilder &builder, WhileView loop,
                      const LoopCounter &counter) {
  Location loc = loop->getLoc();
  Entering entering{SmallVector<Value>(loop->getOperands()), {}};
  SmallVector<unsigned> activations, inputs{counter.index};
  for (auto [index, value] : llvm::enumerate(entering.values)) {
    if (index == counter.index)
      continue;
    if (isActivation(value))
      activations.push_back(index);
    else if (loop.isInvariant(index) && isInput(value))
      inputs.push_back(index);
  }
  addBarrier(builder, loc, activations, entering.values);
  // As early as possible: a gather may start in front of the loop. The counter
  // has a new value in each iteration.
  OpBuilder::InsertionGuard guard(builder);
  setAfterAll(builder, llvm::map_to_vector(ArrayRef(inputs).drop_front(),
                                           [&](unsigned index) {
                                             return entering.values[index];
                                           }));
  RankedTensorType type = getTensorType(entering.values[counter.index]);
  for (int64_t trip : llvm::seq(counter.trips)) {
    SmallVector<Value> &hidden = entering.hidden.emplace_back(entering.values);
    hidden[counter.index] =
        createIndex(builder, loc, type, counter.begin + trip * counter.step);
    addBarrier(builder, loc, inputs, hidden);
  }
  return entering;
}

/// Clones the body of `loop` for each iteration, and `stores` after all others.
static std::vector<IRMapping>
cloneIterations(OpBuilder &builder, WhileView loop, const LoopCounter &counter,
                const Entering &entering,
                const llvm::DenseSet<Operation *> &stores) {
  std::vector<IRMapping> mappings(counter.trips);
  for (bool areStores : {false, true})
    for (auto [trip, mapping] : llvm::enumerate(mappings)) {
      for (BlockArgument argument : loop.getBody().getArguments()) {
        unsigned index = argument.getArgNumber();
        if (mapping.contains(argument))
          continue;
        bool isHidden = index == counter.index || loop.isInvariant(index);
        Value value = entering.hidden[trip][index];
        if (trip > 0 && !isHidden) {
          Value next = loop.getNext(index);
          // Other values of the loop are known once their op is cloned.
          if (loop.contains(next) && !mappings[trip - 1].contains(next))
            continue;
          value = mappings[trip - 1].lookupOrDefault(next);
        }
        mapping.map(argument, value);
      }
      for (Operation &op : loop.getBody())
        if (&op != loop.getYield() && stores.contains(&op) == areStores)
          builder.clone(op, mapping);
    }
  return mappings;
}

static int64_t getNumLayers(const LayerWrite &write) {
  return cast<ShapedType>(write.update->getResult(0).getType()).getDimSize(0);
}

/// Notes which layers the iterations read and write.
static void numberLayers(const CountedLoop &counted,
                         ArrayRef<IRMapping> mappings,
                         ProvenanceAnalysis &provenances) {
  Builder builder(counted.loop->getContext());
  for (Operation &op : counted.getBody()) {
    Value index = getReadLayer(&op);
    if (!index)
      index = getWrittenLayer(&op);
    auto indices =
        index ? getIndices(index, counted, provenances) : std::nullopt;
    if (!indices)
      continue;
    for (auto [number, mapping] : llvm::enumerate(mappings))
      mapping.lookup(op.getResult(0))
          .getDefiningOp()
          ->setDiscardableAttr(kLayerNumberAttr,
                               builder.getI64IntegerAttr(indices->at(number)));
  }
}

/// Has an iteration read its layer of a stack in front of the write of the
/// iteration before, which writes another one. A gather that adds differences
/// to what is held can start in that iteration then.
static void readAhead(const CountedLoop &counted, ArrayRef<IRMapping> mappings,
                      ProvenanceAnalysis &provenances) {
  WhileView loop = counted.loop;
  for (unsigned index = 0; index < loop.getNumCarried(); ++index) {
    std::optional<LayerWrite> write = getLayerWrite(loop, index);
    // Indices after the end would be those of the last layer.
    auto indices =
        write ? getIndices(write->index, counted, provenances) : std::nullopt;
    if (!indices || !indices->areDistinct() ||
        !indices->areBelow(getNumLayers(*write)))
      continue;
    for (Operation *read : loop.getCarried(index).getUsers()) {
      if (getReadLayer(read) != write->index)
        continue;
      for (size_t trip = 1; trip < mappings.size(); ++trip) {
        Value layer = mappings[trip].lookup(read->getResult(0));
        Value before = mappings[trip - 1].lookup(write->update->getOperand(0));
        layer.getDefiningOp()->setOperand(0, before);
      }
    }
  }
}

/// A sum of a stack that an outer loop carries and of one that a loop leaves.
struct StackedSum {
  Operation *add;
  /// The number of the operand that the loop leaves.
  unsigned left;
  LayerWrite write;
};

/// Returns the sums of stacks that `counted` leaves, each layer written once.
/// What the outer loop carries nothing else reads.
static SmallVector<StackedSum> findSums(const CountedLoop &counted,
                                        ProvenanceAnalysis &provenances) {
  WhileView loop = counted.loop;
  SmallVector<StackedSum> sums;
  if (!isWhile(loop->getParentOp()))
    return sums;
  for (unsigned index = 0; index < loop.getNumCarried(); ++index) {
    OpResult result = loop.getResult(index);
    if (!result.hasOneUse())
      continue;
    OpOperand &use = *result.use_begin();
    Operation *add = use.getOwner();
    if (!isNamed(add, guest::kAdd) || add->getBlock() != loop->getBlock())
      continue;
    Value carried = add->getOperand(1 - use.getOperandNumber());
    auto argument = dyn_cast<BlockArgument>(carried);
    if (!argument || argument.getOwner() != add->getBlock() ||
        !argument.hasOneUse())
      continue;
    if (auto write = getWriteOfAll(counted, index, provenances))
      sums.push_back({add, use.getOperandNumber(), *write});
  }
  return sums;
}

/// Has each iteration add its layer to the stack that the outer loop carries.
/// The other stack is gone: XLA would have both in memory (X11), and write the
/// layers as late as it can.
static void addInPlace(const StackedSum &sum, ArrayRef<IRMapping> mappings) {
  auto [add, left, write] = sum;
  Value stack = add->getOperand(1 - left);
  for (const IRMapping &mapping : mappings) {
    Operation *update =
        mapping.lookup(write.update->getResult(0)).getDefiningOp();
    OpBuilder builder(update);
    Value layer = update->getOperand(1);
    RankedTensorType type = getTensorType(layer);
    Value before = createReshape(builder, add->getLoc(),
                                 createLayerSlice(builder, add->getLoc(), stack,
                                                  mapping.lookup(write.index)),
                                 type.getShape());
    Operation *added = builder.clone(*add);
    added->setOperand(left, layer);
    added->setOperand(1 - left, before);
    added->getResult(0).setType(type);
    update->setOperand(0, stack);
    update->setOperand(1, added->getResult(0));
    stack = update->getResult(0);
  }
  add->getResult(0).replaceAllUsesWith(stack);
  add->erase();
}

/// Notes that each call of what `loop` starts keeps what it gathers, rather
/// than each iteration of the loop.
static void countKeptOnce(WhileView loop) {
  auto unit = UnitAttr::get(loop->getContext());
  for (auto start : loop.getBody().getOps<StartOp>())
    if (FunctionOpInterface function = getStartedFunction(start))
      function->walk([&](Operation *op) {
        if (op->hasAttr(kKeepAttr))
          op->setAttr(kKeepAttr, unit);
      });
}

/// Replaces `loop` by its iterations, one after the other.
///
/// XLA sees as little of the neighbors of an iteration (X10) as in a loop.
/// Barriers hide activations: XLA would find that a backward pass computes
/// again what the forward pass has computed, and keep it. They hide the numbers
/// of the iterations with the stacks of weights, too: it would cast all layers
/// before the first one, and fuse slices with the starts that read them. These
/// come before all iterations, so that a gather may start in an earlier one.
/// For the same reason gradients are stored in their stacks after all
/// iterations.
static void unroll(WhileView loop, const LoopCounter &counter,
                   ProvenanceAnalysis &provenances) {
  countKeptOnce(loop);
  llvm::DenseSet<Operation *> stores = getGradientStores(loop);
  OpBuilder builder(loop.getOperation());
  Entering entering = enter(builder, loop, counter);
  std::vector<IRMapping> mappings =
      cloneIterations(builder, loop, counter, entering, stores);
  SmallVector<StackedSum> sums;
  if (auto counted = getCountedLoop(loop.getOperation(), provenances)) {
    numberLayers(*counted, mappings, provenances);
    readAhead(*counted, mappings, provenances);
    sums = findSums(*counted, provenances);
  }
  // The sums that the numbers take the place of, and stacks without readers.
  SmallVector<Value> replaced(loop->getOperands());
  for (IRMapping &mapping : mappings)
    replaced.push_back(mapping.lookupOrDefault(loop.getNext(counter.index)));
  for (unsigned index = 0; index < loop.getNumCarried(); ++index) {
    OpResult result = loop.getResult(index);
    if (result.use_empty())
      continue;
    if (index == counter.index)
      result.replaceAllUsesWith(
          createIndex(builder, loop->getLoc(), getTensorType(result),
                      counter.begin + counter.trips * counter.step));
    else if (loop.isInvariant(index))
      result.replaceAllUsesWith(entering.values[index]);
    else
      result.replaceAllUsesWith(
          mappings.back().lookupOrDefault(loop.getNext(index)));
  }
  for (const StackedSum &sum : sums)
    addInPlace(sum, mappings);
  loop->erase();
  eraseIfDead(replaced);
}

void zpp::writeLayers(ModuleOp module, ArrayRef<WhileView> loops) {
  if (loops.empty())
    return;
  ProvenanceAnalysis provenances;
  SmallVector<LoopCounter> counters =
      llvm::map_to_vector(loops, [&](WhileView loop) {
        return *getLoopCounter(loop, provenances);
      });
  // An input may claim any number.
  eraseLayerNumbers(module);
  for (const auto &[loop, counter] : llvm::zip_equal(loops, counters))
    unroll(loop, counter, provenances);
  splitStacks(module);
  eraseLayerNumbers(module);
}
