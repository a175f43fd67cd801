//===- StoredValuesTest.cpp - What ops write to memory --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cost/PeakMemory.h"

#include "ParsedModule.h"

using namespace mlir;
using namespace zpp;

namespace {

TEST(StoredValuesTest, FusesCallsOfElementwiseFunctions) {
  ParsedModule module(R"(
    func.func @double(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
      %0 = "stablehlo.add"(%x, %x)
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %1 = "stablehlo.negate"(%0) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
    }
    func.func @square(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %0 = "stablehlo.dot"(%x, %x)
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      return %0 : tensor<8x8xf32>
    }
    func.func @again(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %0 = call @again(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
      return %0 : tensor<8x8xf32>
    }
    func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %0:2 = func.call @double(%x) {tag = "double"}
        : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
      %1 = func.call @square(%0#0) {tag = "square"}
        : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %2 = func.call @again(%1) {tag = "again"}
        : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %3 = "stablehlo.add"(%0#1, %2)
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      return %3 : tensor<8x8xf32>
    })");
  StoredValues stored;
  // The product reads the first result, the second is part of the last kernel.
  EXPECT_TRUE(stored.isStored(module.op("double")->getResult(0)));
  EXPECT_FALSE(stored.isStored(module.op("double")->getResult(1)));
  EXPECT_TRUE(stored.storesAny(module.op("double")));
  EXPECT_TRUE(stored.storesAny(module.op("square")));
  EXPECT_TRUE(stored.storesAny(module.op("again")));
}

TEST(StoredValuesTest, StoresWhatCastsMake) {
  ParsedModule module(R"(
    func.func @main(%x: tensor<8x8xf32>) -> (tensor<8x8xbf16>, tensor<8x8xf32>) {
      %0 = "stablehlo.dot"(%x, %x) {tag = "cast"}
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %1 = "stablehlo.convert"(%0) : (tensor<8x8xf32>) -> tensor<8x8xbf16>
      %2 = "stablehlo.dot"(%x, %x) {tag = "both"}
        : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
      %3 = "stablehlo.convert"(%2) : (tensor<8x8xf32>) -> tensor<8x8xbf16>
      %4 = "stablehlo.dot"(%1, %3) {tag = "wider"}
        : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
      %5 = "stablehlo.convert"(%4) : (tensor<8x8xbf16>) -> tensor<8x8xf32>
      %6 = "stablehlo.custom_call"(%5) {call_target_name = "f", tag = "call"}
        : (tensor<8x8xf32>) -> tensor<8x8xf32>
      %7 = "stablehlo.convert"(%6) : (tensor<8x8xf32>) -> tensor<8x8xbf16>
      return %7, %2 : tensor<8x8xbf16>, tensor<8x8xf32>
    })");
  StoredValues stored;
  auto getBytes = [&](StringRef tag) {
    return stored.getStoredBytes(module.op(tag)->getResult(0));
  };
  EXPECT_EQ(getBytes("cast"), 128);
  EXPECT_EQ(getBytes("both"), 256);
  EXPECT_EQ(getBytes("wider"), 128);
  // What XLA calls writes its own results.
  EXPECT_EQ(getBytes("call"), 256);
}

} // namespace
