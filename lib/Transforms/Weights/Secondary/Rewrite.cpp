//===- Rewrite.cpp - The rewrites that keep secondary partitions ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Rewrite.h"

#include "LocalValues.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Remarks.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

void SecondaryRewriter::run(ArrayRef<WeightDecision> decisions) {
  // The loops that keep partitions are rebuilt last: other plans refer to them.
  llvm::MapVector<Operation *, SmallVector<const SecondaryPlan *>> byLoop;
  for (const WeightDecision &decision : decisions) {
    if (!decision.plan) {
      for (AllGatherOp gather : decision.group)
        leaveAlone(gather, pass, decision.plan.getLeftAlone(), kGetsSecondary);
      continue;
    }
    const SecondaryPlan &plan = *decision.plan;
    if (plan.isRepeated)
      remarkMissed(AllGatherOp(plan.group.front()), pass, "in-each-iteration")
          << "it crosses the slower tiers in each iteration of a loop, which "
             "computes it; what does not change can be computed in front of "
             "the loop";
    if (auto *block = std::get_if<KeepInBlock>(&plan.place.way))
      keepInBlock(plan, *block);
    else if (auto *stack = std::get_if<HoistStack>(&plan.place.way))
      hoistStack(plan, *stack);
    else
      byLoop[std::get<KeepInLoop>(plan.place.way).loop.loop.getOperation()]
          .push_back(&plan);
  }
  for (auto &[loop, plans] : byLoop)
    keepInLoop(loop, plans);
  for (auto &[barrier, additions] : barriers)
    extendBarrier(barrier, additions);
  openPassages(module, passages);
}

//===----------------------------------------------------------------------===//
// Gathers
//===----------------------------------------------------------------------===//

/// A gather of `operand` that belongs to the same collective of the step as
/// `like`.
static AllGatherOp createGather(OpBuilder &builder, AllGatherOp like,
                                Value operand, ArrayAttr along) {
  auto type = cast<ShardType>(operand.getType());
  auto result = AllGatherOp::create(builder, like.getLoc(),
                                    type.withWhole(along), operand, along);
  copyOrigin(like, result);
  return result;
}

Value SecondaryRewriter::gatherInner(OpBuilder &builder, AllGatherOp like,
                                     Value operand, ArrayAttr inner) {
  if (!inner.empty())
    return createGather(builder, like, operand, inner);
  // Recorded twice where a gather over the outer axes stands for it.
  recordRemoved(like);
  return operand;
}

AllGatherOp SecondaryRewriter::gatherOuter(OpBuilder &builder, AllGatherOp like,
                                           ShardType primary, Value local,
                                           ArrayAttr outer) {
  Location loc = like.getLoc();
  Value shard =
      FromLocalOp::create(builder, loc, primary.withQuant(QuantAttr()), local);
  if (primary.getQuant())
    shard = EncodeOp::create(builder, loc, primary, shard, /*held=*/Value());
  return createGather(builder, like, shard, outer);
}

void SecondaryRewriter::replaceGather(OpBuilder &builder, AllGatherOp gather,
                                      Value value) {
  // Both types are whole and stand for the same local tensor. They differ
  // only in axes that were cut in two.
  if (value.getType() != gather.getType()) {
    // Only decodes read an encoded tensor; change their operand type.
    for (Operation *user : llvm::make_early_inc_range(gather->getUsers())) {
      auto decode = dyn_cast<DecodeOp>(user);
      if (!decode)
        continue;
      builder.setInsertionPoint(decode);
      Value decoded = DecodeOp::create(
          builder, decode.getLoc(),
          cast<ShardType>(value.getType()).withQuant(QuantAttr()), value,
          /*held=*/Value());
      replaceWithLocal(builder, decode,
                       getLocal(builder, decode.getLoc(), decoded));
    }
    if (!gather->use_empty()) {
      builder.setInsertionPoint(gather);
      Value local = getLocal(builder, gather.getLoc(), value);
      return replaceWithLocal(builder, gather, local);
    }
  } else if (auto source = value.getDefiningOp<FromLocalOp>()) {
    // The group is one device.
    replaceWithLocal(builder, gather, source.getLocal());
    return eraseIfDead(value);
  } else {
    gather.replaceAllUsesWith(value);
  }
  eraseDeadChain(gather);
}

bool SecondaryRewriter::isRead(AllGatherOp gather) {
  return !llvm::all_of(gather->getUsers(), [](Operation *user) {
    return user->getNumResults() > 0 && user->use_empty();
  });
}

void SecondaryRewriter::gatherLayer(OpBuilder &builder, AllGatherOp gather,
                                    Value layer, ShardType type,
                                    ArrayAttr inner) {
  Value shard = FromLocalOp::create(builder, gather.getLoc(), type, layer);
  replaceGather(builder, gather, gatherInner(builder, gather, shard, inner));
}

void SecondaryRewriter::noteBarrier(AllGatherOp gather) {
  if (Operation *barrier = getBarrier(gather))
    (void)barriers[barrier];
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

void SecondaryRewriter::gatherWithin(AllGatherOp gather, Operation *crossed,
                                     Value local, ShardType kept,
                                     ArrayAttr inner) {
  // There would be no reader for a placeholder.
  if (!isRead(gather))
    return;
  OpBuilder builder(gather);
  noteBarrier(gather);
  Value barred;
  if (crossed) {
    // A placeholder until the barrier gets its new operand.
    auto cast = UnrealizedConversionCastOp::create(builder, gather.getLoc(),
                                                   local.getType(), local);
    barriers[crossed].push_back(cast);
    barred = cast.getResult(0);
  } else {
    barred = createBarrier(builder, gather.getLoc(), local)->getResult(0);
  }
  Value shard = FromLocalOp::create(builder, gather.getLoc(), kept, barred);
  replaceGather(builder, gather, gatherInner(builder, gather, shard, inner));
}

/// Rebuilds `barrier` with the kept partitions as additional operands and
/// without operands whose results are not read any more.
void SecondaryRewriter::extendBarrier(
    Operation *barrier, ArrayRef<UnrealizedConversionCastOp> additions) {
  SmallVector<Value> values =
      llvm::map_to_vector(additions, [](UnrealizedConversionCastOp cast) {
        return cast.getOperand(0);
      });
  SmallVector<Value> dropped;
  Operation *extended = rebuildBarrier(barrier, values, &dropped);
  for (auto [index, addition] : llvm::enumerate(additions)) {
    UnrealizedConversionCastOp cast = addition;
    size_t after = additions.size() - index;
    cast.getResult(0).replaceAllUsesWith(
        extended->getResult(extended->getNumResults() - after));
    cast.erase();
  }
  // Erase the primary partitions that passed through it only for the later
  // gathers.
  eraseIfDead(dropped);
}
