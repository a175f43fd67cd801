//===- FoldTransposes.cpp - Gradients as their weights lie ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FoldTransposes.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

/// True for a cast of the element type.
static bool isConversion(Operation *op) {
  return isNamed(op, guest::kConvert) && op->getNumOperands() == 1 &&
         op->getNumResults() == 1;
}

/// The product that `scatter` alone reads, through casts; null if it is none.
/// The casts are added to `between`.
static Operation *getProduct(Operation *scatter,
                             SmallVectorImpl<Operation *> &between) {
  Value value = scatter->getOperand(0);
  while (value.hasOneUse() && value.getDefiningOp() &&
         isConversion(value.getDefiningOp())) {
    between.push_back(value.getDefiningOp());
    value = value.getDefiningOp()->getOperand(0);
  }
  return value.hasOneUse() ? value.getDefiningOp() : nullptr;
}

/// The transpose that alone reads the result of `scatter`, through casts; null
/// if there is none. The casts are added to `between`.
static Operation *getTranspose(Operation *scatter,
                               SmallVectorImpl<Operation *> &between) {
  Operation *op = scatter;
  while (op->getResult(0).hasOneUse()) {
    op = *op->getResult(0).user_begin();
    if (isNamed(op, guest::kTranspose))
      return op;
    if (!isConversion(op))
      return nullptr;
    between.push_back(op);
  }
  return nullptr;
}

/// Folds the transpose of a scatter into its product. Returns false if there is
/// none, or another one.
static bool fold(Operation *scatter) {
  if (scatter->getNumOperands() != 1 || scatter->getNumResults() != 1)
    return false;
  SmallVector<Operation *> casts;
  Operation *product = getProduct(scatter, casts);
  Operation *transpose = getTranspose(scatter, casts);
  if (!product || !transpose)
    return false;
  std::optional<SmallVector<int64_t>> order = getExchange(product);
  auto permutation = transpose->getAttrOfType<DenseI64ArrayAttr>("permutation");
  if (!order || !permutation || permutation.asArrayRef() != ArrayRef(*order))
    return false;

  exchangeOperands(product);
  casts.push_back(scatter);
  for (Operation *op : casts) {
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    op->getResult(0).setType(
        type.clone(applyPermutation(type.getShape(), *order)));
  }
  auto *dim = llvm::find(*order, getCollectiveDim(scatter));
  setCollectiveDim(scatter, dim - order->begin());
  transpose->getResult(0).replaceAllUsesWith(transpose->getOperand(0));
  transpose->erase();
  return true;
}

void zpp::foldTransposesOfSums(ModuleOp module,
                               llvm::function_ref<void(Operation *)> report) {
  // A walk must not erase the op after the one that it visits.
  SmallVector<Operation *> scatters;
  module.walk([&](Operation *op) {
    if (getGuestCollective(op) == CollectiveKind::ReduceScatter)
      scatters.push_back(op);
  });
  for (Operation *scatter : scatters)
    if (fold(scatter))
      report(scatter);
}
