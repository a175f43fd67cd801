//===- RolesTest.cpp - What collectives are for ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles/Roles.h"

#include "ParsedModule.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace zpp;

namespace {

const Mesh kMesh({{"node", 2}, {"gpu", 4}});

std::string gather(const std::string &result, const std::string &operand) {
  return result + " = \"stablehlo.all_gather\"(" + operand +
         ") <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, "
         "4, 5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<4x8xf32>) -> "
         "tensor<32x8xf32>\n";
}

std::string scatter(const std::string &result, const std::string &operand) {
  return result + " = \"stablehlo.reduce_scatter\"(" + operand +
         ") <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, "
         "3, 4, 5, 6, 7]]> : tensor<1x8xi64>}> ({\n^bb0(%l: tensor<f32>, %r: "
         "tensor<f32>):\n%s = \"stablehlo.add\"(%l, %r) : (tensor<f32>, "
         "tensor<f32>) -> tensor<f32>\n\"stablehlo.return\"(%s) : "
         "(tensor<f32>) -> ()\n}) : (tensor<32x8xf32>) -> tensor<4x8xf32>\n";
}

std::string op(const std::string &result, const std::string &name,
               const std::string &a, const std::string &b,
               const std::string &operand, const std::string &type) {
  return result + " = \"stablehlo." + name + "\"(" + a + ", " + b + ") : (" +
         operand + ") -> " + type + "\n";
}

/// y = tokens * whole
std::string multiply(const std::string &result, const std::string &whole) {
  return op(result, "dot", "%tokens", whole,
            "tensor<16x32xf32>, tensor<32x8xf32>", "tensor<16x8xf32>");
}

/// g = tokens^T * y
std::string differentiate(const std::string &result, const std::string &y) {
  return op(result, "dot", "%tokens", y, "tensor<16x32xf32>, tensor<16x8xf32>",
            "tensor<32x8xf32>");
}

std::string subtract(const std::string &result, const std::string &a,
                     const std::string &b) {
  return op(result, "subtract", a, b, "tensor<4x8xf32>, tensor<4x8xf32>",
            "tensor<4x8xf32>");
}

/// A step with the weight %w, the tokens %x and what `body` makes of them.
std::string step(const std::string &body, const std::string &result,
                 const std::string &type) {
  return "func.func @main(%w: tensor<4x8xf32>, %x: tensor<16x32xi32>) -> " +
         type +
         " {\n%tokens = \"stablehlo.convert\"(%x) : "
         "(tensor<16x32xi32>) -> tensor<16x32xf32>\n" +
         body + "return " + result + " : " + type + "\n}";
}

TEST(RolesTest, WeightsAndGradients) {
  // The weight is gathered again for the backward pass.
  ParsedModule module(
      step(gather("%0", "%w") + multiply("%y", "%0") +
               "%b = \"stablehlo.optimization_barrier\"(%w) : "
               "(tensor<4x8xf32>) -> tensor<4x8xf32>\n" +
               gather("%1", "%b") + multiply("%z", "%1") +
               op("%d", "multiply", "%y", "%z",
                  "tensor<16x8xf32>, tensor<16x8xf32>", "tensor<16x8xf32>") +
               differentiate("%g", "%d") + scatter("%m", "%g") +
               subtract("%new", "%w", "%m"),
           "%new", "tensor<4x8xf32>"));
  SmallVector<StepCollective> collectives =
      getStepCollectives(module.get(), kMesh);
  ASSERT_EQ(collectives.size(), 3u);
  for (int64_t i : {0, 1}) {
    EXPECT_EQ(collectives[i].role, Role::Weight);
    EXPECT_EQ(collectives[i].weight, 0);
    EXPECT_EQ(collectives[i].modelBytes, 32 * 8 * 4);
    EXPECT_EQ(collectives[i].trips, 1);
    EXPECT_EQ(collectives[i].reason, "");
  }
  EXPECT_EQ(collectives[0].phase, Phase::Forward);
  EXPECT_EQ(collectives[1].phase, Phase::Backward);
  EXPECT_EQ(collectives[2].role, Role::Gradient);
}

TEST(RolesTest, StateIsNeitherWeightNorGradient) {
  // The step returns the whole weight, as it was gathered.
  ParsedModule module(step(gather("%0", "%w"), "%0", "tensor<32x8xf32>"));
  SmallVector<StepCollective> collectives =
      getStepCollectives(module.get(), kMesh);
  ASSERT_EQ(collectives.size(), 1u);
  EXPECT_EQ(collectives[0].role, Role::Other);
  EXPECT_EQ(collectives[0].reason,
            "it gathers state, which is not rounded: result 0 of the step is "
            "made of it element by element");
}

TEST(RolesTest, ComputedValuesAreNoWeights) {
  ParsedModule module(step("%h = \"stablehlo.dot\"(%w, %w) : (tensor<4x8xf32>, "
                           "tensor<4x8xf32>) -> tensor<4x8xf32>\n" +
                               gather("%0", "%h") + multiply("%y", "%0"),
                           "%y", "tensor<16x8xf32>"));
  SmallVector<StepCollective> collectives =
      getStepCollectives(module.get(), kMesh);
  ASSERT_EQ(collectives.size(), 1u);
  EXPECT_EQ(collectives[0].role, Role::Other);
  EXPECT_NE(collectives[0].reason, "");
}

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

/// A step that updates %w with the scatter %m of its gradient %g, scaled by
/// `body`, which makes %update of it and of the scatter %q of %h.
std::string scaledUpdate(const std::string &statistic,
                         const std::string &body) {
  return step(gather("%0", "%w") + multiply("%y", "%0") +
                  differentiate("%g", "%y") + scatter("%m", "%g") + statistic +
                  scatter("%q", "%h") + body +
                  subtract("%new", "%w", "%update"),
              "%new", "tensor<4x8xf32>");
}

std::string onShards(const std::string &result, const std::string &name,
                     const std::string &a, const std::string &b) {
  return op(result, name, a, b, "tensor<4x8xf32>, tensor<4x8xf32>",
            "tensor<4x8xf32>");
}

TEST(RolesTest, DivisorsAreStatistics) {
  // Rounded to zero, they would make updates infinite.
  std::string other = differentiate("%h", "%y");
  for (std::string body :
       {onShards("%update", "divide", "%m", "%q"),
        "%r = \"stablehlo.rsqrt\"(%q) : (tensor<4x8xf32>) -> "
        "tensor<4x8xf32>\n" +
            onShards("%update", "multiply", "%m", "%r")}) {
    ParsedModule module(scaledUpdate(other, body));
    SmallVector<StepCollective> collectives =
        getStepCollectives(module.get(), kMesh);
    ASSERT_EQ(collectives.size(), 3u);
    EXPECT_EQ(collectives[0].role, Role::Weight);
    EXPECT_EQ(collectives[1].role, Role::Gradient);
    EXPECT_EQ(collectives[2].role, Role::Other);
    EXPECT_EQ(collectives[2].reason,
              "it sums a statistic, not a gradient: weights are updated only "
              "with what is divided by it");
  }
  // A gradient that also divides is a gradient.
  ParsedModule module(
      scaledUpdate(other, onShards("%d", "divide", "%m", "%q") +
                              onShards("%update", "add", "%d", "%q")));
  EXPECT_EQ(getStepCollectives(module.get(), kMesh)[2].role, Role::Gradient);
}

TEST(RolesTest, SquaresAreStatistics) {
  auto square = [](const std::string &factor) {
    return differentiate("%k", "%y") + op("%h", "multiply", "%k", factor,
                                          "tensor<32x8xf32>, tensor<32x8xf32>",
                                          "tensor<32x8xf32>");
  };
  std::string body = onShards("%update", "add", "%m", "%q");
  ParsedModule squares(scaledUpdate(square("%k"), body));
  SmallVector<StepCollective> collectives =
      getStepCollectives(squares.get(), kMesh);
  EXPECT_EQ(collectives[1].role, Role::Gradient);
  EXPECT_EQ(collectives[2].role, Role::Other);
  EXPECT_EQ(collectives[2].reason, "it sums a statistic, not a gradient: no "
                                   "element of its operand can be negative");
  // Counts: how often a condition holds.
  ParsedModule counts(scaledUpdate(
      differentiate("%k", "%y") +
          op("%p", "compare", "%k", "%g", "tensor<32x8xf32>, tensor<32x8xf32>",
             "tensor<32x8xi1>") +
          "%h = \"stablehlo.convert\"(%p) : (tensor<32x8xi1>) -> "
          "tensor<32x8xf32>\n",
      body));
  EXPECT_EQ(getStepCollectives(counts.get(), kMesh)[2].role, Role::Other);
  // Products of two gradients have both signs, but are none themselves.
  ParsedModule products(scaledUpdate(square("%g"), body));
  SmallVector<StepCollective> ofProducts =
      getStepCollectives(products.get(), kMesh);
  EXPECT_EQ(ofProducts[2].role, Role::Other);
  EXPECT_EQ(ofProducts[2].rule, Rule::Partner);
}

//===----------------------------------------------------------------------===//
// Named weights
//===----------------------------------------------------------------------===//

/// An evaluation: no gradient and no updated weight shows what %w is.
std::string evaluation() {
  return step(gather("%0", "%w") + multiply("%y", "%0"), "%y",
              "tensor<16x8xf32>");
}

TEST(RolesTest, NamesTellWeightsOfAnEvaluation) {
  ParsedModule module(evaluation());
  EXPECT_EQ(getStepCollectives(module.get(), kMesh)[0].role, Role::Other);
  for (StringRef text : {"all", "0", "0-1", "1,0"}) {
    FailureOr<Declarations> named = Declarations::parse(module.get(), text, "");
    ASSERT_TRUE(succeeded(named)) << text.str();
    EXPECT_EQ(getStepCollectives(module.get(), kMesh, *named)[0].role,
              Role::Weight)
        << text.str();
  }
  FailureOr<Declarations> other = Declarations::parse(module.get(), "1", "");
  ASSERT_TRUE(succeeded(other));
  EXPECT_EQ(getStepCollectives(module.get(), kMesh, *other)[0].role,
            Role::Other);
}

TEST(RolesTest, NamesAreChecked) {
  ParsedModule module(evaluation());
  for (auto [text, message] :
       std::initializer_list<std::pair<const char *, const char *>>{
           {"some", "expected weights-of to be 'all' or argument numbers"},
           {"0,", "expected weights-of to be 'all' or argument numbers"},
           {"1-", "expected weights-of to be 'all' or argument numbers"},
           {"2", "expected arguments of the step below 2 in weights-of, but "
                 "got 2"}}) {
    std::string error;
    ScopedDiagnosticHandler handler(
        module.get().getContext(),
        [&](Diagnostic &diagnostic) { error = diagnostic.str(); });
    EXPECT_TRUE(failed(Declarations::parse(module.get(), text, ""))) << text;
    EXPECT_EQ(error.substr(0, std::string(message).size()), message) << text;
  }
}

//===----------------------------------------------------------------------===//
// Large programs
//===----------------------------------------------------------------------===//

TEST(RolesTest, ManyWeights) {
  // Time must be linear in the number of collectives: each finds its gradient
  // among those of the same shape.
  constexpr int kSize = 500;
  std::string arguments, body, results, types;
  for (int i = 0; i < kSize; ++i) {
    std::string n = std::to_string(i);
    arguments += "%w" + n + ": tensor<4x8xf32>, ";
    body += gather("%a" + n, "%w" + n) + multiply("%y" + n, "%a" + n) +
            differentiate("%g" + n, "%y" + n) + scatter("%m" + n, "%g" + n) +
            subtract("%u" + n, "%w" + n, "%m" + n);
    results += (i == 0 ? "%u" : ", %u") + n;
    types += i == 0 ? "tensor<4x8xf32>" : ", tensor<4x8xf32>";
  }
  ParsedModule module("func.func @main(" + arguments +
                      "%x: tensor<16x32xi32>) -> (" + types +
                      ") {\n%tokens = \"stablehlo.convert\"(%x) : "
                      "(tensor<16x32xi32>) -> tensor<16x32xf32>\n" +
                      body + "return " + results + " : " + types + "\n}");
  SmallVector<StepCollective> collectives =
      getStepCollectives(module.get(), kMesh);
  ASSERT_EQ(collectives.size(), 2u * kSize);
  for (int i = 0; i < kSize; ++i) {
    EXPECT_EQ(collectives[2 * i].role, Role::Weight);
    EXPECT_EQ(collectives[2 * i].weight, i);
    EXPECT_EQ(collectives[2 * i + 1].role, Role::Gradient);
  }
}

} // namespace
