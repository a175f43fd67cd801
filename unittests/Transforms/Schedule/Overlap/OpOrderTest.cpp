//===- OpOrderTest.cpp - The order of ops that move -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedule/Overlap/OpOrder.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "gtest/gtest.h"

#include <random>

using namespace mlir;
using namespace zpp;

namespace {

class OpOrderTest : public testing::Test {
protected:
  OpOrderTest() {
    context.allowUnregisteredDialects();
    module = ModuleOp::create(UnknownLoc::get(&context));
  }

  Operation *create(OpBuilder builder) {
    return builder.create(OperationState(UnknownLoc::get(&context), "test.op"));
  }

  SmallVector<Operation *> createOps(int64_t count) {
    SmallVector<Operation *> ops;
    for (int64_t i = 0; i < count; ++i)
      ops.push_back(create(OpBuilder::atBlockEnd(module->getBody())));
    return ops;
  }

  /// Compares with MLIR's own order, for all pairs of ops.
  void check(const OpOrder &order) {
    for (Operation &a : *module->getBody())
      for (Operation &b : *module->getBody())
        EXPECT_EQ(order.isBefore(&a, &b), a.isBeforeInBlock(&b));
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

TEST_F(OpOrderTest, FollowsMoves) {
  SmallVector<Operation *> ops = createOps(8);
  OpOrder order(*module->getBody());
  check(order);
  order.moveBefore(ops[7], ops[2]);
  order.moveBefore(ops[6], ops[2]);
  check(order);
  // The later ones stand directly after the op.
  order.moveAfter({ops[0], ops[1]}, ops[3]);
  order.moveAfter({ops[4]}, ops[3]);
  check(order);
}

TEST_F(OpOrderTest, FollowsReplacementsAndInsertions) {
  SmallVector<Operation *> ops = createOps(4);
  OpOrder order(*module->getBody());
  Operation *replacement = create(OpBuilder(ops[1]));
  ops[1]->erase();
  order.note(replacement);
  order.moveBefore(ops[3], ops[2]);
  Operation *inserted = create(OpBuilder(ops[3]));
  order.note(inserted);
  check(order);
}

TEST_F(OpOrderTest, CountsOps) {
  SmallVector<Operation *> ops = createOps(6);
  OpOrder order(*module->getBody());
  SmallVector<Operation *> some{ops[1], ops[3], ops[5]};
  EXPECT_EQ(order.countBefore(some, ops[0]), 0u);
  EXPECT_EQ(order.countBefore(some, ops[3]), 1u);
  EXPECT_EQ(order.countBefore(some, ops[4]), 2u);
  order.moveBefore(ops[4], ops[1]);
  EXPECT_EQ(order.countBefore(some, ops[4]), 0u);
}

TEST_F(OpOrderTest, RandomMoves) {
  SmallVector<Operation *> ops = createOps(60);
  OpOrder order(*module->getBody());
  std::mt19937 random(1);
  // Every third op stays, and the others move around it, once or more.
  for (int64_t move = 0; move < 200; ++move) {
    Operation *op = ops[random() % 60 / 3 * 3 + 1 + random() % 2];
    Operation *fixed = ops[random() % 20 * 3];
    if (random() % 2)
      order.moveBefore(op, fixed);
    else
      order.moveAfter({op}, fixed);
  }
  check(order);
}

TEST_F(OpOrderTest, MovesTakeConstantTime) {
  // With a new numbering after each move, this would visit 10^10 ops.
  SmallVector<Operation *> ops = createOps(100000);
  OpOrder order(*module->getBody());
  for (size_t i = 1; i < ops.size(); i += 2) {
    order.moveBefore(ops[i], ops[i - 1]);
    EXPECT_TRUE(order.isBefore(ops[i], ops[i - 1]));
  }
}

} // namespace
