//===- StoredValues.cpp - What ops write to memory ------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PeakMemory.h"
#include "zpp/Dialect/Guest/Calls.h"

using namespace mlir;
using namespace zpp;

bool StoredValues::isFused(Operation *op) {
  if (isFusible(op))
    return true;
  func::FuncOp callee = getCallee(op);
  if (!callee)
    return false;
  auto [it, isNew] = functions.try_emplace(callee, false);
  if (!isNew)
    return it->second;
  // A recursive call finds false.
  bool areFused =
      llvm::all_of(callee.getBody().front(), [&](Operation &nested) {
        return isFree(&nested) || isFused(&nested);
      });
  return functions[callee] = areFused;
}

bool StoredValues::isStored(OpResult result) {
  Operation *op = result.getOwner();
  if (isFree(op) || manuals.contains(op) || isNamed(op, guest::kConstant))
    return false;
  return zpp::isStored(result, [&](Operation *user) { return isFused(user); });
}

bool StoredValues::storesAny(Operation *op) {
  return llvm::any_of(op->getResults(),
                      [&](OpResult result) { return isStored(result); });
}

int64_t StoredValues::getStoredBytes(OpResult result) {
  Operation *op = result.getOwner();
  int64_t bytes = getBytes(result.getType());
  bool isKernel = isFused(op) || getProductFlops(op) > 0;
  if (!isKernel || result.use_empty())
    return bytes;
  int64_t cast = 0;
  for (Operation *user : result.getUsers()) {
    if (!isNamed(user, guest::kConvert) || user->getNumResults() != 1)
      return bytes;
    cast = std::max(cast, getBytes(user->getResult(0).getType()));
  }
  return std::min(bytes, cast);
}
