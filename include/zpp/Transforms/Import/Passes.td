//===- Passes.td - Phase 1: import -------------------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_IMPORT_PASSES
#define ZPP_TRANSFORMS_IMPORT_PASSES

include "zpp/Transforms/PassOptions.td"

def ImportCompiledPass : Zpp_ModulePass<"zero-import-compiled"> {
  let summary = "Import a module that XLA is compiling";
  let description = [{
    JAX hands over the HLO of a step between XLA's partitioner and its fusions
    (`zpp run`). As StableHLO, this is the program of one device without a
    manual computation around it. It has the bodies of its loops twice, as
    regions and as functions that nothing calls, and does not say on how many
    devices it runs.

    This pass erases the functions and writes down the number of devices of
    `mesh`. Partition p is device p of the mesh, in row-major order. Then
    `zero-import-partitioned` finds the scatters. Modules that were not HLO
    (`mhlo.is_dynamic`), say on how many partitions they run, or have a manual
    computation, stay as they are.
  }];
  let options = [
    Option<"mesh", "mesh", "std::string", "\"\"",
           "The devices that run the module, as tiers from slowest to fastest, "
           "such as node:2,gpu:4">,
  ];
}

def ImportPartitionedPass : Zpp_ModulePass<"zero-import-partitioned"> {
  let summary = "Import scatters of steps that XLA has partitioned";
  let description = [{
    XLA's partitioner writes a reduce-scatter as an all-reduce followed by
    slices: every device cuts out its part, at an offset that it computes from
    its partition id, often with a constant table. If the offsets on all devices
    fit the groups, the two become a `stablehlo.reduce_scatter` over the same
    groups, in the order of the slices. Casts, transposes and reshapes between
    them then work on the slice. Where as many devices of a group take each
    slice, as where weights are replicated between nodes, the scatter is among
    those that take different ones, and a `stablehlo.all_reduce` of the slice,
    among those that take the same, comes after it.

    Sums over dims of size 1, which derivatives of broadcasts leave, become
    reshapes: they only move elements.

    The gradient of a weight that is used twice, as a tied embedding is, is the
    sum of two, each of which the partitioner sums over the devices. They are
    added first and summed once, in the more precise of their types.

    A scan without a checkpoint saves what its backward pass gathers again: XLA
    saves each device's part, in a stack. If a loop makes all rows of a stack
    from slices of other stacks, by casts and elementwise ops alone, loops that
    gather a row make it themselves, from the same stacks.

    The gradient of `w` in `x @ w` is the transpose of a product, which the
    partitioner sums before it is transposed. If nothing else reads the product
    and its sum, the operands of the product are exchanged instead: an update
    that transposes cannot be made in place, and blocks of a format would lie
    along the columns of `w`.

    XLA's text has the ops in the order in which results need them: products
    that only gradients need come last. Each sum of a tensor, with the ops that
    only this sum needs, moves up to where all that it depends on is known, as
    in the order in which JAX has traced the step.

    The `mhlo.copy` ops of the partitioner, which equal their operands, and its
    attributes for layouts are removed. Groups over meshes that it made up
    become lists. If some reader of an all-reduce needs more than slices, the
    all-reduce stays as it is, with a remark.
  }];
}

def JoinProductsPass : Zpp_ModulePass<"zero-join-products"> {
  let summary = "Gather momenta once, whose products are split (Muon)";
  let description = [{
    Of a momentum that each device has a slice of, XLA's partitioner splits the
    product with itself and all products of an orthogonalization, and so may a
    step itself: each needs a gather of one operand, or a sum of what devices
    make of their slices. From the slice on, this pass follows what a device has
    of each tensor: all of it, the slice of a dim, or a summand. Ops of which
    that is known, in loops as well, then work on whole tensors behind one
    gather, and each device cuts its slice out of what others read. Numbers that
    such ops read must be alike on all devices.

    Sums are then taken in another order. So this is done only where the gather
    has the role of a moment (docs/rules.md, R19), which the pass asks on a copy
    of the module, and where it sends less than the collectives in whose place
    it stands, or takes less time where links are known. `zero-assign-owners`
    can have each matrix computed by one device instead of all.
  }];
  let options = [
    MeshOption<"the module's own mesh">,
    LinksOption<"not known">,
    DeviceOption<"A device, such as h100 (default: not known)">,
    WeightsOfOption<>,
    GradientsOfOption<>,
  ];
}

