//===- RecomputationTest.cpp - Values computed once more ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loops/Recomputation.h"

#include "Loops/LayerStacks.h"
#include "ParsedModule.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

namespace {

/// A loop that negates each layer of a stack, casts the result, and writes it
/// to another stack, which a second loop reads and adds up.
std::string getLoops(const std::string &update = "%i",
                     const std::string &more = "") {
  std::string first =
      makeLoop("%r:3", 4, "%stack, %out", "tensor<4x8xf32>, tensor<4x8xf32>",
               "%s: tensor<4x8xf32>, %o: tensor<4x8xf32>",
               R"(%layer = "stablehlo.dynamic_slice"(%s, %i, %c0)
           <{slice_sizes = array<i64: 1, 8>}> {tag = "layer"}
           : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
         %negated = "stablehlo.negate"(%layer) {tag = "negated"}
           : (tensor<1x8xf32>) -> tensor<1x8xf32>
         %product = "stablehlo.dot_general"(%square, %layer) {tag = "product"}
           : (tensor<1x1xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
         )" + more +
                   R"(
         %next = "stablehlo.dynamic_update_slice"(%o, %negated, )" +
                   update + R"(, %c0) {tag = "update"}
           : (tensor<4x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>)
           -> tensor<4x8xf32>)",
               "%s, %next");
  return R"(func.func @main(%stack: tensor<4x8xf32>, %out: tensor<4x8xf32>,
                  %x: tensor<1x8xf32>, %square: tensor<1x1xf32>)
                -> tensor<1x8xf32> {
      %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}>
        : () -> tensor<i32>
      %c4 = "stablehlo.constant"() <{value = dense<4> : tensor<i32>}>
        : () -> tensor<i32>
      %step = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}>
        : () -> tensor<i32>
    )" + first +
         R"(
    %t:3 = "stablehlo.while"(%c0, %r#2, %x) ({
    ^bb0(%i: tensor<i32>, %o: tensor<4x8xf32>, %a: tensor<1x8xf32>):
      %less2 = "stablehlo.compare"(%i, %c4) <{comparison_direction =
        #stablehlo<comparison_direction LT>}>
        : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%less2) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %o: tensor<4x8xf32>, %a: tensor<1x8xf32>):
      %inext2 = "stablehlo.add"(%i, %step)
        : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %read = "stablehlo.dynamic_slice"(%o, %i, %c0)
        <{slice_sizes = array<i64: 1, 8>}> {tag = "read"}
        : (tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
      %sum = "stablehlo.add"(%a, %read) {tag = "sum"}
        : (tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<1x8xf32>
      "stablehlo.return"(%inext2, %o, %sum)
        : (tensor<i32>, tensor<4x8xf32>, tensor<1x8xf32>) -> ()
    }) {tag = "second"} : (tensor<i32>, tensor<4x8xf32>, tensor<1x8xf32>)
      -> (tensor<i32>, tensor<4x8xf32>, tensor<1x8xf32>)
    return %t#2 : tensor<1x8xf32>
  })";
}

TEST(RecomputationTest, OneAnswerWhetherAnOpMayBeRepeated) {
  ParsedModule module(getLoops());
  // A slice at any effort, arithmetic of tensors at the larger one, and a
  // product never.
  EXPECT_TRUE(mayRepeat(module.op("layer"), Effort::Scalars));
  EXPECT_TRUE(mayRepeat(module.op("layer"), Effort::Tensors));
  EXPECT_FALSE(mayRepeat(module.op("negated"), Effort::Scalars));
  EXPECT_TRUE(mayRepeat(module.op("negated"), Effort::Tensors));
  EXPECT_FALSE(mayRepeat(module.op("product"), Effort::Scalars));
  EXPECT_FALSE(mayRepeat(module.op("product"), Effort::Tensors));
  EXPECT_FALSE(mayRepeat(module.op("loop"), Effort::Tensors));
}

TEST(RecomputationTest, ValuesOfAnotherLoopsIteration) {
  ParsedModule module(getLoops());
  ProvenanceAnalysis provenances;
  CountedLoop loop = *getCountedLoop(module.op("loop"), provenances);
  Operation *read = module.op("read");
  Value index = read->getOperand(1);
  IterationValues values(loop, index, [](Operation *op) {
    return mayRepeat(op, Effort::Tensors);
  });
  EXPECT_TRUE(values.canGet(module.value("negated")));
  EXPECT_FALSE(values.canGet(module.value("product")));
  EXPECT_FALSE(values.canGet(loop.loop.getCarried(2)));
  OpBuilder builder(read);
  Value again = values.get(builder, module.value("negated"));
  Operation *slice = again.getDefiningOp()->getOperand(0).getDefiningOp();
  EXPECT_EQ(slice->getOperand(0), module.input(0));
  EXPECT_EQ(slice->getOperand(1), index);
}

TEST(LayerStacksTest, FindsTheWriteOfALayer) {
  ParsedModule module(getLoops());
  WhileView loop(module.op("loop"));
  EXPECT_FALSE(getLayerWrite(loop, 0));
  EXPECT_FALSE(getLayerWrite(loop, 1));
  std::optional<LayerWrite> write = getLayerWrite(loop, 2);
  ASSERT_TRUE(write);
  EXPECT_EQ(write->update, module.op("update"));
  EXPECT_EQ(write->layer, module.value("negated"));
  EXPECT_EQ(write->index, loop.getCarried(0));
  EXPECT_TRUE(write->isOnlyUse);

  // Another reader of the stack, in the body and then in the condition.
  OpBuilder builder(loop.getYield());
  Operation *read =
      createBarrier(builder, builder.getUnknownLoc(), loop.getCarried(2));
  write = getLayerWrite(loop, 2);
  ASSERT_TRUE(write);
  EXPECT_FALSE(write->isOnlyUse);
  builder.setInsertionPointToStart(&loop.getCondition());
  createBarrier(builder, builder.getUnknownLoc(), loop.getConditionArgument(2));
  EXPECT_FALSE(getLayerWrite(loop, 2));
  read->erase();
  EXPECT_FALSE(getLayerWrite(loop, 2));
}

TEST(LayerStacksTest, FindsWhatALoopWritesAndWhoReadsIt) {
  ParsedModule module(getLoops());
  ProvenanceAnalysis provenances;
  CountedLoop loop = *getCountedLoop(module.op("loop"), provenances);
  EXPECT_FALSE(getWrittenStack(loop, 0, provenances));
  EXPECT_FALSE(getWrittenStack(loop, 1, provenances));
  std::optional<WrittenStack> stack = getWrittenStack(loop, 2, provenances);
  ASSERT_TRUE(stack);
  EXPECT_EQ(stack->layer, module.value("negated"));
  StackReads reads = getReads(*stack, provenances);
  EXPECT_TRUE(reads.areComplete);
  ASSERT_EQ(reads.layers.size(), 1u);
  EXPECT_EQ(reads.layers.front().slice, module.op("read"));

  // Another reader sees the whole stack.
  OpBuilder builder(module.op("second"));
  createBarrier(builder, builder.getUnknownLoc(), loop.loop.getResult(2));
  EXPECT_FALSE(getReads(*stack, provenances).areComplete);

  stack->erase();
  EXPECT_TRUE(loop.loop.isInvariant(2));
}

TEST(LayerStacksTest, LeavesStacksThatOtherIndicesWrite) {
  ParsedModule module(getLoops("%c0"));
  ProvenanceAnalysis provenances;
  CountedLoop loop = *getCountedLoop(module.op("loop"), provenances);
  EXPECT_FALSE(getWrittenStack(loop, 2, provenances));
}

} // namespace
