//===- Gaps.cpp - Places between the compute of a block -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gaps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "zpp/Dialect/Guest/While.h"

#include <limits>
#include <numeric>

using namespace mlir;
using namespace zpp;

/// Returns the time of a heavy op on `device`.
static double getUsec(Operation *op, HeavyOps &compute,
                      const DeviceModel &device) {
  if (double flops = getProductFlops(op))
    return device.getProductUsec(
        flops, getElementBits(getElementTypeOrSelf(op->getOperand(0))), 0);
  // The work of calls and loops is that of the products in them.
  if (isa<func::CallOp>(op) || isWhile(op))
    return device.getProductUsec(compute.getWork(op), 16, 0);
  // Without products, a block has the op that moves the most data.
  if (!HeavyOps::isHeavyItself(op))
    return device.getMemoryUsec(compute.getWork(op));
  return std::numeric_limits<double>::infinity();
}

Gaps::Gaps(Block &block, HeavyOps &compute, const DeviceModel &device)
    : heavy(compute.getIn(block)) {
  for (Operation *op : heavy)
    usec.push_back(getUsec(op, compute, device));
}

double Gaps::getUsecBetween(int64_t first, int64_t second) const {
  return std::accumulate(usec.begin() + first, usec.begin() + second, 0.0);
}
