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
    Replaces each decomposed `zero` op with StableHLO that computes the same bits
    on any PJRT device. Collectives become `all_gather` and `all_to_all` with
    dense replica groups; quantization becomes arithmetic that follows
    `zpp/Support/BlockQuant.h`. Ops are built by name, so StableHLO itself is not
    needed. A collective that still has its `zpp.source`, because no pass has
    changed it since its import, becomes the original op again.

    It is an error if a `zero` op cannot be converted. The module `@zpp_host` is
    host code and is left alone.

    With `outline`, the arithmetic goes into private functions. All ops of the
    same kind and shape share one function, which keeps a module with many layers
    small.
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
    Each start becomes a custom call of `zpp.start`, and each wait a custom call
    of `zpp.wait`, with the typed FFI (api_version 4):

    | target | operands | results |
    | --- | --- | --- |
    | `zpp.start` | inputs, ties, token | outputs, workspace, ties, token |
    | `zpp.wait` | inputs, outputs, workspace, ties, token | outputs, ties, token |

    The workspace is a tensor<Wxi8>. It exists only if the callee, which works on
    buffers, takes one. The token is a tensor<1xi8>. All calls of a block pass it
    on in program order, also through loops, so every rank makes the calls in
    this order. A result that is also an operand aliases it. So does the sum of
    a `zero.dequantize_add` to an input that the callee does not read afterwards:
    what is held is updated in place, and the wait does not get that input.

    The `backend_config` of both is {bundle, function, inputs, outputs,
    workspace}: the id of the bundle, the name of the callee, and the number of
    inputs, outputs and workspaces that the call has. Calls have no side effects, except for a wait
    whose outputs nothing reads.

    The module `@zpp_host` remains. `zpp-bundle` makes a library of it.
  }];
  let options = [
    Option<"bundle", "bundle", "std::string", "\"\"",
           "Id of the bundle with the functions (default: zpp-bundle fills it "
           "in)">,
  ];
}

def ConvertZeroToRuntimePass
    : Pass<"convert-zero-to-runtime", "::mlir::ModuleOp"> {
  let summary = "Lower decomposed zero ops on buffers to calls of libzpp_rt";
  let description = [{
    Replaces each decomposed `zero` op, after bufferization, with a call of the
    entry point that `zpp/Runtime/Entrypoints.def` names. The call passes a
    constant descriptor, which also names the source location. Functions with
    such ops, and their callers, take the rank (`zpp_rt_rank *`) as a new first
    argument. Copies of static shape in these functions become calls of
    `zpp_rt_copy_rows`. The calls do not branch on errors. A failure is sticky,
    so the caller checks once, with `zpp_rt_rank_synchronize`.

    A function with instances (`zero.instance`) takes a table of names after the
    rank, and puts them into copies of the descriptors. `zpp.names` of the
    function and of each instance names its own table. `zero-pack-arguments`
    passes it.

    Tensors must be dense, and so must the buffers that an exchange sends and
    receives. The chunks that another op writes or reads may lie apart at equal
    distances (`memref<4x64xi8, strided<[256, 1], offset: 64>>`), which lets
    several tensors share the buffer of one exchange. Elements that are only
    moved take 1, 2, 4 or 8 bytes. It is an error if a `zero` op cannot be
    converted.

    With `device-memory`, the host must not access any buffer. Every function
    takes the rank, and any access other than a `zero` op or a copy of static
    shape is an error. With `allocate-workspaces`, public functions ask the
    runtime for the workspace that `zero-plan-workspace` has made their last
    argument.
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
