//===- LocalValues.cpp - Local tensors behind partitioned ones ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LocalValues.h"

#include "mlir/IR/BuiltinOps.h"
#include "zpp/Analysis/Location.h"
#include "zpp/Analysis/Origin.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

Value zpp::getLocal(OpBuilder &builder, Location loc, Value shard) {
  if (auto source = shard.getDefiningOp<FromLocalOp>())
    return source.getLocal();
  auto type = cast<ShardType>(shard.getType());
  return ToLocalOp::create(builder, loc, type.getLocalType(), shard);
}

void zpp::replaceWithLocal(OpBuilder &builder, Operation *op, Value local) {
  Value result = op->getResult(0);
  for (Operation *user : llvm::make_early_inc_range(result.getUsers()))
    if (auto toLocal = dyn_cast<ToLocalOp>(user)) {
      toLocal.getLocal().replaceAllUsesWith(local);
      toLocal.erase();
    }
  if (!result.use_empty())
    result.replaceAllUsesWith(
        FromLocalOp::create(builder, op->getLoc(), result.getType(), local));
  eraseDeadChain(op);
}

Value zpp::createEmpty(OpBuilder &builder, Location loc,
                       RankedTensorType type) {
  return tensor::EmptyOp::create(builder, loc, type.getShape(),
                                 type.getElementType());
}

/// True if `op` can be erased once its results are unused. Barriers are shrunk
/// by the pass that makes an operand of them useless.
static bool isErasable(Operation *op) {
  return op->use_empty() &&
         (isMemoryEffectFree(op) || isDeterministic(op) ||
          isNamed(op, guest::kPartitionId) ||
          getGuestCollective(op) == CollectiveKind::AllReduce);
}

void zpp::eraseDeadChain(Operation *op) {
  SmallVector<Operation *> worklist{op};
  while (!worklist.empty()) {
    Operation *dead = worklist.pop_back_val();
    llvm::SmallSetVector<Operation *, 4> sources;
    for (Value operand : dead->getOperands())
      if (Operation *source = operand.getDefiningOp())
        sources.insert(source);
    dead->erase();
    for (Operation *source : sources)
      if (isErasable(source))
        worklist.push_back(source);
  }
}

void zpp::eraseIfDead(ArrayRef<Value> values) {
  // The ops that can be erased now. None of them reads another one.
  llvm::SmallSetVector<Operation *, 4> dead;
  for (Value value : values)
    if (Operation *op = value.getDefiningOp(); op && isErasable(op))
      dead.insert(op);
  for (Operation *op : dead)
    eraseDeadChain(op);
}

void zpp::recordRemoved(Operation *op) {
  auto module = op->getParentOfType<ModuleOp>();
  Builder builder(op->getContext());
  SmallVector<Attribute> all;
  if (auto before = module->getAttrOfType<ArrayAttr>(kOriginAttr))
    llvm::append_range(all, before);
  for (const Origin &origin : getOrigins(op)) {
    NamedAttrList attrs(getOriginAttr(op->getContext(), origin));
    attrs.set("location", builder.getStringAttr(getFileLocation(op->getLoc())));
    all.push_back(attrs.getDictionary(op->getContext()));
  }
  if (!all.empty())
    module->setAttr(kOriginAttr, builder.getArrayAttr(all));
}
