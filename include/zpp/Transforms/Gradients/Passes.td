//===- Passes.td - Phase 3: how gradients travel -----------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_GRADIENTS_PASSES
#define ZPP_TRANSFORMS_GRADIENTS_PASSES

include "zpp/Transforms/PassOptions.td"

def SplitAllReducePass : Zpp_ModulePass<"zero-split-all-reduce"> {
  let summary = "Reduce gradients in quantized form (HSDP, plain data "
                "parallelism)";
  let description = [{
    An all-reduce of a gradient becomes a scatter and a gather of the same
    pieces, hop by hop: faster tiers are scattered over first and gathered over
    last, so that each tier carries a part of the gradient alone. What is
    gathered has the format `reduced`. A device keeps of its own piece what it
    has sent, not what it had: all devices hold the same bits.

    If the operand is the result of a scatter (HSDP), the two become one, whose
    sums stay in f32 from hop to hop. Casts, transposes, reshapes and products
    with constants between the two come after the gather.

    Formats are those of tiers: an all-reduce over the slowest tier alone takes
    the last one. What does not shrink becomes the all-reduce again that it was.

    ```
    all_reduce %g                     ->  %sum = reduce_scatter %g, hop by hop
                                          decode(all_gather(encode %sum))
    ```
  }];
  let options = [
    FormatsOption,
    Option<"reduced", "reduced", "std::string", "\"i8\"",
           "Format in which the sum is gathered: none, i8 or i4">,
    StagesOption<"large all-reduce">,
    BlockOption,
    RotateOption,
    SplitSmallOption<"all-reduces of pieces that are too small to shrink, "
                     "unquantized">,
    SplitExactOption,
  ];
}

def SplitHierarchyPass : Zpp_ModulePass<"zero-split-hierarchy"> {
  let summary = "Split gradient scatters into one hop per tier (qgZ, 3.3.2)";
  let description = [{
    Hops go from the innermost tier outwards, so that no tier carries more bytes
    than with the plain scatter. The last format is that of the outermost tier,
    the one before it that of all tiers in between: `i8:i4` means i8 on every
    inner hop. A single format means one hop over the whole group.

    What hops would not make faster is left alone. With `split-small`, scatters
    that take less time on the links than they take to start are split all the
    same, unquantized: they can travel with a quantized one of their block over
    the same axes.

    With `rotate`, quantized hops send groups of that many elements multiplied by
    a Hadamard matrix. This spreads outliers, so that the steps of a block are
    finer.

    ```
    reduce_scatter %g                 ->  %0 = reduce_scatter %g along [gpu] wire i8
        along [node, gpu]                 reduce_scatter %0 along [node] wire i4
    ```
  }];
  let options = [
    FormatsOption,
    BlockOption,
    RotateOption,
    SplitSmallOption<"small scatters beside large ones, unquantized">,
    SplitExactOption,
  ];
}

def AccumulateGradientsPass : Zpp_ModulePass<"zero-accumulate-gradients"> {
  let summary = "Add up gradients of micro-batches before they cross slower "
                "tiers";
  let description = [{
    Hops are linear, but for what they round. Where a loop, or the step, adds up
    gradients, it adds up the partial sums that the hops within `group` leave,
    in f32, and the other hops run once, on the total. A loop then carries these
    sums, which are larger than gradients by the number of devices that the
    other hops add up.

    Between the scatter and the sum there may be casts, permutations, products
    with numbers that all devices know, and the stack that a loop over layers
    writes. What else reads a gradient, or the sum in the loop, leaves it as it
    is, with a remark. A scatter over slower tiers alone that an earlier pass
    has left alone stays one collective, for all layers of a stack.

    ```
    loop: %0 = scatter %g along [gpu]   ->  loop: %0 = scatter %g along [gpu]
          %1 = scatter %0 along [node]            %sum += %0
          %sum += %1                        scatter %sum along [node]
    ```
  }];
  let options = [
    Option<"group", "group", "std::string", /*default=*/"\"\"",
           "Group within which gradients are added up: a tier of the mesh, or "
           "the number of devices of its fastest tiers">,
  ];
}

#endif // ZPP_TRANSFORMS_GRADIENTS_PASSES
