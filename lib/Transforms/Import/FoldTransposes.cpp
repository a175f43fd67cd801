//===- FoldTransposes.cpp - Gradients as their weights lie ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PartitionerOutput.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "zpp/Dialect/Guest/Names.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

Operation *zpp::getOnlyReader(Operation *op) {
  do {
    if (op->getNumResults() != 1 || !op->getResult(0).hasOneUse())
      return nullptr;
    op = *op->getResult(0).user_begin();
  } while (isNamed(op, guest::kConvert));
  return op;
}

Operation *zpp::getConverted(Value value) {
  Operation *op = value.getDefiningOp();
  while (op && isNamed(op, guest::kConvert) && op->getNumOperands() == 1)
    op = op->getOperand(0).getDefiningOp();
  return op;
}

/// True if `op` sums over devices, or over devices and scatters.
static bool sumsDevices(Operation *op) {
  std::optional<CollectiveKind> kind = getGuestCollective(op);
  return op->getNumOperands() == 1 && (kind == CollectiveKind::ReduceScatter ||
                                       kind == CollectiveKind::AllReduce);
}

/// True if `type` is a tensor of known shape with `rank` dims.
static bool hasRank(Type type, size_t rank) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.hasStaticShape() &&
         tensor.getRank() == static_cast<int64_t>(rank);
}

/// Folds the transpose behind `sum`, and further sums, into the product before
/// it. Returns false if there is none, or another one.
static bool fold(Operation *sum) {
  Operation *product = getConverted(sum->getOperand(0));
  Operation *transpose = getOnlyReader(sum);
  while (transpose && sumsDevices(transpose))
    transpose = getOnlyReader(transpose);
  if (!product || getOnlyReader(product) != sum || !transpose ||
      !isNamed(transpose, guest::kTranspose) ||
      !isConsistentMovement(transpose))
    return false;
  auto permutation = transpose->getAttrOfType<DenseI64ArrayAttr>("permutation");
  ArrayRef<int64_t> order = permutation;
  for (Operation *op = *product->user_begin(); op != transpose;
       op = *op->user_begin())
    if (!hasRank(op->getResult(0).getType(), order.size()) ||
        (getGuestCollective(op) == CollectiveKind::ReduceScatter &&
         !llvm::is_contained(order, getCollectiveDim(op))))
      return false;
  if (!exchangeOperands(product, permutation))
    return false;

  // Sums, and casts.
  for (Operation *op = *product->user_begin(); op != transpose;
       op = *op->user_begin()) {
    if (getGuestCollective(op) == CollectiveKind::ReduceScatter) {
      auto *dim = llvm::find(order, getCollectiveDim(op));
      setCollectiveDim(op, dim - order.begin());
    }
    RankedTensorType type = getTensorType(op->getResult(0));
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
  SmallVector<Operation *> sums;
  module.walk([&](Operation *op) {
    if (sumsDevices(op))
      sums.push_back(op);
  });
  for (Operation *sum : sums)
    if (fold(sum))
      report(sum);
}
