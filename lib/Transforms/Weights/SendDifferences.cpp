//===- SendDifferences.cpp - Weights as differences to what is held -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CarriedState.h"
#include "Formats.h"
#include "LocalValues.h"
#include "Loops/LayerStacks.h"
#include "Loops/LoopPlan.h"
#include "mlir/IR/PatternMatch.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Provenance.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/StablehloBuilder.h"
#include "zpp/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace zpp {
#define GEN_PASS_DEF_SENDDIFFERENCESPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {
/// A gather whose results are kept for the next step.
struct KeptGather {
  AllGatherOp gather;
  /// The stack that its loop leaves, a layer in each iteration; none if it is
  /// in no loop.
  std::optional<WrittenStack> stack;
  /// The format of its differences; null if it moves its values as they are,
  /// because of its floor. It keeps its state nevertheless, which is then the
  /// same whatever the floors.
  QuantAttr quant;
  /// The entry of `zpp.state` that says what it gathers parts of.
  SmallVector<NamedAttribute> source = {};

  FromLocalOp getSource() const {
    return AllGatherOp(gather).getOperand().getDefiningOp<FromLocalOp>();
  }
  /// Returns the op that stands for it in the manual computation.
  Operation *getTop() const {
    return stack ? stack->loop.loop.getOperation()
                 : AllGatherOp(gather).getOperation();
  }
  /// Returns the type of what a device has of `shard`: it, or a stack of it.
  RankedTensorType getWholeType(ShardType shard) const {
    RankedTensorType local = shard.getLocalType();
    if (!stack)
      return local;
    SmallVector<int64_t> shape{stack->loop.trips};
    llvm::append_range(shape, local.getShape());
    return local.clone(shape);
  }
};

/// State of a gather.
struct Carried {
  /// Its own part and what is held, in turn for each layer if a stack is split.
  SmallVector<CarriedTensor> tensors;
  /// True if each layer of a stack is by itself.
  bool isSplit = false;

  /// Returns what the step before has left of `which`: 0 for own, 1 for held.
  Value getBefore(RewriterBase &builder, Location loc, unsigned which) const {
    auto get = [&](size_t number) {
      return UnrealizedConversionCastOp(tensors[number].before).getResult(0);
    };
    if (!isSplit)
      return get(which);
    StablehloBuilder b(builder, loc);
    SmallVector<Value> layers;
    for (size_t number = which; number < tensors.size(); number += 2) {
      SmallVector<int64_t> shape(StablehloBuilder::shapeOf(get(number)));
      shape.insert(shape.begin(), 1);
      layers.push_back(b.reshape(get(number), shape));
    }
    return b.concatenate(layers, 0);
  }

  /// Has the step leave `value` of `which`.
  void setAfter(OpBuilder &builder, Value value, unsigned which) {
    if (!isSplit) {
      tensors[which].after = value;
      return;
    }
    auto indexType = RankedTensorType::get({}, builder.getI32Type());
    for (size_t number = which; number < tensors.size(); number += 2)
      tensors[number].after = createLayerSlice(
          builder, value.getLoc(), value,
          createIndex(builder, value.getLoc(), indexType, number / 2));
  }
};

/// The local parts of a device of what is sent and of what is gathered.
struct OwnAndHeld {
  Value own, held;
};

