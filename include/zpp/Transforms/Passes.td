//===- Passes.td - Passes on the zero dialect --------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_PASSES
#define ZPP_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

class Zpp_ModulePass<string flag> : Pass<flag, "::mlir::ModuleOp"> {
  let dependentDialects = ["::zpp::zero::ZeroDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ImportPartitionedPass : Zpp_ModulePass<"zero-import-partitioned"> {
  let summary = "Import scatters of steps that XLA has partitioned";
  let description = [{
    XLA's partitioner writes a reduce-scatter as an all-reduce of which every
    device cuts out a slice, at an offset that it computes from its partition
    id, often from a constant table. Where the offsets on all devices are those
    of the groups, the two become a `stablehlo.reduce_scatter` of the same
    groups, in the order of the slices. Casts, transposes and reshapes between
    them work on the slice then.

    Its `mhlo.copy` ops, which are their operands, and its notes on layouts are
    removed. Groups over meshes that it has made up become lists. An all-reduce of which some reader needs more than slices stays as
    it is, with a remark.
  }];
}

def ImportCollectivesPass : Zpp_ModulePass<"zero-import-collectives"> {
  let summary = "Import weight gathers and gradient scatters (ZeRO-3, 2.2)";
  let description = [{
    Finds the collectives of ZeRO-3/FSDP in an exported step and turns them into
    `zero` ops on partitioned tensors. Replica groups, dense or as mesh axes, are
    factored over the mesh. Everything else stays as it is, with a remark that
    says why. Functions with collectives in them are inlined into the step first.
    A collective that moves a bucket of several tensors becomes one per tensor if
    at least one of them is imported.

    A collective is a weight gather or a gradient scatter by where its value
    comes from and by where it goes:

    - A gather is one of a *weight* if its operand comes from floating-point
      inputs of the step that are weights, and if a gradient is computed from it.
      An input is a weight if the step returns it, updated or as it was, if a
      gradient of the shape of the whole is reduced, or if `weights-of` names it.
      Other inputs are data.
    - What reaches a result of the step element by element, through elementwise
      ops, casts, slices and shape changes alone, is *state*, which is never
      rounded: a whole weight that is updated, an average of weights.
    - A scatter with sum is one of a *gradient* if its operand is computed and its
      result reaches a result of the step element by element, or mirrors a weight
      gather.
    - Axes along which all devices have the same data belong to another
      parallelism. What is gathered or summed along them stays exact.

    Every collective gets a `zpp.origin` attribute: what `zero-report` knows
    about it before the rewrite. An imported one also keeps the attributes of
    its op, as `zpp.source`: if no pass does anything to it, it becomes that op
    again.
  }];
  let options = [
    Option<"mesh", "mesh", "std::string", "\"\"",
           "Tiers from slowest to fastest, as node:2,gpu:4 (default: the "
           "module's own mesh)">,
    Option<"weightsOf", "weights-of", "std::string", "\"\"",
           "Arguments of the step that are weights where the step does not show "
           "it: all, or numbers and ranges, as 0,3-7">,
    Option<"weights", "weights", "bool", "true", "Import weight gathers">,
    Option<"gradients", "gradients", "bool", "true",
           "Import gradient scatters">,
  ];
}

def RegatherPass : Zpp_ModulePass<"zero-regather"> {
  let summary = "Drop gathered weights after the forward pass (ZeRO-3, alg. 1)";
  let description = [{
    A weight that is gathered once and read in the backward pass too is kept
    whole in between. Gathers it again for the reads of the backward pass, behind
    an `optimization_barrier` that keeps the two gathers apart. Reads of the
    forward pass are those on which the first gradient scatter depends (the one
    with the shortest chain of ops before it). What the forward pass casts, or
    carries unchanged through a loop, is done again.
  }];
}

def QuantizeAllGatherPass : Zpp_ModulePass<"zero-quantize-all-gather"> {
  let summary = "Gather weights in quantized form (qwZ, 3.1)";
  let description = [{
    Rewrites the gathers for which this pays: a slice must be smaller in the
    format and, with `links`, the gather must be faster, including the time of
    the kernels.
  }];
  let options = [
    Option<"format", "format", "std::string", "\"i8\"", "i8 or i4">,
    Option<"block", "block", "int64_t", "128",
           "Elements that share a scale: a power of two from 32 to 2048">,
    Option<"links", "links", "std::string", "\"\"",
           "Speeds of the tiers' links, as node=50gbit,gpu=400gbyte, or a file "
           "with them">,
  ];
}

def PartitionWithinNodePass : Zpp_ModulePass<"zero-partition-within-node"> {
  let summary = "Keep secondary weight partitions within nodes (hpZ, 3.2)";
  let description = [{
    Splits the forward gather of a weight that is gathered again: first over the
    axes outside the secondary group, then within the group. What lies between
    the two, the secondary partition, is kept, and later gathers of the weight
    start from it, within the group only. They read it through an
    `optimization_barrier`, without which XLA would merge them with the forward
    gather and keep the whole weight alive.

    Across loops (`lax.scan` over layers, or over groups of them) the first gather
    is hoisted out: all layers' secondary partitions, which the backward loop
    needs in any case, are gathered at once before the forward loop. So is what
    the loop does to a weight before it gathers it: casts, shapes, slices and
    arithmetic with constants.

    Between two manual computations (`jax.grad` of a `shard_map`) the secondary
    partition is a result of the first one and an operand of the second one: a
    flat tensor, sharded over all axes, of which each device has a part of its
    own.

    With `split-small`, a gather whose bytes take less than its latency is split
    alike where another one of its moment (the same block, with no heavy op of
    the compute between them) is split and quantized, even if its weight is
    gathered once or `links` speak against it: it can travel with the other one
    (zero-coalesce-collectives) and then costs nothing of its own. A large one that is
    gathered once stays one gather.
  }];
  let options = [
    Option<"secondary", "secondary", "std::string", "\"\"",
           "The slowest tier of the group, or its number of devices (default: "
           "the fastest tier)">,
    Option<"links", "links", "std::string", "\"\"",
           "Speeds of the tiers' links, as node=50gbit,gpu=400gbyte, or a file "
           "with them; a weight that is gathered no faster with a secondary "
           "partition is left alone">,
    Option<"splitSmall", "split-small", "bool", "false",
           "Split small gathers too where they can travel with others "
           "(zero-coalesce-collectives)">,
  ];
}

def SplitHierarchyPass : Zpp_ModulePass<"zero-split-hierarchy"> {
  let summary = "Split gradient scatters into one hop per tier (qgZ, 3.3.2)";
  let description = [{
    One hop per tier, from the innermost outwards, so that each tier carries no
    more bytes than the plain scatter does. The last format is that of the
    outermost tier, the one before it that of all tiers in between: `i8:i4` is
    i8 on every inner hop. One format alone is one hop over the whole group.
  }];
  let options = [
    Option<"formats", "formats", "std::string", "\"i8:i4\"",
           "Format of each hop from the innermost outwards: none, i8 or i4, "
           "separated by ':'">,
    Option<"block", "block", "int64_t", "128",
           "Elements that share a scale: a power of two from 32 to 2048">,
    Option<"links", "links", "std::string", "\"\"",
           "Speeds of the tiers' links, as node=50gbit,gpu=400gbyte, or a file "
           "with them; a scatter that hops would not make faster is left "
           "alone">,
    Option<"splitSmall", "split-small", "bool", "false",
           "Split scatters of chunks too, unquantized, that are too small to "
           "shrink; they are to travel with others (zero-coalesce-collectives)">,
  ];
}

def DecomposeReduceScatterPass
    : Zpp_ModulePass<"zero-decompose-reduce-scatter"> {
  let summary = "Turn scatters into all-to-all and local sums (qgZ, 3.3.1)";
  let options = [
    Option<"stages", "stages", "int64_t", "1",
           "Cut every scatter into this many parts that travel one after the "
           "other (4.1.2); 0: as many as suit the links">,
    Option<"links", "links", "std::string", "\"\"",
           "Speeds of the tiers' links, as node=50gbit,gpu=400gbyte, or a file "
           "with them">,
  ];
}

def ReorderSlicesPass : Zpp_ModulePass<"zero-reorder-slices"> {
  let summary = "Make what is sent to one device contiguous (qgZ, 3.3.3)";
}

def QuantizeAllToAllPass : Zpp_ModulePass<"zero-quantize-all-to-all"> {
  let summary = "Send quantized chunks in all-to-alls (qgZ, 3.3)";
}

def DecomposeAllGatherPass : Zpp_ModulePass<"zero-decompose-all-gather"> {
  let summary = "Turn gathers into exchanges of local chunks";
}

def FuseQuantizationPass : Zpp_ModulePass<"zero-fuse-quantization"> {
  let summary = "Fuse reordering, quantization and reduction (4.2)";
}

def VerifyDecomposedPass : Pass<"zero-verify-decomposed"> {
  let summary = "Check that a program is decomposed";
  let description = [{
    States what the passes after decomposition, the conversions and
    bufferization take. It changes nothing, and fails with an error at each op
    that breaks the contract:

    - D1: the `zero` ops are decomposed ops (`DecomposedOpInterface`), starts
      and waits. With `in-place` there are no starts and waits: collectives are
      exchanges in their place.
    - D2: an `all_to_all` sends chunks as they are, without `slices` or `wire`.
    - D3: no value is a partitioned tensor (`!zero.shard`).
    - D4: the outputs of each start are read by one wait in its block, which has
      the same inputs; `origins` has an attribute for each exchange.

    A pipeline that is put together by hand runs it between decomposition and
    what comes after that.
  }];
  let options = [
    Option<"inPlace", "in-place", "bool", "false",
           "Allow no starts and waits: collectives are in their place">,
  ];
}

def CoalesceCollectivesPass : Zpp_ModulePass<"zero-coalesce-collectives"> {
  let summary = "Let tensors of one moment travel in one buffer";
  let description = [{
    Chains of decomposed ops whose exchanges agree hop by hop (kind, axes, rows
    that a device sends), of one role and phase and with no heavy op of the
    compute between them, share the buffers of their exchanges. Rows are
    concatenated along their bytes: what one op makes and another reads are then
    rows at equal distances. Tensors that travel as they are do so as bytes,
    beside quantized ones.

    A buffer takes tensors until it has `bytes`, so that large ones travel alone
    or with small ones; what is left in the end joins the last buffer. What is
    kept for a later gather (hpZ) of the same tensors, or all but a small part
    of them, is kept and sent in one piece; it counts as it did when it was kept.
  }];
  let options = [
    Option<"bytes", "bytes", "int64_t", "4194304",
           "Bytes that a device contributes to a buffer before it is full">,
  ];
}

def OutlineCollectivesPass : Zpp_ModulePass<"zero-outline-collectives"> {
  let summary = "Move collectives into functions that run beside the compute";
  let description = [{
    In each block, decomposed ops that use each other's results, with the tensor
    ops between them, become a function of the nested module `@zpp_host`, and a
    `zero.start` and `zero.wait` of it. Equal chains share one function: layers
    are alike. `tensor.empty` is cloned into it; everything else that a chain
    reads is an argument, and what others read of it a result.

    A secondary partition (hpZ) is the result of one chain and the argument of
    another: the barrier between them is no zero op.

    A chain stays where it is, to be lowered portably, with a remark that says
    why: quantizing did not pay, it lies in a branch, its slices are not static,
    or what it reads depends on what it computes.
  }];
  let dependentDialects = ["::zpp::zero::ZeroDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::tensor::TensorDialect"];
}

def PipelineChunksPass : Zpp_ModulePass<"zero-pipeline-chunks"> {
  let summary = "Issue the hops of one stage under those of others (4.1.2)";
  let description = [{
    Orders the ops of each function of the module `@zpp_host` as they would
    start if kernels and the exchanges of each tier were queues of their own: a
    tier does not wait for kernels of a stage that waits for a slower tier. The
    order is the same on every rank.
  }];
  let options = [
    Option<"links", "links", "std::string", "\"\"",
           "Speeds of the tiers' links, as node=50gbit,gpu=400gbyte, or a file "
           "with them (default: each tier a tenth of the next faster one)">,
  ];
}

def RotateLoopsPass : Zpp_ModulePass<"zero-rotate-loops"> {
  let summary = "Gather a loop's weights one iteration ahead, scatter its "
                "gradients one behind (4.1.1)";
  let description = [{
    In a loop (`lax.scan` over layers or micro-batches) two kinds of collectives
    have nothing in their iteration to run under. Both move to another one:

    - Weights that are needed before anything heavy are gathered one iteration
      ahead: those of the first one in front of the loop, those of the next one in
      each, carried by the loop. What they read must be a slice of what the loop
      carries unchanged, chosen by its counter. The last iteration gathers once
      more than is needed.
    - Gradients after which nothing heavy is computed are scattered one iteration
      later: the loop carries them and where they go, each iteration scatters
      those of the one before, and those of the last one are scattered behind the
      loop. The loop must do nothing with the result but store it, in a slice of a
      stack or added to a sum, and run twice or more. The first iteration
      scatters zeros, once more than is needed: into the slice that is stored
      again with the true result, or added to the sum.

    Both cost one collective more than the loop has iterations, so that loops of
    less than `min-trips` are left alone. Remarks say what moves, and why the
    rest does not.
  }];
  let options = [
    Option<"prefetchBytes", "prefetch-bytes", "int64_t", "268435456",
           "Bytes that a loop may carry from one iteration to the next: gathered "
           "weights first, then gradients, with what their scatters result in">,
    Option<"minTrips", "min-trips", "int64_t", "8",
           "Leave loops that are known to run less often: what moves is done "
           "once more">,
  ];
}

def OverlapCollectivesPass : Zpp_ModulePass<"zero-overlap-collectives"> {
  let summary = "Start collectives early and wait for them late (4.1.1)";
  let description = [{
    Moves starts up and waits down, in the same order on every rank:

    - A gather of weights starts before those that are needed later, as early as
      its input is there and the bytes in flight stay within `prefetch-bytes`,
      and is waited for where it is needed first. Casts and shapes of weights
      move along. What is gathered again starts from the value in front of the
      barrier that kept it apart; ties do so from here on. It is cast again for
      that, behind a barrier of its own.
    - A scatter of gradients starts once its gradient is there, and is waited
      for where it is needed; before that only if `prefetch-bytes` are in flight
      and another one is to start.

    Values of the compute are tied through, since XLA knows no other order: an
    operand of the next heavy op (a product, a convolution, a loop, a call, or
    the op on the most data) through a start, which then does not come later;
    what has been computed last through a wait, which then does not come earlier.
    So are products that other products and scatters read behind the next wait
    only, gradients that XLA is left to scatter, which it does behind that, and
    its results once more than `prefetch-bytes` are in flight: XLA would leave
    much of this for the end, and keep in memory what it is computed from.

    A block with ties has its schedule already.

    Remarks say for each where it starts, where it is waited for, under how many
    heavy ops and with how many bytes in flight; one with nothing to hide under
    is missed.
  }];
  let options = [
    Option<"prefetchBytes", "prefetch-bytes", "int64_t", "268435456",
           "Bytes of weights that may be gathered before they are needed, and "
           "of gradients that may wait to be scattered">,
  ];
}

def DeferStartsPass : Zpp_ModulePass<"zero-defer-starts"> {
  let summary = "Let starts be queued beside XLA's thread";
  let description = [{
    Queueing what a start does takes a thread longer than a product takes the
    device. Another thread than XLA's may do it where all ranks still have their
    collectives, those of XLA too, in one order: such starts become
    `deferrable`. That is so where

    - all starts are in one `sdy.manual_computation` along all axes, around which
      nothing is sharded anew, so that the partitioner adds no collectives;
    - collectives that stay with XLA can come after the last wait, and are few
      and small, unless they come after it anyway: they are moved there, and read
      an operand that the wait passes on.

    A remark says why starts are not deferrable.
  }];
}

def ReportPass : Pass<"zero-report", "::mlir::ModuleOp"> {
  let summary = "Report the bytes that collectives send per tier (3.4)";
  let description = [{
    For every collective of the step its location, kind, role, phase and group,
    and the bytes that a device sends per step over each tier, before and after
    a rewrite earlier in the pipeline; totals, also in units of M as in the
    paper's volume table (a plain gather of all weights is 1), the memory that
    secondary partitions take, and for each collective left alone the reason.

    Of back end (b) also the schedule: every start and wait in order, the op of
    the compute that it stands before, bytes in flight and the heavy ops between
    the two. Weights that are gathered too early (more than the schedule's
    `prefetch-bytes` in flight) or waited for before they are needed are flagged,
    and what has nothing heavy to hide under.

    Bytes are those of the minimal algorithm: a plain gather or scatter crosses
    a tier once, a direct all-to-all sends each pair's part. Scales and padding
    are counted.
  }];
  let options = [
    Option<"mesh", "mesh", "std::string", "\"\"",
           "Tiers from slowest to fastest, as node:2,gpu:4 (default: those of "
           "the rewrite, else the module's own mesh)">,
    Option<"weightsOf", "weights-of", "std::string", "\"\"",
           "Of a step that is not rewritten: as in zero-import-collectives">,
    Option<"format", "format", "std::string", "\"table\"", "table or json">,
    Option<"output", "output", "std::string", "\"\"",
           "File to write; - is standard output (default: standard error, "
           "beside the module on standard output)">,
  ];
}

def ConcatInPlacePass : Pass<"zero-concat-in-place"> {
  let summary = "Let parts of concatenations be made in their place";
  let description = [{
    Replaces a concatenation with insertions into one tensor, each directly after
    the op that computes the part. After `eliminate-empty-tensors`, every part is
    then computed in its final place, and bufferization needs no copies. This
    applies to chunks of several tensors in the buffer of one exchange, and to
    the stages of a collective in its result.

    The analysis of bufferization takes very long for long chains of insertions.
    More than 16 parts are left to `zero-forward-parts` where it can do the same:
    zero ops compute each part in the block of the concatenation and only for it,
    and zero ops only read the whole.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def ForwardPartsPass : Pass<"zero-forward-parts"> {
  let summary = "Compute parts of bufferized concatenations in their place";
  let description = [{
    Bufferization turns a concatenation into an allocation, directly followed by
    copies of the parts. Where a zero op of the same block computes a part into a
    buffer that only the copy reads, the op writes to the place in the whole
    instead, and the copy is gone. The time is linear in the number of parts.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def ResultsToArgumentsPass
    : Pass<"zero-results-to-arguments", "::mlir::ModuleOp"> {
  let summary = "Let callers provide the memory of results";
  let description = [{
    The dense buffers that a function returns become its last arguments, marked
    `bufferize.result`. The argument replaces the buffer that was allocated for
    the result, also if that buffer has another shape. Any other result is copied
    into the argument. Callers allocate the buffers that they pass.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def DenseOperandsPass : Pass<"zero-dense-operands"> {
  let summary = "Copy buffers to where the runtime can use them";
  let description = [{
    If the runtime does not support the strides of an operand of a `zero` op, the
    op gets a new dense buffer instead. An input is copied into it before the op;
    a destination is copied out of it after the op.
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
    Option<"reuse", "reuse", "std::string", "\"dependent\"",
           "Which buffers may share memory: none, dependent or any">,
    Option<"allFunctions", "all-functions", "bool", "false",
           "Also in functions without zero ops">,
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
    functions become internal.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // ZPP_TRANSFORMS_PASSES