def ImportCollectivesPass : Zpp_ModulePass<"zero-import-collectives"> {
  let summary = "Import weight gathers and gradient sums (ZeRO-3, 2.2)";
  let description = [{
    Finds the collectives of ZeRO-3/FSDP in an exported step and turns them into
    `zero` ops on partitioned tensors. Replica groups, dense or as mesh axes,
    are factored over the mesh. Everything else stays as it is, with a remark
    that says why. Functions with collectives in them are inlined into the step
    first. A collective that moves a bucket of several tensors becomes one per
    tensor if at least one of them is imported.

    Where the value of a collective comes from and where it goes decide which
    role it has: it gathers a *weight*, sums a *gradient*, or moves a *moment*,
    rows of an *exchange* with experts, or something else, which stays exact.
    docs/rules.md has the rules, by number; the one that decided is in each
    remark and in the attribute `zpp.origin`. An exchange is not imported:
    zero-quantize-exchanges rewrites it.

    Every collective gets a `zpp.origin` attribute, from which `zero-report`
    knows what it was before the rewrite. An imported one also keeps the
    attributes of its op, as `zpp.source`: if no pass rewrites it, it becomes
    that op again.
  }];
  let options = [
    MeshOption<"the module's own mesh">,
    LinksOption<"not known">,
    DeviceOption<"A device, such as h100, or its dense peak in 16 bits and the "
                 "speed of its memory, such as 989tflops,4800gbyte (default: "
                 "not known)">,
    WeightsOfOption<>,
    GradientsOfOption<>,
    Option<"weights", "weights", "bool", "true", "Import weight gathers">,
    Option<"gradients", "gradients", "bool", "true",
           "Import gradient scatters and all-reduces">,
    Option<"moments", "moments", "bool", "false",
           "Import gathers of momenta that products contract">,
    Option<"exchanges", "exchanges", "bool", "false",
           "Leave the decision about exchanges with experts to "
           "zero-quantize-exchanges">,
    Option<"updated", "updated", "bool", "false",
           "Leave the decision about gathers of state to zero-send-updates">,
  ];
}

def RegatherPass : Zpp_ModulePass<"zero-regather"> {
  let summary = "Drop gathered weights after the forward pass (ZeRO-3, alg. 1)";
  let description = [{
    A weight that is gathered once and read in both passes is kept whole in
    between. This pass gathers it again for the reads of the backward pass,
    after an `optimization_barrier` that keeps the two gathers apart. A read
    belongs to the forward pass if the first gradient scatter (the one with the
    shortest chain of ops before it) depends on it. Casts of the forward pass
    are repeated, also if a loop carries their results unchanged.
  }];
}

def SetFloorsPass : Zpp_ModulePass<"zero-set-floors"> {
  let summary = "Set the narrowest formats of single collectives";
  let description = [{
    Records in `zpp.origin` that a collective is to have no narrower format than
    its floor: `i8`, or `none` for no format at all. The passes that decide about
    formats read it: one that was to have i4 has i8, and one with the floor none
    travels unquantized. All others keep their formats.

    Collectives are named by the number in their origin, as in reports, in traces
    and in the warnings of a guard. All gathers of a weight have the widest of
    their floors: the forward and the backward pass read the same bits.
  }];
  let options = [
    Option<"floors", "floors", "std::string", "\"\"",
           "Floors by number of the collective, such as 3=i8,7=none">,
  ];
}

#endif // ZPP_TRANSFORMS_IMPORT_PASSES
