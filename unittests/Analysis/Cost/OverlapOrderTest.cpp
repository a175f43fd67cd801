//===- OverlapOrderTest.cpp - The order in which XLA runs ops -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cost/PeakMemory.h"

#include "StepText.h"

using namespace mlir;
using namespace zpp;

namespace {

/// Returns the tags of the ops of a function in XLA's order. What is in flight
/// is there twice.
std::string getOrder(const std::string &results, const std::string &body) {
  ParsedModule module("func.func @main(%x: " + kMatrix.str() +
                      ", %w: " + kMatrix.str() + ", %p: " + kSlice.str() +
                      ") -> (" + results + ") {\n" + body + "}");
  std::string error;
  std::optional<DeviceModel> device = DeviceModel::parse("h200", error);
  ComputeCosts costs(*device, 1, 4);
  StoredValues stored;
  auto function = module.get().lookupSymbol<func::FuncOp>("main");
  std::string tags;
  for (Operation *op :
       getOverlapOrder(function.getBody().front(), costs, stored))
    if (auto tag = op->getAttrOfType<StringAttr>("tag"))
      tags += (tags.empty() ? "" : " ") + tag.str();
  return tags;
}

std::string makeScatter(const std::string &name, const std::string &operand,
                        const std::string &groups = "[[0, 1, 2, 3]]") {
  return "%" + name + " = \"stablehlo.reduce_scatter\"(" + operand + R"() ({
      ^bb0(%lhs: tensor<bf16>, %rhs: tensor<bf16>):
        %both = "stablehlo.add"(%lhs, %rhs)
          : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
        "stablehlo.return"(%both) : (tensor<bf16>) -> ()
      }) {tag = ")" +
         name + R"(", scatter_dimension = 0 : i64, replica_groups =
           dense<)" +
         groups + R"(> : tensor<1x4xi64>} : ()" + kMatrix.str() + ") -> " +
         kSlice.str() + "\n";
}

/// Returns the new value of a parameter.
std::string makeUpdate(const std::string &name, const std::string &gradient) {
  return makeOp(name, "subtract", "%p, " + gradient,
                "} : (" + kSlice.str() + ", " + kSlice.str() + ") -> " +
                    kSlice.str());
}

TEST(OverlapOrderTest, PlacesWhatFreesMemoryFirst) {
  // %g is the last to read %a and %b; the rest does not depend on it.
  EXPECT_EQ(getOrder(kMatrix.str() + ", " + kMatrix.str(),
                     makeProduct("a", "%x, %w") + makeProduct("b", "%a, %w") +
                         makeProduct("c", "%b, %w") +
                         makeProduct("d", "%c, %w") +
                         makeProduct("g", "%a, %b") + "return %d, %g : " +
                         kMatrix.str() + ", " + kMatrix.str() + "\n"),
            "a b g c d");
  // %c and %d read what others need, too.
  EXPECT_EQ(
      getOrder(kMatrix.str() + ", " + kMatrix.str(),
               makeProduct("a", "%x, %w") + makeProduct("b", "%w, %x") +
                   makeProduct("c", "%a, %b") + makeProduct("d", "%b, %a") +
                   makeProduct("e", "%d, %b") + makeProduct("f", "%e, %a") +
                   makeProduct("g", "%c, %f") + "return %a, %g : " +
                   kMatrix.str() + ", " + kMatrix.str() + "\n"),
      "a b c d e f g");
}

/// Two gradients, the second of which is computed at the end, and updates.
std::string makeGradients(const std::string &groups) {
  return makeProduct("g0", "%x, %x") + makeScatter("s0", "%g0") +
         makeProduct("a", "%x, %w") + makeProduct("b", "%a, %w") +
         makeProduct("c", "%b, %w") + makeProduct("g1", "%c, %c") +
         makeScatter("s1", "%g1", groups) + makeUpdate("u0", "%s0") +
         makeUpdate("u1", "%s1") + "return %u0, %u1 : " + kSlice.str() + ", " +
         kSlice.str() + "\n";
}

