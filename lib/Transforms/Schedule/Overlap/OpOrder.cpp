//===- OpOrder.cpp - The order of ops that move ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpOrder.h"

using namespace mlir;
using namespace zpp;

/// The distance of two numbers between which there is no other op yet.
static constexpr int64_t kRoom = int64_t(1) << 40;

void OpOrder::numberAll() {
  int64_t number = 0;
  for (Operation &op : block)
    numbers[&op] = number += kRoom;
}

size_t OpOrder::countBefore(ArrayRef<Operation *> ops, Operation *op) const {
  return llvm::partition_point(
             ops, [&](Operation *other) { return isBefore(other, op); }) -
         ops.begin();
}

void OpOrder::note(Operation *op) {
  Operation *previous = op->getPrevNode(), *next = op->getNextNode();
  int64_t begin = previous ? getNumber(previous) : 0;
  int64_t end = next ? getNumber(next) : begin + kRoom;
  if (end - begin < 2)
    return numberAll();
  numbers[op] = begin + (end - begin) / 2;
}

void OpOrder::moveBefore(Operation *op, Operation *next) {
  op->moveBefore(next);
  note(op);
}

void OpOrder::moveAfter(ArrayRef<Operation *> ops, Operation *previous) {
  for (Operation *op : ops) {
    op->moveAfter(previous);
    note(op);
    previous = op;
  }
}
