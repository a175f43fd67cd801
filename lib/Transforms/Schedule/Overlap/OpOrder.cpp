//===- OpOrder.cpp - The order of ops that move ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpOrder.h"

#include "mlir/IR/Block.h"

using namespace mlir;
using namespace zpp;

OpOrder::OpOrder(Block &block) {
  int64_t number = 0;
  for (Operation &op : block)
    places[&op].number = number++;
}

size_t OpOrder::countBefore(ArrayRef<Operation *> ops, Operation *op) const {
  return llvm::partition_point(
             ops, [&](Operation *other) { return isBefore(other, op); }) -
         ops.begin();
}

void OpOrder::replace(Operation *old, Operation *op) {
  Place place = getPlace(old);
  places.erase(old);
  places[op] = place;
}

void OpOrder::moveBefore(Operation *op, Operation *next) {
  Place place = getPlace(next);
  assert(place.side == Place::Itself && "expected an op that has not moved");
  places[op] = {place.number, Place::Before, numMoves++, 0};
  op->moveBefore(next);
}

void OpOrder::insertBefore(Operation *op, Operation *next) {
  Place place = getPlace(next);
  --place.position;
  places[op] = place;
}

void OpOrder::moveAfter(ArrayRef<Operation *> ops, Operation *previous) {
  Place place = getPlace(previous);
  assert(place.side == Place::Itself && "expected an op that has not moved");
  int64_t batch = -numMoves++;
  for (auto [position, op] : llvm::enumerate(ops)) {
    places[op] = {place.number, Place::After, batch,
                  static_cast<int64_t>(position)};
    op->moveAfter(previous);
    previous = op;
  }
}
