//===- Passes.td - Conversions out of the zero dialect -----*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_CONVERSION_PASSES
#define ZPP_CONVERSION_PASSES

include "mlir/Pass/PassBase.td"

def ConvertZeroToStablehloPass
    : Pass<"convert-zero-to-stablehlo", "::mlir::ModuleOp"> {
  let summary = "Lower decomposed zero ops to portable StableHLO";
  let description = [{
    Replaces every decomposed `zero` op by StableHLO that computes the same bits
    on any PJRT device: collectives by `all_gather` and `all_to_all` with dense
    replica groups, quantization by arithmetic that follows
    `zpp/Support/BlockQuant.h`. Ops are built by name, so that StableHLO itself
    is not needed. A `zero` op that is left is an error.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

#endif // ZPP_CONVERSION_PASSES
