//===- UnitSlices.h - Slices whose chunks are single units ------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_DECOMPOSE_UNITSLICES_H
#define ZPP_LIB_TRANSFORMS_DECOMPOSE_UNITSLICES_H

#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp::zero {

/// Slices in which every unit of the tensor is a chunk, in the order of the
/// tensor: chunk i of the operand is unit i.
inline SlicesAttr getUnits(SlicesAttr order) {
  auto all = llvm::to_vector(
      llvm::seq<int64_t>(0, static_cast<int64_t>(order.getFactors().size())));
  return SlicesAttr::get(order.getContext(), order.getDim(), order.getFactors(),
                         all, 0, 1);
}

/// Returns the factors of `order` that do not number its chunks.
inline llvm::SmallVector<int64_t> getRest(SlicesAttr order) {
  llvm::SmallVector<int64_t> rest;
  for (int64_t position : llvm::seq<int64_t>(order.getFactors().size()))
    if (!llvm::is_contained(order.getChunk(), position))
      rest.push_back(position);
  return rest;
}

/// `order`, but with every unit as a chunk. The factors that number the chunks
/// of `order` come first.
inline SlicesAttr getUnitOrder(SlicesAttr order) {
  llvm::SmallVector<int64_t> chunk(order.getChunk());
  llvm::append_range(chunk, getRest(order));
  return SlicesAttr::get(order.getContext(), order.getDim(), order.getFactors(),
                         chunk, 0, 1);
}

/// Returns the positions of `factors` among those that `shard` holds whole.
inline llvm::SmallVector<int64_t>
getWholePositions(ShardType shard, llvm::ArrayRef<int64_t> factors) {
  return llvm::map_to_vector(factors, [&](int64_t factor) -> int64_t {
    return llvm::count_if(shard.getFactors().take_front(factor),
                          [](FactorAttr before) { return before.isWhole(); });
  });
}

} // namespace zpp::zero

#endif // ZPP_LIB_TRANSFORMS_DECOMPOSE_UNITSLICES_H
