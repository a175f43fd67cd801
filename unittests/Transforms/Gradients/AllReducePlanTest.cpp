//===- AllReducePlanTest.cpp - Tests of how all-reduces are split ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Gradients/AllReducePlan.h"

#include "../../Analysis/ParsedModule.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::zero;

namespace {

/// An all-reduce of `type` over `axes`, of two nodes of four devices.
std::string makeAllReduce(const std::string &kind, const std::string &type,
                          const std::string &axes) {
  return "!whole = !zero.shard<" + type +
         ", dim 0 = () on #zero.mesh<\"node\" = 2, \"gpu\" = 4>>\n"
         "func.func @main(%g: tensor<" +
         type + ">) -> tensor<" + type +
         "> {\n"
         "%0 = zero.from_local %g : tensor<" +
         type +
         "> to !whole\n"
         "%1 = zero.all_reduce " +
         kind + " %0 along [" + axes +
         "] {tag = \"sum\"} : !whole\n"
         "%2 = zero.to_local %1 : !whole to tensor<" +
         type + ">\nreturn %2 : tensor<" + type + ">\n}\n";
}

/// A scatter within nodes, `between`, which makes %3 of %2, and an all-reduce
/// between nodes (HSDP).
std::string makeHsdp(const std::string &between) {
  return R"mlir(
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
!from = !zero.shard<4096x8xf32, dim 0 = (4) on #mesh>
!to = !zero.shard<4096x8xf32, dim 0 = ("gpu") on #mesh>
!piece = !zero.shard<1024x8xf32, dim 0 = () on #mesh>
func.func @main(%g: tensor<4096x8xf32>) -> tensor<1024x8xf32> {
  %0 = zero.from_local %g : tensor<4096x8xf32> to !from
  %1 = zero.reduce_scatter sum %0 along ["gpu"] {tag = "scatter"}
      : !from to !to
  %2 = zero.to_local %1 : !to to tensor<1024x8xf32>
)mlir" + between +
         R"mlir(
  %4 = zero.from_local %3 : tensor<1024x8xf32> to !piece
  %5 = zero.all_reduce sum %4 along ["node"] {tag = "sum"} : !piece
  %6 = zero.to_local %5 : !piece to tensor<1024x8xf32>
  return %6 : tensor<1024x8xf32>
}
)mlir";
}

const std::string kConvert =
    "%3 = \"stablehlo.convert\"(%2) : (tensor<1024x8xf32>) -> "
    "tensor<1024x8xf32>\n";

class AllReducePlanTest : public testing::Test {
protected:
  void parse(const std::string &text) {
    module = std::make_unique<ParsedModule>(text);
    allReduce = cast<AllReduceOp>(module->op("sum"));
  }

  QuantAttr getQuant(WireFormatKind kind) {
    return QuantAttr::get(allReduce.getContext(), kind, /*block=*/128,
                          /*rotate=*/0);
  }

  /// Decides with i8 within nodes, i4 between them, and i8 for the sum.
  Decision<AllReducePlan> decide(const std::string &links = "",
                                 int64_t stages = 1) {
    AllReducePlanner planner(
        {getQuant(WireFormatKind::I8), getQuant(WireFormatKind::I4)},
        getQuant(WireFormatKind::I8), stages);
    std::optional<LinkModel> model;
    if (!links.empty()) {
      std::string error;
      model = LinkModel::parse(links, allReduce.getMeshAttr().getMesh(), error);
      EXPECT_TRUE(model) << error;
    }
    return planner.decide(allReduce, model);
  }

  std::unique_ptr<ParsedModule> module;
  AllReduceOp allReduce;
};

TEST_F(AllReducePlanTest, AloneItIsFlatAndHasAHopPerTier) {
  parse(makeAllReduce("sum", "1024x64xf32", "\"node\", \"gpu\""));
  Decision<AllReducePlan> plan = decide();
  ASSERT_TRUE(static_cast<bool>(plan));
  const auto *alone = std::get_if<SplitAlone>(&*plan);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(alone->stages, 1);
  const ReduceExchanges &exchanges = alone->exchanges;
  EXPECT_TRUE(exchanges.isFlat);
  EXPECT_FALSE(exchanges.isSmall);
  ASSERT_EQ(exchanges.hops.along.size(), 2u);
  EXPECT_TRUE(exchanges.hops.quants[0] == getQuant(WireFormatKind::I8));
  EXPECT_TRUE(exchanges.hops.quants[1] == getQuant(WireFormatKind::I4));
  // The last hop of the scatter is the first of the gather.
  ASSERT_EQ(exchanges.gathers.size(), 2u);
  EXPECT_TRUE(exchanges.gathers[0] == exchanges.hops.along[1]);
  EXPECT_TRUE(exchanges.gathers[1] == exchanges.hops.along[0]);
  EXPECT_TRUE(exchanges.reduced == getQuant(WireFormatKind::I8));
}

