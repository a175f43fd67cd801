//===- WeightNumbers.cpp - Which gathers are of one weight ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"

#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/ManualComputation.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Support/Limits.h"

using namespace mlir;
using namespace zpp;

namespace {
/// Numbers weights in the order of their first gathers.
class WeightNumbering {
public:
  explicit WeightNumbering(ProvenanceAnalysis &provenance)
      : provenance(provenance) {}

  /// The number of the weight that `gather` gathers, and whether this is its
  /// first gather.
  std::pair<int64_t, bool> insert(Operation *gather) {
    Value operand = gather->getOperand(0);
    // Gathers in different loops with the same key gather the same weight. In
    // one block, slices of other iterations are other weights, numbered in
    // order.
    int64_t shared = provenance.getSliceId(operand, /*inAnyIteration=*/true);
    llvm::MapVector<int64_t, int64_t> &slices =
        inBlock[{gather->getBlock(), shared}];
    int64_t slice = provenance.getSliceId(operand, /*inAnyIteration=*/false);
    int64_t number = slices.try_emplace(slice, slices.size()).first->second;
    auto [weight, isNew] =
        weights.try_emplace({shared, number}, weights.size());
    return {weight->second, isNew};
  }

private:
  ProvenanceAnalysis &provenance;
  llvm::DenseMap<std::pair<Block *, int64_t>, llvm::MapVector<int64_t, int64_t>>
      inBlock;
  llvm::DenseMap<std::pair<int64_t, int64_t>, int64_t> weights;
};
} // namespace

/// Forward and backward loops may cut one stack of weights into overlapping
/// slices, if the number of layers is not a multiple of scan's `unroll`. All
/// weights of an input together have at most the bytes of the input. `roots`
/// has the input of each gather, `inLoops` those that loops cut.
static void limitModelBytes(ArrayRef<StepCollective *> gathers,
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

void RoleFinder::numberWeights(const NodeSet &ancestors) {
  SmallVector<StepCollective *> gathers;
  SmallVector<Value> operands;
  for (StepCollective &gather : collectives)
    if (gather.role == Role::Weight) {
      gathers.push_back(&gather);
      operands.push_back(gather.op->getOperand(0));
    }
  // What is computed from a weight is that weight.
  SmallVector<BlockArgument> held = flow.getHeldInputs(operands, ancestors);
  WeightNumbering weights(provenances);
  SmallVector<Value> roots;
  llvm::DenseSet<Value> inLoops;
  for (auto [gather, operand, input] :
       llvm::zip_equal(gathers, operands, held)) {
    bool isNew;
    std::tie(gather->weight, isNew) = weights.insert(gather->op);
    gather->phase = isNew ? Phase::Forward : Phase::Backward;
    gather->modelBytes = getBytes(gather->op->getResult(0).getType());
    Provenance provenance = provenances.get(operand);
    // Rows of a weight in another order are that weight too.
    if (!provenance.isStepInput && !input)
      input = getProver().getOnlyInput(operand);
    bool isComputed = !provenance.isStepInput && input;
    roots.push_back(isComputed ? input : provenance.root);
    if (provenance.isSliced && gather->trips.value_or(1) > 1)
      inLoops.insert(provenance.root);
    auto root = dyn_cast<ShapedType>(roots.back().getType());
    // A loop over stacked weights gathers the whole stack.
    if ((provenance.isSliced || isComputed) && root && root.hasStaticShape() &&
        gather->trips.value_or(1) > 1)
      gather->modelBytes =
          multiplySaturating(gather->modelBytes, *gather->trips);
  }
  limitModelBytes(gathers, roots, inLoops);
}
