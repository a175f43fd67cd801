//===- consumer.cpp - A compiler that runs ZeRO++ in its pipeline ---------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an ML compiler does to use zpp: register its dialects, add its pipeline
// to a pass manager, run it on IR in memory. The module stands for what such a
// compiler holds: one device's part of a step on 2 nodes of 4 GPUs that gathers
// a weight, partitioned as ZeRO-3 does, and uses it.
//
//===----------------------------------------------------------------------===//

#include "zpp/InitAll.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

static constexpr llvm::StringLiteral kStep = R"mlir(
func.func public @main(%shard: tensor<32x64xf32>, %x: tensor<16x256xf32>)
    -> tensor<16x64xf32> {
  %w = "stablehlo.all_gather"(%shard) <{
    all_gather_dim = 0 : i64,
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
    replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>,
    use_global_device_ids}> : (tensor<32x64xf32>) -> tensor<256x64xf32>
  %y = "stablehlo.dot_general"(%x, %w) <{
    dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1],
                                           rhs_contracting_dimensions = [0]>}>
    : (tensor<16x256xf32>, tensor<256x64xf32>) -> tensor<16x64xf32>
  return %y : tensor<16x64xf32>
}
)mlir";

int main() {
  mlir::DialectRegistry registry;
  zpp::registerAllDialects(registry);
  zpp::registerAllExtensions(registry);
  // Takes the places of dialects that this program does not have.
  zpp::registerGuestDialects(registry);
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();

  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(kStep, &context);
  if (!module)
    return 1;

  zpp::ZeroPPOptions options;
  options.mesh = "node:2,gpu:4";
  // A forward pass does not show that its first argument is a weight.
  options.weightsOf = "0";
  mlir::PassManager pm(&context);
  zpp::buildZeroPPPipeline(pm, options);
  if (mlir::failed(pm.run(*module)))
    return 1;

  module->print(llvm::outs());
  return 0;
}
