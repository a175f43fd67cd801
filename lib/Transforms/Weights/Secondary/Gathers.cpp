//===- Gathers.cpp - The gathers of each weight ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Gathers.h"

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Analysis/Loops/CountedLoop.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

FromLocalOp zpp::zero::getSource(AllGatherOp gather) {
  Value operand = gather.getOperand();
  if (auto encode = operand.getDefiningOp<EncodeOp>())
    operand = encode.getOperand();
  return operand.getDefiningOp<FromLocalOp>();
}

WeightGathers::WeightGathers(ModuleOp module) {
  // Gathers of the same values, which come from the same root through the same
  // casts.
  module.walk<WalkOrder::PreOrder>([&](AllGatherOp gather) {
    // Skip momenta, and both halves of a gather that is already split.
    if (hasRole(getOrigins(gather), Role::Moment) ||
        gather.getOperand().getDefiningOp<AllGatherOp>() ||
        gather->hasAttr(kKeepAttr) ||
        llvm::any_of(gather->getUsers(), llvm::IsaPred<AllGatherOp>))
      return;
    if (Attribute key = getKey(gather)) {
      gathers[key].push_back(gather);
      Value local = getSource(gather).getLocal();
      if (isInLoop(gather))
        loopsOver[provenances.get(local).root].insert(gather->getBlock());
    }
  });
  mergeLayers();
}

SmallVector<SmallVector<AllGatherOp>> WeightGathers::getGroups() const {
  SmallVector<SmallVector<AllGatherOp>> groups;
  for (const auto &[key, group] : gathers)
    if (!group.empty())
      groups.push_back(group);
  return groups;
}

/// A key that is equal for gathers of the same weight, or null if the weight
/// is not known.
Attribute WeightGathers::getKey(AllGatherOp gather) {
  FromLocalOp source = getSource(gather);
  if (!source)
    return {};
  // Skip a gather that already starts from a secondary partition.
  if (provenances.get(source.getLocal()).root.getDefiningOp<AllGatherOp>())
    return {};
  // The index decides which slice of a stack a loop reads. The forward and the
  // backward loop go over all of them.
  int64_t id = provenances.getValueId(source.getLocal(),
                                      /*inAnyIteration=*/true);
  MLIRContext *context = gather.getContext();
  return ArrayAttr::get(context,
                        {TypeAttr::get(gather.getType()), gather.getAlong(),
                         IntegerAttr::get(IndexType::get(context), id)});
}

/// Makes one group of all gathers of single layers of a stack that do the
/// same to the layer, where the loops that do so cut the stack in different
/// ways: scan's `unroll`, where it does not divide the number of layers.
void WeightGathers::mergeLayers() {
  Groups merged;
  SmallVector<std::pair<AllGatherOp, WeightPath>> known;
  for (auto &[key, group] : gathers) {
    AllGatherOp gather = group.front();
    Value local = getSource(gather).getLocal();
    Value root = provenances.get(local).root;
    if (group.size() > 1 || !loopsOver.contains(root))
      continue;
    std::optional<WeightPath> path = getLayerPath(gather);
    if (!path)
      continue;
    auto *first = llvm::find_if(known, [&](const auto &other) {
      return AllGatherOp(other.first).getType() == gather.getType() &&
             AllGatherOp(other.first).getAlong() == gather.getAlong() &&
             provenances.areEqual(other.second.source, path->source) &&
             other.second.doesTheSame(*path);
    });
    if (first == known.end()) {
      known.push_back({gather, *path});
      first = &known.back();
    }
    merged[getKey(first->first)].push_back(gather);
  }
  for (auto &[key, group] : merged) {
    if (!areGatheredAgain(group, getLayerPath(group.front())->getNumLayers()))
      continue;
    for (AllGatherOp gather : group)
      gathers[getKey(gather)].clear();
    gathers[key] = group;
  }
}

bool WeightGathers::areGatheredAgain(ArrayRef<AllGatherOp> group,
                                     int64_t layers) {
  int64_t times = 0;
  for (AllGatherOp gather : group)
    times = addSaturating(times, getTripCount(gather, provenances).value_or(1));
  return times > layers;
}

std::optional<WeightPath> WeightGathers::getLayerPath(AllGatherOp gather) {
  Operation *ancestor = gather->getParentOp();
  while (ancestor && !manuals.contains(ancestor) &&
         !isa<FunctionOpInterface>(ancestor))
    ancestor = ancestor->getParentOp();
  std::optional<WeightPath> path =
      ancestor ? getWeightPath(getSource(gather).getLocal(), gather, ancestor,
                               provenances)
               : std::nullopt;
  return path ? zpp::getLayerPath(*path) : std::nullopt;
}

bool WeightGathers::readsOtherSlices(AllGatherOp gather) {
  Provenance provenance = provenances.get(getSource(gather).getLocal());
  return isInLoop(gather) && provenance.isSliced &&
         loopsOver.lookup(provenance.root).size() > 1;
}
