//===- SplitBuckets.cpp - One collective per tensor -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SplitBuckets.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

/// True if `op` applies the same collective to several tensors.
static bool isBucket(Operation *op) {
  std::optional<CollectiveKind> kind = getGuestCollective(op);
  return (kind == CollectiveKind::AllGather ||
          kind == CollectiveKind::ReduceScatter ||
          kind == CollectiveKind::AllReduce) &&
         op->getNumOperands() > 1 &&
         op->getNumResults() == op->getNumOperands() &&
         !op->hasAttr(kOriginAttr);
}

SplitBuckets::SplitBuckets(ModuleOp module) {
  SmallVector<Operation *> wholes;
  module.walk([&](Operation *op) {
    if (isBucket(op))
      wholes.push_back(op);
  });
  for (Operation *whole : wholes) {
    OpBuilder builder(whole);
    Bucket bucket{whole, {}};
    for (auto [operand, result] :
         llvm::zip_equal(whole->getOperands(), whole->getResults())) {
      OperationState state(whole->getLoc(), whole->getName());
      state.addOperands(operand);
      state.addTypes(result.getType());
      state.propertiesAttr = whole->getPropertiesAsAttribute();
      state.addAttributes(whole->getDiscardableAttrDictionary().getValue());
      for (Region &region : whole->getRegions()) {
        IRMapping mapping;
        region.cloneInto(state.addRegion(), mapping);
      }
      Operation *part = builder.create(state);
      result.replaceAllUsesWith(part->getResult(0));
      bucket.parts.push_back(part);
    }
    // It must not appear among the users of its operands.
    whole->setOperands(ValueRange());
    whole->remove();
    buckets.push_back(std::move(bucket));
  }
}

SplitBuckets::~SplitBuckets() {
  for (Bucket &bucket : buckets)
    bucket.whole->destroy();
}

SmallVector<SplitBuckets::Bucket>
SplitBuckets::restore(llvm::function_ref<bool(Operation *)> isNeeded) {
  SmallVector<Bucket> restored;
  llvm::erase_if(buckets, [&](Bucket &bucket) {
    if (llvm::any_of(bucket.parts, isNeeded))
      return false;
    bucket.parts.front()->getBlock()->getOperations().insert(
        bucket.parts.front()->getIterator(), bucket.whole);
    SmallVector<Value> operands;
    for (Operation *part : bucket.parts)
      operands.push_back(part->getOperand(0));
    bucket.whole->setOperands(operands);
    for (auto [index, part] : llvm::enumerate(bucket.parts)) {
      part->getResult(0).replaceAllUsesWith(bucket.whole->getResult(index));
      part->erase();
    }
    restored.push_back(std::move(bucket));
    return true;
  });
  return restored;
}
