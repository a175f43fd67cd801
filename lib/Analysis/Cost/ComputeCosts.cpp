//===- ComputeCosts.cpp - How long ops take on a device -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ComputeCosts.h"

#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

bool zpp::isFree(Operation *op) {
  return isDataMovement(op) || op->getNumOperands() == 0 ||
         op->hasTrait<OpTrait::IsTerminator>() ||
         isNamed(op, guest::kBroadcastInDim) || isNamed(op, guest::kReturn) ||
         isNamed(op, guest::kSdyReturn) || isNamed(op, guest::kPartitionId) ||
         getCallTarget(op).starts_with("SPMD");
}

bool zpp::isFusible(Operation *op) {
  return isElementwise(op) || isNamed(op, guest::kSelect) ||
         isNamed(op, guest::kClamp) || isNamed(op, guest::kIota);
}

Value zpp::getStoredSource(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    bool isMoved = isDataMovement(op) || isNamed(op, guest::kBroadcastInDim);
    if (!isMoved || isJoin(op) || op->getNumOperands() == 0)
      break;
    unsigned index =
        isBarrier(op) ? cast<OpResult>(value).getResultNumber() : 0;
    value = op->getOperand(index);
  }
  return value;
}

/// True if an op computes what it reads in its own kernel.
static bool computesOperands(Operation *user) {
  return isNamed(user, guest::kReduce) || isNamed(user, guest::kBroadcastInDim);
}

bool zpp::isStored(Value value, llvm::function_ref<bool(Operation *)> fuses) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return true;
  if (isNamed(op, guest::kConstant) || isNamed(op, guest::kIota))
    return false;
  if (!fuses(op) && !isFree(op))
    return true;
  SmallVector<Value> pending{value};
  // Data movement of data movement: a few steps tell enough.
  for (size_t i = 0; i < pending.size() && i < 8; ++i)
    for (Operation *user : pending[i].getUsers()) {
      if (isDataMovement(user) && !isBarrier(user) &&
          user->getNumResults() == 1)
        pending.push_back(user->getResult(0));
      // What a reduction reads is computed in its kernel.
      else if (!fuses(user) && !computesOperands(user))
        return true;
    }
  return false;
}

double ComputeCosts::getUsec(Operation *op) {
  if (auto call = dyn_cast<func::CallOp>(op))
    return getFunctionUsec(call);
  // Outside of manual computations types are those of all devices together.
  return getLocalUsec(op) / (isGlobal(op) ? devices : 1);
}

double ComputeCosts::getFlops(Operation *op) {
  return getProductFlops(op) / (isGlobal(op) ? devices : 1);
}

double ComputeCosts::getLocalUsec(Operation *op) {
  if (isFree(op))
    return 0;
  double flops = getProductFlops(op);
  double bytes = 0;
  bool isFused = isFusible(op);
  // A fused kernel does not write what only element-wise ops read.
  for (Value operand : op->getOperands()) {
    Value source = getStoredSource(operand);
    if (flops > 0 || isStored(source))
      bytes += std::min(getBytes(operand.getType()),
                        std::max<int64_t>(getBytes(source.getType()), 1));
  }
  // A slice reads and an update writes no more than the part.
  StringRef name = op->getName().getStringRef();
  if (name == guest::kDynamicSlice || name == guest::kGather)
    bytes = getBytes(op->getResultTypes());
  if (name == guest::kDynamicUpdateSlice && op->getNumOperands() > 1)
    return scale *
           device.getMemoryUsec(2.0 * getBytes(op->getOperand(1).getType()));
  for (Value result : op->getResults())
    if (!isFused || isStored(result))
      bytes += getBytes(result.getType());
  if (flops > 0)
    return scale * device.getProductUsec(
                       flops,
                       getElementBits(getElementTypeOrSelf(op->getOperand(0))),
                       bytes);
  return scale * device.getMemoryUsec(bytes);
}

double ComputeCosts::getFunctionUsec(func::CallOp call) {
  auto function = symbols.lookupNearestSymbolFrom<FunctionOpInterface>(
      call, call.getCalleeAttr());
  if (!function || function.isExternal())
    return 0;
  auto [it, isNew] = functions.try_emplace(function, 0);
  if (!isNew)
    return it->second;
  double usec = 0;
  for (Operation &op : function.getFunctionBody().front())
    usec += getUsec(&op);
  return functions[function] = usec;
}

bool ComputeCosts::isGlobal(Operation *op) {
  Operation *parent = op->getParentOp();
  auto [it, isNew] = global.try_emplace(parent, false);
  if (!isNew)
    return it->second;
  bool isOutside = false;
  if (auto function = dyn_cast<FunctionOpInterface>(parent))
    isOutside =
        function.isPublic() && containsOp(function, isManualComputation);
  else if (!isManualComputation(parent))
    isOutside = isGlobal(parent);
  return global[parent] = isOutside;
}
