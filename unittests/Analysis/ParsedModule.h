//===- ParsedModule.h - Modules from text for tests -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_ANALYSIS_PARSEDMODULE_H
#define ZPP_UNITTESTS_ANALYSIS_PARSEDMODULE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "zpp/Dialect/Guest/GuestDialects.h"
#include "zpp/Dialect/Zero/IR/Zero.h"
#include "gtest/gtest.h"

#include <string>

namespace zpp {

/// A module parsed from text. Ops with an attribute `tag` are found by it.
class ParsedModule {
public:
  explicit ParsedModule(const std::string &text) {
    mlir::DialectRegistry registry;
    registry.insert<mlir::func::FuncDialect, zero::ZeroDialect>();
    registerGuestDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module) << text;
  }

  mlir::ModuleOp get() { return *module; }

  mlir::Operation *op(llvm::StringRef tag) {
    mlir::Operation *found = nullptr;
    module->walk([&](mlir::Operation *op) {
      if (auto attr = op->getAttrOfType<mlir::StringAttr>("tag");
          attr && attr.getValue() == tag)
        found = op;
    });
    EXPECT_NE(found, nullptr) << tag.str();
    return found;
  }

  /// The first result of the op with this tag.
  mlir::Value value(llvm::StringRef tag) { return op(tag)->getResult(0); }

  /// An argument of @main.
  mlir::BlockArgument input(unsigned number) {
    return module->lookupSymbol<mlir::func::FuncOp>("main").getArgument(number);
  }

private:
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// A loop of `trips` iterations that carries a counter and the values `carried`
/// ("%a, %b"), whose types are `types`. In the body they are `arguments`, with
/// types, after %i; `body` ends with the values of the next iteration in
/// `next`.
inline std::string makeLoop(const std::string &results, int trips,
                            const std::string &carried,
                            const std::string &types,
                            const std::string &arguments,
                            const std::string &body, const std::string &next) {
  std::string scalar = "tensor<i32>";
  std::string constant = "\"stablehlo.constant\"() <{value = dense<";
  return "%begin = " + constant + "0> : " + scalar + "}> : () -> " + scalar +
         "\n%end = " + constant + std::to_string(trips) + "> : " + scalar +
         "}> : () -> " + scalar + "\n" + results +
         " = \"stablehlo.while\"(%begin, " + carried +
         ") ({\n^bb0(%i: " + scalar + ", " + arguments +
         "):\n%less = \"stablehlo.compare\"(%i, %end) <{comparison_direction = "
         "#stablehlo<comparison_direction LT>}> : (" +
         scalar + ", " + scalar +
         ") -> tensor<i1>\n\"stablehlo.return\"(%less) : (tensor<i1>) -> ()\n"
         "}, {\n^bb0(%i: " +
         scalar + ", " + arguments + "):\n%one = " + constant +
         "1> : " + scalar + "}> : () -> " + scalar +
         "\n%inext = \"stablehlo.add\"(%i, "
         "%one) : (" +
         scalar + ", " + scalar + ") -> " + scalar + "\n" + body +
         "\n\"stablehlo.return\"(%inext, " + next + ") : (" + scalar + ", " +
         types + ") -> ()\n}) {tag = \"loop\"} : (" + scalar + ", " + types +
         ") -> (" + scalar + ", " + types + ")\n";
}

} // namespace zpp

#endif // ZPP_UNITTESTS_ANALYSIS_PARSEDMODULE_H
