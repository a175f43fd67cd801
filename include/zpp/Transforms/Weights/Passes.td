//===- Passes.td - Phase 2: how weights travel -------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_WEIGHTS_PASSES
#define ZPP_TRANSFORMS_WEIGHTS_PASSES

include "zpp/Transforms/PassOptions.td"

def QuantizeAllGatherPass : Zpp_ModulePass<"zero-quantize-all-gather"> {
  let summary = "Gather weights in quantized form (qwZ, 3.1)";
  let description = [{
    Rewrites a gather only if this pays: the quantized slice must be smaller,
    and where links are known the gather must be faster, including the time of the
    kernels.

    ```
    %whole = all_gather %w            ->  %whole = decode(all_gather(encode %w))
    ```

    With `moments`, it rewrites gathers of momenta, and not those of weights. A
    gather within a node stays as it is where links are not known.
  }];
  let options = [
    FormatOption<"i8", "i8 or i4">,
    BlockOption,
    Option<"singleOnly", "single-only", "bool", "false",
           "Leave gathers to and from a secondary partition as they are">,
    Option<"moments", "moments", "bool", "false",
           "Quantize gathers of momenta, instead of those of weights">,
  ];
}

def PartitionWithinNodePass : Zpp_ModulePass<"zero-partition-within-node"> {
  let summary = "Keep secondary weight partitions within nodes (hpZ, 3.2)";
  let description = [{
    Splits the forward gather of a weight that is gathered again: first over the
    axes outside the secondary group, then within the group. The value between
    the two, the secondary partition, is kept, and later gathers of the weight
    start from it, within the group only. They read it through an
    `optimization_barrier`; without it XLA would merge them with the forward
    gather and keep the whole weight alive.

    Across loops (`lax.scan` over layers, or over groups of them) the first
    gather is hoisted: the secondary partitions of all layers, which the
    backward loop needs in any case, are gathered at once before the forward
    loop. The ops that the loop applies to a weight before it gathers it are
    hoisted too: casts, shape changes, slices and arithmetic with constants.

    Between two manual computations (`jax.grad` of a `shard_map`) the secondary
    partition is a result of the first one and an operand of the second one: a
    flat tensor that is sharded over all axes, so that each device has its own
    part.

    A loop that is planned to become layers (`zero-plan-loops`) gathers the
    secondary partition of a layer in its iteration and leaves it to the backward
    loop in a stack, if the operand is known before: it is then gathered under the
    compute of the layer before. Hoisted, nothing hides the gathers of all layers. A partition
    that is kept for the next step, or that another manual computation reads, is
    hoisted in any case.

    With `split-small`, a gather whose bytes take less time than its latency is
    split too, even if its weight is gathered only once or the links speak against
    it, if a gather in the same place (the same block, with no heavy op between
    them) is split and quantized. The two can then travel together
    (zero-coalesce-collectives), and the small one costs next to nothing. A
    large weight that is gathered once is not split.

    With `between-steps`, partitions are also for zero-send-differences (of all
    weights) or zero-keep-frozen (of those that the step does not change), which
    keep them from step to step: weights that are gathered once have one too, and
    on nodes of one device it is the whole weight. Of weights that the step does
    not change, all layers are gathered in front of loops in any case.

    ```
    all_gather %w along [node, gpu]   ->  %kept = all_gather %w along [node]
                                          all_gather %kept along [gpu]
    all_gather %w along [node, gpu]   ->  all_gather %kept along [gpu]
    ```
  }];
  let options = [
    Option<"secondary", "secondary", "std::string", "\"\"",
           "The slowest tier of the group, or its number of devices (default: "
           "the fastest tier)">,
    SplitSmallOption<"small gathers">,
    BetweenStepsOption,
  ];
}

def KeepFrozenPass : Zpp_ModulePass<"zero-keep-frozen"> {
  let summary = "Send weights that the step does not change once";
  let description = [{
    The secondary partition of a weight that the step returns as it came is the
    same in every step. It is kept from step to step, and the gather over the axes
    outside the secondary group is dropped. The gathers within the group stay.

    What is kept is an argument and a result of the function, a flat tensor
    sharded over all axes, of which each device has a part of its own. The module
    attribute `zpp.state` lists it, with the arguments that it is made of: it holds
    as long as these are what the step before has returned. With `start` it is a
    result only: the weights are sent, and the state begins.

    ```
    %kept = all_gather %w along [node]  ->  %kept = %state
    return %loss                            return %loss, %state
    ```
  }];
  let options = [
    StartOption<"send whole weights">,
  ];
}

