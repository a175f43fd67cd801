//===- PlanTest.cpp - How secondary partitions are kept -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Weights/Secondary/Plan.h"

#include "Loops/LoopPlan.h"
#include "ParsedModule.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

const std::string kTypes = R"(
  #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
  !primary = !zero.shard<16xf32, dim 0 = ("node", "gpu") on #mesh>
  !whole = !zero.shard<16xf32, dim 0 = (2, 4) on #mesh>
)";

/// "%<to> = ..., a gather of %<from>, which is 2xf32".
std::string gather(const std::string &from, const std::string &to) {
  return "%p" + to + " = zero.from_local %" + from +
         " : tensor<2xf32> to !primary\n%" + to + " = zero.all_gather %p" + to +
         " along [\"node\", \"gpu\"] {tag = \"" + to +
         "\"} : !primary to !whole\n";
}

/// A loop over three layers of %w that does `ops` to %l, the layer, before it
/// gathers it, as %l1. Its names end with `tag`.
std::string getLoop(const std::string &ops, const std::string &tag) {
  return R"(%r)" + tag + R"(:2 = "stablehlo.while"(%c0, %x) ({
    ^bb0(%i: tensor<i32>, %a: tensor<2xf32>):
      %less = "stablehlo.compare"(%i, %c3) <{comparison_direction =
        #stablehlo<comparison_direction LT>}>
        : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%less) : (tensor<i1>) -> ()
    }, {
    ^bb0(%i: tensor<i32>, %a: tensor<2xf32>):
      %next = "stablehlo.add"(%i, %c1)
        : (tensor<i32>, tensor<i32>) -> tensor<i32>
      %s = "stablehlo.dynamic_slice"(%w, %i, %c0)
        <{slice_sizes = array<i64: 1, 2>}>
        : (tensor<3x2xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
      %l = "stablehlo.reshape"(%s) : (tensor<1x2xf32>) -> tensor<2xf32>
      )" +
         ops + gather("l1", tag) + R"(
      "stablehlo.return"(%next, %a) : (tensor<i32>, tensor<2xf32>) -> ()
    }) {tag = "loop of )" +
         tag + R"("} : (tensor<i32>, tensor<2xf32>)
      -> (tensor<i32>, tensor<2xf32>)
  )";
}

std::string getLayerLoops(const std::string &ops) {
  auto constant = [](const std::string &value) {
    return "%c" + value + " = \"stablehlo.constant\"() <{value = dense<" +
           value + "> : tensor<i32>}> : () -> tensor<i32>\n";
  };
  return kTypes + R"(func.func @main(%w: tensor<3x2xf32>, %x: tensor<2xf32>,
                                     %v: tensor<2xf32>) {
      )" +
         constant("0") + constant("1") + constant("3") +
         getLoop(ops, "forward") + getLoop(ops, "backward") + "return\n}";
}

FailureOr<std::vector<WeightDecision>>
decide(ModuleOp module, llvm::StringRef secondary = "gpu",
       KeptWeights betweenSteps = KeptWeights::None) {
  FailureOr<Machine> machine = Machine::get(module);
  if (failed(machine))
    return failure();
  return SecondaryPlanner(module, secondary, betweenSteps)
      .decide(*machine, /*splitSmall=*/false);
}

TEST(SecondaryPlanTest, KeepsInBlock) {
  ParsedModule module(kTypes + R"(
    func.func @main(%w: tensor<2xf32>) -> (!whole, !whole) {
      )" + gather("w", "forward") +
                      R"(%b = "stablehlo.optimization_barrier"(%w)
        {tag = "barrier"} : (tensor<2xf32>) -> tensor<2xf32>
      )" + gather("b", "backward") +
                      "return %forward, %backward : !whole, !whole\n}");
  std::string before, after;
  llvm::raw_string_ostream(before) << module.get();
  auto decisions = decide(module.get());
  ASSERT_TRUE(succeeded(decisions));
  ASSERT_EQ(decisions->size(), 1u);
  const WeightDecision &weight = decisions->front();
  ASSERT_TRUE(weight.plan) << weight.plan.getReason();
  EXPECT_EQ(weight.group.size(), 2u);
  const auto *way = std::get_if<KeepInBlock>(&weight.plan->place.way);
  ASSERT_TRUE(way);
  EXPECT_EQ(way->crossed, SmallVector<Operation *>{module.op("barrier")});
  EXPECT_TRUE(weight.plan->place.computations.empty());
  // A decision changes nothing.
  llvm::raw_string_ostream(after) << module.get();
  EXPECT_EQ(before, after);
}