TEST_F(AllReducePlanTest, WhatWouldNotShrinkIsSmall) {
  parse(makeAllReduce("sum", "8xf32", "\"node\", \"gpu\""));
  Decision<AllReducePlan> plan = decide();
  ASSERT_TRUE(static_cast<bool>(plan));
  EXPECT_TRUE(getExchanges(*plan).isSmall);
  EXPECT_FALSE(getExchanges(*plan).hops.isQuantized());
  EXPECT_FALSE(static_cast<bool>(getExchanges(*plan).reduced));
}

TEST_F(AllReducePlanTest, FastLinksLeaveASumAlone) {
  parse(makeAllReduce("sum", "1024x64xf32", "\"node\", \"gpu\""));
  Decision<AllReducePlan> plan = decide("node=400gbyte,gpu=400gbyte");
  ASSERT_FALSE(static_cast<bool>(plan));
  EXPECT_NE(plan.getReason().find("on these links it takes "),
            std::string::npos);
  EXPECT_NE(plan.getReason().find(" usec, in hops "), std::string::npos);
  // There is no mean to leave it to.
  parse(makeAllReduce("mean", "1024x64xf32", "\"node\", \"gpu\""));
  EXPECT_TRUE(static_cast<bool>(decide("node=400gbyte,gpu=400gbyte")));
}

TEST_F(AllReducePlanTest, StagesAreNoSmallerThanTheyMayBe) {
  parse(makeAllReduce("sum", "1024x64xf32", "\"node\", \"gpu\""));
  // Each device has 8192 elements, and a stage at least 4096.
  Decision<AllReducePlan> plan = decide("", /*stages=*/8);
  ASSERT_TRUE(static_cast<bool>(plan));
  EXPECT_EQ(std::get<SplitAlone>(*plan).stages, 2);
}

TEST_F(AllReducePlanTest, AScatterBeforeItIsTakenIn) {
  parse(makeHsdp(kConvert));
  Decision<AllReducePlan> plan = decide();
  ASSERT_TRUE(static_cast<bool>(plan));
  const auto *joined = std::get_if<SplitWithScatter>(&*plan);
  ASSERT_NE(joined, nullptr);
  EXPECT_FALSE(joined->partner.isAfter);
  EXPECT_EQ(ReduceScatterOp(joined->partner.scatter).getOperation(),
            module->op("scatter"));
  EXPECT_EQ(joined->partner.path.size(), 1u);
  ASSERT_EQ(joined->exchanges.isOfScatter.size(), 2u);
  EXPECT_TRUE(joined->exchanges.isOfScatter[0]);
  EXPECT_FALSE(joined->exchanges.isOfScatter[1]);
  EXPECT_EQ(joined->exchanges.gathers.size(), 1u);
  EXPECT_FALSE(joined->exchanges.isFlat);
}

TEST_F(AllReducePlanTest, WhatIsNotLinearKeepsThemApart) {
  parse(makeHsdp("%3 = \"stablehlo.tanh\"(%2) : (tensor<1024x8xf32>) -> "
                 "tensor<1024x8xf32>\n"));
  Decision<AllReducePlan> plan = decide();
  ASSERT_TRUE(static_cast<bool>(plan));
  EXPECT_TRUE(std::holds_alternative<SplitAlone>(*plan));
}

TEST_F(AllReducePlanTest, AnotherReaderKeepsThemApart) {
  parse(makeHsdp(kConvert + "%read = \"stablehlo.abs\"(%2) : "
                            "(tensor<1024x8xf32>) -> tensor<1024x8xf32>\n"));
  EXPECT_FALSE(findPartner(allReduce).has_value());
}

TEST_F(AllReducePlanTest, AScatterIsThePartnerOfOneAllReduceOnly) {
  parse(makeHsdp(kConvert));
  AllReducePlanner planner(
      {getQuant(WireFormatKind::I8), getQuant(WireFormatKind::I4)},
      getQuant(WireFormatKind::I8), /*stages=*/1);
  Decision<AllReducePlan> first = planner.decide(allReduce, std::nullopt);
  Decision<AllReducePlan> second = planner.decide(allReduce, std::nullopt);
  EXPECT_TRUE(std::holds_alternative<SplitWithScatter>(*first));
  EXPECT_TRUE(std::holds_alternative<SplitAlone>(*second));
}

TEST_F(AllReducePlanTest, NothingChanges) {
  parse(makeHsdp(kConvert));
  auto print = [&] {
    std::string text;
    llvm::raw_string_ostream(text) << module->get();
    return text;
  };
  std::string before = print();
  EXPECT_TRUE(static_cast<bool>(decide()));
  EXPECT_FALSE(static_cast<bool>(decide("node=400gbyte,gpu=400gbyte", 0)));
  EXPECT_EQ(print(), before);
}

} // namespace
