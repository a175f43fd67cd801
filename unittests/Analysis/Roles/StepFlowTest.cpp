//===- StepFlowTest.cpp - Where values of a step go -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles/StepFlow.h"

#include "ParsedModule.h"

using namespace mlir;
using namespace zpp;

namespace {

/// Returns the flow of a step without named weights; inputs that are no floats
/// are data.
StepFlow getFlow(ParsedModule &module) {
  static std::optional<ValueGraph> graph;
  return StepFlow(
      graph.emplace(module.get()), [](BlockArgument) { return false; },
      [](BlockArgument input) {
        return isa<IntegerType>(
            cast<RankedTensorType>(input.getType()).getElementType());
      });
}

/// Returns the index of the first result that `value` reaches, or -1.
int64_t getReached(const StepFlow &flow, Value value) {
  const ValueGraph::Result *result = flow.getReachedResult(value);
  return result ? static_cast<int64_t>(result->index) : -1;
}

/// A step with one weight, its gradient, an optimizer and a loss.
const char *const kStep = R"(
  func.func @main(%w: tensor<8x8xf32>, %m: tensor<8x8xf32>,
                  %x: tensor<8x8xi32>, %lr: tensor<8x8xf32>)
      -> (tensor<f32>, tensor<8x8xf32>, tensor<8x8xf32>) {
    %a = "stablehlo.convert"(%x) {tag = "activation"}
      : (tensor<8x8xi32>) -> tensor<8x8xf32>
    %h = "stablehlo.convert"(%w) {tag = "cast"}
      : (tensor<8x8xf32>) -> tensor<8x8xbf16>
    %f = "stablehlo.convert"(%h) : (tensor<8x8xbf16>) -> tensor<8x8xf32>
    %y = "stablehlo.dot"(%a, %f) {tag = "forward"}
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %loss = "stablehlo.reduce"(%y) {tag = "loss"}
      : (tensor<8x8xf32>) -> tensor<f32>
    %g = "stablehlo.dot"(%a, %y) {tag = "gradient"}
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %s = "stablehlo.multiply"(%w, %lr) {tag = "scaled"}
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %m1 = "stablehlo.add"(%m, %g) {tag = "momentum"}
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %w1 = "stablehlo.subtract"(%w, %m1) {tag = "update"}
      : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %loss, %m1, %w1 : tensor<f32>, tensor<8x8xf32>, tensor<8x8xf32>
  })";

TEST(StepFlowTest, ElementsReachResults) {
  ParsedModule module(kStep);
  StepFlow flow = getFlow(module);
  EXPECT_EQ(getReached(flow, module.value("loss")), 0);
  EXPECT_EQ(getReached(flow, module.value("momentum")), 1);
  EXPECT_EQ(getReached(flow, module.value("gradient")), 1);
  EXPECT_EQ(getReached(flow, module.value("update")), 2);
  // Products and sums over dims mix elements.
  EXPECT_EQ(getReached(flow, module.value("activation")), -1);
  EXPECT_EQ(getReached(flow, module.value("forward")), -1);
}

TEST(StepFlowTest, KnowsWhatTheStepReturns) {
  ParsedModule module(kStep);
  StepFlow flow = getFlow(module);
  EXPECT_TRUE(flow.isReturned(module.input(0)));
  EXPECT_TRUE(flow.isReturned(module.input(1)));
  EXPECT_FALSE(flow.isReturned(module.input(2)));
  EXPECT_FALSE(flow.isReturned(module.input(3)));
}

TEST(StepFlowTest, KnowsWhatValuesAreMadeOf) {
  ParsedModule module(kStep);
  StepFlow flow = getFlow(module);
  EXPECT_TRUE(flow.holdsStepInput(module.value("cast")));
  EXPECT_TRUE(flow.holdsStepInput(module.value("update")));
  EXPECT_FALSE(flow.holdsStepInput(module.value("forward")));
  EXPECT_FALSE(flow.holdsStepInput(module.value("activation")));
  EXPECT_TRUE(flow.isMadeOfWeights(module.value("cast")));
  EXPECT_FALSE(flow.isMadeOfWeights(module.value("scaled")));
  EXPECT_FALSE(flow.isMadeOfWeights(module.value("forward")));
}

