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

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%x: tensor<4x272xi8>) -> tensor<4x272xi8> {
      %e = tensor.empty() : tensor<4x272xi8>
      %0 = zero.all_to_all %x along ["gpu"] on #mesh into %e
          : tensor<4x272xi8> into tensor<4x272xi8> -> tensor<4x272xi8>
      return %0 : tensor<4x272xi8>
    }
    ```

    *Output*:

    ```mlir
    func.func @step(%arg0: tensor<4x272xi8>) -> tensor<4x272xi8> {
      %0 = "stablehlo.all_to_all"(%arg0)
          <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          concat_dimension = 0 : i64, replica_groups =
          dense<[[0, 1, 2, 3], [4, 5, 6, 7]]>
          : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 0
          : i64}> : (tensor<4x272xi8>) -> tensor<4x272xi8>
      return %0 : tensor<4x272xi8>
    }
    ```
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

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 2>
    module @zpp_host {
      func.func @gather(%x: tensor<4xf32>) -> tensor<2x4xf32> {
        %e = tensor.empty() : tensor<2x4xf32>
        %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e :
            tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
        return %0 : tensor<2x4xf32>
      }
    }
    func.func @step(%x: tensor<4xf32>) -> tensor<2x4xf32> {
      %0 = zero.start @zpp_host::@gather(%x) : (tensor<4xf32>) ->
          tensor<2x4xf32>
      %1 = zero.wait %0 from(%x : tensor<4xf32>) : tensor<2x4xf32>
      return %1 : tensor<2x4xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 2>
    module @zpp_host {
      func.func @gather(%arg0: tensor<4xf32>) -> tensor<2x4xf32> {
        %0 = tensor.empty() : tensor<2x4xf32>
        %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 :
            tensor<4xf32> into tensor<2x4xf32> -> tensor<2x4xf32>
        return %1 : tensor<2x4xf32>
      }
    }
    func.func @step(%arg0: tensor<4xf32>) -> tensor<2x4xf32> {
      %0 = "stablehlo.constant"() <{value = dense<0> : tensor<1xi8>}> : () ->
          tensor<1xi8>
      %1:2 = "stablehlo.custom_call"(%arg0, %0) <{api_version = 4 : i32,
          backend_config = {bundle = "", deferrable = false, function =
          "gather", inputs = 1 : i64, outputs = 1 : i64, workspace = 0 : i64},
          call_target_name = "zpp.start", called_computations = [],
          has_side_effect = false, operand_layouts = [dense<0> :
          tensor<1xindex>, dense<0> : tensor<1xindex>], output_operand_aliases =
          [#stablehlo.output_operand_alias<output_tuple_indices = [1],
          operand_index = 1, operand_tuple_indices = []>], result_layouts =
          [dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]}> :
          (tensor<4xf32>, tensor<1xi8>) -> (tensor<2x4xf32>, tensor<1xi8>)
      %2:2 = "stablehlo.custom_call"(%arg0, %1#0, %1#1) <{api_version = 4 : i32,
          backend_config = {bundle = "", function = "gather", inputs = 1 : i64,
          outputs = 1 : i64, workspace = 0 : i64}, call_target_name =
          "zpp.wait", called_computations = [], has_side_effect = false,
          operand_layouts = [dense<0> : tensor<1xindex>, dense<[1, 0]> :
          tensor<2xindex>, dense<0> : tensor<1xindex>], output_operand_aliases =
          [#stablehlo.output_operand_alias<output_tuple_indices = [0],
          operand_index = 1, operand_tuple_indices = []>,
          #stablehlo.output_operand_alias<output_tuple_indices = [1],
          operand_index = 2, operand_tuple_indices = []>], result_layouts =
          [dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]}> :
          (tensor<4xf32>, tensor<2x4xf32>, tensor<1xi8>) -> (tensor<2x4xf32>,
          tensor<1xi8>)
      return %2#0 : tensor<2x4xf32>
    }
    ```
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

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 2>
    func.func @exchange(%x: memref<2x64xi8>, %y: memref<2x64xi8>) {
      zero.all_to_all %x along ["gpu"] on #mesh into %y : memref<2x64xi8> into
          memref<2x64xi8> loc("step.py":12:3)
      return
    }
    ```

    *Output*:

    ```mlir
    llvm.mlir.global internal constant @zpp_rt_string("step.py:12:3\00")
        {addr_space = 0 : i32}
    llvm.mlir.global internal constant @zpp_rt_string_0("gpu\00") {addr_space =
        0 : i32}
    llvm.mlir.global internal constant @zpp_rt_axes() {addr_space = 0 : i32} :
        !llvm.struct<(ptr, i64, i64)> {
      %0 = llvm.mlir.undef : !llvm.struct<(ptr, i64, i64)>
      %1 = llvm.mlir.addressof @zpp_rt_string_0 : !llvm.ptr
      %2 = llvm.insertvalue %1, %0[0] : !llvm.struct<(ptr, i64, i64)>
      %3 = llvm.mlir.constant(1 : i64) : i64
      %4 = llvm.insertvalue %3, %2[1] : !llvm.struct<(ptr, i64, i64)>
      %5 = llvm.mlir.constant(2 : i64) : i64
      %6 = llvm.insertvalue %5, %4[2] : !llvm.struct<(ptr, i64, i64)>
      llvm.return %6 : !llvm.struct<(ptr, i64, i64)>
    }
    llvm.mlir.global internal constant @zpp_rt_string_1("gpu:2\00") {addr_space
        = 0 : i32}
    llvm.mlir.global internal constant @zpp_rt_exchange_desc() {addr_space = 0 :
        i32} : !llvm.struct<(i64, ptr, ptr, i64, i64, ptr)> {
      %0 = llvm.mlir.undef : !llvm.struct<(i64, ptr, ptr, i64, i64, ptr)>
      %1 = llvm.mlir.constant(48 : i64) : i64
      %2 = llvm.insertvalue %1, %0[0] : !llvm.struct<(i64, ptr, ptr, i64, i64,
          ptr)>
      %3 = llvm.mlir.addressof @zpp_rt_string : !llvm.ptr
      %4 = llvm.insertvalue %3, %2[1] : !llvm.struct<(i64, ptr, ptr, i64, i64,
          ptr)>
      %5 = llvm.mlir.addressof @zpp_rt_axes : !llvm.ptr
      %6 = llvm.insertvalue %5, %4[2] : !llvm.struct<(i64, ptr, ptr, i64, i64,
          ptr)>
      %7 = llvm.mlir.constant(1 : i64) : i64
      %8 = llvm.insertvalue %7, %6[3] : !llvm.struct<(i64, ptr, ptr, i64, i64,
          ptr)>
      %9 = llvm.mlir.constant(64 : i64) : i64
      %10 = llvm.insertvalue %9, %8[4] : !llvm.struct<(i64, ptr, ptr, i64, i64,
          ptr)>
      %11 = llvm.mlir.addressof @zpp_rt_string_1 : !llvm.ptr
      %12 = llvm.insertvalue %11, %10[5] : !llvm.struct<(i64, ptr, ptr, i64,
          i64, ptr)>
      llvm.return %12 : !llvm.struct<(i64, ptr, ptr, i64, i64, ptr)>
    }
    llvm.func @zpp_rt_all_to_all(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) ->
        i32
    func.func @exchange(%arg0: !llvm.ptr, %arg1: memref<2x64xi8>, %arg2:
        memref<2x64xi8>) {
      %intptr = memref.extract_aligned_pointer_as_index %arg1 : memref<2x64xi8>
          -> index
      %0 = arith.index_cast %intptr : index to i64
      %1 = llvm.inttoptr %0 : i64 to !llvm.ptr
      %intptr_0 = memref.extract_aligned_pointer_as_index %arg2 :
          memref<2x64xi8> -> index
      %2 = arith.index_cast %intptr_0 : index to i64
      %3 = llvm.inttoptr %2 : i64 to !llvm.ptr
      %4 = llvm.mlir.addressof @zpp_rt_exchange_desc : !llvm.ptr
      %5 = llvm.call @zpp_rt_all_to_all(%arg0, %4, %1, %3) : (!llvm.ptr,
          !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
      return
    }
    ```
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
