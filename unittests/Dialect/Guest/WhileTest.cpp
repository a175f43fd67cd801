//===- WhileTest.cpp - Views of loops, and barriers -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/While.h"

#include "ParsedModule.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

namespace {

/// A loop that carries its counter, %x unchanged, and a value that changes.
std::string getLoop() {
  return R"(func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    )" +
         makeLoop("%r:3", 3, "%x, %x", "tensor<8xf32>, tensor<8xf32>",
                  "%same: tensor<8xf32>, %a: tensor<8xf32>",
                  R"(%next = "stablehlo.add"(%a, %same) {tag = "next"}
                    : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>)",
                  "%same, %next") +
         "return %r#2 : tensor<8xf32>\n}";
}

TEST(WhileTest, NamesThePartsOfALoop) {
  ParsedModule module(getLoop());
  WhileView loop = WhileView::get(module.op("loop"));
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop.getNumCarried(), 3u);
  EXPECT_EQ(loop.getInit(1), module.input(0));
  EXPECT_EQ(loop.getNext(2), module.value("next"));
  EXPECT_EQ(loop.getCarried(2), loop.getBody().getArgument(2));
  EXPECT_EQ(loop.getConditionArgument(0).getOwner(), &loop.getCondition());
  EXPECT_EQ(loop.getResult(2), module.op("loop")->getResult(2));
  EXPECT_EQ(loop.getPredicates().size(), 1u);
  EXPECT_TRUE(loop.contains(module.value("next")));
  EXPECT_FALSE(loop.contains(module.input(0)));
  EXPECT_TRUE(loop.isInvariant(1));
  EXPECT_FALSE(loop.isInvariant(0));
  EXPECT_FALSE(loop.isInvariant(2));
  EXPECT_TRUE(isInLoop(module.op("next")));
}

TEST(WhileTest, IsNothingForOtherOps) {
  ParsedModule module(getLoop());
  EXPECT_FALSE(WhileView::get(nullptr));
  EXPECT_FALSE(WhileView::get(module.op("next")));
  EXPECT_FALSE(isInLoop(module.op("loop")));
  // A body that yields too little: nothing has verified the op.
  WhileView loop(module.op("loop"));
  loop.getYield()->eraseOperand(2);
  EXPECT_FALSE(WhileView::get(module.op("loop")));
  EXPECT_FALSE(isLoopInvariant(module.op("loop"), 1));
}

TEST(WhileTest, ExtendsALoop) {
  ParsedModule module(getLoop());
  Value x = module.input(0);
  WhileView loop = extendLoop(module.op("loop"), x);
  EXPECT_FALSE(isWhile(loop.getOperation()));
  loop.addNext(ValueRange(loop.getCarried(3)));
  ASSERT_TRUE(isWhile(loop.getOperation()));
  EXPECT_EQ(loop.getNumCarried(), 4u);
  EXPECT_EQ(loop.getInit(3), x);
  EXPECT_TRUE(loop.isInvariant(3));
  // Readers of the loop read the new one.
  Operation *end = loop->getBlock()->getTerminator();
  EXPECT_EQ(end->getOperand(0), loop.getResult(2));
}

TEST(WhileTest, ReadsIntegersOfConstantsOnly) {
  ParsedModule module(R"(
    func.func @main(%x: tensor<i32>) {
      %a = "stablehlo.constant"() <{value = dense<-7> : tensor<i32>}>
        {tag = "scalar"} : () -> tensor<i32>
      %b = "stablehlo.constant"() <{value = dense<3> : tensor<2xi64>}>
        {tag = "splat"} : () -> tensor<2xi64>
      %c = "stablehlo.constant"() <{value = dense<[1, 2]> : tensor<2xi64>}>
        {tag = "list"} : () -> tensor<2xi64>
      %d = "stablehlo.constant"() <{value = dense<1.0> : tensor<f32>}>
        {tag = "float"} : () -> tensor<f32>
      return
    })");
  EXPECT_EQ(getConstantInteger(module.value("scalar")), -7);
  EXPECT_EQ(getConstantInteger(module.value("splat")), 3);
  EXPECT_EQ(getConstantInteger(module.value("list")), std::nullopt);
  EXPECT_EQ(getConstantInteger(module.value("float")), std::nullopt);
  EXPECT_EQ(getConstantInteger(module.input(0)), std::nullopt);
}

std::string getBarrier() {
  return R"(
    func.func @main(%x: tensor<2xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
      %0:2 = "stablehlo.optimization_barrier"(%x, %y) {tag = "barrier"}
        : (tensor<2xf32>, tensor<3xf32>) -> (tensor<2xf32>, tensor<3xf32>)
      return %0#1 : tensor<3xf32>
    })";
}

TEST(BarrierTest, TakesMoreOperands) {
  ParsedModule module(getBarrier());
  Value x = module.input(0), y = module.input(1);
  Operation *barrier = rebuildBarrier(module.op("barrier"), x);
  ASSERT_TRUE(barrier);
  EXPECT_EQ(SmallVector<Value>(barrier->getOperands()),
            (SmallVector<Value>{x, y, x}));
  EXPECT_EQ(barrier->getBlock()->getTerminator()->getOperand(0),
            barrier->getResult(1));
  EXPECT_EQ(barrier, module.op("barrier"));
}

TEST(BarrierTest, DropsWhatIsNotRead) {
  ParsedModule module(getBarrier());
  Value x = module.input(0), y = module.input(1);
  SmallVector<Value> dropped;
  Operation *barrier = rebuildBarrier(module.op("barrier"), {}, &dropped);
  ASSERT_TRUE(barrier);
  EXPECT_EQ(dropped, SmallVector<Value>{x});
  EXPECT_EQ(SmallVector<Value>(barrier->getOperands()), SmallVector<Value>{y});
  // Nothing passes through it any more.
  barrier->getBlock()->getTerminator()->setOperand(0, y);
  EXPECT_EQ(rebuildBarrier(barrier, {}, &dropped), nullptr);
  EXPECT_EQ(dropped.size(), 2u);
}

} // namespace
