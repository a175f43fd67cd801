//===- KeepInBlock.cpp - Partitions that are kept in one block ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Rewrite.h"

#include "LocalValues.h"
#include "zpp/Analysis/Origin.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

void SecondaryRewriter::keepInBlock(const SecondaryPlan &plan,
                                    const KeepInBlock &way) {
  AllGatherOp forward = plan.group.front();
  OpBuilder builder(forward);
  Location loc = forward.getLoc();
  AllGatherOp kept =
      gatherOuter(builder, forward, plan.axes.primary,
                  getSource(forward).getLocal(), plan.axes.outer);
  Value whole = gatherInner(builder, forward, kept, plan.axes.inner);
  if (plan.group.size() == 1 && !plan.isBetweenSteps) {
    replaceGather(builder, forward, whole);
    remarkRewrite(kept, pass, "gathered in 2 hops, to travel with others");
    return;
  }
  kept->setAttr(kKeepAttr, builder.getUnitAttr());
  addGets(kept, kGetsSecondary);
  Value local = getLocal(builder, loc, kept);
  replaceGather(builder, forward, whole);
  remarkRewrite(
      kept, pass,
      "its result is kept for " +
          (plan.group.size() == 1
               ? "the next step"
               : std::to_string(plan.group.size() - 1) + " later gathers"));
  std::optional<Passage> passage;
  if (!plan.place.computations.empty())
    passage = Passage{plan.place.computations.front(), local, {}};
  for (auto [index, barrier] : llvm::enumerate(way.crossed)) {
    AllGatherOp gather = plan.group[1 + index];
    Value here = passage
                     ? passage->getValueIn(plan.place.computations[1 + index])
                     : local;
    gatherWithin(gather, barrier, here, kept.getType(), plan.axes.inner);
  }
  if (passage)
    passages.push_back(std::move(*passage));
}
