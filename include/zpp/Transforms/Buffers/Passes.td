//===- Passes.td - Passes on host functions ----------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_BUFFERS_PASSES
#define ZPP_TRANSFORMS_BUFFERS_PASSES

include "zpp/Transforms/PassOptions.td"

def ViewPartsPass : Pass<"zero-view-parts"> {
  let summary = "Read the parts of a tensor as views of its buffer";
  let description = [{
    Where zero ops read more than `max-slices` slices of what an op has written
    into a tensor of its own, and nothing else is done with it, replaces the
    slices by views of its future buffer. Bufferization gives the same with and
    without this pass, but compares each slice with all others, in quadratic
    time.
  }];
  let options = [
    Option<"maxSlices", "max-slices", "unsigned", "16",
           "Leave as many slices alone, which cost no time that one would "
           "notice">,
  ];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect",
                           "::mlir::memref::MemRefDialect"];
}

def ForwardPartsPass : Pass<"zero-forward-parts"> {
  let summary = "Compute parts of concatenations in their place";
  let description = [{
    Bufferization turns a concatenation into an allocation, directly followed by
    copies of the parts. Where a zero op of the same block computes a part into
    a buffer of its own, the op writes to the place in the whole instead, and
    the copy is gone. This applies to chunks of several tensors in the buffer of
    one exchange, and to the stages of a collective in its result. Zero ops may
    read the part, too, if nothing overwrites the whole. The time is linear in
    the number of parts.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def ResultsToArgumentsPass
    : Pass<"zero-results-to-arguments", "::mlir::ModuleOp"> {
  let summary = "Let callers provide the memory of results";
  let description = [{
    The dense buffers that a function returns become its last arguments, marked
    `bufferize.result`. The argument replaces the buffer that was allocated for
    the result, even if that buffer has another shape. Other results are copied
    into their arguments. Callers allocate the buffers that they pass.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def DenseOperandsPass : Pass<"zero-dense-operands"> {
  let summary = "Copy buffers to where the runtime can use them";
  let description = [{
    If the runtime does not support the strides of an operand of a `zero` op,
    the op gets a new dense buffer instead. An input is copied into it before
    the op; a destination is copied out of it after the op.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def PlanWorkspacePass : Pass<"zero-plan-workspace", "::mlir::ModuleOp"> {
  let summary = "Give temporary buffers their place in one workspace";
  let description = [{
    In every function with `zero` ops, and in its callers, each allocation of
    static size becomes a part of a workspace: a new last argument of type
    memref<Wxi8>, marked `zpp.workspace`. The workspace of a callee is a part of
    its caller's. A function that allocates nothing has no workspace.

    Parts are placed in the order of decreasing size, each at the lowest free
    offset that is a multiple of 256 bytes. The option `reuse` decides which
    buffers may share memory:

    - `dependent`: two buffers share bytes if every op that accesses the one
      depends, through data, on every op that accesses the other. Sharing then
      adds no order between ops: the stages of a pipeline keep their own buffers
      and overlap.
    - `any`: two buffers share bytes if the last access to the one comes before
      the first access to the other in program order. This needs the least
      memory, but independent operations may wait for each other.
    - `none`: no two buffers share bytes.

    The pass leaves alone allocations of dynamic size, allocations that a loop
    carries into its next iteration or that a function returns, and functions
    with more than one block.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect"];
  let options = [
    Option<"reuse", "reuse", "::zpp::Reuse", "::zpp::Reuse::Dependent",
           "Which buffers may share memory",
           [{::llvm::cl::values(
               clEnumValN(::zpp::Reuse::None, "none", "no two buffers"),
               clEnumValN(::zpp::Reuse::Dependent, "dependent",
                          "those whose order follows from data"),
               clEnumValN(::zpp::Reuse::Any, "any",
                          "all that are not needed at the same time"))}]>,
    Option<"allFunctions", "all-functions", "bool", "false",
           "Plan functions without zero ops too">,
  ];
}

def PackArgumentsPass : Pass<"zero-pack-arguments", "::mlir::ModuleOp"> {
  let summary = "Let public functions take the rank and a list of buffers";
  let description = [{
    After `convert-zero-to-runtime`, public functions become C functions

    ```c
    void NAME(zpp_rt_rank *rank, void *const *buffers);
    ```

    where `buffers` lists the addresses of their former arguments. All other
    functions become internal. So does a function with instances, which takes a
    table of names (`zpp.names`) after the rank. Public functions with its name
    and those of its instances call it with a table each.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // ZPP_TRANSFORMS_BUFFERS_PASSES
