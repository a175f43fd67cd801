//===- LayerOps.cpp - StableHLO ops of stacks of layers -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/LayerOps.h"

#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace zpp;

static NamedAttribute getArray(OpBuilder &builder, StringRef name,
                               ArrayRef<int64_t> values) {
  return builder.getNamedAttr(name, builder.getDenseI64ArrayAttr(values));
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Operand `first` of `op`, the index of the first dim, if the first operand is
/// a stack of which a tensor of type `part` is one layer; null otherwise. The
/// other indices do not matter, since all of their dims is taken.
static Value getLayerIndex(Operation *op, Type part, unsigned first) {
  auto stack = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto layer = dyn_cast<RankedTensorType>(part);
  if (!stack || !layer || !stack.hasStaticShape() || stack.getRank() == 0 ||
      layer.getRank() != stack.getRank() || layer.getDimSize(0) != 1 ||
      layer.getElementType() != stack.getElementType() ||
      layer.getShape().drop_front() != stack.getShape().drop_front() ||
      static_cast<int64_t>(op->getNumOperands()) != first + stack.getRank() ||
      !llvm::all_of(op->getOperands().drop_front(first), isIntegerScalar))
    return {};
  return op->getOperand(first);
}

Value zpp::getReadLayer(Operation *op) {
  if (!isNamed(op, guest::kDynamicSlice) || !isConsistentMovement(op))
    return {};
  return getLayerIndex(op, op->getResult(0).getType(), 1);
}

Value zpp::getWrittenLayer(Operation *op) {
  if (!isNamed(op, guest::kDynamicUpdateSlice) || op->getNumOperands() < 3 ||
      op->getNumResults() != 1 ||
      op->getResult(0).getType() != op->getOperand(0).getType())
    return {};
  return getLayerIndex(op, op->getOperand(1).getType(), 2);
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

Value zpp::createReshape(OpBuilder &builder, Location loc, Value value,
                         ArrayRef<int64_t> shape) {
  // An unused reshape was just created here.
  Operation *last = value.getDefiningOp();
  if (last && isNamed(last, guest::kReshape) && last->use_empty()) {
    value = last->getOperand(0);
    last->erase();
  }
  if (getTensorType(value).getShape() == shape)
    return value;
  return createOp(builder, loc, guest::kReshape, value,
                  getTensorType(value).clone(shape));
}

Value zpp::createTranspose(OpBuilder &builder, Location loc, Value value,
                           ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> shape =
      llvm::map_to_vector(permutation, [&](int64_t dim) {
        return getTensorType(value).getDimSize(dim);
      });
  return createOp(builder, loc, guest::kTranspose, value,
                  getTensorType(value).clone(shape),
                  getArray(builder, "permutation", permutation));
}

Value zpp::createMoveDim(OpBuilder &builder, Location loc, Value value,
                         int64_t from, int64_t to) {
  if (from == to)
    return value;
  SmallVector<int64_t> permutation =
      llvm::to_vector(llvm::seq<int64_t>(0, getTensorType(value).getRank()));
  permutation.erase(permutation.begin() + from);
  permutation.insert(permutation.begin() + to, from);
  return createTranspose(builder, loc, value, permutation);
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

Value zpp::createSplat(OpBuilder &builder, Location loc, TypedAttr value,
                       ArrayRef<int64_t> shape) {
  auto scalar = RankedTensorType::get({}, value.getType());
  Value constant =
      createConstant(builder, loc, DenseElementsAttr::get(scalar, value));
  return createOp(builder, loc, guest::kBroadcastInDim, constant,
                  scalar.clone(shape),
                  getArray(builder, "broadcast_dimensions", {}));
}

Value zpp::createZeros(OpBuilder &builder, Location loc,
                       RankedTensorType type) {
  auto zero = cast<TypedAttr>(builder.getZeroAttr(type.getElementType()));
  return createSplat(builder, loc, zero, type.getShape());
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

/// `value` of another integer type.
static Value createConvert(OpBuilder &builder, Location loc, Value value,
                           RankedTensorType type) {
  return value.getType() == type
             ? value
             : createOp(builder, loc, guest::kConvert, value, type);
}

Value zpp::createLayerSlice(OpBuilder &builder, Location loc, Value stack,
                            ArrayRef<Value> indices) {
  RankedTensorType type = getTensorType(stack);
  SmallVector<int64_t> sizes(indices.size(), 1);
  llvm::append_range(sizes, type.getShape().drop_front(indices.size()));
  SmallVector<Value> operands{stack};
  // Loops may have counters of different types, but a slice needs one type.
  RankedTensorType indexType = getTensorType(indices.front());
  for (Value index : indices)
    operands.push_back(createConvert(builder, loc, index, indexType));
  operands.append(type.getRank() - indices.size(),
                  createIndex(builder, loc, indexType, 0));
  Value layer =
      createOp(builder, loc, guest::kDynamicSlice, operands, type.clone(sizes),
               getArray(builder, "slice_sizes", sizes));
  return createReshape(builder, loc, layer,
                       ArrayRef(sizes).drop_front(indices.size()));
}

Value zpp::createLayerUpdate(OpBuilder &builder, Location loc, Value stack,
                             Value layer, Value index) {
  SmallVector<int64_t> shape{1};
  llvm::append_range(shape, getTensorType(layer).getShape());
  layer = createOp(builder, loc, guest::kReshape, layer,
                   getTensorType(layer).clone(shape));
  SmallVector<Value> operands{stack, layer, index};
  operands.append(shape.size() - 1,
                  createIndex(builder, loc, getTensorType(index), 0));
  return createOp(builder, loc, guest::kDynamicUpdateSlice, operands,
                  getTensorType(stack));
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

Value zpp::createIndex(OpBuilder &builder, Location loc, RankedTensorType type,
                       int64_t value) {
  Attribute element = builder.getIntegerAttr(type.getElementType(), value);
  return createConstant(builder, loc, DenseElementsAttr::get(type, element));
}

Value zpp::addClampedIndex(OpBuilder &builder, Location loc, Value sum,
                           Value index, int64_t count, int64_t factor) {
  RankedTensorType type = getTensorType(sum);
  index = createConvert(builder, loc, index, type);
  Value last = createIndex(builder, loc, type, count - 1);
  Value first = createIndex(builder, loc, type, 0);
  index = createOp(builder, loc, guest::kClamp, {first, index, last}, type);
  index = createOp(builder, loc, guest::kMultiply,
                   {index, createIndex(builder, loc, type, factor)}, type);
  return createOp(builder, loc, guest::kAdd, {sum, index}, type);
}
