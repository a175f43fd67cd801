//===- CountedLoopTest.cpp - Loops that count their iterations ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Loops/CountedLoop.h"

#include "ParsedModule.h"

using namespace mlir;
using namespace zpp;

namespace {

/// A loop of `trips` iterations over a stack of four layers, with `body`, in
/// which %i is the number of the iteration, %c0 is 0 and %c1 is 1.
std::string loopWith(const std::string &body, int trips = 4,
                     const std::string &next = "%s, %a") {
  return R"(func.func @main(%stack: tensor<4x8xf32>, %x: tensor<8xf32>)
                -> tensor<8xf32> {
      %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}>
        : () -> tensor<i32>
      %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}>
        : () -> tensor<i32>
      %c3 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}>
        : () -> tensor<i32>
    )" +
         makeLoop("%r:3", trips, "%stack, %x", "tensor<4x8xf32>, tensor<8xf32>",
                  "%s: tensor<4x8xf32>, %a: tensor<8xf32>", body, next) +
         "return %r#2 : tensor<8xf32>\n}";
}

std::string apply(const std::string &op, const std::string &a,
                  const std::string &b, const std::string &tag) {
  return "%" + tag + " = \"stablehlo." + op + "\"(" + a + ", " + b +
         ") {tag = \"" + tag +
         "\"} : (tensor<i32>, tensor<i32>) -> tensor<i32>\n";
}

TEST(CountedLoopTest, FindsTheCounter) {
  ParsedModule module(loopWith(""));
  ProvenanceAnalysis provenances;
  std::optional<LoopCounter> counter =
      getLoopCounter(WhileView::get(module.op("loop")), provenances);
  ASSERT_TRUE(counter);
  EXPECT_EQ(counter->index, 0u);
  EXPECT_EQ(counter->begin, 0);
  EXPECT_EQ(counter->step, 1);
  EXPECT_EQ(counter->trips, 4);
  std::optional<CountedLoop> loop =
      getCountedLoop(module.op("loop"), provenances);
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->trips, 4);
  EXPECT_EQ(loop->counter, loop->loop.getCarried(0));
}

TEST(CountedLoopTest, LeavesOtherLoops) {
  ProvenanceAnalysis provenances;
  EXPECT_FALSE(getLoopCounter(WhileView(), provenances));
  // No iterations.
  ParsedModule empty(loopWith("", 0));
  EXPECT_EQ(
      getLoopCounter(WhileView::get(empty.op("loop")), provenances)->trips, 0);
  EXPECT_FALSE(getCountedLoop(empty.op("loop"), provenances));
  // Its counter starts elsewhere, or at a number that is not known.
  ParsedModule late(loopWith(""));
  WhileView loop(late.op("loop"));
  Operation *begin = loop.getInit(0).getDefiningOp();
  begin->setAttr("value", DenseIntElementsAttr::get(
                              cast<ShapedType>(begin->getResult(0).getType()),
                              int32_t(1)));
  ProvenanceAnalysis others;
  EXPECT_EQ(getLoopCounter(loop, others)->trips, 3);
  EXPECT_FALSE(getCountedLoop(loop.getOperation(), others));
  // Nobody has verified it: what it counts may be no integer, or several.
  for (bool isIndex : {true, false}) {
    ParsedModule strange(loopWith(""));
    WhileView counting(strange.op("loop"));
    ASSERT_TRUE(getLoopCounter(counting, others));
    Builder builder(counting->getContext());
    counting.getInit(0).setType(
        isIndex ? RankedTensorType::get({}, builder.getIndexType())
                : RankedTensorType::get({1}, builder.getI32Type()));
    EXPECT_FALSE(getLoopCounter(counting, others));
  }
}

TEST(CountedLoopTest, ComparesIndices) {
  ParsedModule module(loopWith(apply("add", "%i", "%c0", "equal") +
                               apply("add", "%i", "%c1", "later") +
                               apply("subtract", "%c3", "%i", "reverse") +
                               apply("multiply", "%i", "%i", "square") +
                               apply("subtract", "%i", "%i", "zero")));
  ProvenanceAnalysis provenances;
  CountedLoop loop = *getCountedLoop(module.op("loop"), provenances);
  auto indices = [&](llvm::StringRef tag) {
    return getIndices(module.value(tag), loop, provenances);
  };
  EXPECT_TRUE(indices("equal")->areBelow(4));
  EXPECT_FALSE(indices("equal")->areBelow(3));
  EXPECT_FALSE(indices("later")->areBelow(4));
  EXPECT_TRUE(indices("later")->areBelow(5));
  EXPECT_TRUE(indices("reverse")->areBelow(4));
  EXPECT_TRUE(indices("zero")->areBelow(1));
  EXPECT_FALSE(indices("square"));

  EXPECT_EQ(indices("equal")->at(2), 2);
  EXPECT_EQ(indices("later")->at(2), 3);
  EXPECT_EQ(indices("reverse")->at(2), 1);
  EXPECT_TRUE(indices("reverse")->areDistinct());
  EXPECT_FALSE(indices("zero")->areDistinct());
}

} // namespace
