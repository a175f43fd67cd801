//===- Regather.cpp - Gather weights again for the backward pass ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"
#include "Loops/LayerStacks.h"
#include "Loops/Recomputation.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

#include <map>

namespace zpp {
#define GEN_PASS_DEF_REGATHERPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
class RegatherPass : public zpp::impl::RegatherPassBase<RegatherPass> {
public:
  void runOnOperation() override {
    done.clear();
    // The gathers of each block. A block with gathers and scatters is a step or
    // one of its micro-batches.
    llvm::MapVector<Block *, SmallVector<AllGatherOp>> gathers;
    int64_t nextId = 0;
    llvm::DenseMap<int64_t, int64_t> numGathers;
    getOperation().walk([&](Operation *op) {
      if (std::optional<Origin> origin = getOrigin(op))
        nextId = std::max(nextId, origin->id + 1);
      if (auto gather = dyn_cast<AllGatherOp>(op);
          gather && !hasRole(getOrigins(op), Role::Moment)) {
        gathers[op->getBlock()].push_back(gather);
        ++numGathersOf(gather, numGathers);
      }
    });
    regatherInLoops(gathers, numGathers, nextId);
    for (auto &[block, inBlock] : gathers) {
      std::optional<llvm::DenseSet<Operation *>> forward =
          getForwardOps(*block);
      for (AllGatherOp gather : inBlock) {
        if (done.contains(gather) || numGathersOf(gather, numGathers) > 1)
          continue;
        if (!forward) {
          leaveAlone(gather, getArgument(),
                     "no gradient scatter beside it tells its forward from its "
                     "backward reads; use jax.checkpoint");
          continue;
        }
        regather(gather, *forward, nextId);
      }
    }
  }

private:
  /// The number of gathers of the weight that `gather` reads.
  static int64_t &numGathersOf(AllGatherOp gather,
                               llvm::DenseMap<int64_t, int64_t> &counts) {
    std::optional<Origin> origin = getOrigin(gather);
    return counts[origin && origin->weight >= 0 ? origin->weight : -1];
  }

  //===--------------------------------------------------------------------===//
  // Stacks of whole weights
  //===--------------------------------------------------------------------===//

  /// Returns the gather of which `layer`, in the body of a loop, is the result,
  /// cast.
  static AllGatherOp getStackedGather(Value layer) {
    while (Operation *op = layer.getDefiningOp()) {
      if (auto gather = dyn_cast<AllGatherOp>(op))
        return gather;
      if (!isa<ToLocalOp>(op) && !(movesData(op) && op->getNumOperands() == 1))
        return {};
      layer = op->getOperand(0);
    }
    return {};
  }

