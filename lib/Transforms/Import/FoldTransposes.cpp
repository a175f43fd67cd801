//===- FoldTransposes.cpp - Gradients as their weights lie ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FoldTransposes.h"

#include "Conversions.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

/// Folds the transpose of a scatter into its product. Returns false if there is
/// none, or another one.
static bool fold(Operation *scatter) {
  if (scatter->getNumOperands() != 1)
    return false;
  Operation *product = getConverted(scatter->getOperand(0));
  Operation *transpose = getOnlyReader(scatter);
  if (!product || getOnlyReader(product) != scatter || !transpose ||
      !isNamed(transpose, guest::kTranspose))
    return false;
  auto permutation = transpose->getAttrOfType<DenseI64ArrayAttr>("permutation");
  if (!permutation || !exchangeOperands(product, permutation))
    return false;

  ArrayRef<int64_t> order = permutation;
  auto *dim = llvm::find(order, getCollectiveDim(scatter));
  setCollectiveDim(scatter, dim - order.begin());
  // The scatter, and casts.
  for (Operation *op = *product->user_begin(); op != transpose;
       op = *op->user_begin()) {
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    op->getResult(0).setType(
        type.clone(applyPermutation(type.getShape(), order)));
  }
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
