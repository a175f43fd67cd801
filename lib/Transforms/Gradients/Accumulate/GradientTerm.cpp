//===- GradientTerm.cpp - What a sum adds up of gradients -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gradients/Accumulate/GradientTerm.h"

#include "Loops/LayerStacks.h"
#include "Loops/WeightPath.h"
#include "zpp/Dialect/Guest/LayerOps.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/Limits.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

static bool isLayerWrite(Operation *op) {
  return isNamed(op, guest::kDynamicUpdateSlice);
}

/// Casts and permutations of all elements.
static bool isPlacement(Operation *op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return false;
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!from || !to || !from.hasStaticShape() || !to.hasStaticShape() ||
      from.getNumElements() != to.getNumElements())
    return false;
  if (isNamed(op, guest::kConvert))
    return isa<FloatType>(from.getElementType()) &&
           isa<FloatType>(to.getElementType());
  return (isNamed(op, guest::kReshape) || isNamed(op, guest::kTranspose) ||
          isNamed(op, guest::kBroadcastInDim)) &&
         movesData(op) && isConsistentMovement(op);
}

std::optional<unsigned> zpp::zero::getScaledOperand(Operation *op) {
  if (isNamed(op, guest::kNegate))
    return 0;
  bool isProduct = isNamed(op, guest::kMultiply);
  if (!isProduct && !isNamed(op, guest::kDivide))
    return std::nullopt;
  if (op->getNumOperands() != 2)
    return std::nullopt;
  if (getSplat(op->getOperand(1)))
    return 0;
  if (isProduct && getSplat(op->getOperand(0)))
    return 1;
  return std::nullopt;
}

Value zpp::zero::scale(OpBuilder &builder, Operation *step, Value partial) {
  Location loc = step->getLoc();
  RankedTensorType type = getTensorType(partial);
  unsigned scaled = *getScaledOperand(step);
  if (step->getNumOperands() == 1)
    return createOp(builder, loc, step->getName().getStringRef(), partial,
                    type);
  Value number = getSplat(step->getOperand(1 - scaled));
  if (DenseElementsAttr data = getSplatConstant(number.getDefiningOp())) {
    // A constant of the shape of the gradient.
    auto one =
        DenseElementsAttr::get(RankedTensorType::get({}, data.getElementType()),
                               data.getSplatValue<Attribute>());
    number = createConstant(builder, loc, one);
  }
  number = createReshape(builder, loc, number, {});
  if (getTensorType(number).getElementType() != type.getElementType())
    number = createOp(builder, loc, guest::kConvert, number,
                      RankedTensorType::get({}, type.getElementType()));
  Value all = createOp(builder, loc, guest::kBroadcastInDim, number, type,
                       builder.getNamedAttr("broadcast_dimensions",
                                            builder.getDenseI64ArrayAttr({})));
  Value operands[] = {partial, partial};
  operands[1 - scaled] = all;
  return createOp(builder, loc, step->getName().getStringRef(), operands, type);
}

//===----------------------------------------------------------------------===//
// Finding terms
//===----------------------------------------------------------------------===//

/// Returns the op with which each iteration of a loop writes a layer to
/// `result`, a stack that is zeros before; null if it is something else.
static Operation *getWriteOf(OpResult result) {
  WhileView loop = WhileView::get(result.getOwner());
  if (!loop)
    return nullptr;
  unsigned number = result.getResultNumber();
  std::optional<LayerWrite> write = getLayerWrite(loop, number);
  // Layers that are not written are zeros.
  return write && write->isOnlyUse && isZeros(loop.getInit(number)) &&
                 getTensorType(result).getDimSize(0) > 0
             ? write->update
             : nullptr;
}