  /// Lets the loop of the backward pass gather weights again that the loop of
  /// the forward pass leaves to it as a stack of whole weights.
  void
  regatherInLoops(llvm::MapVector<Block *, SmallVector<AllGatherOp>> &gathers,
                  llvm::DenseMap<int64_t, int64_t> &numGathers,
                  int64_t &nextId) {
    ProvenanceAnalysis provenances;
    auto isRepeatable = [](Operation *op) {
      return isa<AllGatherOp>(op) || mayRepeat(op, Effort::Tensors);
    };
    for (auto &[block, inBlock] : gathers) {
      std::optional<CountedLoop> loop =
          block->getParentOp()
              ? getCountedLoop(block->getParentOp(), provenances)
              : std::nullopt;
      if (!loop || block != &loop->getBody())
        continue;
      // All reads of one weight in one iteration share a gather.
      std::map<std::pair<Block *, void *>, IterationValues> iterations;
      llvm::SmallDenseSet<Operation *> known;
      llvm::SetVector<Value> layers;
      for (auto [stack, reads] : getWrittenStacks(*loop, provenances)) {
        AllGatherOp gather = getStackedGather(stack.layer);
        if (!gather || numGathersOf(gather, numGathers) > 1)
          continue;
        Value layer = stack.layer;
        bool canRepeat =
            reads.areComplete && !reads.layers.empty() &&
            llvm::all_of(reads.layers, [&](const LayerRead &read) {
              return IterationValues(*loop, read.index, isRepeatable)
                  .canGet(layer);
            });
        if (!canRepeat) {
          leaveAlone(gather, getArgument(),
                     "the loop around it keeps the gathered weights of all "
                     "iterations, and not only loops that count read them; "
                     "use jax.checkpoint");
          done.insert(gather);
          continue;
        }
        for (const LayerRead &read : reads.layers) {
          IterationValues &iteration =
              iterations
                  .try_emplace(
                      {read.slice->getBlock(), read.index.getAsOpaquePointer()},
                      *loop, read.index, isRepeatable)
                  .first->second;
          // In front of all reads.
          OpBuilder builder(read.slice);
          if (Operation *index = read.index.getDefiningOp())
            builder.setInsertionPointAfter(index);
          else
            builder.setInsertionPointToStart(read.slice->getBlock());
          Value again = iteration.get(builder, stack.layer);
          AllGatherOp second = getStackedGather(again);
          if (second && known.insert(second).second) {
            setSecond(second, nextId);
            remarkRewrite(second, getArgument(),
                          "gathered again for the backward pass, which read "
                          "a stack of whole weights");
          }
          read.replace(again);
          layers.insert(again);
        }
        stack.erase();
        done.insert(gather);
      }
      eraseIfDead(layers.getArrayRef());
    }
  }

  /// Makes `second`, a copy of a gather, one of its own.
  static void setSecond(AllGatherOp second, int64_t &nextId) {
    std::optional<Origin> origin = getOrigin(second);
    if (!origin)
      return;
    origin->id = nextId++;
    origin->phase = Phase::Backward;
    origin->before.assign(origin->before.size(), 0);
    second->setAttr(kOriginAttr, getOriginAttr(second.getContext(), *origin));
  }

  //===--------------------------------------------------------------------===//
  // Weights in one block
  //===--------------------------------------------------------------------===//

  /// Returns the op of `block` that is, or contains, the definition of `value`.
  static Operation *getOpIn(Block &block, Value value) {
    Operation *op = value.getDefiningOp();
    return op ? block.findAncestorOpInBlock(*op) : nullptr;
  }