TEST(StepFlowTest, NamedInputsAreWeights) {
  ParsedModule module(kStep);
  ValueGraph graph(module.get());
  StepFlow flow(
      graph, [](BlockArgument input) { return input.getArgNumber() == 3; },
      [](BlockArgument) { return false; });
  EXPECT_TRUE(flow.isMadeOfWeights(module.value("scaled")));
  EXPECT_FALSE(flow.isReturned(module.input(3)));
}

TEST(StepFlowTest, FindsWhatIsComputedFromAValue) {
  ParsedModule module(kStep);
  StepFlow flow = getFlow(module);
  NodeSet ancestors = flow.getAncestors({module.value("gradient")});
  EXPECT_TRUE(ancestors.contains(module.value("cast")));
  EXPECT_TRUE(ancestors.contains(module.value("forward")));
  EXPECT_TRUE(ancestors.contains(module.input(0)));
  // A gradient is not computed from itself or from what follows it.
  EXPECT_FALSE(ancestors.contains(module.value("gradient")));
  EXPECT_FALSE(ancestors.contains(module.value("momentum")));
  EXPECT_FALSE(ancestors.contains(module.value("loss")));
}

TEST(StepFlowTest, TellsDivisorsFromWhatTheyDivide) {
  // @scale divides.
  ParsedModule module(R"(
    func.func @main(%w: tensor<8x8xf32>, %x: tensor<8x8xf32>)
        -> tensor<8x8xf32> {
      %g = "stablehlo.dot"(%x, %w) {tag = "gradient"}
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %v = "stablehlo.dot"(%x, %g) {tag = "statistic"}
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %d = func.call @scale(%g, %v) : (tensor<8x8xf32>, tensor<8x8xf32>)
        -> tensor<8x8xf32>
      %1 = "stablehlo.subtract"(%w, %d)
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      return %1 : tensor<8x8xf32>
    }
    func.func private @scale(%g: tensor<8x8xf32>, %v: tensor<8x8xf32>)
        -> tensor<8x8xf32> {
      %0 = "stablehlo.sqrt"(%v) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %1 = "stablehlo.divide"(%g, %0)
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      return %1 : tensor<8x8xf32>
    })");
  StepFlow flow = getFlow(module);
  StepFlow::Updates updates =
      flow.getUpdates(flow.getAncestors({module.value("gradient")}), {});
  EXPECT_TRUE(updates.hasUpdates);
  EXPECT_TRUE(updates.moved.contains(module.value("gradient")));
  EXPECT_TRUE(updates.movedOrDivided.contains(module.value("gradient")));
  EXPECT_FALSE(updates.moved.contains(module.value("statistic")));
  EXPECT_TRUE(updates.movedOrDivided.contains(module.value("statistic")));
}

TEST(StepFlowTest, NamesResults) {
  ParsedModule module(R"(
    func.func @main(%w: tensor<8xf32>)
        -> (tensor<8xf32> {jax.result_info = "params['w']"}, tensor<8xf32>) {
      %0 = "stablehlo.negate"(%w) : (tensor<8xf32>) -> tensor<8xf32>
      return %w, %0 : tensor<8xf32>, tensor<8xf32>
    })");
  StepFlow flow = getFlow(module);
  EXPECT_EQ(flow.getReachedResult(module.input(0))->describe(),
            "0 (params['w'])");
}

//===----------------------------------------------------------------------===//
// Regions and functions
//===----------------------------------------------------------------------===//