std::optional<GradientTerm> TermFinder::find(Value value) {
  SmallVector<Operation *> steps;
  while (true) {
    if (!value.hasOneUse())
      return std::nullopt;
    if (auto known = terms.find(value); known != terms.end()) {
      GradientTerm term = known->second;
      llvm::append_range(term.steps, llvm::reverse(steps));
      return term;
    }
    auto result = dyn_cast<OpResult>(value);
    if (!result)
      return std::nullopt;
    Operation *op = result.getOwner();
    if (std::optional<OuterHops> hops = getOuterHops(value, group)) {
      // Sums of f16 may be too large for it.
      if (getTensorType(value).getElementType().isF16() ||
          hops->getPartialType().getGlobal().getElementType().isF16())
        return std::nullopt;
      // As many as a type may have.
      int64_t elements = hops->getPartialType().getGlobal().getNumElements();
      for (Operation *step : steps)
        if (getWrittenLayer(step))
          elements = multiplySaturating(
              elements, getTensorType(step->getResult(0)).getDimSize(0));
      if (elements > kMaxElements)
        return std::nullopt;
      GradientTerm term{std::move(*hops), {}, {}, 0};
      llvm::append_range(term.steps, llvm::reverse(steps));
      return term;
    }
    if (Operation *write = getWriteOf(result)) {
      steps.push_back(write);
      value = write->getOperand(1);
    } else if (isPlacement(op)) {
      steps.push_back(op);
      value = op->getOperand(0);
    } else if (std::optional<unsigned> scaled = getScaledOperand(op)) {
      // A hop sends what one device scales to another one.
      if (op->getNumOperands() == 2 &&
          !sameValues.contains(op->getOperand(1 - *scaled), devices))
        return std::nullopt;
      steps.push_back(op);
      value = op->getOperand(*scaled);
    } else {
      return std::nullopt;
    }
  }
}

//===----------------------------------------------------------------------===//
// Terms
//===----------------------------------------------------------------------===//

/// Returns the steps that `build` does.
static SmallVector<Operation *> getPlacements(const GradientTerm &term) {
  return llvm::filter_to_vector(term.steps, [](Operation *op) {
    return !getScaledOperand(op).has_value();
  });
}

bool GradientTerm::isLike(const GradientTerm &other) const {
  if (!hops.doTheSame(other.hops))
    return false;
  auto isSame = [](Operation *a, Operation *b) {
    if (a->getName() != b->getName() ||
        a->getResultTypes() != b->getResultTypes())
      return false;
    if (isLayerWrite(a))
      return a->getOperand(1).getType() == b->getOperand(1).getType();
    return a->getOperandTypes() == b->getOperandTypes() &&
           a->getPropertiesAsAttribute() == b->getPropertiesAsAttribute();
  };
  return llvm::equal(getPlacements(*this), getPlacements(other), isSame);
}

SmallVector<int64_t> GradientTerm::getLayers() const {
  SmallVector<int64_t> layers;
  for (Operation *step : llvm::reverse(steps))
    if (isLayerWrite(step))
      layers.push_back(getTensorType(step->getResult(0)).getDimSize(0));
  return layers;
}

int64_t GradientTerm::getMoreBytes() const {
  int64_t bytes = hops.getMoreBytes();
  for (int64_t layers : getLayers())
    bytes = multiplySaturating(bytes, layers);
  return bytes;
}

Value GradientTerm::build(OpBuilder &builder, Value partial) const {
  Location loc = hops.getFirst().getLoc();
  SmallVector<int64_t> layers = getLayers();
  int64_t count = llvm::product_of(layers);
  RankedTensorType local = hops.getPartialType().getLocalType();
  SmallVector<int64_t> flat(local.getShape());
  if (!layers.empty())
    flat.insert(flat.begin(), count);
  partial = createReshape(builder, loc, partial, flat);
  if (getTensorType(partial).getElementType() != local.getElementType())
    partial = createOp(builder, loc, guest::kConvert, partial,
                       RankedTensorType::get(flat, local.getElementType()));
  SmallVector<Operation *> placements = getPlacements(*this);
  auto cast = llvm::find_if(
      placements, [](Operation *op) { return isNamed(op, guest::kConvert); });
  bool inF32 = cast != placements.end() &&
               getTensorType((*cast)->getResult(0)).getElementType().isF32();
  Value value = hops.build(builder, partial, layers.empty() ? 0 : count, inF32);
  // Up to the write of a layer, the steps work on that alone.
  WeightPath path{value, {}, WeightPath::Layer()};
  auto apply = [&] {
    path.source = value;
    if (layers.empty())
      path.layer.reset();
    value = createStack(builder, path).value;
    path.steps.clear();
  };
  for (Operation *step : placements) {
    if (!isLayerWrite(step)) {
      bool isCast = isNamed(step, guest::kConvert);
      path.steps.push_back({step, {}});
      if (isCast)
        path.steps.back().splats.push_back({});
      continue;
    }
    apply();
    int64_t inner = layers.pop_back_val();
    count /= inner;
    SmallVector<int64_t> shape(
        getTensorType(step->getOperand(1)).getShape().drop_front());
    shape.insert(shape.begin(), inner);
    if (!layers.empty())
      shape.insert(shape.begin(), count);
    value = createReshape(builder, loc, value, shape);
  }
  apply();
  return value;
}