TEST(OverlapOrderTest, ScattersAtTheEnd) {
  // The last scatter has an update to hide under, and the one before it ends
  // when the last begins, although its gradient was there before.
  EXPECT_EQ(getOrder(kSlice.str() + ", " + kSlice.str(),
                     makeGradients("[[3, 2, 1, 0]]")),
            "a g0 b s0 c g1 s0 s1 u0 s1 u1");
}

TEST(OverlapOrderTest, JoinsScattersOfOneGroup) {
  // The first gradient waits for the second.
  EXPECT_EQ(getOrder(kSlice.str() + ", " + kSlice.str(),
                     makeGradients("[[0, 1, 2, 3]]")),
            "a b c g0 g1 s0 s1 s0 s1 u1 u0");
}

TEST(OverlapOrderTest, KeepsReductionsWithOtherReaders) {
  // Nothing needs the sum of %a before the end, but %b reads %a.
  const char *sum = R"(
    %zero = "stablehlo.constant"() {value = dense<0.0> : tensor<bf16>}
      : () -> tensor<bf16>
    %sum = "stablehlo.reduce"(%a, %zero) ({
    ^bb0(%lhs: tensor<bf16>, %rhs: tensor<bf16>):
      %both = "stablehlo.add"(%lhs, %rhs)
        : (tensor<bf16>, tensor<bf16>) -> tensor<bf16>
      "stablehlo.return"(%both) : (tensor<bf16>) -> ()
    }) {dimensions = array<i64: 0, 1>, tag = "sum"}
      : (tensor<1024x1024xbf16>, tensor<bf16>) -> tensor<bf16>
  )";
  EXPECT_EQ(getOrder("tensor<bf16>, " + kSlice.str(),
                     makeProduct("a", "%x, %w") + sum +
                         makeProduct("b", "%a, %w") +
                         makeProduct("c", "%b, %w") + makeScatter("s", "%c") +
                         makeUpdate("u", "%s") + "return %sum, %u : " +
                         "tensor<bf16>, " + kSlice.str() + "\n"),
            "a sum b c s s u");
}

TEST(OverlapOrderTest, HasNothingInFlightInLoopsThatCommunicate) {
  auto makeLoop = [](const std::string &body) {
    return R"(
      %loop = "stablehlo.while"(%x) ({
      ^bb0(%v: tensor<1024x1024xbf16>):
        %again = "stablehlo.constant"() {value = dense<true> : tensor<i1>}
          : () -> tensor<i1>
        "stablehlo.return"(%again) : (tensor<i1>) -> ()
      }, {
      ^bb0(%v: tensor<1024x1024xbf16>):
        )" +
           body + R"(
        "stablehlo.return"(%next) : (tensor<1024x1024xbf16>) -> ()
      }) {tag = "loop"}
        : (tensor<1024x1024xbf16>) -> tensor<1024x1024xbf16>)";
  };
  auto getOrderWith = [&](const std::string &loop) {
    return getOrder(kMatrix.str() + ", " + kSlice.str(),
                    makeProduct("g", "%x, %w") + makeScatter("s", "%g") +
                        makeUpdate("u", "%s") + loop + "return %loop, %u : " +
                        kMatrix.str() + ", " + kSlice.str() + "\n");
  };
  EXPECT_EQ(getOrderWith(makeLoop(makeProduct("next", "%v, %w"))),
            "g s loop s u");
  EXPECT_EQ(
      getOrderWith(makeLoop(
          makeScatter("part", "%v") +
          R"(%next = "stablehlo.all_gather"(%part) {all_gather_dim = 0 : i64,
            replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
            : (tensor<256x1024xbf16>) -> tensor<1024x1024xbf16>)")),
      "g s s u loop");
}

} // namespace
