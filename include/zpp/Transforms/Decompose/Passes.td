//===- Passes.td - Phase 4: exchanges of chunks ------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_DECOMPOSE_PASSES
#define ZPP_TRANSFORMS_DECOMPOSE_PASSES

include "zpp/Transforms/PassOptions.td"

def DecomposeReduceScatterPass
    : Zpp_ModulePass<"zero-decompose-reduce-scatter"> {
  let summary = "Turn scatters into all-to-all and local sums (qgZ, 3.3.1)";
  let description = [{
    A hop of a `reduce_scatter` becomes an `all_to_all`, whose `slices` say what
    goes to which device, and a `reduce` of what arrives. Scatters that an
    earlier pass has left alone (`zpp.reason`) stay.

    ```
    reduce_scatter %g                 ->  reduce(all_to_all(pack %g))
    ```
  }];
  let options = [
    StagesOption<"scatter">,
  ];
}

def ReorderSlicesPass : Zpp_ModulePass<"zero-reorder-slices"> {
  let summary = "Make the data for one device contiguous (qgZ, 3.3.3)";
  let description = [{
    An `all_to_all` with `slices` sends what these put into each chunk. A
    `pack_slices` before it does so instead, and the `all_to_all` sends its
    leading dim. What is quantized next then never has elements for two devices
    in one block.
  }];
}

def QuantizeAllToAllPass : Zpp_ModulePass<"zero-quantize-all-to-all"> {
  let summary = "Send quantized chunks in all-to-alls (qgZ, 3.3)";
  let description = [{
    An `all_to_all` with a format, `wire`, becomes one that moves bytes, with a
    `quantize` before it and a `dequantize` after it.
  }];
}

def QuantizeExchangesPass : Zpp_ModulePass<"zero-quantize-exchanges"> {
  let summary = "Send rows to experts and back in quantized form";
  let description = [{
    An all-to-all of the step that moves rows to experts or from them
    (rules.md, R20) becomes a `zero.all_to_all` with a format and an
    `unpack_slices`. Chunks are quantized along the last dim, and no block has
    elements of two rows. One that stays within a node stays as it is where
    links are not known, and so does one that would not become faster where they
    are. With `moments`, it rewrites the exchanges of `zero-assign-owners`
    instead.

    ```
    stablehlo.all_to_all %x           ->  unpack(all_to_all %x wire <i8>)
    ```
  }];
  let options = [
    FormatOption<"i8", "none or i8">,
    BlockOption,
    Option<"moments", "moments", "bool", "false",
           "Quantize exchanges of momenta with their owners, instead of those "
           "with experts">,
  ];
}

def DecomposeAllGatherPass : Zpp_ModulePass<"zero-decompose-all-gather"> {
  let summary = "Turn gathers into exchanges of local chunks";
  let description = [{
    A `zero.all_gather` becomes an `all_gather_chunks` of local tensors and an
    `unpack_slices`, which puts the chunks into the order of the tensor. The
    `encode` and `decode` of a quantized gather become `quantize` and
    `dequantize`.

    ```
    all_gather %w along [node, gpu]   ->  %0 = all_gather_chunks %w along [node]
                                          all_gather_chunks %0 along [gpu]
    ```
  }];
}

def FuseQuantizationPass : Zpp_ModulePass<"zero-fuse-quantization"> {
  let summary = "Fuse reordering, quantization and reduction (4.2)";
  let description = [{
    A `quantize` takes in the `pack_slices` before it, a `dequantize` the
    `unpack_slices` after it. A `dequantize` and the `reduce` that reads it
    become a `dequantize_reduce`; with the `quantize` of the next hop after it,
    a `dequantize_reduce_quantize`. Each is one kernel that computes what its
    parts do, but does not rotate a sum back to rotate it again.
  }];
}

def CoalesceCollectivesPass : Zpp_ModulePass<"zero-coalesce-collectives"> {
  let summary = "Let small tensors share one buffer";
  let description = [{
    Chains of decomposed ops share the buffers of their exchanges if these agree
    hop by hop in kind, axes and the number of rows that a device sends, if role
    and phase are the same, and if there is no heavy op of the compute between
    them. Rows are concatenated along their bytes, so that ops write and read
    rows at equal distances. Unquantized tensors travel as bytes beside
    quantized ones.

    A buffer takes tensors until it has `bytes` bytes, so that large tensors
    travel alone or with small ones. In the body of a loop, for tensors of more
    than one hop, it is full with a quarter of what the iteration sends, and at
    least 256 KiB: nothing is in flight from one iteration to the next, so the
    last buffer's hops follow each other, and the links wait meanwhile. This is
    not so in a loop that is planned to become layers (`zero-plan-loops`). If the
    last buffer does not become full, its tensors join the one before it.
    Secondary partitions (hpZ) that are kept in one buffer are also sent in one
    piece if later gathers read all of them, or all but a small part; each
    counts with the bytes that it had when it was kept.

    Small tensors, which take less time on the links than they take to start,
    also join across heavy ops: a gather the one before it, a gradient the one
    after it. Outside of loops they do so up to a sixteenth of the largest
    ones. In the body of a loop, others do so as well where that compute
    takes less time on a fast device than another transfer would cost. A
    gradient counts where it is computed there, since scans scatter all of them
    at the end of an iteration. Gathers that an iteration needs first take only
    small ones along: nothing hides them. Where the loop becomes layers, its
    last gradients join the ones before them if they are small.

    ```
    exchange %a; exchange %b          ->  %ab = exchange [%a, %b]
    ```
  }];
  let options = [
    Option<"bytes", "bytes", "int64_t", "4194304",
           "Bytes that a device contributes to a buffer before it is full">,
  ];
}

def VerifyDecomposedPass : Pass<"zero-verify-decomposed"> {
  let summary = "Check that a program is decomposed";
  let description = [{
    Checks the contract of decomposed IR, which the later passes, the
    conversions and bufferization require. The pass changes nothing. It fails
    with an error at each op that breaks the contract:

    - D1: the `zero` ops are decomposed ops (`DecomposedOpInterface`), starts
      and waits. With `in-place` there are no starts and waits.
    - D2: an `all_to_all` has neither `slices` nor `wire`.
    - D3: no value is a partitioned tensor (`!zero.shard`).
    - D4: the outputs of each start are read by one wait in its block, which has
      the same inputs; `origins` has an attribute for each exchange.

    Hand-made pipelines should run it after decomposition.
  }];
  let options = [
    Option<"inPlace", "in-place", "bool", "false",
           "Allow no starts and waits: collectives must be where they were">,
  ];
}

#endif // ZPP_TRANSFORMS_DECOMPOSE_PASSES
