//===- GuestDialectsTest.cpp - Guests beside dialects that are there ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/GuestDialects.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace zpp;

namespace {

/// Stands for the real StableHLO of a compiler without Shardy.
struct OwnStablehlo : public Dialect {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(OwnStablehlo)
  static constexpr StringLiteral getDialectNamespace() {
    return StringLiteral("stablehlo");
  }
  explicit OwnStablehlo(MLIRContext *context)
      : Dialect(getDialectNamespace(), context, TypeID::get<OwnStablehlo>()) {
    allowUnknownOperations();
  }
};

constexpr const char *kNames[] = {"stablehlo", "sdy", "chlo", "mhlo", "mpmd"};

TEST(GuestDialects, TakeThePlacesThatAreFree) {
  DialectRegistry registry;
  registry.insert<OwnStablehlo>();
  registerGuestDialects(registry);
  MLIRContext context(registry);
  for (const char *name : kNames)
    EXPECT_TRUE(context.getOrLoadDialect(name)) << name;
  EXPECT_EQ(context.getOrLoadDialect("stablehlo")->getTypeID(),
            TypeID::get<OwnStablehlo>());
  // Unlike the guest, it has no opaque attributes.
  EXPECT_TRUE(parseSourceString<ModuleOp>(
      R"("stablehlo.op"() {a = #sdy.any<thing>} : () -> ())", &context));
  ScopedDiagnosticHandler silent(&context, [](Diagnostic &) {});
  EXPECT_FALSE(parseSourceString<ModuleOp>(
      R"("stablehlo.op"() {a = #stablehlo.any<thing>} : () -> ())", &context));
}

TEST(GuestDialects, AreRegisteredOnce) {
  DialectRegistry registry;
  registerGuestDialects(registry);
  registerGuestDialects(registry);
  MLIRContext context(registry);
  for (const char *name : kNames)
    EXPECT_TRUE(context.getOrLoadDialect(name)) << name;
  EXPECT_NE(context.getOrLoadDialect("stablehlo")->getTypeID(),
            TypeID::get<OwnStablehlo>());
}

} // namespace
