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

    With `outline` the arithmetic goes into private functions that all ops of
    one kind and shape share, which keeps a module of many layers small.
  }];
  let dependentDialects = ["::mlir::func::FuncDialect",
                           "::mlir::tensor::TensorDialect"];
  let options = [
    Option<"outline", "outline", "bool", "false",
           "Share the arithmetic of equal ops in private functions">,
  ];
}

def ConvertZeroToRuntimePass
    : Pass<"convert-zero-to-runtime", "::mlir::ModuleOp"> {
  let summary = "Lower decomposed zero ops on buffers to calls of libzpp_rt";
  let description = [{
    Replaces every decomposed `zero` op, after bufferization, by a call of the
    entry point of its name (`zpp/Runtime/Entrypoints.def`), with a constant
    descriptor that also names the source location. Functions with such ops, and
    their callers, get the rank (`zpp_rt_rank *`) as a new first argument.
    Calls do not branch on errors: a failure is sticky, so that the caller looks
    once, with `zpp_rt_rank_synchronize`. Buffers must be dense; a `zero` op that
    is left is an error.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::memref::MemRefDialect"];
}

#endif // ZPP_CONVERSION_PASSES
