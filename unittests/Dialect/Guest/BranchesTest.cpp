//===- BranchesTest.cpp - Views of manual computations and branches -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/Branches.h"

#include "ParsedModule.h"

using namespace mlir;
using namespace zpp;

namespace {

using Pairs = std::vector<std::pair<Value, Value>>;

Pairs getEntries(const BranchesView &view) {
  Pairs pairs;
  view.forEachEntry(
      [&](Value from, Value to) { pairs.emplace_back(from, to); });
  return pairs;
}

Pairs getExits(const BranchesView &view) {
  Pairs pairs;
  view.forEachExit([&](Value from, Value to) { pairs.emplace_back(from, to); });
  return pairs;
}

TEST(BranchesTest, PassesOperandsToAManualComputation) {
  ParsedModule module(R"(func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = "sdy.manual_computation"(%x) ({
    ^bb0(%a: tensor<8xf32>):
      %n = "stablehlo.negate"(%a) {tag = "n"}
        : (tensor<8xf32>) -> tensor<8xf32>
      "sdy.return"(%n) : (tensor<8xf32>) -> ()
    }) {tag = "manual"} : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  })");
  Operation *manual = module.op("manual");
  std::optional<BranchesView> view = BranchesView::get(manual);
  ASSERT_TRUE(view);
  ASSERT_EQ(view->getBodies().size(), 1u);
  EXPECT_EQ(getEntries(*view),
            Pairs({{module.input(0), view->getBodies()[0]->getArgument(0)}}));
  EXPECT_EQ(getExits(*view),
            Pairs({{module.value("n"), manual->getResult(0)}}));
  EXPECT_FALSE(BranchesView::get(module.op("n")));
}

// The predicate is no argument of a branch.
TEST(BranchesTest, LetsBranchesEndInOneResult) {
  ParsedModule module(R"(func.func @main(%p: tensor<i1>, %x: tensor<8xf32>)
      -> tensor<8xf32> {
    %y = "stablehlo.if"(%p) ({
      %n = "stablehlo.negate"(%x) {tag = "n"}
        : (tensor<8xf32>) -> tensor<8xf32>
      "stablehlo.return"(%n) : (tensor<8xf32>) -> ()
    }, {
      "stablehlo.return"(%x) : (tensor<8xf32>) -> ()
    }) {tag = "if"} : (tensor<i1>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  })");
  Operation *branch = module.op("if");
  std::optional<BranchesView> view = BranchesView::get(branch);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->getBodies().size(), 2u);
  EXPECT_TRUE(getEntries(*view).empty());
  EXPECT_EQ(getExits(*view), Pairs({{module.value("n"), branch->getResult(0)},
                                    {module.input(1), branch->getResult(0)}}));
}

} // namespace
