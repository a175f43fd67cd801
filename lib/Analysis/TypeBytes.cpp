//===- TypeBytes.cpp - Bytes of types -------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/TypeBytes.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Limits.h"
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
  int64_t bits = getElementBits(shaped.getElementType()), elements = 1;
  for (int64_t size : shaped.getShape())
    elements = multiplySaturating(elements, size);
  // Eight elements fill whole bytes.
  return addSaturating(multiplySaturating(elements / 8, bits),
                       llvm::divideCeil(elements % 8 * bits, 8));
}

int64_t zpp::getBytes(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types)
    bytes = addSaturating(bytes, getBytes(type));
  return bytes;
}
