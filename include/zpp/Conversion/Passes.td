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
    is not needed. A collective with a `zpp.source`, to which nothing was done
    since its import, becomes the op again that it was. A `zero` op that is left
    is an error, but for those in the module `@zpp_host`, which is host code.

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

def ConvertZeroToXlaFfiPass
    : Pass<"convert-zero-to-xla-ffi", "::mlir::ModuleOp"> {
  let summary = "Lower zero.start and zero.wait to custom calls of libzpp_xla";
  let description = [{
    Every start becomes a custom call `zpp.start`, every wait one of `zpp.wait`,
    with the typed FFI (api_version 4):

    - `zpp.start`: operands inputs, ties, token; results outputs, workspace,
      ties, token.
    - `zpp.wait`: operands inputs, outputs, workspace, ties, token; results
      outputs, ties, token.

    The workspace, tensor<Wxi8>, is there if the callee, on buffers, takes one.
    The token is a tensor<1xi8> that all calls of a block pass on in program
    order, through loops too, so that every rank makes them in that order.
    Results that are operands alias them. `backend_config` of both is {bundle,
    function, inputs, outputs, workspace}: the bundle's id, the callee's name,
    and how many of each there are. Nothing has side effects but a wait for what
    nothing reads.

    The module `@zpp_host` stays, for the bundle.
  }];
  let options = [
    Option<"bundle", "bundle", "std::string", "\"\"",
           "Id of the bundle that has the functions (default: left to what "
           "makes the bundle)">,
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
    Copies of static shape in these functions become calls of
    `zpp_rt_copy_rows`. Calls do not branch on errors: a failure is sticky, so
    that the caller looks once, with `zpp_rt_rank_synchronize`.

    Tensors, and what an exchange sends and receives, must be dense; chunks that
    an op makes or reads may lie apart at equal distances
    (`memref<4x64xi8, strided<[256, 1], offset: 64>>`), so that several tensors
    share the buffer of an exchange. A `zero` op that is left is an error.

    With `device-memory` the host must not touch any buffer: every function
    takes the rank, and what is neither a `zero` op nor such a copy is an error.
    With `allocate-workspaces` public functions ask the runtime for the workspace
    that `zero-plan-workspace` has made their last argument.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::cf::ControlFlowDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::memref::MemRefDialect",
                           "::mlir::scf::SCFDialect"];
  let options = [
    Option<"deviceMemory", "device-memory", "bool", "false",
           "Buffers may be in memory that the host cannot reach">,
    Option<"allocateWorkspaces", "allocate-workspaces", "bool", "false",
           "Get the workspace of public functions from the runtime">,
  ];
}

#endif // ZPP_CONVERSION_PASSES
