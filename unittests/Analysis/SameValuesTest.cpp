//===- SameValuesTest.cpp - Tests of what devices have alike --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/SameValues.h"

#include "ParsedModule.h"

using namespace mlir;
using namespace zpp;

namespace {

TEST(SameValuesTest, PartsOfAnOperand) {
  ParsedModule module(R"(
  "sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=2]>, sym_name = "mesh"}>
    : () -> ()
  func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = "sdy.manual_computation"(%x) <{
      in_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>,
      out_shardings = #sdy.sharding_per_value<[<@mesh, [{"gpu"}]>]>,
      manual_axes = #sdy<manual_axes{"node", "gpu"}>}> ({
    ^bb0(%a: tensor<4xf32>):
      "sdy.return"(%a) : (tensor<4xf32>) -> ()
    }) {tag = "manual"} : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  })");
  Operation *manual = module.op("manual");
  SameValues sameValues;
  EXPECT_TRUE(sameValues.isReplicated(manual, 0, {{0, 2}, {1, 3}}));
  EXPECT_FALSE(sameValues.isReplicated(manual, 0, {{0, 1}, {2, 3}}));
  // One device of each node, with another part of it.
  EXPECT_FALSE(sameValues.isReplicated(manual, 0, {{0, 3}, {1, 2}}));
  EXPECT_FALSE(sameValues.isReplicated(manual, 0, {{0, 4}}));
}

} // namespace
