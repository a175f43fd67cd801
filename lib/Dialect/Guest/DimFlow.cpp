//===- DimFlow.cpp - Where ops move the dims of their operands ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/DimFlow.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

using Shape = ArrayRef<int64_t>;

/// Pairs the dims of an operand that `dropped` does not name, in their order,
/// with `places` of the result.
static SmallVector<int64_t> pairRest(int64_t rank, Shape dropped,
                                     Shape places) {
  SmallVector<int64_t> map(rank, -1);
  size_t next = 0;
  for (int64_t dim = 0; dim < rank && next < places.size(); ++dim)
    if (!llvm::is_contained(dropped, dim))
      map[dim] = places[next++];
  return map;
}

/// The dims of a reshape that have as many elements after them on both sides.
static SmallVector<int64_t> pairReshaped(Shape from, Shape to) {
  SmallVector<int64_t> map(from.size(), -1);
  for (size_t dim = 0; dim < from.size(); ++dim)
    for (size_t other = 0; from[dim] > 1 && other < to.size(); ++other)
      if (to[other] == from[dim] &&
          llvm::product_of(to.drop_front(other + 1)) ==
              llvm::product_of(from.drop_front(dim + 1)))
        map[dim] = other;
  return map;
}

/// The dims of the result of a `dot_general`: those of batching, then those of
/// the first operand, then those of the second.
static SmallVector<int64_t> pairProduct(Operation *op, unsigned operand) {
  std::optional<ProductDims> own = getProductDims(op, operand);
  std::optional<ProductDims> left = getProductDims(op, 0);
  RankedTensorType leftType = getTensorType(op->getOperand(0));
  if (!own || !left)
    return {};
  RankedTensorType type = getTensorType(op->getOperand(operand));
  int64_t next = own->batching.size();
  if (operand == 1)
    next = leftType.getRank() - left->summed.size();
  SmallVector<int64_t> map(type.getRank(), -1);
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (auto *batching = llvm::find(own->batching, dim);
        batching != own->batching.end())
      map[dim] = batching - own->batching.begin();
    else if (!llvm::is_contained(own->summed, dim))
      map[dim] = next++;
  return map;
}

/// For each dim of operand `operand`, the dim of the result that it becomes, or
/// -1; sizes may still differ.
static SmallVector<int64_t> pairDims(Operation *op, unsigned operand,
                                     RankedTensorType from,
                                     RankedTensorType to) {
  auto same = llvm::to_vector(llvm::seq<int64_t>(0, from.getRank()));
  auto getNumbers = [&](StringRef name) {
    auto numbers = op->getAttrOfType<DenseI64ArrayAttr>(name);
    return numbers ? numbers.asArrayRef() : Shape();
  };
  if (isNamed(op, guest::kTranspose)) {
    SmallVector<int64_t> map(from.getRank(), -1);
    for (auto [dim, source] : llvm::enumerate(getNumbers("permutation")))
      if (source >= 0 && source < from.getRank())
        map[source] = dim;
    return map;
  }
  if (isNamed(op, guest::kBroadcastInDim))
    return llvm::to_vector(getNumbers("broadcast_dimensions"));
  if (isNamed(op, guest::kReshape))
    return pairReshaped(from.getShape(), to.getShape());
  if (isNamed(op, guest::kDotGeneral))
    return operand < 2 ? pairProduct(op, operand) : SmallVector<int64_t>();
  if (isNamed(op, guest::kGather)) {
    LookupDims dims = getLookupDims(op, "dimension_numbers");
    return operand == 0 ? pairRest(from.getRank(), dims.dropped, dims.window)
                        : SmallVector<int64_t>();
  }
  if (isNamed(op, guest::kReduce))
    return operand == 0
               ? pairRest(from.getRank(), getNumbers("dimensions"),
                          llvm::to_vector(llvm::seq<int64_t>(0, to.getRank())))
               : SmallVector<int64_t>();
  if (isNamed(op, guest::kScatter) && operand == 2) {
    LookupDims dims = getLookupDims(op, "scatter_dimension_numbers");
    SmallVector<int64_t> map(from.getRank(), -1);
    for (auto [dim, window] :
         llvm::enumerate(pairRest(to.getRank(), dims.dropped, dims.window)))
      if (window >= 0 && window < from.getRank())
        map[window] = dim;
    return map;
  }
  if (from.getRank() != to.getRank() ||
      op->getName().stripDialect().starts_with("bitcast"))
    return {};
  if (getGuestCollective(op) == CollectiveKind::AllToAll)
    for (StringRef name : {"split_dimension", "concat_dimension"})
      if (auto dim = op->getAttrOfType<IntegerAttr>(name);
          dim && dim.getInt() >= 0 && dim.getInt() < from.getRank())
        same[dim.getInt()] = -1;
  return same;
}

/// The same where sizes agree.
static SmallVector<int64_t> pairEqualDims(Operation *op, unsigned operand) {
  bool passes = isBarrier(op);
  auto from = dyn_cast<RankedTensorType>(op->getOperand(operand).getType());
  auto to = passes || op->getNumResults() == 1
                ? dyn_cast<RankedTensorType>(
                      op->getResult(passes ? operand : 0).getType())
                : RankedTensorType();
  if (!from || !to || !from.hasStaticShape() || !to.hasStaticShape())
    return {};
  SmallVector<int64_t> map = pairDims(op, operand, from, to);
  if (static_cast<int64_t>(map.size()) != from.getRank())
    return {};
  for (auto [dim, target] : llvm::enumerate(map))
    if (target < 0 || target >= to.getRank() ||
        to.getDimSize(target) != from.getDimSize(dim))
      target = -1;
  return map;
}

std::optional<int64_t> zpp::getMovedDim(Operation *op, unsigned operand,
                                        int64_t dim) {
  SmallVector<int64_t> map = pairEqualDims(op, operand);
  if (dim < 0 || dim >= static_cast<int64_t>(map.size()) || map[dim] < 0)
    return std::nullopt;
  return map[dim];
}

std::optional<int64_t> zpp::getSourceDim(Operation *op, unsigned operand,
                                         int64_t dim) {
  SmallVector<int64_t> map = pairEqualDims(op, operand);
  auto *found = llvm::find(map, dim);
  if (dim < 0 || found == map.end())
    return std::nullopt;
  return found - map.begin();
}

/// True for a cast, a transpose, or a reshape that only adds or drops dims of
/// size 1.
static bool keepsDims(Operation *op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return false;
  if (!isNamed(op, guest::kReshape))
    return isNamed(op, guest::kConvert) || isNamed(op, guest::kTranspose) ||
           isNamed(op, "stablehlo.reduce_precision");
  auto getSizes = [](Type type) {
    SmallVector<int64_t> sizes;
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      sizes.assign(tensor.getShape().begin(), tensor.getShape().end());
    llvm::erase(sizes, 1);
    return sizes;
  };
  return getSizes(op->getOperand(0).getType()) ==
         getSizes(op->getResult(0).getType());
}

std::optional<int64_t> zpp::getOperandDim(Operation *op, int64_t dim) {
  return keepsDims(op) ? getSourceDim(op, 0, dim) : std::nullopt;
}

std::optional<int64_t> zpp::getResultDim(Operation *op, int64_t dim) {
  return keepsDims(op) ? getMovedDim(op, 0, dim) : std::nullopt;
}