def SendDifferencesPass : Zpp_ModulePass<"zero-send-differences"> {
  let summary = "Send weights as differences to what is held of them";
  let description = [{
    A secondary partition is kept from step to step, and so is what the others
    hold of a device's own part. The gather over the axes outside the secondary
    group then moves the difference between the two, quantized, and everyone adds
    what arrives to what it holds. What one step rounds is part of the next
    difference, so that errors do not add up.

    Both are state of the step: for each weight, two arguments and two results of
    the function, flat tensors sharded over all axes, of which each device has a
    part of its own. The module attribute `zpp.state` lists them, with the `shape`
    of the weight, its partitioned `dim`, and the `factors` of that: the size of
    each and its stride in device ids, 0 for one that a device holds whole. With
    `start` there are results only: whole weights are sent, and the state begins
    (`zero-return-state` drops the other results then).

    A loop that gathers a layer in each iteration, and leaves a stack of them
    (`zpp.keep` with a number), takes its layer from the stacks that the step
    before has left, and writes it to these. The state has a dim of layers then.
    Where the loop is planned to become layers (`zero-plan-loops`), each layer is
    state by itself: the stacks are joined in front of the loop and taken apart
    behind it, which costs nothing once it has become them.

    It expects secondary partitions that are not quantized. Gathers within the
    secondary group read what is held as it is.

    ```
    %kept = all_gather %w along [node]  ->  %d = encode(%w - %held)
                                            %kept = %state + all_gather %d along [node]
    return %loss                            return %loss, %held + %d, %kept
    ```
  }];
  let options = [
    FormatOption<"i4", "i8 or i4">,
    BlockOption,
    StartOption<"send whole weights">,
  ];
}

def ReturnStatePass : Zpp_ModulePass<"zero-return-state"> {
  let summary = "Return only what the step keeps";
  let description = [{
    Of a step that begins what it keeps (`start` of `zero-keep-frozen` and
    `zero-send-differences`), this makes a program that does nothing else: it
    takes the arguments of the step, and returns its last results, which the
    module attribute `zpp.state` lists. All other results are erased, and so are
    the ops that only these need, also those with side effects: the step, which
    runs next with the same arguments, has them too. So no argument is donated.

    What a loop carries, and what enters and leaves a manual computation, is
    followed value by value. Where nothing is needed, zeros take its place. Other
    ops with regions, and functions that are called, stay as a whole.

    A module without `zpp.state` stays as it is.
  }];
}

def SendUpdatesPass : Zpp_ModulePass<"zero-send-updates"> {
  let summary = "Send by how much a step has changed weights (ZeRO-1, ZeRO-2)";
  let description = [{
    Where weights are replicated and each device updates a slice of them, the
    gather of the new slices moves by how much they have changed, quantized. All
    devices hold the weights from before the step, and add what arrives to them,
    the owner of a slice too: they hold the same bits. The hops go from the
    slowest tier inwards, each with the chunks that have arrived.

    A gather is rewritten only if it is certain what the devices hold of what it
    gathers, which is one of:

    - what the step cuts the slice from that the new one is made of: the
      argument that the result replaces, at the place at which the gather puts
      the slice;
    - where the new slice is made of something else, such as a copy in f32 that
      the device keeps: the argument that the step donates for the result, or
      that has the name of the result.

    In both cases all devices of the gather's groups have the same of it. Any
    other gather stays as it is, with a remark. Gathers of one tensor over
    several tiers become one.

    It expects gathers that zero-import-collectives has marked with `updated`.

    ```
    %w = all_gather %slice            ->  %d = encode(%slice - slice of %old)
                                          %w = %old + all_gather %d
    ```
  }];
  let options = [
    FormatOption<"i8", "none, i8 or i4">,
    BlockOption,
  ];
}

def AssignOwnersPass : Zpp_ModulePass<"zero-assign-owners"> {
  let summary = "Have each orthogonalization done by one device (Muon)";
  let description = [{
    Of momenta that all devices gather (R19), to compute the same of each and to
    take their own slices of the results, each device gets one, whole: an
    all-to-all brings it the parts of this one, and another one takes the slices
    of its result to the others. Of a stack of momenta a device gets some of the
    layers.

    ```
    %m0 = all_gather %a               ->  %m = all_to_all [%a, %b]
    %m1 = all_gather %b                   all_to_all f(%m)
    slice of f(%m0), slice of f(%m1)
    ```

    Devices run the same program, whichever momentum they have, as long as the
    same ops of the same shapes follow from each of them, of the momentum and
    constants alone. Where there are fewer than devices, some have the last one,
    too. Momenta stay as they are of which more than slices is used; where links
    are known, if time is not less; and where they are not, if exchanges send more
    over the slowest ones than gathers do.
  }];
}

#endif // ZPP_TRANSFORMS_WEIGHTS_PASSES
