//===- Layers.cpp - Work on each layer of a stack by itself ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Owners/OwnedWork.h"
#include "mlir/IR/Builders.h"
#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

/// True if `value`, which follows from no layer, has the same elements for all
/// positions of dim `dim`.
static bool isSplatAlong(Value value, int64_t dim) {
  Operation *op = value.getDefiningOp();
  if (op && isNamed(op, guest::kBroadcastInDim)) {
    auto dims = op->getAttrOfType<DenseI64ArrayAttr>("broadcast_dimensions");
    return dims && !llvm::is_contained(dims.asArrayRef(), dim);
  }
  auto elements =
      op && isNamed(op, guest::kConstant)
          ? dyn_cast_or_null<DenseElementsAttr>(op->getAttr("value"))
          : DenseElementsAttr();
  return elements && elements.isSplat();
}

namespace {
/// Follows the dim of layers through ops.
class LayerFlow {
public:
  explicit LayerFlow(LayerDims &dims) : dims(dims) {}

  /// Finds the dims of the results of `op`; false if one has none.
  bool add(Operation *op) {
    auto reads = [&](Operation *inner) {
      return llvm::any_of(inner->getOperands(), [&](Value operand) {
        return dims.contains(operand);
      });
    };
    if (isWhile(op))
      return addLoop(WhileView(op), reads);
    if (op->getNumRegions() > 0 && containsOp(op, [&](Operation *inner) {
          return inner != op && reads(inner);
        }))
      return false;
    if (!reads(op))
      return true;
    if (isBarrier(op)) {
      for (auto [operand, result] :
           llvm::zip_equal(op->getOperands(), op->getResults()))
        if (auto known = dims.find(operand); known != dims.end())
          dims[result] = known->second;
      return true;
    }
    std::optional<int64_t> dim = getResultDim(op);
    if (dim)
      dims[op->getResult(0)] = *dim;
    return dim.has_value();
  }

private:
  bool addLoop(WhileView loop, llvm::function_ref<bool(Operation *)> reads) {
    for (unsigned i = 0; i < loop.getNumCarried(); ++i)
      if (auto init = dims.find(loop.getInit(i)); init != dims.end()) {
        int64_t dim = init->second;
        for (Value value :
             {Value(loop.getCarried(i)), Value(loop.getConditionArgument(i)),
              Value(loop.getResult(i))})
          dims[value] = dim;
      }
    for (Operation &op : loop.getCondition())
      if (containsOp(&op, reads))
        return false;
    for (Operation &op : loop.getBody())
      if (&op != loop.getYield() && !add(&op))
        return false;
    return llvm::all_of(llvm::seq(loop.getNumCarried()), [&](unsigned i) {
      auto begin = dims.find(loop.getCarried(i));
      auto next = dims.find(loop.getNext(i));
      return begin == dims.end() || next == dims.end()
                 ? begin == next
                 : begin->second == next->second;
    });
  }

  /// The dim of layers of the result of `op`, of one result, which reads some.
  std::optional<int64_t> getResultDim(Operation *op) {
    bool isProduct = isNamed(op, guest::kDotGeneral);
    bool isAlike = isElementwise(op);
    if (op->getNumResults() != 1 ||
        (!isAlike && !isProduct && !isNamed(op, guest::kTranspose) &&
         !isNamed(op, guest::kReshape) && !isNamed(op, guest::kReduce) &&
         !isNamed(op, guest::kBroadcastInDim)))
      return std::nullopt;
    std::optional<int64_t> found;
    bool readsOthers = false;
    for (auto [index, operand] : llvm::enumerate(op->getOperands())) {
      auto known = dims.find(operand);
      if (known == dims.end()) {
        readsOthers = true;
        continue;
      }
      std::optional<int64_t> dim = getMovedDim(op, index, known->second);
      if (!dim || (found && *found != *dim))
        return std::nullopt;
      found = dim;
    }
    // One operand of a product may have the dim alone, but then it is not one
    // of both.
    if (isProduct && readsOthers) {
      std::optional<ProductDims> product = getProductDims(op, 0);
      if (!product || *found < static_cast<int64_t>(product->batching.size()))
        return std::nullopt;
    }
    if (isAlike)
      for (Value operand : op->getOperands())
        if (!dims.contains(operand) && !isSplatAlong(operand, *found))
          return std::nullopt;
    return found;
  }

  LayerDims &dims;
};
} // namespace

Decision<LayerDims> zpp::findLayers(const OwnedWork &work) {
  ShardType from = AllGatherOp(work.gather).getOperand().getType();
  if (from.getDim() == 0 || work.getWholeType().getRank() < 3 ||
      work.getWholeType().getDimSize(0) < 2)
    return LeftAlone("nothing else of its shape is computed alike, which "
                     "other devices could have");
  auto mixes = [](Operation *op) {
    return LeftAlone(op->getName().getStringRef().str() +
                     " does not compute each layer of the stack by itself");
  };
  LayerDims dims{{work.whole, 0}};
  LayerFlow flow(dims);
  for (Operation *op : work.ops)
    if (!flow.add(op))
      return mixes(op);
  auto result = dims.find(work.result);
  // A block of a slice that is sent back has elements of one layer.
  if (result == dims.end() || result->second != 0 || work.dim == 0)
    return mixes(work.result.getDefiningOp());
  return dims;
}

void zpp::setLayers(const OwnedWork &work, const LayerDims &dims, Value stack) {
  int64_t layers = cast<RankedTensorType>(stack.getType()).getDimSize(0);
  SmallVector<std::pair<OpOperand *, int64_t>> splats;
  for (auto [value, dim] : dims)
    if (Operation *op = value.getDefiningOp(); op && isElementwise(op))
      for (OpOperand &operand : op->getOpOperands())
        if (!dims.contains(operand.get()))
          splats.push_back({&operand, dim});
  for (auto [operand, dim] : splats)
    resizeSplat(*operand, dim, layers);
  for (auto [value, dim] : dims)
    if (value != work.whole)
      value.setType(resizeDim(value.getType(), dim, layers));
  Value(work.whole).replaceAllUsesWith(stack);
}
