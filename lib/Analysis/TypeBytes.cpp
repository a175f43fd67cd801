//===- TypeBytes.cpp - Bytes of types -------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/TypeBytes.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace zpp;

int64_t zpp::getElementBits(Type element) {
  if (auto complex = dyn_cast<ComplexType>(element))
    return 2 * getElementBits(complex.getElementType());
  if (!element.isIntOrFloat())
    return 0;
  return element.isInteger(1) ? 8 : element.getIntOrFloatBitWidth();
}

int64_t zpp::getBytes(Type type) {
  if (auto shard = dyn_cast<zero::ShardType>(type))
    type = shard.getLocalType();
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasStaticShape())
    return 0;
  uint64_t bits = getElementBits(shaped.getElementType());
  for (int64_t size : shaped.getShape())
    bits = llvm::SaturatingMultiply<uint64_t>(bits, size);
  return static_cast<int64_t>(bits / 8 + (bits % 8 != 0));
}

int64_t zpp::getBytes(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types)
    if (llvm::AddOverflow(bytes, getBytes(type), bytes))
      return std::numeric_limits<int64_t>::max();
  return bytes;
}
