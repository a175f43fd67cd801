//===- Chains.cpp - Decomposed ops that belong together -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Chains.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "zpp/Analysis/HostModule.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// True if `op` may be part of a chain.
static bool isChainOp(Operation *op) {
  if (op->getNumResults() == 0)
    return false;
  return isa<zero::DecomposedOpInterface, tensor::ConcatOp,
             tensor::ExtractSliceOp, tensor::InsertSliceOp,
             tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op);
}

SmallVector<Chain> zpp::getChains(Block &block) {
  llvm::EquivalenceClasses<Operation *> classes;
  SmallVector<Operation *> ops;
  for (Operation &op : block) {
    if (!isChainOp(&op))
      continue;
    ops.push_back(&op);
    classes.insert(&op);
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && source->getBlock() == &block && isChainOp(source))
        classes.unionSets(source, &op);
  }
  llvm::MapVector<Operation *, Chain> chains;
  for (Operation *op : ops)
    chains[classes.getLeaderValue(op)].push_back(op);
  SmallVector<Chain> result;
  for (auto &[leader, chain] : chains)
    if (llvm::any_of(chain, llvm::IsaPred<CollectiveOpInterface>))
      result.push_back(std::move(chain));
  return result;
}

SmallVector<CollectiveOpInterface> zpp::getExchanges(const Chain &chain) {
  SmallVector<CollectiveOpInterface> exchanges;
  for (Operation *op : chain)
    if (auto exchange = dyn_cast<CollectiveOpInterface>(op))
      exchanges.push_back(exchange);
  return exchanges;
}

SmallVector<Block *> zpp::getStepBlocks(ModuleOp module) {
  SmallVector<Block *> blocks;
  walkStep(module, [&](Operation *op) {
    for (Region &region : op->getRegions())
      for (Block &block : region)
        blocks.push_back(&block);
    return WalkResult::advance();
  });
  return blocks;
}

SmallVector<Operation *> zpp::getDependents(ArrayRef<Operation *> ops) {
  llvm::SmallPtrSet<Operation *, 16> inside(llvm::from_range, ops);
  llvm::SmallPtrSet<Operation *, 16> needs(inside);
  SmallVector<Operation *> dependents;
  for (Operation *op = ops.front(); op != ops.back(); op = op->getNextNode()) {
    if (inside.contains(op))
      continue;
    bool isDependent = false;
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (Operation *source = operand.getDefiningOp())
          isDependent |= needs.contains(source);
    });
    if (!isDependent)
      continue;
    needs.insert(op);
    dependents.push_back(op);
  }
  return dependents;
}

SmallVector<Value> zpp::shrinkBarrier(Operation *barrier) {
  SmallVector<Value> dropped;
  if (llvm::any_of(barrier->getResults(),
                   [](Value result) { return result.use_empty(); }))
    rebuildBarrier(barrier, {}, &dropped);
  return dropped;
}