TEST(StepFlowTest, LoopsCarryElements) {
  ParsedModule module(
      R"(func.func @main(%w: tensor<8xf32>, %x: tensor<8xf32>)
             -> (tensor<8xf32>, tensor<f32>) {
        )" +
      makeLoop("%r:3", 4, "%w, %x", "tensor<8xf32>, tensor<8xf32>",
               "%a: tensor<8xf32>, %b: tensor<8xf32>",
               R"(%c = "stablehlo.negate"(%a) {tag = "inside"}
                    : (tensor<8xf32>) -> tensor<8xf32>)",
               "%c, %b") +
      R"(%s = "stablehlo.reduce"(%r#2) : (tensor<8xf32>) -> tensor<f32>
         return %r#1, %s : tensor<8xf32>, tensor<f32>
       })");
  StepFlow flow = getFlow(module);
  EXPECT_EQ(getReached(flow, module.value("inside")), 0);
  EXPECT_TRUE(flow.isReturned(module.input(0)));
  EXPECT_FALSE(flow.isReturned(module.input(1)));
}

TEST(StepFlowTest, CallsPassElementsThrough) {
  ParsedModule module(R"(
    func.func @main(%w: tensor<8x8xf32>, %x: tensor<8x8xf32>)
        -> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %0:2 = func.call @layer(%w, %x) {tag = "call"}
        : (tensor<8x8xf32>, tensor<8x8xf32>)
        -> (tensor<8x8xf32>, tensor<8x8xf32>)
      return %0#0, %0#1 : tensor<8x8xf32>, tensor<8x8xf32>
    }
    func.func private @layer(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>)
        -> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %0 = "stablehlo.negate"(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %1 = "stablehlo.dot"(%b, %b)
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
    })");
  StepFlow flow = getFlow(module);
  EXPECT_TRUE(flow.isReturned(module.input(0)));
  EXPECT_FALSE(flow.isReturned(module.input(1)));
  EXPECT_TRUE(flow.getAncestors({module.op("call")->getResult(1)})
                  .contains(module.input(1)));
}

TEST(StepFlowTest, RecursionEnds) {
  ParsedModule module(R"(
    func.func @main(%w: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @f(%w) {tag = "call"} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @g(%a) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @g(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    })");
  StepFlow flow = getFlow(module);
  EXPECT_EQ(getReached(flow, module.value("call")), 0);
}

//===----------------------------------------------------------------------===//
// Large programs
//===----------------------------------------------------------------------===//

TEST(StepFlowTest, VisitsEveryValueOnce) {
  // There are 2^n paths from the input to the result.
  constexpr int kSize = 2000;
  std::string body;
  for (int i = 0; i < kSize; ++i) {
    std::string from = "%v" + std::to_string(i);
    body += "%v" + std::to_string(i + 1) + " = \"stablehlo.multiply\"(" + from +
            ", " + from +
            ") : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>\n";
  }
  ParsedModule module(
      "func.func @main(%v0: tensor<4xf32>) -> tensor<4xf32> {\n" + body +
      "return %v" + std::to_string(kSize) + " : tensor<4xf32>\n}");
  StepFlow flow = getFlow(module);
  EXPECT_TRUE(flow.isReturned(module.input(0)));
}

TEST(StepFlowTest, ExpandsCallsUpToALimit) {
  // Each function calls the next one twice: 2^n calls in all.
  constexpr int kSize = 100;
  std::string text = R"(
    func.func @main(%w: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @f0(%w) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    })";
  for (int i = 0; i < kSize; ++i) {
    std::string next = std::to_string(i + 1);
    text += "\nfunc.func private @f" + std::to_string(i) +
            "(%a: tensor<4xf32>) -> tensor<4xf32> {\n%0 = func.call @f" + next +
            "(%a) : (tensor<4xf32>) -> tensor<4xf32>\n%1 = func.call @f" +
            next +
            "(%0) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %1 : "
            "tensor<4xf32>\n}";
  }
  text += "\nfunc.func private @f" + std::to_string(kSize) +
          "(%a: tensor<4xf32>) -> tensor<4xf32> {\nreturn %a : "
          "tensor<4xf32>\n}";
  ParsedModule module(text);
  StepFlow flow = getFlow(module);
  EXPECT_TRUE(flow.isReturned(module.input(0)));
}

} // namespace
