//===- WeightNumbers.cpp - Which gathers are of one weight ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightNumbers.h"

#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;

std::pair<int64_t, bool> WeightNumbering::insert(Operation *gather) {
  Value operand = gather->getOperand(0);
  // Gathers in different loops with the same key gather the same weight. In
  // one block, slices of other iterations are other weights, numbered in
  // order.
  int64_t shared = provenance.getSliceId(operand, /*inAnyIteration=*/true);
  llvm::MapVector<int64_t, int64_t> &slices =
      inBlock[{gather->getBlock(), shared}];
  int64_t slice = provenance.getSliceId(operand, /*inAnyIteration=*/false);
  int64_t number = slices.try_emplace(slice, slices.size()).first->second;
  auto [weight, isNew] = weights.try_emplace({shared, number}, weights.size());
  return {weight->second, isNew};
}

void zpp::limitModelBytes(ArrayRef<StepCollective *> gathers,
                          ArrayRef<Value> roots,
                          const llvm::DenseSet<Value> &inLoops) {
  llvm::DenseMap<Value, int64_t> left;
  llvm::DenseMap<int64_t, int64_t> known;
  for (auto [gather, root] : llvm::zip_equal(gathers, roots)) {
    auto [weight, isNew] = known.try_emplace(gather->weight, 0);
    auto type = dyn_cast<RankedTensorType>(root.getType());
    auto part = cast<ShapedType>(gather->op->getOperand(0).getType());
    if (isNew && type && type.hasStaticShape() && getBytes(part) > 0) {
      auto whole = cast<ShapedType>(gather->op->getResult(0).getType());
      // Outside of a manual computation an input is whole; inside it is the
      // part of one device.
      Operation *manual = gather->op->getParentOp();
      while (manual && !isNamed(manual, guest::kSdyManualComputation))
        manual = manual->getParentOp();
      bool isWhole = manual && !ManualView(manual).contains(root);
      int64_t devices = isWhole ? 1 : getBytes(whole) / getBytes(part);
      int64_t all = multiplySaturating(
          getBytes(type.clone(whole.getElementType())), devices);
      auto [bytes, isFirst] = left.try_emplace(root, all);
      // What has been gathered before, in other slices, is gathered again.
      if (bytes->second == 0 && inLoops.contains(root))
        gather->phase = Phase::Backward;
      weight->second = std::min(gather->modelBytes, bytes->second);
      bytes->second -= weight->second;
    } else if (isNew) {
      weight->second = gather->modelBytes;
    }
    gather->modelBytes = weight->second;
  }
}