  /// Calls `visit` with all values that `op` reads, also in its regions.
  static void forEachOperand(Operation *op,
                             llvm::function_ref<void(Value)> visit) {
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        visit(operand);
    });
  }

  /// Returns the ops of `block` on which its first gradient scatter depends:
  /// the scatter whose longest path of ops before it is shortest. nullopt if
  /// there is none.
  static std::optional<llvm::DenseSet<Operation *>>
  getForwardOps(Block &block) {
    llvm::DenseMap<Operation *, int64_t> depths;
    Operation *first = nullptr;
    for (Operation &op : block) {
      int64_t depth = 0;
      forEachOperand(&op, [&](Value operand) {
        if (Operation *source = getOpIn(block, operand);
            source && source != &op)
          depth = std::max(depth, depths.lookup(source) + 1);
      });
      depths[&op] = depth;
      std::optional<Origin> origin = getOrigin(&op);
      if (origin && origin->role == Role::Gradient &&
          (!first || depth < depths[first]))
        first = &op;
    }
    if (!first)
      return std::nullopt;
    llvm::DenseSet<Operation *> ancestors;
    SmallVector<Operation *> worklist{first};
    while (!worklist.empty())
      forEachOperand(worklist.pop_back_val(), [&](Value operand) {
        Operation *source = getOpIn(block, operand);
        if (source && ancestors.insert(source).second)
          worklist.push_back(source);
      });
    return ancestors;
  }

  /// If the reader of `use` only casts it or passes it on unchanged, the
  /// resulting value; otherwise null.
  static Value getPassed(OpOperand &use) {
    Operation *op = use.getOwner();
    if (movesData(op) && !isJoin(op) && use.getOperandNumber() == 0 &&
        op->getNumOperands() == 1)
      return op->getResult(0);
    if (isBarrier(op) || isLoopInvariant(op, use.getOperandNumber()))
      return op->getResult(use.getOperandNumber());
    return {};
  }

  /// Gives the readers of `gather` that are not forward ops a gather of their
  /// own.
  void regather(AllGatherOp gather, const llvm::DenseSet<Operation *> &forward,
                int64_t &nextId) {
    Block &block = *gather->getBlock();
    auto source = gather.getOperand().getDefiningOp<FromLocalOp>();
    if (!source ||
        !llvm::all_of(gather->getUsers(), llvm::IsaPred<ToLocalOp>)) {
      leaveAlone(gather, getArgument(),
                 "it does not gather one local tensor into another");
      return;
    }
    // The gathered tensor, and casts and copies of it in the forward pass.
    SmallVector<Value> held;
    for (Operation *user : gather->getUsers())
      held.push_back(user->getResult(0));
    SmallVector<OpOperand *> late;
    Operation *earliest = nullptr;
    bool hasForwardReads = false;
    for (size_t i = 0; i < held.size(); ++i)
      for (OpOperand &use : held[i].getUses()) {
        Operation *reader = block.findAncestorOpInBlock(*use.getOwner());
        if (forward.contains(reader)) {
          Value passed = use.getOwner() == reader ? getPassed(use) : Value();
          if (passed)
            held.push_back(passed);
          // A loop also reads a value that it passes on.
          hasForwardReads |= !passed || isWhile(reader);
          continue;
        }
        late.push_back(&use);
        if (!earliest || reader->isBeforeInBlock(earliest))
          earliest = reader;
      }
    if (late.empty() || !hasForwardReads) {
      if (late.empty())
        gather->setAttr(kForwardOnlyAttr, UnitAttr::get(&getContext()));
      leaveAlone(gather, getArgument(),
                 late.empty() ? "the backward pass does not read it"
                              : "the forward pass does not read it");
      return;
    }

    OpBuilder builder(earliest);
    Location loc = gather.getLoc();
    // Tie it to a value of the backward pass, so that it cannot move up.
    SmallVector<Value> tied{source.getLocal()};
    OpOperand *anchor = nullptr;
    for (OpOperand &operand : earliest->getOpOperands())
      if (Operation *op = getOpIn(block, operand.get()))
        if (!forward.contains(op) && op != gather &&
            operand.get().getDefiningOp<ToLocalOp>() == nullptr)
          anchor = &operand;
    if (anchor)
      tied.push_back(anchor->get());
    Operation *barrier = createBarrier(builder, loc, tied);
    if (anchor)
      anchor->set(barrier->getResult(1));
    Value shard = FromLocalOp::create(
        builder, loc, gather.getOperand().getType(), barrier->getResult(0));
    auto second = AllGatherOp::create(builder, loc, gather.getType(), shard,
                                      gather.getAlong());
    copySource(gather, second);
    copyOrigin(gather, second);
    setSecond(second, nextId);
    Value local = ToLocalOp::create(builder, loc,
                                    gather.getType().getLocalType(), second);
    // Repeat the casts, and skip loops that pass on what they make.
    Recomputation again([&](OpBuilder &builder, Value value) -> Value {
      Operation *op = value.getDefiningOp();
      if (llvm::is_contained(gather->getUsers(), op))
        return local;
      if (!isWhile(op))
        return {};
      unsigned number = cast<OpResult>(value).getResultNumber();
      return again.get(builder, op->getOperand(number));
    });
    for (OpOperand *use : late)
      use->set(again.get(builder, use->get()));
    remarkRewrite(second, getArgument(),
                  "gathered again for the backward pass");
  }

  /// Gathers of which loops of the backward pass have one of their own.
  llvm::DenseSet<Operation *> done;
};
} // namespace
