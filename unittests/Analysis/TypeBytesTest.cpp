//===- TypeBytesTest.cpp - Bytes of types ---------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/TypeBytes.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/MLIRContext.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "gtest/gtest.h"

#include <limits>

using namespace mlir;
using namespace zpp;

namespace {

class TypeBytesTest : public testing::Test {
protected:
  TypeBytesTest() { context.loadDialect<zero::ZeroDialect>(); }

  Type parse(StringRef text) { return parseType(text, &context); }

  MLIRContext context;
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST_F(TypeBytesTest, Elements) {
  EXPECT_EQ(getElementBits(parse("f32")), 32);
  EXPECT_EQ(getElementBits(parse("bf16")), 16);
  EXPECT_EQ(getElementBits(parse("i4")), 4);
  EXPECT_EQ(getElementBits(parse("i64")), 64);
  // A predicate takes a byte.
  EXPECT_EQ(getElementBits(parse("i1")), 8);
  EXPECT_EQ(getElementBits(parse("complex<f32>")), 64);
  EXPECT_EQ(getElementBits(parse("complex<f64>")), 128);
  EXPECT_EQ(getElementBits(parse("index")), 0);
}

TEST_F(TypeBytesTest, Shapes) {
  EXPECT_EQ(getBytes(parse("tensor<f32>")), 4);
  EXPECT_EQ(getBytes(parse("tensor<3x5xbf16>")), 30);
  EXPECT_EQ(getBytes(parse("memref<3x5xi8>")), 15);
  EXPECT_EQ(getBytes(parse("tensor<0x5xf32>")), 0);
  EXPECT_EQ(getBytes(parse("tensor<4xcomplex<f32>>")), 32);
  // Packed elements fill whole bytes together.
  EXPECT_EQ(getBytes(parse("tensor<3xi4>")), 2);
  EXPECT_EQ(getBytes(parse("tensor<3xi1>")), 3);
}

TEST_F(TypeBytesTest, UnknownSizesAreZero) {
  EXPECT_EQ(getBytes(parse("tensor<?x4xf32>")), 0);
  EXPECT_EQ(getBytes(parse("tensor<*xf32>")), 0);
  EXPECT_EQ(getBytes(parse("tensor<4xindex>")), 0);
  EXPECT_EQ(getBytes(parse("f32")), 0);
}

TEST_F(TypeBytesTest, PartitionedTensorsCountWhatADeviceHolds) {
  Type shard = parse("!zero.shard<16x4xf32, dim 0 = (\"gpu\") on "
                     "#zero.mesh<\"gpu\" = 4>>");
  EXPECT_EQ(getBytes(shard), 4 * 4 * 4);
  Type whole = parse("!zero.shard<16x4xf32, dim 0 = (4) on "
                     "#zero.mesh<\"gpu\" = 4>>");
  EXPECT_EQ(getBytes(whole), 16 * 4 * 4);
}

TEST_F(TypeBytesTest, SizesSaturate) {
  EXPECT_EQ(getBytes(parse("tensor<1152921504606846976xi64>")), kMost);
  EXPECT_EQ(getBytes(parse("tensor<4611686018427387904x4xf32>")), kMost);
  EXPECT_EQ(getBytes(parse("tensor<4611686018427387904x4x0xf32>")), 0);
  // The largest sizes that fit.
  EXPECT_EQ(getBytes(parse("tensor<1152921504606846975xi64>")), kMost - 7);
  EXPECT_EQ(getBytes(parse("tensor<9223372036854775807xi8>")), kMost);
  EXPECT_EQ(getBytes(parse("tensor<9223372036854775807xi4>")), kMost / 2 + 1);
}

TEST_F(TypeBytesTest, SumsSaturate) {
  Type large = parse("tensor<1152921504606846975xi64>");
  EXPECT_EQ(getBytes(TypeRange({large, large, large})), kMost);
  EXPECT_EQ(getBytes(TypeRange(
                {parse("tensor<2xf32>"), parse("f32"), parse("tensor<3xi8>")})),
            11);
}

} // namespace
