//===- ScatterPartner.cpp - Scatters that go with all-reduces -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AllReducePlan.h"

#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

OpOperand *zpp::getScaled(Operation *op) {
  bool isProduct = isNamed(op, guest::kMultiply);
  if ((!isProduct && !isNamed(op, guest::kDivide)) ||
      op->getNumOperands() != 2 || op->getNumResults() != 1 ||
      !llvm::all_equal({op->getOperand(0).getType(),
                        op->getOperand(1).getType(),
                        op->getResult(0).getType()}))
    return nullptr;
  for (unsigned index : {0, 1})
    if ((index == 0 || isProduct) && getSplatSource(op->getOperand(1 - index)))
      return &op->getOpOperand(index);
  return nullptr;
}

static bool isFloat(Type type) {
  return isQuantizable(getElementTypeOrSelf(type));
}

/// Returns the operand of `op` that goes on to its result if `op` may lie
/// between the partners, or null.
static OpOperand *getPassed(Operation *op) {
  if (isNamed(op, guest::kTranspose) || isNamed(op, guest::kReshape) ||
      isNamed(op, guest::kConvert))
    return isConsistentMovement(op) && isFloat(op->getOperand(0).getType()) &&
                   isFloat(op->getResult(0).getType())
               ? &op->getOpOperand(0)
               : nullptr;
  return getScaled(op);
}

/// True if `scatter` can be done together with `allReduce`.
static bool isPartner(ReduceScatterOp scatter, AllReduceOp allReduce) {
  return scatter && !scatter.getWire() &&
         scatter.getKind() == allReduce.getKind() &&
         scatter->getBlock() == allReduce->getBlock() &&
         scatter.getOperand().getType().isWhole();
}

/// Returns the scatter whose result `allReduce` sums, if nothing else reads it.
static std::optional<ScatterPartner> getScatterBefore(AllReduceOp allReduce) {
  auto border = allReduce.getOperand().getDefiningOp<FromLocalOp>();
  if (!border || !border->hasOneUse())
    return std::nullopt;
  ScatterPartner partner;
  Value value = border.getLocal();
  while (value.hasOneUse()) {
    Operation *op = value.getDefiningOp();
    if (!op)
      return std::nullopt;
    if (auto toLocal = dyn_cast<ToLocalOp>(op)) {
      partner.scatter = toLocal.getShard().getDefiningOp<ReduceScatterOp>();
      if (!isPartner(partner.scatter, allReduce) ||
          !partner.scatter->hasOneUse())
        return std::nullopt;
      std::reverse(partner.path.begin(), partner.path.end());
      partner.dim = partner.scatter.getType().getDim();
      return partner;
    }
    OpOperand *passed = getPassed(op);
    if (!passed)
      return std::nullopt;
    partner.isScaled |= getScaled(op) != nullptr;
    partner.path.push_back(op);
    value = passed->get();
  }
  return std::nullopt;
}

/// Returns the scatter that alone reads the result of `allReduce`.
static std::optional<ScatterPartner> getScatterAfter(AllReduceOp allReduce) {
  if (!allReduce->hasOneUse())
    return std::nullopt;
  auto border = dyn_cast<ToLocalOp>(*allReduce->user_begin());
  if (!border)
    return std::nullopt;
  ScatterPartner partner;
  partner.isAfter = true;
  Value value = border.getLocal();
  while (value.hasOneUse()) {
    OpOperand &use = *value.use_begin();
    Operation *op = use.getOwner();
    if (auto fromLocal = dyn_cast<FromLocalOp>(op)) {
      if (!fromLocal->hasOneUse())
        return std::nullopt;
      partner.scatter = dyn_cast<ReduceScatterOp>(*fromLocal->user_begin());
      if (!isPartner(partner.scatter, allReduce))
        return std::nullopt;
      std::optional<int64_t> dim = partner.scatter.getType().getDim();
      for (Operation *step : llvm::reverse(partner.path))
        if (dim && !getScaled(step))
          dim = getOperandDim(step, *dim);
      if (!dim)
        return std::nullopt;
      partner.dim = *dim;
      return partner;
    }
    if (getPassed(op) != &use)
      return std::nullopt;
    partner.isScaled |= getScaled(op) != nullptr;
    partner.path.push_back(op);
    value = op->getResult(0);
  }
  return std::nullopt;
}

std::optional<ScatterPartner> zpp::findPartner(AllReduceOp allReduce) {
  std::optional<ScatterPartner> partner = getScatterBefore(allReduce);
  return partner ? partner : getScatterAfter(allReduce);
}