TEST(SecondaryPlanTest, LeavesAloneWithAReason) {
  std::string one = kTypes +
                    "func.func @main(%w: tensor<2xf32>) -> !whole {\n" +
                    gather("w", "forward") + "return %forward : !whole\n}";
  ParsedModule module(one);
  auto once = decide(module.get());
  ASSERT_TRUE(succeeded(once));
  ASSERT_FALSE(once->front().plan);
  EXPECT_EQ(once->front().plan.getReason(),
            "it is gathered once; zero-regather can gather it again in the "
            "backward pass");
  // It is small, and could travel with others.
  EXPECT_TRUE(once->front().besideOthers);
  // The group of devices is as large as the whole group of the weight.
  auto whole = decide(module.get(), "8");
  EXPECT_EQ(
      whole->front().plan.getReason(),
      "its group lies within the secondary group of 8; secondary=N with N "
      "below 8 keeps it");
  EXPECT_FALSE(whole->front().besideOthers);
  // One device is a group for who asks for it, of which nothing is left alone
  // but what is gathered once.
  auto alone = decide(module.get(), "1");
  EXPECT_EQ(alone->front().plan.getReason(), once->front().plan.getReason());
  // What is kept for the next step is worth it.
  auto between = decide(module.get(), "1", KeptWeights::All);
  EXPECT_TRUE(between->front().plan);
}

/// The way of the only weight in `module`, or nullopt, which fails the test.
template <typename WayT> std::optional<WayT> decideWay(ParsedModule &module) {
  auto decisions = decide(module.get());
  if (failed(decisions) || decisions->size() != 1) {
    ADD_FAILURE() << "expected one weight";
    return std::nullopt;
  }
  const WeightDecision &weight = decisions->front();
  if (!weight.plan) {
    ADD_FAILURE() << weight.plan.getReason();
    return std::nullopt;
  }
  const auto *way = std::get_if<WayT>(&weight.plan->place.way);
  if (!way) {
    ADD_FAILURE() << "expected another way";
    return std::nullopt;
  }
  return *way;
}

TEST(SecondaryPlanTest, HoistsAStack) {
  ParsedModule module(getLayerLoops(R"(%l1 = "stablehlo.negate"(%l)
    : (tensor<2xf32>) -> tensor<2xf32>
  )"));
  auto way = decideWay<HoistStack>(module);
  ASSERT_TRUE(way);
  EXPECT_EQ(way->anchor, module.op("loop of forward"));
  ASSERT_EQ(way->paths.size(), 2u);
  EXPECT_EQ(way->paths.front().getNumLayers(), 3);
}

// A weight that each iteration computes from two tensors has no stack.
TEST(SecondaryPlanTest, KeepsInLoop) {
  ParsedModule module(getLayerLoops(R"(%l1 = "stablehlo.add"(%l, %v)
    : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  )"));
  auto way = decideWay<KeepInLoop>(module);
  ASSERT_TRUE(way);
  EXPECT_EQ(way->loop.loop.getOperation(), module.op("loop of forward"));
  EXPECT_EQ(way->loop.trips, 3);
  WhileView backward(module.op("loop of backward"));
  EXPECT_EQ(way->indices, SmallVector<Value>{backward.getCarried(0)});
}

// A layer that is only cast is known before the loop, one that is computed is
// not. Only a loop that is planned to become layers makes use of it.
TEST(SecondaryPlanTest, KeepsInIterations) {
  auto isInLoop = [](const std::string &op, KeptWeights betweenSteps,
                     int64_t layers) {
    ParsedModule module(getLayerLoops("%l1 = \"stablehlo." + op + R"("(%l)
      : (tensor<2xf32>) -> tensor<2xf32>
    )"));
    LoopPlan plan;
    plan.layers = layers;
    plan.set(WhileView(module.op("loop of forward")));
    auto decisions = decide(module.get(), "gpu", betweenSteps);
    EXPECT_TRUE(succeeded(decisions));
    const WeightDecision &weight = decisions->front();
    EXPECT_TRUE(weight.plan) << weight.plan.getReason();
    bool isInLoop = std::holds_alternative<KeepInLoop>(weight.plan->place.way);
    EXPECT_NE(isInLoop, weight.plan->isHoisted());
    return isInLoop;
  };
  EXPECT_TRUE(isInLoop("convert", KeptWeights::None, 3));
  EXPECT_FALSE(isInLoop("convert", KeptWeights::None, 0));
  EXPECT_FALSE(isInLoop("convert", KeptWeights::All, 3));
  EXPECT_FALSE(isInLoop("negate", KeptWeights::None, 3));
}

TEST(SecondaryPlanTest, LeavesOtherLoopsAlone) {
  // What an iteration hands on chooses the weight.
  ParsedModule module(getLayerLoops(R"(%l1 = "stablehlo.add"(%l, %a)
    : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  )"));
  WhileView loop(module.op("loop of forward"));
  loop.setNext(
      1, module.op("forward")->getOperand(0).getDefiningOp()->getOperand(0));
  auto decisions = decide(module.get());
  ASSERT_TRUE(succeeded(decisions));
  for (const WeightDecision &weight : *decisions)
    EXPECT_FALSE(weight.plan);
}

} // namespace