class SendDifferencesPass
    : public zpp::impl::SendDifferencesPassBase<SendDifferencesPass> {
public:
  using SendDifferencesPassBase::SendDifferencesPassBase;

  void runOnOperation() override {
    FailureOr<QuantAttr> quant = parseFormat(getOperation(), format, block);
    if (failed(quant))
      return signalPassFailure();
    if (!*quant) {
      emitError(getOperation().getLoc(),
                "expected a format i8 or i4 of differences, but got none");
      return signalPassFailure();
    }
    // All is decided while nothing has changed.
    llvm::MapVector<Operation *, SmallVector<KeptGather>> gathers;
    SmallVector<std::pair<AllGatherOp, LeftAlone>> refused;
    ManualComputations manuals;
    getOperation().walk([&](AllGatherOp gather) {
      if (!gather->hasAttr(kKeepAttr) || gather.getType().getQuant())
        return;
      KeptGather kept{gather, getKeptStack(gather), getWide(gather, *quant)};
      Decision<> decision = maySendDifference(kept, *quant, manuals);
      if (!decision) {
        refused.push_back({gather, decision.getLeftAlone()});
        return;
      }
      kept.source = describeSource(kept);
      gathers[kept.getTop()->getParentOp()].push_back(std::move(kept));
    });
    FailureOr<QuantAttr> whole = parseFormat(getOperation(), "i8", block);
    if (failed(whole))
      return signalPassFailure();
    for (auto &[gather, why] : refused) {
      leaveAlone(gather, getArgument(), why, kGetsDifferences);
      sendWhole(gather, widen(*whole, gather.getOperation()));
    }
    for (auto &[manual, group] : gathers)
      rewrite(manual, group);
  }

private:
  /// Returns the stack in which the loop around `gather` keeps what it gathers.
  std::optional<WrittenStack> getKeptStack(AllGatherOp gather) {
    std::optional<CountedLoop> loop =
        getCountedLoop(gather->getParentOp(), provenances);
    if (!loop || gather->getBlock() != &loop->getBody())
      return std::nullopt;
    for (unsigned index = 0; index < loop->loop.getNumCarried(); ++index) {
      std::optional<WrittenStack> stack =
          getWrittenStack(*loop, index, provenances);
      if (stack && getGathered(*stack) == gather)
        return stack;
    }
    return std::nullopt;
  }

  /// Whether differences of what `kept` moves may be sent, or whole values
  /// must be.
  static Decision<> maySendDifference(const KeptGather &kept, QuantAttr quant,
                                      ManualComputations &manuals) {
    AllGatherOp gather = kept.gather;
    ShardType from = gather.getOperand().getType();
    Type element = from.getGlobal().getElementType();
    if (!gather.getOperand().getDefiningOp<FromLocalOp>())
      return LeftAlone("its operand is no local tensor");
    if (!isQuantizable(element))
      return LeftAlone("its elements are no floating-point numbers to "
                       "subtract");
    if (SliceBytes bytes(from, quant); !bytes.isShorter())
      return bytes.getReason("as a difference");
    if (!getCarryingFunction(kept.getTop(), manuals))
      return LeftAlone(kCarryReason.str());
    return Yes();
  }

  /// Returns the format of differences of what `gather` moves: `quant`, or a
  /// wider one that its floor asks for; null if it is to move its values as
  /// they are, or if that is as short.
  static QuantAttr getWide(AllGatherOp gather, QuantAttr quant) {
    QuantAttr wide = widen(quant, gather.getOperation());
    return wide && SliceBytes(gather.getOperand().getType(), wide).isShorter()
               ? wide
               : QuantAttr();
  }

  /// Has `gather` move its values in int8, if that is shorter and not null.
  static void sendWhole(AllGatherOp gather, QuantAttr quant) {
    ShardType from = gather.getOperand().getType();
    Type element = from.getGlobal().getElementType();
    if (quant && isQuantizable(element) && SliceBytes(from, quant).isShorter())
      encodeGather(gather, quant, kKeepAttr);
  }

  /// Entries of `zpp.state` that say which elements of a weight, or of a stack
  /// of them, a device keeps: the `shape`, the partitioned `dim`, and for each
  /// factor of it, the most significant first, its size and the difference of
  /// the ids of devices that are neighbors along it, 0 if it is held whole.
  static SmallVector<NamedAttribute> describe(const KeptGather &kept,
                                              ShardType shard, bool isOfLayer) {
    Builder builder(shard.getContext());
    Mesh mesh = shard.getMesh().getMesh();
    SmallVector<int64_t> factors;
    for (auto [factor, size] :
         llvm::zip_equal(shard.getFactors(), shard.getFactorSizes()))
      factors.append(
          {size, factor.isWhole()
                     ? 0
                     : mesh.getStride(*factor.getAxis().resolve(mesh))});
    SmallVector<int64_t> shape;
    if (kept.stack && !isOfLayer)
      shape.push_back(kept.stack->loop.trips);
    int64_t dim = shard.getDim() + shape.size();
    llvm::append_range(shape, shard.getGlobal().getShape());
    SmallVector<NamedAttribute> entries{
        builder.getNamedAttr("dim", builder.getI64IntegerAttr(dim)),
        builder.getNamedAttr("factors", builder.getDenseI64ArrayAttr(factors)),
        builder.getNamedAttr("shape", builder.getDenseI64ArrayAttr(shape))};
    llvm::append_range(entries, kept.source);
    return entries;
  }

  /// Returns the argument of the step that `kept` gathers parts of, as an entry
  /// of `zpp.state`; none if it gathers something computed.
  SmallVector<NamedAttribute> describeSource(const KeptGather &kept) {
    Provenance provenance = provenances.get(kept.getSource().getLocal());
    if (!provenance.isStepInput)
      return {};
    Builder builder(&getContext());
    int64_t number = cast<BlockArgument>(provenance.root).getArgNumber();
    return {builder.getNamedAttr("source", builder.getI64IntegerAttr(number))};
  }

  /// Returns what is carried of `kept` from step to step.
  Carried createCarried(const KeptGather &kept) {
    Carried carried;
    // Loops that become layers leave no stacks, which would be copied.
    carried.isSplit =
        kept.stack && LoopPlan::get(kept.stack->loop.loop).layers > 0;
    ShardType from = kept.getSource().getType();
    ShardType to = AllGatherOp(kept.gather).getType();
    auto add = [&](ShardType shard, StringRef kind) {
      UnrealizedConversionCastOp before;
      if (!start)
        before = createBefore(kept.getTop(), carried.isSplit
                                                 ? shard.getLocalType()
                                                 : kept.getWholeType(shard));
      carried.tensors.push_back(
          {before, {}, kind, describe(kept, shard, carried.isSplit)});
    };
    for (int64_t layers = carried.isSplit ? kept.stack->loop.trips : 1; layers;
         --layers) {
      add(from, "own");
      add(to, "held");
    }
    return carried;
  }

  /// Has the gathers of `manual` send differences to what the step before has
  /// left, or leave what the next step takes.
  void rewrite(Operation *manual, ArrayRef<KeptGather> group) {
    SmallVector<Carried> all = llvm::map_to_vector(
        group, [&](const KeptGather &kept) { return createCarried(kept); });
    llvm::MapVector<Operation *, SmallVector<size_t>> byLoop;
    for (auto [number, kept] : llvm::enumerate(group)) {
      if (kept.stack) {
        byLoop[kept.getTop()].push_back(number);
        continue;
      }
      IRRewriter builder(kept.gather);
      Location loc = AllGatherOp(kept.gather).getLoc();
      OwnAndHeld before;
      if (!start)
        before = {all[number].getBefore(builder, loc, 0),
                  all[number].getBefore(builder, loc, 1)};
      OwnAndHeld after = keep(kept, before);
      all[number].setAfter(builder, after.own, 0);
      all[number].setAfter(builder, after.held, 1);
    }
    for (auto &[loop, numbers] : byLoop)
      rewriteLoop(loop, numbers, group, all);
    SmallVector<CarriedTensor> tensors;
    for (const Carried &carried : all)
      llvm::append_range(tensors, carried.tensors);
    carryState(manual, tensors);
  }

  /// The same for the gathers of `loop`, which have these `numbers`: each
  /// iteration takes a layer from the stacks that the step before has left, and
  /// writes it there again.
  void rewriteLoop(Operation *loop, ArrayRef<size_t> numbers,
                   ArrayRef<KeptGather> group, MutableArrayRef<Carried> all) {
    IRRewriter builder(loop);
    SmallVector<Value> inits, replaced;
    for (size_t number : numbers) {
      const KeptGather &kept = group[number];
      if (start) {
        inits.push_back(
            createZeros(builder, loop->getLoc(),
                        kept.getWholeType(kept.getSource().getType())));
        continue;
      }
      inits.push_back(all[number].getBefore(builder, loop->getLoc(), 0));
      OpOperand &held = loop->getOpOperand(kept.stack->index);
      replaced.push_back(held.get());
      held.set(all[number].getBefore(builder, loop->getLoc(), 1));
    }
    unsigned first = loop->getNumResults();
    Value counter = group[numbers.front()].stack->loop.counter;
    WhileView extended = extendLoop(loop, inits);
    SmallVector<Value> next;
    for (auto [added, number] : llvm::enumerate(numbers)) {
      const KeptGather &kept = group[number];
      Location loc = AllGatherOp(kept.gather).getLoc();
      Value own = extended.getCarried(first + added);
      OwnAndHeld before;
      if (!start && kept.quant) {
        builder.setInsertionPoint(kept.gather);
        before = {createLayerSlice(builder, loc, own, counter),
                  createLayerSlice(builder, loc,
                                   extended.getCarried(kept.stack->index),
                                   counter)};
      }
      Value layer = keep(kept, before).own;
      builder.setInsertionPoint(extended.getYield());
      next.push_back(createLayerUpdate(builder, loc, own, layer, counter));
    }
    extended.addNext(next);
    builder.setInsertionPointAfter(extended.getOperation());
    for (auto [added, number] : llvm::enumerate(numbers)) {
      all[number].setAfter(builder, extended.getResult(first + added), 0);
      all[number].setAfter(builder,
                           extended.getResult(group[number].stack->index), 1);
    }
    eraseIfDead(replaced);
  }

  /// Returns what the next step takes of `kept`: what it gathers or, `before`
  /// given, the sum of that and the difference, which takes the place of the
  /// gather.
  OwnAndHeld keep(const KeptGather &kept, OwnAndHeld before) {
    AllGatherOp gather = kept.gather;
    FromLocalOp source = kept.getSource();
    IRRewriter builder(gather);
    Location loc = gather.getLoc();
    if (start || !kept.quant) {
      if (!start)
        remarkFloor(gather, getArgument());
      builder.setInsertionPointAfter(gather);
      return {source.getLocal(), getLocal(builder, loc, gather)};
    }
    ShardType from = source.getType(), to = gather.getType();
    Value own = FromLocalOp::create(builder, loc, from, before.own);
    Value sent =
        EncodeOp::create(builder, loc, from.withQuant(kept.quant), source, own);
    auto moved = AllGatherOp::create(builder, loc, to.withQuant(kept.quant),
                                     sent, gather.getAlong());
    copyOrigin(gather, moved);
    addGets(moved, kGetsDifferences);
    Value held = FromLocalOp::create(builder, loc, to, before.held);
    // The owner adds to its own part what it has sent, as everyone does.
    Value arrived =
        getLocal(builder, loc, DecodeOp::create(builder, loc, to, moved, held));
    Value ownAfter =
        getLocal(builder, loc, DecodeOp::create(builder, loc, from, sent, own));
    remarkRewrite(moved, getArgument(), "sends the difference to what is held");
    replaceWithLocal(builder, gather, arrived);
    return {ownAfter, arrived};
  }

  ProvenanceAnalysis provenances;
};
} // namespace
