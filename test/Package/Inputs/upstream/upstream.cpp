//===- upstream.cpp - A compiler that registers all of MLIR too -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With assertions, MLIR aborts where a pipeline is registered twice. MLIR is
// mostly packaged without them, so this program looks for itself.
//
//===----------------------------------------------------------------------===//

#include "zpp/InitAll.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;

static constexpr llvm::StringLiteral kProgram = R"mlir(
func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<1x32xi8>
  %y = tensor.empty() : tensor<8xf32>
  %c = tensor.expand_shape %x [[0, 1]] output_shape [1, 8]
    : tensor<8xf32> into tensor<1x8xf32>
  %q = zero.quantize %c quant <i8, block = 128> into %e
    : tensor<1x8xf32> into tensor<1x32xi8> -> tensor<1x32xi8>
  %r = zero.dequantize_reduce sum %q quant <i8, block = 128> into %y
    : tensor<1x32xi8> into tensor<8xf32> -> tensor<8xf32>
  return %r : tensor<8xf32>
}
)mlir";

int main() {
  zpp::registerAllPasses();
  for (const char *name : {"canonicalize", "one-shot-bufferize"})
    if (PassInfo::lookup(name)) {
      llvm::errs() << "zpp registered upstream's pass " << name << "\n";
      return 1;
    }
  if (PassPipelineInfo::lookup("buffer-deallocation-pipeline")) {
    llvm::errs() << "zpp registered a pipeline of upstream\n";
    return 1;
  }
  mlir::registerAllPasses();

  DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  zpp::registerAllDialects(registry);
  zpp::registerAllExtensions(registry);
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(kProgram, &context);
  PassManager pm(&context);
  if (!module || failed(parsePassPipeline("zero-to-llvm,canonicalize", pm)) ||
      failed(pm.run(*module)))
    return 1;
  module->print(llvm::outs());
  return 0;
}
