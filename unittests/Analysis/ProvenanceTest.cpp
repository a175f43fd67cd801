//===- ProvenanceTest.cpp - Where values come from ------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Provenance.h"
#include "zpp/Analysis/Loops/CountedLoop.h"

#include "ParsedModule.h"

using namespace mlir;
using namespace zpp;

namespace {

TEST(ProvenanceTest, FollowsCastsShapesAndBarriers) {
  ParsedModule module(R"(
    func.func @main(%w: tensor<4x8xbf16>) -> tensor<32xf32> {
      %0 = "stablehlo.convert"(%w) {tag = "cast"}
        : (tensor<4x8xbf16>) -> tensor<4x8xf32>
      %1 = "stablehlo.optimization_barrier"(%0) {tag = "barrier"}
        : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %2 = "stablehlo.reshape"(%1) {tag = "shape"}
        : (tensor<4x8xf32>) -> tensor<32xf32>
      return %2 : tensor<32xf32>
    })");
  ProvenanceAnalysis analysis;
  Provenance provenance = analysis.get(module.value("shape"));
  EXPECT_EQ(provenance.root, module.input(0));
  EXPECT_TRUE(provenance.isStepInput);
  EXPECT_FALSE(provenance.isSliced);
  // Barriers are not part of the path.
  EXPECT_EQ(analysis.getPath(module.value("shape")),
            (SmallVector<Operation *>{module.op("shape"), module.op("cast")}));
}

TEST(ProvenanceTest, EndsAtComputedValues) {
  ParsedModule module(R"(
    func.func @main(%w: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = "stablehlo.add"(%w, %w) {tag = "sum"}
        : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
      %1 = "stablehlo.copy"(%0) {tag = "copy"}
        : (tensor<4x8xf32>) -> tensor<4x8xf32>
      return %1 : tensor<4x8xf32>
    })");
  ProvenanceAnalysis analysis;
  Provenance provenance = analysis.get(module.value("copy"));
  EXPECT_EQ(provenance.root, module.value("sum"));
  EXPECT_FALSE(provenance.isStepInput);
}

TEST(ProvenanceTest, JoinsOfInputsAndConstantsKeepTheFirst) {
  ParsedModule module(R"(
    func.func @main(%w: tensor<4xf32>, %x: tensor<4xf32>) -> tensor<8xf32> {
      %c = "stablehlo.constant"() <{value = dense<0.0> : tensor<4xf32>}>
        : () -> tensor<4xf32>
      %y = "stablehlo.add"(%x, %c) {tag = "computed"}
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %0 = "stablehlo.concatenate"(%w, %c) <{dimension = 0 : i64}>
        {tag = "padded"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
      %1 = "stablehlo.concatenate"(%w, %x) <{dimension = 0 : i64}>
        {tag = "joined"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
      %2 = "stablehlo.concatenate"(%w, %y) <{dimension = 0 : i64}>
        {tag = "mixed"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
      return %2 : tensor<8xf32>
    })");
  ProvenanceAnalysis analysis;
  EXPECT_EQ(analysis.get(module.value("padded")).root, module.input(0));
  EXPECT_EQ(analysis.get(module.value("joined")).root, module.input(0));
  EXPECT_EQ(analysis.get(module.value("mixed")).root, module.value("mixed"));
  // What is joined is part of the slice's identity.
  EXPECT_NE(analysis.getSliceId(module.value("padded"), false),
            analysis.getSliceId(module.value("joined"), false));
}

TEST(ProvenanceTest, FollowsCalls) {
  ParsedModule module(R"(
    func.func @main(%w: tensor<4x8xf32>) -> tensor<32xf32> {
      %0 = func.call @flatten(%w) {tag = "call"}
        : (tensor<4x8xf32>) -> tensor<32xf32>
      return %0 : tensor<32xf32>
    }
    func.func private @flatten(%a: tensor<4x8xf32>) -> tensor<32xf32> {
      %0 = "stablehlo.reshape"(%a) {tag = "inside"}
        : (tensor<4x8xf32>) -> tensor<32xf32>
      return %0 : tensor<32xf32>
    })");
  ProvenanceAnalysis analysis;
  EXPECT_EQ(analysis.get(module.value("call")).root, module.input(0));
  EXPECT_EQ(analysis.get(module.value("inside")).root, module.input(0));
  EXPECT_TRUE(analysis.get(module.value("inside")).isStepInput);
}

TEST(ProvenanceTest, EndsInRecursiveFunctions) {
  ParsedModule module(R"(
    func.func @main(%w: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @f(%w) {tag = "call"} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @g(%a) {tag = "f"} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func private @g(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = func.call @f(%a) {tag = "g"} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    })");
  ProvenanceAnalysis analysis;
  for (StringRef tag : {"call", "f", "g"}) {
    EXPECT_FALSE(analysis.get(module.value(tag)).isStepInput);
    analysis.getSliceId(module.value(tag), true);
  }
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

/// A loop over a stack %s of two layers; `body` has %s, %a and %i.
std::string loopOver(const std::string &body) {
  return R"(func.func @main(%stack: tensor<2x8xf32>, %x: tensor<8xf32>)
                -> tensor<8xf32> {
           )" +
         makeLoop("%r:3", 2, "%stack, %x", "tensor<2x8xf32>, tensor<8xf32>",
                  "%s: tensor<2x8xf32>, %a: tensor<8xf32>",
                  body +
                      R"(%next = "stablehlo.add"(%a, %a) {tag = "changed"}
           : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>)",
                  "%s, %next") +
         "return %r#2 : tensor<8xf32>\n}";
}

TEST(ProvenanceTest, FollowsWhatLoopsCarryUnchanged) {
  ParsedModule module(loopOver(R"(
    %l = "stablehlo.dynamic_slice"(%s, %i, %i)
      <{slice_sizes = array<i64: 1, 8>}> {tag = "layer"}
      : (tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %w = "stablehlo.copy"(%a) {tag = "state"} : (tensor<8xf32>) -> tensor<8xf32>
    )"));
  ProvenanceAnalysis analysis;
  Provenance layer = analysis.get(module.value("layer"));
  EXPECT_EQ(layer.root, module.input(0));
  EXPECT_TRUE(layer.isStepInput);
  EXPECT_TRUE(layer.isSliced);
  // What changes from iteration to iteration is its own root.
  EXPECT_FALSE(analysis.get(module.value("state")).isStepInput);
  EXPECT_EQ(analysis.get(module.op("loop")->getResult(1)).root,
            module.input(0));
}

TEST(ProvenanceTest, CountsIterations) {
  ParsedModule module(loopOver(""));
  ProvenanceAnalysis analysis;
  EXPECT_EQ(getTripCount(module.op("changed"), analysis), 2);
  EXPECT_EQ(getTripCount(module.op("loop"), analysis), 1);
}

TEST(ProvenanceTest, TellsSlicesApart) {
  ParsedModule module(loopOver(R"(
    %j = "stablehlo.subtract"(%one, %i)
      : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %0 = "stablehlo.dynamic_slice"(%s, %i, %begin)
      <{slice_sizes = array<i64: 1, 8>}> {tag = "own"}
      : (tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %1 = "stablehlo.convert"(%0) {tag = "cast"}
      : (tensor<1x8xf32>) -> tensor<1x8xbf16>
    %2 = "stablehlo.dynamic_slice"(%s, %j, %begin)
      <{slice_sizes = array<i64: 1, 8>}> {tag = "other"}
      : (tensor<2x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %3 = "stablehlo.slice"(%s) <{start_indices = array<i64: 0, 0>,
      limit_indices = array<i64: 1, 8>, strides = array<i64: 1, 1>}>
      {tag = "first"} : (tensor<2x8xf32>) -> tensor<1x8xf32>
    %4 = "stablehlo.slice"(%s) <{start_indices = array<i64: 1, 0>,
      limit_indices = array<i64: 2, 8>, strides = array<i64: 1, 1>}>
      {tag = "second"} : (tensor<2x8xf32>) -> tensor<1x8xf32>
    )"));
  ProvenanceAnalysis analysis;
  auto id = [&](StringRef tag, bool inAnyIteration) {
    return analysis.getSliceId(module.value(tag), inAnyIteration);
  };
  for (bool inAnyIteration : {false, true}) {
    EXPECT_EQ(id("own", inAnyIteration), id("cast", inAnyIteration));
    EXPECT_NE(id("first", inAnyIteration), id("second", inAnyIteration));
    EXPECT_NE(id("own", inAnyIteration), id("first", inAnyIteration));
  }
  // In all iterations together, both indices reach the same slices.
  EXPECT_NE(id("own", false), id("other", false));
  EXPECT_EQ(id("own", true), id("other", true));
}

TEST(ProvenanceTest, ComputedTwiceInTheSameWayIsTheSame) {
  ParsedModule module(R"(
    func.func @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "stablehlo.multiply"(%a, %b) {tag = "one"}
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %1 = "stablehlo.multiply"(%a, %b) {tag = "two"}
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %2 = "stablehlo.multiply"(%b, %b) {tag = "three"}
        : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %3 = "stablehlo.custom_call"(%a) {tag = "random"}
        : (tensor<4xf32>) -> tensor<4xf32>
      %4 = "stablehlo.custom_call"(%a) {tag = "other"}
        : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    })");
  ProvenanceAnalysis analysis;
  auto id = [&](StringRef tag) {
    return analysis.getSliceId(module.value(tag), false);
  };
  EXPECT_EQ(id("one"), id("two"));
  EXPECT_NE(id("one"), id("three"));
  EXPECT_NE(id("random"), id("other"));
}

TEST(ProvenanceTest, FindsConstantsBehindLoops) {
  ParsedModule module(loopOver(R"(
    %c = "stablehlo.reshape"(%end) {tag = "constant"}
      : (tensor<i32>) -> tensor<1xi32>
    %v = "stablehlo.reshape"(%i) {tag = "counter"}
      : (tensor<i32>) -> tensor<1xi32>
    )"));
  ProvenanceAnalysis analysis;
  EXPECT_NE(analysis.getConstant(module.value("constant")), nullptr);
  EXPECT_EQ(analysis.getConstant(module.value("counter")), nullptr);
  EXPECT_EQ(analysis.getConstant(module.input(0)), nullptr);
}

//===----------------------------------------------------------------------===//
// Large programs
//===----------------------------------------------------------------------===//

TEST(ProvenanceTest, VisitsEveryValueOnce) {
  // A weight that is joined with itself again and again: there are 2^n paths to
  // the root, and the chain is longer than a stack of calls could be.
  constexpr int kSize = 20000;
  std::string body;
  for (int i = 0; i < kSize; ++i) {
    std::string from = "%w" + std::to_string(i), to = std::to_string(i + 1);
    body += "%j" + to + " = \"stablehlo.concatenate\"(" + from + ", " + from +
            ") <{dimension = 0 : i64}> : (tensor<1xf32>, tensor<1xf32>) -> "
            "tensor<2xf32>\n%w" +
            to + " = \"stablehlo.slice\"(%j" + to +
            ") <{start_indices = array<i64: 0>, limit_indices = array<i64: 1>, "
            "strides = array<i64: 1>}>" +
            (i + 1 == kSize ? " {tag = \"last\"}" : "") +
            " : (tensor<2xf32>) -> tensor<1xf32>\n";
  }
  ParsedModule module(
      "func.func @main(%w0: tensor<1xf32>) -> tensor<1xf32> {\n" + body +
      "return %w" + std::to_string(kSize) + " : tensor<1xf32>\n}");
  ProvenanceAnalysis analysis;
  EXPECT_EQ(analysis.get(module.value("last")).root, module.input(0));
  EXPECT_EQ(analysis.getPath(module.value("last")).size(), 2 * kSize);
  EXPECT_NE(analysis.getSliceId(module.value("last"), false),
            analysis.getSliceId(module.input(0), false));
}

} // namespace
