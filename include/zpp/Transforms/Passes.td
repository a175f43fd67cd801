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

//===----------------------------------------------------------------------===//
// Options that several passes have
//===----------------------------------------------------------------------===//

class MeshOption<string defaultText>
    : Option<"mesh", "mesh", "std::string", "\"\"",
             "Tiers from slowest to fastest, such as node:2,gpu:4 (default: " #
                 defaultText # ")">;

class LinksOption<string more = "">
    : Option<"links", "links", "std::string", "\"\"",
             "Speeds of the tiers' links, such as node=50gbit,gpu=400gbyte, or "
             "a file with them" # more>;

class WeightsOfOption<string where = "">
    : Option<"weightsOf", "weights-of", "std::string", "\"\"",
             where # "Arguments of the step to treat as weights even if the "
             "step does not show that they are: all, or numbers and ranges, "
             "such as 0,3-7">;

class GradientsOfOption<string where = "">
    : Option<"gradientsOf", "gradients-of", "std::string", "\"\"",
             where # "Arguments of the step whose updates are sums of "
             "gradients even if nothing proves it: all, or numbers and ranges, "
             "such as 0,3-7">;

class FormatOption<string defaultFormat, string formats>
    : Option<"format", "format", "std::string", "\"" # defaultFormat # "\"",
             "Format on the wire: " # formats>;

def FormatsOption
    : Option<"formats", "formats", "std::string", "\"i8:i4\"",
             "Format of each hop from the innermost outwards: none, i8 or i4, "
             "separated by ':'">;

def BlockOption
    : Option<"block", "block", "int64_t", "128",
             "Elements that share a scale: a power of two from 32 to 2048">;

def SplitExactOption
    : Option<"splitExact", "split-exact", "bool", "false",
             "Split what floors keep unquantized into hops, too, which "
             "zero-accumulate-gradients needs">;

def RotateOption
    : Option<"rotate", "rotate", "int64_t", "0",
             "Elements of a group that is rotated before it is quantized: 32, "
             "or 0 for none">;

class StagesOption<string what>
    : Option<"stages", "stages", "int64_t", "1",
             "Cut every " # what # " into this many parts, sent one after the "
             "other (4.1.2); 0 picks the number that suits the links">;

class SplitSmallOption<string what>
    : Option<"splitSmall", "split-small", "bool", "false",
             "Also split " # what # ", so that they can travel with others "
             "(zero-coalesce-collectives)">;

def BetweenStepsOption
    : Option<"betweenSteps", "between-steps", "::zpp::BetweenSteps",
             "::zpp::BetweenSteps::None",
             "Keep the partitions of these weights for the next step too, also "
             "if they are gathered once, and if the group is one device",
             [{::llvm::cl::values(
                 clEnumValN(::zpp::BetweenSteps::None, "none", "of no weights"),
                 clEnumValN(::zpp::BetweenSteps::Frozen, "frozen",
                            "of those that the step does not change"),
                 clEnumValN(::zpp::BetweenSteps::All, "all",
                            "of all weights"))}]>;

class MinUsecOption<string what>
    : Option<"minUsec", "min-usec", "int64_t", "1000",
             "Leave loops alone if the " # what # " take less than these "
             "microseconds: the copy of an iteration is compiled, too">;

class StartOption<string what>
    : Option<"start", "start", "bool", "false", "Take no state, " # what>;

class PrefetchBytesOption<string what>
    : Option<"prefetchBytes", "prefetch-bytes", "int64_t", "-1",
             "Bytes " # what # "; -1: of one layer">;

//===----------------------------------------------------------------------===//
// Passes
//===----------------------------------------------------------------------===//

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
    `zero-import-partitioned` finds the scatters. A module that runs on another
    number of devices is an error, and so is one that has a manual computation.

    *Input*, with `mesh=node:2,gpu:4`:

    ```mlir
    func.func private @body(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "stablehlo.negate"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```

    *Output*:

    ```mlir
    module attributes {mhlo.num_partitions = 8 : i32} {
      func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
        return %arg0 : tensor<4xf32>
      }
    }
    ```
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

    *Input*:

    ```mlir
    module attributes {mhlo.num_partitions = 4 : i32} {
      func.func @step(%x: tensor<8x12xbf16>) -> tensor<8x3xbf16> {
        %0 = "stablehlo.all_reduce"(%x) <{channel_handle =
            #stablehlo.channel_handle<handle = 3, type = 0>, replica_groups =
            dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<bf16>, %b: tensor<bf16>):
          %sum = "stablehlo.add"(%a, %b) : (tensor<bf16>, tensor<bf16>) ->
              tensor<bf16>
          "stablehlo.return"(%sum) : (tensor<bf16>) -> ()
        }) : (tensor<8x12xbf16>) -> tensor<8x12xbf16>
        %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : ()
            -> tensor<i32>
        %table = "stablehlo.constant"() <{value = dense<[0, 3, 6, 9]> :
            tensor<4xi32>}> : () -> tensor<4xi32>
        %id = "stablehlo.partition_id"() : () -> tensor<ui32>
        %entry = "stablehlo.dynamic_slice"(%table, %id) <{slice_sizes =
            array<i64: 1>}> : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
        %offset = "stablehlo.reshape"(%entry) : (tensor<1xi32>) -> tensor<i32>
        %1 = "stablehlo.dynamic_slice"(%0, %zero, %offset) <{slice_sizes =
            array<i64: 8, 3>}> : (tensor<8x12xbf16>, tensor<i32>, tensor<i32>)
            -> tensor<8x3xbf16>
        return %1 : tensor<8x3xbf16>
      }
    }
    ```

    *Output*:

    ```mlir
    module attributes {mhlo.num_partitions = 4 : i32} {
      func.func @step(%arg0: tensor<8x12xbf16>) -> tensor<8x3xbf16> {
        %0 = "stablehlo.reduce_scatter"(%arg0) <{channel_handle =
            #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups =
            dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, scatter_dimension = 1 :
            i64, use_global_device_ids}> ({
        ^bb0(%arg1: tensor<bf16>, %arg2: tensor<bf16>):
          %1 = "stablehlo.add"(%arg1, %arg2) : (tensor<bf16>, tensor<bf16>) ->
              tensor<bf16>
          "stablehlo.return"(%1) : (tensor<bf16>) -> ()
        }) : (tensor<8x12xbf16>) -> tensor<8x3xbf16>
        return %0 : tensor<8x3xbf16>
      }
    }
    ```
  }];
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

    Where the value of a collective comes from and where it goes decide whether
    it is a weight gather or a gradient scatter:

    - A gather moves a *weight* if its operand comes from floating-point inputs
      of the step that are weights, and if a gradient is computed from its
      result. An input is a weight if the step returns it updated, if its
      gradient is reduced, if the step returns it as it came and products
      contract it, or if `weights-of` names it. Other inputs are data.
    - A value is *state* if it reaches a result of the step element by element,
      through elementwise ops, casts, slices and shape changes only: for example
      a whole weight that is updated, or an average of weights. State is never
      rounded.
    - A scatter or an all-reduce with sum moves a *gradient* if there is a proof
      of it, or if `gradients-of` says so. Its operand contracts what a product
      with a weight has contracted, with what follows from that product; or
      autodiff has given it its name. And a weight must be updated with it.

    The documentation (rules.md) numbers these rules. The one that decided is in
    each remark and in the attribute `zpp.origin`.

    - Axes along which all devices have the same data belong to another kind of
      parallelism. Collectives along them stay exact.

    Every collective gets a `zpp.origin` attribute, from which `zero-report`
    knows what it was before the rewrite. An imported one also keeps the
    attributes of its op, as `zpp.source`: if no pass rewrites it, it becomes
    that op again.

    *Input*, with `mesh=node:2,gpu:4 weights-of=0`:

    ```mlir
    func.func @step(%w: tensor<128xf32>, %x: tensor<1024xf32>)
        -> (tensor<f32>, tensor<128xf32>) {
      %0 = "stablehlo.all_gather"(%w)
          <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3, 4,
          5, 6, 7]]> : tensor<1x8xi64>}> : (tensor<128xf32>) ->
          tensor<1024xf32>
      %1 = "stablehlo.dot"(%0, %x) : (tensor<1024xf32>, tensor<1024xf32>)
          -> tensor<f32>
      return %1, %w : tensor<f32>, tensor<128xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    module attributes {zpp.mesh = "node:2,gpu:4"} {
      func.func @step(%arg0: tensor<128xf32>, %arg1: tensor<1024xf32>)
          -> (tensor<f32>, tensor<128xf32>) {
        %0 = zero.from_local %arg0 : tensor<128xf32>
            to <1024xf32, dim 0 = ("node", "gpu") on #mesh>
        %1 = zero.all_gather %0
            along ["node", "gpu"]
            {zpp.origin = {before = [512, 3072], group = "node,gpu",
            id = 0 : i64, kind = "all_gather", model_bytes = 4096
            : i64, phase = "forward", role = "weight", rule = "R15",
            trips = 1 : i64, weight = 0 : i64}, zpp.source =
            {attributes = {}, properties = {all_gather_dim = 0 : i64,
            replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]>
            : tensor<1x8xi64>}}} : <1024xf32, dim 0 = ("node",
            "gpu") on #mesh> to <1024xf32, dim 0 = (2, 4) on #mesh>
        %2 = zero.to_local %1 : <1024xf32, dim 0 = (2, 4) on #mesh>
            to tensor<1024xf32>
        %3 = "stablehlo.dot"(%2, %arg1) : (tensor<1024xf32>, tensor<1024xf32>)
            -> tensor<f32>
        return %3, %arg0 : tensor<f32>, tensor<128xf32>
      }
    }
    ```
  }];
  let options = [
    MeshOption<"the module's own mesh">,
    WeightsOfOption<>,
    GradientsOfOption<>,
    Option<"weights", "weights", "bool", "true", "Import weight gathers">,
    Option<"gradients", "gradients", "bool", "true",
           "Import gradient scatters and all-reduces">,
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

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    !primary = !zero.shard<16x8xf32, dim 0 = ("node", "gpu") on #mesh>
    !whole = !zero.shard<16x8xf32, dim 0 = (2, 4) on #mesh>
    func.func @step(%w: tensor<2x8xf32>, %x: tensor<16x8xf32>) ->
        tensor<2x8xf32> {
      %0 = zero.from_local %w : tensor<2x8xf32> to !primary
      %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0, kind
          = "all_gather", phase = "forward", role = "weight", weight = 0}} :
          !primary to !whole
      %2 = zero.to_local %1 : !whole to tensor<16x8xf32>
      %3 = "stablehlo.multiply"(%x, %2) : (tensor<16x8xf32>, tensor<16x8xf32>)
          -> tensor<16x8xf32>
      %4 = zero.from_local %3 : tensor<16x8xf32> to !whole
      %5 = zero.reduce_scatter sum %4 along ["node", "gpu"] {zpp.origin = {id =
          1, kind = "reduce_scatter", role = "gradient"}} : !whole to !primary
      %6 = "stablehlo.multiply"(%3, %2) : (tensor<16x8xf32>, tensor<16x8xf32>)
          -> tensor<16x8xf32>
      %7 = zero.from_local %6 : tensor<16x8xf32> to !whole
      %8 = zero.reduce_scatter sum %7 along ["node", "gpu"] {zpp.origin = {id =
          2, kind = "reduce_scatter", role = "gradient"}} : !whole to !primary
      %9 = zero.to_local %8 : !primary to tensor<2x8xf32>
      return %9 : tensor<2x8xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<2x8xf32>, %arg1: tensor<16x8xf32>) ->
        tensor<2x8xf32> {
      %0 = zero.from_local %arg0 : tensor<2x8xf32> to <16x8xf32, dim 0 =
          ("node", "gpu") on #mesh>
      %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0 : i64,
          kind = "all_gather", phase = "forward", role = "weight", weight = 0 :
          i64}} : <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to <16x8xf32, dim
          0 = (2, 4) on #mesh>
      %2 = zero.to_local %1 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
          tensor<16x8xf32>
      %3 = "stablehlo.multiply"(%arg1, %2) : (tensor<16x8xf32>,
          tensor<16x8xf32>) -> tensor<16x8xf32>
      %4 = zero.from_local %3 : tensor<16x8xf32> to <16x8xf32, dim 0 = (2, 4) on
          #mesh>
      %5 = zero.reduce_scatter sum %4 along ["node", "gpu"] {zpp.origin = {id =
          1 : i64, kind = "reduce_scatter", role = "gradient"}} : <16x8xf32, dim
          0 = (2, 4) on #mesh> to <16x8xf32, dim 0 = ("node", "gpu") on #mesh>
      %6 = "stablehlo.optimization_barrier"(%arg0) : (tensor<2x8xf32>) ->
          tensor<2x8xf32>
      %7 = zero.from_local %6 : tensor<2x8xf32> to <16x8xf32, dim 0 = ("node",
          "gpu") on #mesh>
      %8 = zero.all_gather %7 along ["node", "gpu"] {zpp.origin = {before = [],
          group = "", id = 3 : i64, kind = "all_gather", model_bytes = 0 : i64,
          phase = "backward", role = "weight", trips = 0 : i64, weight = 0 :
          i64}} : <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to <16x8xf32, dim
          0 = (2, 4) on #mesh>
      %9 = zero.to_local %8 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
          tensor<16x8xf32>
      %10 = "stablehlo.multiply"(%3, %9) : (tensor<16x8xf32>, tensor<16x8xf32>)
          -> tensor<16x8xf32>
      %11 = zero.from_local %10 : tensor<16x8xf32> to <16x8xf32, dim 0 = (2, 4)
          on #mesh>
      %12 = zero.reduce_scatter sum %11 along ["node", "gpu"] {zpp.origin = {id
          = 2 : i64, kind = "reduce_scatter", role = "gradient"}} : <16x8xf32,
          dim 0 = (2, 4) on #mesh> to <16x8xf32, dim 0 = ("node", "gpu") on
          #mesh>
      %13 = zero.to_local %12 : <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to
          tensor<2x8xf32>
      return %13 : tensor<2x8xf32>
    }
    ```
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

    *Input*, with `floors=0=i8`:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%w: tensor<128xbf16>) -> tensor<1024xbf16> {
      %0 = zero.from_local %w : tensor<128xbf16>
          to <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
      %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 0,
          kind = "all_gather", role = "weight", weight = 0}}
          : <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
          to <1024xbf16, dim 0 = (2, 4) on #mesh>
      %2 = zero.to_local %1 : <1024xbf16, dim 0 = (2, 4) on #mesh>
          to tensor<1024xbf16>
      return %2 : tensor<1024xbf16>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<128xbf16>) -> tensor<1024xbf16> {
      %0 = zero.from_local %arg0 : tensor<128xbf16>
          to <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
      %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {floor = "i8",
          id = 0, kind = "all_gather", role = "weight", weight = 0}}
          : <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
          to <1024xbf16, dim 0 = (2, 4) on #mesh>
      %2 = zero.to_local %1 : <1024xbf16, dim 0 = (2, 4) on #mesh>
          to tensor<1024xbf16>
      return %2 : tensor<1024xbf16>
    }
    ```
  }];
  let options = [
    Option<"floors", "floors", "std::string", "\"\"",
           "Floors by number of the collective, such as 3=i8,7=none">,
  ];
}

def QuantizeAllGatherPass : Zpp_ModulePass<"zero-quantize-all-gather"> {
  let summary = "Gather weights in quantized form (qwZ, 3.1)";
  let description = [{
    Rewrites a gather only if this pays: the quantized slice must be smaller,
    and with `links` the gather must be faster, including the time of the
    kernels.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%w: tensor<128xbf16>) -> tensor<1024xbf16> {
      %0 = zero.from_local %w : tensor<128xbf16>
          to <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
      %1 = zero.all_gather %0 along ["node", "gpu"]
          : <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
          to <1024xbf16, dim 0 = (2, 4) on #mesh>
      %2 = zero.to_local %1 : <1024xbf16, dim 0 = (2, 4) on #mesh>
          to tensor<1024xbf16>
      return %2 : tensor<1024xbf16>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<128xbf16>) -> tensor<1024xbf16> {
      %0 = zero.from_local %arg0 : tensor<128xbf16>
          to <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
      %1 = zero.encode %0 : <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
          to <1024xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8,
          block = 128>>
      %2 = zero.all_gather %1 along ["node", "gpu"]
          : <1024xbf16, dim 0 = ("node", "gpu") on #mesh, #zero.quant<i8,
          block = 128>> to <1024xbf16, dim 0 = (2,
          4) on #mesh, #zero.quant<i8, block = 128>>
      %3 = zero.decode %2 :
          <1024xbf16, dim 0 = (2, 4) on #mesh, #zero.quant<i8, block = 128>>
          to <1024xbf16, dim 0 = (2, 4) on #mesh>
      %4 = zero.to_local %3 : <1024xbf16, dim 0 = (2, 4) on #mesh>
          to tensor<1024xbf16>
      return %4 : tensor<1024xbf16>
    }
    ```
  }];
  let options = [
    FormatOption<"i8", "i8 or i4">,
    BlockOption,
    LinksOption<>,
    Option<"singleOnly", "single-only", "bool", "false",
           "Leave gathers to and from a secondary partition as they are">,
  ];
}

def PeelFirstPass : Zpp_ModulePass<"zero-peel-first"> {
  let summary = "Write the first micro-batch in front of its loop (hpZ, 3.2)";
  let description = [{
    Weights do not change between micro-batches: zero-partition-within-node
    gathers their secondary partitions in front of the loop, where nothing hides
    it. This pass writes the first iteration in front of the loop. That pass then
    finds the first gather of a weight there, in the forward pass, whose compute
    hides it, and keeps its result for the loop.

    It does so where zero-partition-within-node, with the same options, would
    gather in front of a loop with a known number of iterations, at least two,
    what the first iteration can keep instead, and if the hops outside of the
    secondary group take at least `min-usec`. Two iterations become straight
    code. Remarks say which loops stay, and why.

    *Input*, with `min-usec=1`:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%w: tensor<2xf32>, %x: tensor<16xf32>) -> tensor<16xf32> {
      %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () ->
          tensor<i32>
      %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () ->
          tensor<i32>
      %c3 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () ->
          tensor<i32>
      %0:3 = "stablehlo.while"(%c0, %w, %x) ({
      ^bb0(%i: tensor<i32>, %v: tensor<2xf32>, %h: tensor<16xf32>):
        %more = "stablehlo.compare"(%i, %c3) <{comparison_direction =
            #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>)
            -> tensor<i1>
        "stablehlo.return"(%more) : (tensor<i1>) -> ()
      }, {
      ^bb0(%i: tensor<i32>, %v: tensor<2xf32>, %h: tensor<16xf32>):
        %1 = zero.from_local %v : tensor<2xf32> to <16xf32, dim 0 = ("node",
            "gpu") on #mesh>
        %2 = zero.all_gather %1 along ["node", "gpu"] : <16xf32, dim 0 =
            ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
        %3 = zero.to_local %2 : <16xf32, dim 0 = (2, 4) on #mesh> to
            tensor<16xf32>
        %4 = "stablehlo.multiply"(%h, %3) : (tensor<16xf32>, tensor<16xf32>) ->
            tensor<16xf32>
        %next = "stablehlo.add"(%i, %c1) : (tensor<i32>, tensor<i32>) ->
            tensor<i32>
        "stablehlo.return"(%next, %v, %4) : (tensor<i32>, tensor<2xf32>,
            tensor<16xf32>) -> ()
      }) : (tensor<i32>, tensor<2xf32>, tensor<16xf32>) -> (tensor<i32>,
          tensor<2xf32>, tensor<16xf32>)
      return %0#2 : tensor<16xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    module {
      func.func @step(%arg0: tensor<2xf32>, %arg1: tensor<16xf32>) ->
          tensor<16xf32> {
        %0 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () ->
            tensor<i32>
        %1 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () ->
            tensor<i32>
        %2 = zero.from_local %arg0 : tensor<2xf32> to <16xf32, dim 0 = ("node",
            "gpu") on #mesh>
        %3 = zero.all_gather %2 along ["node", "gpu"] : <16xf32, dim 0 =
            ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
        %4 = zero.to_local %3 : <16xf32, dim 0 = (2, 4) on #mesh> to
            tensor<16xf32>
        %5 = "stablehlo.multiply"(%arg1, %4) : (tensor<16xf32>, tensor<16xf32>)
            -> tensor<16xf32>
        %6 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () ->
            tensor<i32>
        %7:3 = "stablehlo.while"(%6, %arg0, %5) ({
        ^bb0(%arg2: tensor<i32>, %arg3: tensor<2xf32>, %arg4: tensor<16xf32>):
          %8 = "stablehlo.compare"(%arg2, %1) <{comparison_direction =
              #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>)
              -> tensor<i1>
          "stablehlo.return"(%8) : (tensor<i1>) -> ()
        }, {
        ^bb0(%arg2: tensor<i32>, %arg3: tensor<2xf32>, %arg4: tensor<16xf32>):
          %8 = zero.from_local %arg3 : tensor<2xf32> to <16xf32, dim 0 =
              ("node", "gpu") on #mesh>
          %9 = zero.all_gather %8 along ["node", "gpu"] : <16xf32, dim 0 =
              ("node", "gpu") on #mesh> to <16xf32, dim 0 = (2, 4) on #mesh>
          %10 = zero.to_local %9 : <16xf32, dim 0 = (2, 4) on #mesh> to
              tensor<16xf32>
          %11 = "stablehlo.multiply"(%arg4, %10) : (tensor<16xf32>,
              tensor<16xf32>) -> tensor<16xf32>
          %12 = "stablehlo.add"(%arg2, %0) : (tensor<i32>, tensor<i32>) ->
              tensor<i32>
          "stablehlo.return"(%12, %arg3, %11) : (tensor<i32>, tensor<2xf32>,
              tensor<16xf32>) -> ()
        }) : (tensor<i32>, tensor<2xf32>, tensor<16xf32>) -> (tensor<i32>,
            tensor<2xf32>, tensor<16xf32>)
        return %7#2 : tensor<16xf32>
      }
    }
    ```
  }];
  let options = [
    Option<"secondary", "secondary", "std::string", "\"\"",
           "As in zero-partition-within-node">,
    LinksOption<"; hops are taken to last as long as on these">,
    SplitSmallOption<"small gathers">,
    BetweenStepsOption,
    Option<"inIterations", "in-iterations", "int64_t", "0",
           "As in zero-partition-within-node">,
    MinUsecOption<"hops of weights in front of a loop">,
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

    With `in-iterations`, a loop over layers gathers the secondary partition of
    a layer in its iteration and leaves it to the backward loop in a stack, if
    the operand is known an iteration ahead: zero-rotate-loops then gathers it
    there, under the compute of the layer before. Hoisted, nothing hides the
    gathers of all layers. A loop with fewer iterations is not rotated, and a
    partition that is kept for the next step, or that another manual computation
    reads, is hoisted as before.

    With `split-small`, a gather whose bytes take less time than its latency is
    split too, even if its weight is gathered only once or `links` speak against
    it, if a gather in the same place (the same block, with no heavy op between
    them) is split and quantized. The two can then travel together
    (zero-coalesce-collectives), and the small one costs next to nothing. A
    large weight that is gathered once is not split.

    With `between-steps`, partitions are also for zero-send-differences (of all
    weights) or zero-keep-frozen (of those that the step does not change), which
    keep them from step to step: weights that are gathered once have one too, and
    on nodes of one device it is the whole weight. Of weights that the step does
    not change, all layers are gathered in front of loops in any case.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%w: tensor<2x8xf32>, %x: tensor<4xf32>) ->
        (tensor<16x8xf32>, tensor<16x8xf32>) {
      %0 = zero.from_local %w : tensor<2x8xf32> to <16x8xf32, dim 0 = ("node",
          "gpu") on #mesh>
      %1 = zero.all_gather %0 along ["node", "gpu"] {zpp.origin = {id = 1}} :
          <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to <16x8xf32, dim 0 = (2,
          4) on #mesh>
      %2 = zero.to_local %1 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
          tensor<16x8xf32>
      %3:2 = "stablehlo.optimization_barrier"(%x, %w) : (tensor<4xf32>,
          tensor<2x8xf32>) -> (tensor<4xf32>, tensor<2x8xf32>)
      %4 = zero.from_local %3#1 : tensor<2x8xf32> to <16x8xf32, dim 0 = ("node",
          "gpu") on #mesh>
      %5 = zero.all_gather %4 along ["node", "gpu"] {zpp.origin = {id = 2}} :
          <16x8xf32, dim 0 = ("node", "gpu") on #mesh> to <16x8xf32, dim 0 = (2,
          4) on #mesh>
      %6 = zero.to_local %5 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
          tensor<16x8xf32>
      return %2, %6 : tensor<16x8xf32>, tensor<16x8xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<2x8xf32>, %arg1: tensor<4xf32>) ->
        (tensor<16x8xf32>, tensor<16x8xf32>) {
      %0 = zero.from_local %arg0 : tensor<2x8xf32> to <16x8xf32, dim 0 =
          ("node", "gpu") on #mesh>
      %1 = zero.all_gather %0 along ["node"] {zpp.keep, zpp.origin = {gets =
          ["secondary"], id = 1 : i64}} : <16x8xf32, dim 0 = ("node", "gpu") on
          #mesh> to <16x8xf32, dim 0 = (2, "gpu") on #mesh>
      %2 = zero.all_gather %1 along ["gpu"] {zpp.origin = {id = 1 : i64}} :
          <16x8xf32, dim 0 = (2, "gpu") on #mesh> to <16x8xf32, dim 0 = (2, 4)
          on #mesh>
      %3 = zero.to_local %1 : <16x8xf32, dim 0 = (2, "gpu") on #mesh> to
          tensor<4x8xf32>
      %4 = zero.to_local %2 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
          tensor<16x8xf32>
      %5 = "stablehlo.optimization_barrier"(%3) : (tensor<4x8xf32>) ->
          tensor<4x8xf32>
      %6 = zero.from_local %5 : tensor<4x8xf32> to <16x8xf32, dim 0 = (2, "gpu")
          on #mesh>
      %7 = zero.all_gather %6 along ["gpu"] {zpp.origin = {id = 2 : i64}} :
          <16x8xf32, dim 0 = (2, "gpu") on #mesh> to <16x8xf32, dim 0 = (2, 4)
          on #mesh>
      %8 = zero.to_local %7 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
          tensor<16x8xf32>
      return %4, %8 : tensor<16x8xf32>, tensor<16x8xf32>
    }
    ```
  }];
  let options = [
    Option<"secondary", "secondary", "std::string", "\"\"",
           "The slowest tier of the group, or its number of devices (default: "
           "the fastest tier)">,
    LinksOption<"; a weight whose gathers a secondary partition would not "
                "make faster, or not by a fifth on links that are alike, is "
                "left alone">,
    SplitSmallOption<"small gathers">,
    BetweenStepsOption,
    Option<"inIterations", "in-iterations", "int64_t", "0",
           "Gather in each iteration of loops that have at least so many, "
           "rather than before the loop; 0 for none">,
  ];
}

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

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%g: tensor<2048xbf16>) -> tensor<2048xbf16> {
      %0 = zero.from_local %g : tensor<2048xbf16>
          to <2048xbf16, dim 0 = () on #mesh>
      %1 = zero.all_reduce sum %0 along ["node", "gpu"]
          : <2048xbf16, dim 0 = () on #mesh>
      %2 = zero.to_local %1 : <2048xbf16, dim 0 = () on #mesh>
          to tensor<2048xbf16>
      return %2 : tensor<2048xbf16>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<2048xbf16>) -> tensor<2048xbf16> {
      %0 = zero.from_local %arg0 : tensor<2048xbf16>
          to <2048xbf16, dim 0 = (4, 2) on #mesh>
      %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 128>
          : <2048xbf16, dim 0 = (4, 2) on #mesh>
          to <2048xf32, dim 0 = ("gpu", 2) on #mesh>
      %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 128>
          : <2048xf32, dim 0 = ("gpu", 2) on #mesh>
          to <2048xf32, dim 0 = ("gpu", "node") on #mesh>
      %3 = zero.encode %2 : <2048xf32, dim 0 = ("gpu", "node") on #mesh>
          to <2048xbf16, dim 0 = ("gpu", "node") on #mesh, #zero.quant<i8,
          block = 128>>
      %4 = zero.all_gather %3 along ["node"]
          : <2048xbf16, dim 0 = ("gpu", "node") on #mesh, #zero.quant<i8,
          block = 128>> to <2048xbf16, dim 0 = ("gpu",
          2) on #mesh, #zero.quant<i8, block = 128>>
      %5 = zero.all_gather %4 along ["gpu"]
          : <2048xbf16, dim 0 = ("gpu", 2) on #mesh, #zero.quant<i8,
          block = 128>> to <2048xbf16, dim 0 = (4,
          2) on #mesh, #zero.quant<i8, block = 128>>
      %6 = zero.decode %5 :
          <2048xbf16, dim 0 = (4, 2) on #mesh, #zero.quant<i8, block = 128>>
          to <2048xbf16, dim 0 = (4, 2) on #mesh>
      %7 = zero.to_local %6 : <2048xbf16, dim 0 = (4, 2) on #mesh>
          to tensor<2048xbf16>
      return %7 : tensor<2048xbf16>
    }
    ```
  }];
  let options = [
    FormatsOption,
    Option<"reduced", "reduced", "std::string", "\"i8\"",
           "Format in which the sum is gathered: none, i8 or i4">,
    StagesOption<"large all-reduce">,
    BlockOption,
    RotateOption,
    LinksOption<"; an all-reduce that hops would not make faster is left "
                "alone">,
    SplitSmallOption<"all-reduces of pieces that are too small to shrink, "
                     "unquantized">,
    SplitExactOption,
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

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    !primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
    !node = !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh>
    !whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
    "sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> :
        () -> ()
    func.func public @main(%w: tensor<256x64xbf16>) -> (tensor<256x64xbf16>,
        tensor<2048x64xbf16>) {
      %0:2 = "sdy.manual_computation"(%w) <{in_shardings =
          #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {} ]>]>,
          manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings =
          #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh,
          [{"node", "gpu"}, {} ]>]>}> ({
      ^bb0(%a: tensor<32x64xbf16>):
        %1 = zero.from_local %a : tensor<32x64xbf16> to !primary
        %2 = zero.all_gather %1 along ["node"] {zpp.keep} : !primary to !node
        %3 = zero.all_gather %2 along ["gpu"] : !node to !whole
        %4 = zero.to_local %3 : !whole to tensor<256x64xbf16>
        "sdy.return"(%a, %4) : (tensor<32x64xbf16>, tensor<256x64xbf16>) -> ()
      }) : (tensor<256x64xbf16>) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>)
      return %0#0, %0#1 : tensor<256x64xbf16>, tensor<2048x64xbf16>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    module attributes {zpp.state = [{arguments = array<i64: 0>, kind = "frozen",
        results = array<i64: 0>, type = tensor<32768xbf16>} ]} {
      "sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}>
          : () -> ()
      func.func public @main(%arg0: tensor<256x64xbf16>, %arg1:
          tensor<32768xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node",
          "gpu"} ]>}) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>,
          tensor<32768xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node",
          "gpu"} ]>}) {
        %0:3 = "sdy.manual_computation"(%arg0, %arg1) <{in_shardings =
            #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh,
            [{"node", "gpu"} ]>]>, manual_axes = #sdy<manual_axes{"node",
            "gpu"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"node",
            "gpu"}, {} ]>, <@mesh, [{"node", "gpu"}, {} ]>, <@mesh, [{"node",
            "gpu"} ]>]>}> ({
        ^bb0(%arg2: tensor<32x64xbf16>, %arg3: tensor<4096xbf16>):
          %1 = "stablehlo.reshape"(%arg3) : (tensor<4096xbf16>) ->
              tensor<64x64xbf16>
          %2 = zero.from_local %1 : tensor<64x64xbf16> to <256x64xbf16, dim 0 =
              (2, "gpu") on #mesh>
          %3 = zero.all_gather %2 along ["gpu"] : <256x64xbf16, dim 0 = (2,
              "gpu") on #mesh> to <256x64xbf16, dim 0 = (2, 4) on #mesh>
          %4 = zero.to_local %3 : <256x64xbf16, dim 0 = (2, 4) on #mesh> to
              tensor<256x64xbf16>
          %5 = "stablehlo.reshape"(%1) : (tensor<64x64xbf16>) ->
              tensor<4096xbf16>
          "sdy.return"(%arg2, %4, %5) : (tensor<32x64xbf16>,
              tensor<256x64xbf16>, tensor<4096xbf16>) -> ()
        }) : (tensor<256x64xbf16>, tensor<32768xbf16>) -> (tensor<256x64xbf16>,
            tensor<2048x64xbf16>, tensor<32768xbf16>)
        return %0#0, %0#1, %0#2 : tensor<256x64xbf16>, tensor<2048x64xbf16>,
            tensor<32768xbf16>
      }
    }
    ```
  }];
  let options = [
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

    *Input*:

    ```mlir
    module attributes {zpp.state = [{kind = "held", type = tensor<4xf32>} ]} {
      func.func @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}) ->
          (tensor<4xf32>, tensor<4xf32>) {
        %0 = "stablehlo.negate"(%w) : (tensor<4xf32>) -> tensor<4xf32>
        %1 = "stablehlo.add"(%w, %w) : (tensor<4xf32>, tensor<4xf32>) ->
            tensor<4xf32>
        return %0, %1 : tensor<4xf32>, tensor<4xf32>
      }
    }
    ```

    *Output*:

    ```mlir
    module attributes {zpp.state = [{kind = "held", type = tensor<4xf32>} ]} {
      func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
        %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<4xf32>, tensor<4xf32>) ->
            tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }
    ```
  }];
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
    Where the loop has at most `split-layers` iterations, each layer is state by
    itself: the stacks are joined in front of the loop and taken apart behind it,
    which costs nothing once the loop has become layers (`zero-unroll-loops`).

    It expects secondary partitions that are not quantized. Gathers within the
    secondary group read what is held as it is.

    *Input*, with `block=32`:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    !primary = !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
    !node = !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh>
    !whole = !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
    "sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}> :
        () -> ()
    func.func public @main(%w: tensor<256x64xbf16>) -> (tensor<256x64xbf16>,
        tensor<2048x64xbf16>) {
      %0:2 = "sdy.manual_computation"(%w) <{in_shardings =
          #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {} ]>]>,
          manual_axes = #sdy<manual_axes{"node", "gpu"}>, out_shardings =
          #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh,
          [{"node", "gpu"}, {} ]>]>}> ({
      ^bb0(%a: tensor<32x64xbf16>):
        %1 = zero.from_local %a : tensor<32x64xbf16> to !primary
        %2 = zero.all_gather %1 along ["node"] {zpp.keep} : !primary to !node
        %3 = zero.all_gather %2 along ["gpu"] : !node to !whole
        %4 = zero.to_local %3 : !whole to tensor<256x64xbf16>
        %b = "stablehlo.add"(%a, %a) : (tensor<32x64xbf16>, tensor<32x64xbf16>)
            -> tensor<32x64xbf16>
        "sdy.return"(%b, %4) : (tensor<32x64xbf16>, tensor<256x64xbf16>) -> ()
      }) : (tensor<256x64xbf16>) -> (tensor<256x64xbf16>, tensor<2048x64xbf16>)
      return %0#0, %0#1 : tensor<256x64xbf16>, tensor<2048x64xbf16>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    module attributes {zpp.state = [{dim = 0 : i64, factors = array<i64: 2, 4,
        4, 1>, kind = "own", shape = array<i64: 256, 64>, source = 0 : i64, type
        = tensor<16384xbf16>}, {dim = 0 : i64, factors = array<i64: 2, 0, 4, 1>,
        kind = "held", shape = array<i64: 256, 64>, source = 0 : i64, type =
        tensor<32768xbf16>} ]} {
      "sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}>
          : () -> ()
      func.func public @main(%arg0: tensor<256x64xbf16>, %arg1:
          tensor<16384xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"node",
          "gpu"} ]>}, %arg2: tensor<32768xbf16> {sdy.sharding =
          #sdy.sharding<@mesh, [{"node", "gpu"} ]>}) -> (tensor<256x64xbf16>,
          tensor<2048x64xbf16>, tensor<16384xbf16> {sdy.sharding =
          #sdy.sharding<@mesh, [{"node", "gpu"} ]>}, tensor<32768xbf16>
          {sdy.sharding = #sdy.sharding<@mesh, [{"node", "gpu"} ]>}) {
        %0:4 = "sdy.manual_computation"(%arg0, %arg1, %arg2) <{in_shardings =
            #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh,
            [{"node", "gpu"} ]>, <@mesh, [{"node", "gpu"} ]>]>, manual_axes =
            #sdy<manual_axes{"node", "gpu"}>, out_shardings =
            #sdy.sharding_per_value<[<@mesh, [{"node", "gpu"}, {} ]>, <@mesh,
            [{"node", "gpu"}, {} ]>, <@mesh, [{"node", "gpu"} ]>, <@mesh,
            [{"node", "gpu"} ]>]>}> ({
        ^bb0(%arg3: tensor<32x64xbf16>, %arg4: tensor<2048xbf16>, %arg5:
            tensor<4096xbf16>):
          %1 = "stablehlo.reshape"(%arg4) : (tensor<2048xbf16>) ->
              tensor<32x64xbf16>
          %2 = "stablehlo.reshape"(%arg5) : (tensor<4096xbf16>) ->
              tensor<64x64xbf16>
          %3 = zero.from_local %arg3 : tensor<32x64xbf16> to <256x64xbf16, dim 0
              = ("node", "gpu") on #mesh>
          %4 = zero.from_local %1 : tensor<32x64xbf16> to <256x64xbf16, dim 0 =
              ("node", "gpu") on #mesh>
          %5 = zero.encode %3 minus %4 : <256x64xbf16, dim 0 = ("node", "gpu")
              on #mesh> to <256x64xbf16, dim 0 = ("node", "gpu") on #mesh,
              #zero.quant<i4, block = 32>>
          %6 = zero.all_gather %5 along ["node"] : <256x64xbf16, dim 0 =
              ("node", "gpu") on #mesh, #zero.quant<i4, block = 32>> to
              <256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i4, block =
              32>>
          %7 = zero.from_local %2 : tensor<64x64xbf16> to <256x64xbf16, dim 0 =
              (2, "gpu") on #mesh>
          %8 = zero.decode %6 plus %7 : <256x64xbf16, dim 0 = (2, "gpu") on
              #mesh, #zero.quant<i4, block = 32>> to <256x64xbf16, dim 0 = (2,
              "gpu") on #mesh>
          %9 = zero.to_local %8 : <256x64xbf16, dim 0 = (2, "gpu") on #mesh> to
              tensor<64x64xbf16>
          %10 = zero.decode %5 plus %4 : <256x64xbf16, dim 0 = ("node", "gpu")
              on #mesh, #zero.quant<i4, block = 32>> to <256x64xbf16, dim 0 =
              ("node", "gpu") on #mesh>
          %11 = zero.to_local %10 : <256x64xbf16, dim 0 = ("node", "gpu") on
              #mesh> to tensor<32x64xbf16>
          %12 = zero.from_local %9 : tensor<64x64xbf16> to <256x64xbf16, dim 0 =
              (2, "gpu") on #mesh>
          %13 = zero.all_gather %12 along ["gpu"] : <256x64xbf16, dim 0 = (2,
              "gpu") on #mesh> to <256x64xbf16, dim 0 = (2, 4) on #mesh>
          %14 = zero.to_local %13 : <256x64xbf16, dim 0 = (2, 4) on #mesh> to
              tensor<256x64xbf16>
          %15 = "stablehlo.add"(%arg3, %arg3) : (tensor<32x64xbf16>,
              tensor<32x64xbf16>) -> tensor<32x64xbf16>
          %16 = "stablehlo.reshape"(%11) : (tensor<32x64xbf16>) ->
              tensor<2048xbf16>
          %17 = "stablehlo.reshape"(%9) : (tensor<64x64xbf16>) ->
              tensor<4096xbf16>
          "sdy.return"(%15, %14, %16, %17) : (tensor<32x64xbf16>,
              tensor<256x64xbf16>, tensor<2048xbf16>, tensor<4096xbf16>) -> ()
        }) : (tensor<256x64xbf16>, tensor<16384xbf16>, tensor<32768xbf16>) ->
            (tensor<256x64xbf16>, tensor<2048x64xbf16>, tensor<16384xbf16>,
            tensor<32768xbf16>)
        return %0#0, %0#1, %0#2, %0#3 : tensor<256x64xbf16>,
            tensor<2048x64xbf16>, tensor<16384xbf16>, tensor<32768xbf16>
      }
    }
    ```
  }];
  let options = [
    FormatOption<"i4", "i8 or i4">,
    BlockOption,
    StartOption<"send whole weights">,
    Option<"splitLayers", "split-layers", "int64_t", "0",
           "Carry each layer by itself where a loop has at most so many "
           "iterations">,
  ];
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

    *Input*, with `block=32`:

    ```mlir
    module attributes {mhlo.num_partitions = 4 : i32, zpp.mesh = "node:2,gpu:2"}
        {
      "sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=2]>, sym_name = "mesh"}>
          : () -> ()
      func.func public @main(%arg0: tensor<64x8xf32>, %arg1: tensor<64x8xf32>)
          -> tensor<64x8xf32> {
        %0 = "sdy.manual_computation"(%arg0, %arg1) <{in_shardings =
            #sdy.sharding_per_value<[<@mesh, [{}, {} ]>, <@mesh, [{"node",
            "gpu"}, {} ]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>,
            out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {} ]>]>}> ({
        ^bb0(%arg2: tensor<64x8xf32>, %arg3: tensor<16x8xf32>):
          %1 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () ->
              tensor<i32>
          %2 = "stablehlo.constant"() <{value = dense<[0, 16, 32, 48]> :
              tensor<4xi32>}> : () -> tensor<4xi32>
          %3 = "stablehlo.partition_id"() : () -> tensor<ui32>
          %4 = "stablehlo.dynamic_slice"(%2, %3) <{slice_sizes = array<i64: 1>}>
              : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
          %5 = "stablehlo.reshape"(%4) : (tensor<1xi32>) -> tensor<i32>
          %6 = "stablehlo.dynamic_slice"(%arg2, %5, %1) <{slice_sizes =
              array<i64: 16, 8>}> : (tensor<64x8xf32>, tensor<i32>, tensor<i32>)
              -> tensor<16x8xf32>
          %7 = "stablehlo.subtract"(%6, %arg3) : (tensor<16x8xf32>,
              tensor<16x8xf32>) -> tensor<16x8xf32>
          %8 = "stablehlo.all_gather"(%7) <{all_gather_dim = 0 : i64,
              channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>,
              replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
              use_global_device_ids}> {zpp.origin = {before = [512, 1024], group
              = "node,gpu", id = 0 : i64, kind = "all_gather", model_bytes = 0 :
              i64, phase = "forward", role = "other", rule = "R3", trips = 1 :
              i64, weight = -1 : i64}, zpp.updated} : (tensor<16x8xf32>) ->
              tensor<64x8xf32>
          "sdy.return"(%8) : (tensor<64x8xf32>) -> ()
        }) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
        return %0 : tensor<64x8xf32>
      }
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 2>
    module attributes {mhlo.num_partitions = 4 : i32, zpp.mesh = "node:2,gpu:2"}
        {
      "sdy.mesh"() <{mesh = #sdy.mesh<["node"=2, "gpu"=2]>, sym_name = "mesh"}>
          : () -> ()
      func.func public @main(%arg0: tensor<64x8xf32>, %arg1: tensor<64x8xf32>)
          -> tensor<64x8xf32> {
        %0 = "sdy.manual_computation"(%arg0, %arg1) <{in_shardings =
            #sdy.sharding_per_value<[<@mesh, [{}, {} ]>, <@mesh, [{"node",
            "gpu"}, {} ]>]>, manual_axes = #sdy<manual_axes{"node", "gpu"}>,
            out_shardings = #sdy.sharding_per_value<[<@mesh, [{}, {} ]>]>}> ({
        ^bb0(%arg2: tensor<64x8xf32>, %arg3: tensor<16x8xf32>):
          %1 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () ->
              tensor<i32>
          %2 = "stablehlo.constant"() <{value = dense<[0, 16, 32, 48]> :
              tensor<4xi32>}> : () -> tensor<4xi32>
          %3 = "stablehlo.partition_id"() : () -> tensor<ui32>
          %4 = "stablehlo.dynamic_slice"(%2, %3) <{slice_sizes = array<i64: 1>}>
              : (tensor<4xi32>, tensor<ui32>) -> tensor<1xi32>
          %5 = "stablehlo.reshape"(%4) : (tensor<1xi32>) -> tensor<i32>
          %6 = "stablehlo.dynamic_slice"(%arg2, %5, %1) <{slice_sizes =
              array<i64: 16, 8>}> : (tensor<64x8xf32>, tensor<i32>, tensor<i32>)
              -> tensor<16x8xf32>
          %7 = "stablehlo.subtract"(%6, %arg3) : (tensor<16x8xf32>,
              tensor<16x8xf32>) -> tensor<16x8xf32>
          %8 = zero.from_local %7 : tensor<16x8xf32> to <64x8xf32, dim 0 =
              ("node", "gpu") on #mesh>
          %9 = zero.from_local %6 : tensor<16x8xf32> to <64x8xf32, dim 0 =
              ("node", "gpu") on #mesh>
          %10 = zero.encode %8 minus %9 : <64x8xf32, dim 0 = ("node", "gpu") on
              #mesh> to <64x8xf32, dim 0 = ("node", "gpu") on #mesh,
              #zero.quant<i8, block = 32>>
          %11 = zero.all_gather %10 along ["node"] {zpp.origin = {before = [512,
              1024], group = "node,gpu", id = 0 : i64, kind = "all_gather",
              model_bytes = 0 : i64, phase = "forward", role = "update", rule =
              "R3", trips = 1 : i64, weight = -1 : i64}} : <64x8xf32, dim 0 =
              ("node", "gpu") on #mesh, #zero.quant<i8, block = 32>> to
              <64x8xf32, dim 0 = (2, "gpu") on #mesh, #zero.quant<i8, block =
              32>>
          %12 = zero.all_gather %11 along ["gpu"] {zpp.origin = {before = [512,
              1024], group = "node,gpu", id = 0 : i64, kind = "all_gather",
              model_bytes = 0 : i64, phase = "forward", role = "update", rule =
              "R3", trips = 1 : i64, weight = -1 : i64}} : <64x8xf32, dim 0 =
              (2, "gpu") on #mesh, #zero.quant<i8, block = 32>> to <64x8xf32,
              dim 0 = (2, 2) on #mesh, #zero.quant<i8, block = 32>>
          %13 = zero.from_local %arg2 : tensor<64x8xf32> to <64x8xf32, dim 0 =
              (2, 2) on #mesh>
          %14 = zero.decode %12 plus %13 : <64x8xf32, dim 0 = (2, 2) on #mesh,
              #zero.quant<i8, block = 32>> to <64x8xf32, dim 0 = (2, 2) on
              #mesh>
          %15 = zero.to_local %14 : <64x8xf32, dim 0 = (2, 2) on #mesh> to
              tensor<64x8xf32>
          "sdy.return"(%15) : (tensor<64x8xf32>) -> ()
        }) : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x8xf32>
        return %0 : tensor<64x8xf32>
      }
    }
    ```
  }];
  let options = [
    FormatOption<"i8", "none, i8 or i4">,
    BlockOption,
    LinksOption<"; a gather that this would not make faster is left alone">,
  ];
}

def SplitHierarchyPass : Zpp_ModulePass<"zero-split-hierarchy"> {
  let summary = "Split gradient scatters into one hop per tier (qgZ, 3.3.2)";
  let description = [{
    Hops go from the innermost tier outwards, so that no tier carries more bytes
    than with the plain scatter. The last format is that of the outermost tier,
    the one before it that of all tiers in between: `i8:i4` means i8 on every
    inner hop. A single format means one hop over the whole group.

    With `rotate`, quantized hops send groups of that many elements multiplied by
    a Hadamard matrix. This spreads outliers, so that the steps of a block are
    finer.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%g: tensor<1024xf32>) -> tensor<128xf32> {
      %0 = zero.from_local %g : tensor<1024xf32>
          to <1024xf32, dim 0 = (2, 4) on #mesh>
      %1 = zero.reduce_scatter sum %0 along ["node", "gpu"]
          : <1024xf32, dim 0 = (2, 4) on #mesh>
          to <1024xf32, dim 0 = ("node", "gpu") on #mesh>
      %2 = zero.to_local %1 : <1024xf32, dim 0 = ("node", "gpu") on #mesh>
          to tensor<128xf32>
      return %2 : tensor<128xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<1024xf32>) -> tensor<128xf32> {
      %0 = zero.from_local %arg0 : tensor<1024xf32>
          to <1024xf32, dim 0 = (2, 4) on #mesh>
      %1 = zero.reduce_scatter sum %0 along ["gpu"] wire <i8, block = 128>
          : <1024xf32, dim 0 = (2, 4) on #mesh>
          to <1024xf32, dim 0 = (2, "gpu") on #mesh>
      %2 = zero.reduce_scatter sum %1 along ["node"] wire <i4, block = 128>
          : <1024xf32, dim 0 = (2, "gpu") on #mesh>
          to <1024xf32, dim 0 = ("node", "gpu") on #mesh>
      %3 = zero.to_local %2 : <1024xf32, dim 0 = ("node", "gpu") on #mesh>
          to tensor<128xf32>
      return %3 : tensor<128xf32>
    }
    ```
  }];
  let options = [
    FormatsOption,
    BlockOption,
    RotateOption,
    LinksOption<"; a scatter that hops would not make faster is left alone">,
    SplitSmallOption<"scatters whose chunks are too small to shrink, "
                     "unquantized">,
    SplitExactOption,
  ];
}

def PeelLastPass : Zpp_ModulePass<"zero-peel-last"> {
  let summary = "Write the last micro-batch after its loop";
  let description = [{
    What a loop over micro-batches has added up is sent after the loop, where
    nothing hides it: by zero-accumulate-gradients, or by the step itself, as with
    replicated weights. This pass writes the last iteration after the loop. Each
    sum can then be sent as soon as its last gradient is there, under the rest of
    the backward pass.

    It does so where the loop has a known number of iterations, at least two, and
    adds up gradients that zero-accumulate-gradients, with the same `group`, would
    send after it, or that the step sends after it, if the hops outside of the
    group, or all hops that the step has written, take at least `min-usec`. The
    first hop that the step has written for a sum moves up to where its last
    gradient is there, with the sum. If that is a stack, which each micro-batch
    leaves in a loop over layers, the last one of these loops sends the sum, a
    layer in each iteration: where hops scatter another dim than that of the
    layers, or leave the whole sum on each device, and where all that the sum is
    multiplied by is known before. What an iteration has all-reduced by a
    collective that is left to XLA, or stacked in other ways, is there at its end
    only, and is no reason to write it after the loop if it is most of what is
    sent. Two iterations become straight code. Remarks say which loops stay, and why.

    *Input*, with `group=gpu min-usec=1`:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%x: tensor<3x32xf32>) -> tensor<4xf32> {
      %c0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () ->
          tensor<i32>
      %c1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () ->
          tensor<i32>
      %c3 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () ->
          tensor<i32>
      %zeros = "stablehlo.constant"() <{value = dense<0.0> : tensor<4xf32>}> :
          () -> tensor<4xf32>
      %0:3 = "stablehlo.while"(%c0, %zeros, %x) ({
      ^bb0(%i: tensor<i32>, %s: tensor<4xf32>, %g: tensor<3x32xf32>):
        %more = "stablehlo.compare"(%i, %c3) <{comparison_direction =
            #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>)
            -> tensor<i1>
        "stablehlo.return"(%more) : (tensor<i1>) -> ()
      }, {
      ^bb0(%i: tensor<i32>, %s: tensor<4xf32>, %g: tensor<3x32xf32>):
        %1 = "stablehlo.dynamic_slice"(%g, %i, %c0) <{slice_sizes = array<i64:
            1, 32>}> : (tensor<3x32xf32>, tensor<i32>, tensor<i32>) ->
            tensor<1x32xf32>
        %2 = "stablehlo.reshape"(%1) : (tensor<1x32xf32>) -> tensor<32xf32>
        %3 = zero.from_local %2 : tensor<32xf32> to <32xf32, dim 0 = (2, 4) on
            #mesh>
        %4 = zero.reduce_scatter sum %3 along ["gpu"] : <32xf32, dim 0 = (2, 4)
            on #mesh> to <32xf32, dim 0 = (2, "gpu") on #mesh>
        %5 = zero.reduce_scatter sum %4 along ["node"] : <32xf32, dim 0 = (2,
            "gpu") on #mesh> to <32xf32, dim 0 = ("node", "gpu") on #mesh>
        %6 = zero.to_local %5 : <32xf32, dim 0 = ("node", "gpu") on #mesh> to
            tensor<4xf32>
        %7 = "stablehlo.add"(%s, %6) : (tensor<4xf32>, tensor<4xf32>) ->
            tensor<4xf32>
        %next = "stablehlo.add"(%i, %c1) : (tensor<i32>, tensor<i32>) ->
            tensor<i32>
        "stablehlo.return"(%next, %7, %g) : (tensor<i32>, tensor<4xf32>,
            tensor<3x32xf32>) -> ()
      }) : (tensor<i32>, tensor<4xf32>, tensor<3x32xf32>) -> (tensor<i32>,
          tensor<4xf32>, tensor<3x32xf32>)
      return %0#1 : tensor<4xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    module {
      func.func @step(%arg0: tensor<3x32xf32>) -> tensor<4xf32> {
        %0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () ->
            tensor<i32>
        %1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () ->
            tensor<i32>
        %2 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () ->
            tensor<i32>
        %3 = "stablehlo.constant"() <{value = dense<0.000000e+00> :
            tensor<4xf32>}> : () -> tensor<4xf32>
        %4:3 = "stablehlo.while"(%0, %3, %arg0) ({
        ^bb0(%arg1: tensor<i32>, %arg2: tensor<4xf32>, %arg3: tensor<3x32xf32>):
          %13 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : ()
              -> tensor<i32>
          %14 = "stablehlo.compare"(%arg1, %13) <{comparison_direction =
              #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>)
              -> tensor<i1>
          "stablehlo.return"(%14) : (tensor<i1>) -> ()
        }, {
        ^bb0(%arg1: tensor<i32>, %arg2: tensor<4xf32>, %arg3: tensor<3x32xf32>):
          %13 = "stablehlo.dynamic_slice"(%arg3, %arg1, %0) <{slice_sizes =
              array<i64: 1, 32>}> : (tensor<3x32xf32>, tensor<i32>, tensor<i32>)
              -> tensor<1x32xf32>
          %14 = "stablehlo.reshape"(%13) : (tensor<1x32xf32>) -> tensor<32xf32>
          %15 = zero.from_local %14 : tensor<32xf32> to <32xf32, dim 0 = (2, 4)
              on #mesh>
          %16 = zero.reduce_scatter sum %15 along ["gpu"] : <32xf32, dim 0 = (2,
              4) on #mesh> to <32xf32, dim 0 = (2, "gpu") on #mesh>
          %17 = zero.reduce_scatter sum %16 along ["node"] : <32xf32, dim 0 =
              (2, "gpu") on #mesh> to <32xf32, dim 0 = ("node", "gpu") on #mesh>
          %18 = zero.to_local %17 : <32xf32, dim 0 = ("node", "gpu") on #mesh>
              to tensor<4xf32>
          %19 = "stablehlo.add"(%arg2, %18) : (tensor<4xf32>, tensor<4xf32>) ->
              tensor<4xf32>
          %20 = "stablehlo.add"(%arg1, %1) : (tensor<i32>, tensor<i32>) ->
              tensor<i32>
          "stablehlo.return"(%20, %19, %arg3) : (tensor<i32>, tensor<4xf32>,
              tensor<3x32xf32>) -> ()
        }) : (tensor<i32>, tensor<4xf32>, tensor<3x32xf32>) -> (tensor<i32>,
            tensor<4xf32>, tensor<3x32xf32>)
        %5 = "stablehlo.dynamic_slice"(%arg0, %4#0, %0) <{slice_sizes =
            array<i64: 1, 32>}> : (tensor<3x32xf32>, tensor<i32>, tensor<i32>)
            -> tensor<1x32xf32>
        %6 = "stablehlo.reshape"(%5) : (tensor<1x32xf32>) -> tensor<32xf32>
        %7 = zero.from_local %6 : tensor<32xf32> to <32xf32, dim 0 = (2, 4) on
            #mesh>
        %8 = zero.reduce_scatter sum %7 along ["gpu"] : <32xf32, dim 0 = (2, 4)
            on #mesh> to <32xf32, dim 0 = (2, "gpu") on #mesh>
        %9 = zero.reduce_scatter sum %8 along ["node"] : <32xf32, dim 0 = (2,
            "gpu") on #mesh> to <32xf32, dim 0 = ("node", "gpu") on #mesh>
        %10 = zero.to_local %9 : <32xf32, dim 0 = ("node", "gpu") on #mesh> to
            tensor<4xf32>
        %11 = "stablehlo.add"(%4#1, %10) : (tensor<4xf32>, tensor<4xf32>) ->
            tensor<4xf32>
        %12 = "stablehlo.add"(%4#0, %1) : (tensor<i32>, tensor<i32>) ->
            tensor<i32>
        return %11 : tensor<4xf32>
      }
    }
    ```
  }];
  let options = [
    Option<"group", "group", "std::string", /*default=*/"\"\"",
           "As in zero-accumulate-gradients; empty: there is none, and only the "
           "step itself sends after loops">,
    LinksOption<"; hops are taken to last as long as on these">,
    MinUsecOption<"hops of gradients after a loop">,
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

    *Input*, with `group=gpu`:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%a: tensor<32xf32>, %b: tensor<32xf32>) -> tensor<4xf32> {
      %0 = zero.from_local %a : tensor<32xf32>
          to <32xf32, dim 0 = (2, 4) on #mesh>
      %1 = zero.reduce_scatter sum %0 along ["gpu"]
          : <32xf32, dim 0 = (2, 4) on #mesh>
          to <32xf32, dim 0 = (2, "gpu") on #mesh>
      %2 = zero.reduce_scatter sum %1 along ["node"]
          : <32xf32, dim 0 = (2, "gpu") on #mesh>
          to <32xf32, dim 0 = ("node", "gpu") on #mesh>
      %3 = zero.to_local %2 : <32xf32, dim 0 = ("node", "gpu") on #mesh>
          to tensor<4xf32>
      %4 = zero.from_local %b : tensor<32xf32>
          to <32xf32, dim 0 = (2, 4) on #mesh>
      %5 = zero.reduce_scatter sum %4 along ["gpu"]
          : <32xf32, dim 0 = (2, 4) on #mesh>
          to <32xf32, dim 0 = (2, "gpu") on #mesh>
      %6 = zero.reduce_scatter sum %5 along ["node"]
          : <32xf32, dim 0 = (2, "gpu") on #mesh>
          to <32xf32, dim 0 = ("node", "gpu") on #mesh>
      %7 = zero.to_local %6 : <32xf32, dim 0 = ("node", "gpu") on #mesh>
          to tensor<4xf32>
      %8 = "stablehlo.add"(%3, %7)
          : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      return %8 : tensor<4xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    module attributes {zpp.accumulated = 16 : i64, zpp.micro_batches = 2 : i64} {
      func.func @step(%arg0: tensor<32xf32>, %arg1: tensor<32xf32>)
          -> tensor<4xf32> {
        %0 = zero.from_local %arg0 : tensor<32xf32>
            to <32xf32, dim 0 = (2, 4) on #mesh>
        %1 = zero.reduce_scatter sum %0 along ["gpu"]
            : <32xf32, dim 0 = (2, 4) on #mesh>
            to <32xf32, dim 0 = (2, "gpu") on #mesh>
        %2 = zero.to_local %1 : <32xf32, dim 0 = (2, "gpu") on #mesh>
            to tensor<8xf32>
        %3 = zero.from_local %arg1 : tensor<32xf32>
            to <32xf32, dim 0 = (2, 4) on #mesh>
        %4 = zero.reduce_scatter sum %3 along ["gpu"]
            : <32xf32, dim 0 = (2, 4) on #mesh>
            to <32xf32, dim 0 = (2, "gpu") on #mesh>
        %5 = zero.to_local %4 : <32xf32, dim 0 = (2, "gpu") on #mesh>
            to tensor<8xf32>
        %6 = "stablehlo.add"(%2, %5)
            : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
        %7 = zero.from_local %6 : tensor<8xf32>
            to <32xf32, dim 0 = (2, "gpu") on #mesh>
        %8 = zero.reduce_scatter sum %7 along ["node"]
            : <32xf32, dim 0 = (2, "gpu") on #mesh>
            to <32xf32, dim 0 = ("node", "gpu") on #mesh>
        %9 = zero.to_local %8 : <32xf32, dim 0 = ("node", "gpu") on #mesh>
            to tensor<4xf32>
        return %9 : tensor<4xf32>
      }
    }
    ```
  }];
  let options = [
    Option<"group", "group", "std::string", /*default=*/"\"\"",
           "Group within which gradients are added up: a tier of the mesh, or "
           "the number of devices of its fastest tiers">,
  ];
}

def DecomposeReduceScatterPass
    : Zpp_ModulePass<"zero-decompose-reduce-scatter"> {
  let summary = "Turn scatters into all-to-all and local sums (qgZ, 3.3.1)";
  let description = [{
    A hop of a `reduce_scatter` becomes an `all_to_all`, whose `slices` say what
    goes to which device, and a `reduce` of what arrives. Scatters that an
    earlier pass has left alone (`zpp.reason`) stay.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%g: tensor<1024xf32>) -> tensor<128xf32> {
      %0 = zero.from_local %g : tensor<1024xf32>
          to <1024xf32, dim 0 = (2, 4) on #mesh>
      %1 = zero.reduce_scatter sum %0
          along ["node", "gpu"] wire <i4, block = 128>
          : <1024xf32, dim 0 = (2, 4) on #mesh>
          to <1024xf32, dim 0 = ("node", "gpu") on #mesh>
      %2 = zero.to_local %1 : <1024xf32, dim 0 = ("node", "gpu") on #mesh>
          to tensor<128xf32>
      return %2 : tensor<128xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<1024xf32>) -> tensor<128xf32> {
      %0 = tensor.empty() : tensor<8x128xf32>
      %1 = zero.all_to_all %arg0
          along ["node", "gpu"] on #mesh slices
          <dim = 0, factors = [2, 4], chunk = [0, 1]> wire <i4, block = 128>
          into %0 : tensor<1024xf32> into tensor<8x128xf32>
          -> tensor<8x128xf32>
      %2 = tensor.empty() : tensor<128xf32>
      %3 = zero.reduce sum %1 into %2 : tensor<8x128xf32> into tensor<128xf32>
          -> tensor<128xf32>
      return %3 : tensor<128xf32>
    }
    ```
  }];
  let options = [
    StagesOption<"scatter">,
    LinksOption<>,
  ];
}

def ReorderSlicesPass : Zpp_ModulePass<"zero-reorder-slices"> {
  let summary = "Make the data for one device contiguous (qgZ, 3.3.3)";
  let description = [{
    An `all_to_all` with `slices` sends what these put into each chunk. A
    `pack_slices` before it does so instead, and the `all_to_all` sends its
    leading dim. What is quantized next then never has elements for two devices
    in one block.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%g: tensor<1024xf32>) -> tensor<4x256xf32> {
      %e = tensor.empty() : tensor<4x256xf32>
      %0 = zero.all_to_all %g
          along ["gpu"] on #mesh slices
          <dim = 0, factors = [2, 4], chunk = [1]> wire <i8, block = 128>
          into %e : tensor<1024xf32> into tensor<4x256xf32>
          -> tensor<4x256xf32>
      return %0 : tensor<4x256xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<1024xf32>) -> tensor<4x256xf32> {
      %0 = tensor.empty() : tensor<4x256xf32>
      %1 = tensor.empty() : tensor<4x256xf32>
      %2 = zero.pack_slices %arg0 slices
          <dim = 0, factors = [2, 4], chunk = [1]> into %1 : tensor<1024xf32>
          into tensor<4x256xf32> -> tensor<4x256xf32>
      %3 = zero.all_to_all %2 along ["gpu"] on #mesh wire <i8, block = 128>
          into %0 : tensor<4x256xf32> into tensor<4x256xf32>
          -> tensor<4x256xf32>
      return %3 : tensor<4x256xf32>
    }
    ```
  }];
}

def QuantizeAllToAllPass : Zpp_ModulePass<"zero-quantize-all-to-all"> {
  let summary = "Send quantized chunks in all-to-alls (qgZ, 3.3)";
  let description = [{
    An `all_to_all` with a format, `wire`, becomes one that moves bytes, with a
    `quantize` before it and a `dequantize` after it.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%g: tensor<4x256xf32>) -> tensor<4x256xf32> {
      %e = tensor.empty() : tensor<4x256xf32>
      %0 = zero.all_to_all %g along ["gpu"] on #mesh wire <i8, block = 128>
          into %e : tensor<4x256xf32> into tensor<4x256xf32>
          -> tensor<4x256xf32>
      return %0 : tensor<4x256xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<4x256xf32>) -> tensor<4x256xf32> {
      %0 = tensor.empty() : tensor<4x272xi8>
      %1 = zero.quantize %arg0 quant <i8, block = 128> into %0
          : tensor<4x256xf32> into tensor<4x272xi8> -> tensor<4x272xi8>
      %2 = tensor.empty() : tensor<4x272xi8>
      %3 = zero.all_to_all %1 along ["gpu"] on #mesh into %2
          : tensor<4x272xi8> into tensor<4x272xi8> -> tensor<4x272xi8>
      %4 = tensor.empty() : tensor<4x256xf32>
      %5 = zero.dequantize %3 quant <i8, block = 128> into %4
          : tensor<4x272xi8> into tensor<4x256xf32> -> tensor<4x256xf32>
      return %5 : tensor<4x256xf32>
    }
    ```
  }];
}

def DecomposeAllGatherPass : Zpp_ModulePass<"zero-decompose-all-gather"> {
  let summary = "Turn gathers into exchanges of local chunks";
  let description = [{
    A `zero.all_gather` becomes an `all_gather_chunks` of local tensors and an
    `unpack_slices`, which puts the chunks into the order of the tensor. The
    `encode` and `decode` of a quantized gather become `quantize` and
    `dequantize`.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%w: tensor<128xbf16>) -> tensor<1024xbf16> {
      %0 = zero.from_local %w : tensor<128xbf16>
          to <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
      %1 = zero.all_gather %0 along ["node", "gpu"]
          : <1024xbf16, dim 0 = ("node", "gpu") on #mesh>
          to <1024xbf16, dim 0 = (2, 4) on #mesh>
      %2 = zero.to_local %1 : <1024xbf16, dim 0 = (2, 4) on #mesh>
          to tensor<1024xbf16>
      return %2 : tensor<1024xbf16>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<128xbf16>) -> tensor<1024xbf16> {
      %0 = tensor.empty() : tensor<8x128xbf16>
      %1 = zero.all_gather_chunks %arg0 along ["node", "gpu"] on #mesh into %0
          : tensor<128xbf16> into tensor<8x128xbf16> -> tensor<8x128xbf16>
      %2 = tensor.empty() : tensor<1024xbf16>
      %3 = zero.unpack_slices %1 slices
          <dim = 0, factors = [2, 4], chunk = [0, 1]> into %2
          : tensor<8x128xbf16> into tensor<1024xbf16> -> tensor<1024xbf16>
      return %3 : tensor<1024xbf16>
    }
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

    *Input*:

    ```mlir
    func.func @step(%g: tensor<1024xf32>) -> tensor<4x272xi8> {
      %e = tensor.empty() : tensor<4x256xf32>
      %0 = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [1]>
          into %e : tensor<1024xf32> into tensor<4x256xf32>
          -> tensor<4x256xf32>
      %d = tensor.empty() : tensor<4x272xi8>
      %1 = zero.quantize %0 quant <i8, block = 128> into %d
          : tensor<4x256xf32> into tensor<4x272xi8> -> tensor<4x272xi8>
      return %1 : tensor<4x272xi8>
    }
    ```

    *Output*:

    ```mlir
    func.func @step(%arg0: tensor<1024xf32>) -> tensor<4x272xi8> {
      %0 = tensor.empty() : tensor<4x272xi8>
      %1 = zero.quantize %arg0 quant <i8, block = 128> slices
          <dim = 0, factors = [2, 4], chunk = [1]> into %0 : tensor<1024xf32>
          into tensor<4x272xi8> -> tensor<4x272xi8>
      return %1 : tensor<4x272xi8>
    }
    ```
  }];
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

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 8>
    module @zpp_host {
      func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
        %e = tensor.empty() : tensor<8x2x32xf32>
        %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e :
            tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
        %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into
            tensor<16x32xf32>
        return %1 : tensor<16x32xf32>
      }
    }
    func.func @step(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
      %0 = zero.start @zpp_host::@gather(%x) : (tensor<2x32xf32>) ->
          tensor<16x32xf32>
      %1 = zero.wait %0 from(%x : tensor<2x32xf32>) : tensor<16x32xf32>
      return %1 : tensor<16x32xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 8>
    module @zpp_host {
      func.func @gather(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
        %0 = tensor.empty() : tensor<8x2x32xf32>
        %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 :
            tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
        %collapsed = tensor.collapse_shape %1 [[0, 1], [2]] : tensor<8x2x32xf32>
            into tensor<16x32xf32>
        return %collapsed : tensor<16x32xf32>
      }
    }
    func.func @step(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
      %outputs = zero.start @zpp_host::@gather(%arg0) : (tensor<2x32xf32>) ->
          tensor<16x32xf32>
      %outputs_0 = zero.wait %outputs from(%arg0 : tensor<2x32xf32>) :
          tensor<16x32xf32>
      return %outputs_0 : tensor<16x32xf32>
    }
    ```
  }];
  let options = [
    Option<"inPlace", "in-place", "bool", "false",
           "Allow no starts and waits: collectives must be where they were">,
  ];
}

def VerifyPhasePass : Pass<"zero-verify-phase", "::mlir::ModuleOp"> {
  let summary = "Check what a phase of zeropp leaves to the next one";
  let description = [{
    Closes each phase of the pipeline `zeropp`. The pass changes nothing. It
    fails with an error at each op that the next phase could not treat:

    - P1: after `import`, `zero` ops are collectives on partitioned tensors
      (`all_gather`, `reduce_scatter`, `all_reduce`) and the border around them
      (`from_local`, `to_local`). Nothing is encoded, and no scatter has a wire
      format.
    - P2: after `weights`, there may also be `encode` and `decode`. No gather
      waits for a decision about updates (`zpp.updated`).
    - P3: after `gradients`, there is no `all_reduce`.
    - P4: after `decompose`, the contract of `zero-verify-decomposed` holds,
      without starts and waits. A scatter that was left alone, for a reason
      (`zpp.reason`), may still be on partitioned tensors.
    - P5: after `schedule`, the same with starts and waits, which match.
    - P6: after `leave`, there is no `zero` op and no partitioned tensor in the
      step, and none of the attributes that passes only leave to each other.

    Functions of the host (`@zpp_host`), which the schedule makes, are left out:
    the pipeline that bufferizes them verifies what it needs.

    *Input*, with `after=weights`:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    !primary = !zero.shard<16x8xf32, dim 0 = ("node", "gpu") on #mesh>
    !whole = !zero.shard<16x8xf32, dim 0 = (2, 4) on #mesh>
    func.func @step(%w: tensor<2x8xf32>) -> tensor<16x8xf32> {
      %0 = zero.from_local %w : tensor<2x8xf32> to !primary
      %1 = zero.all_gather %0 along ["node", "gpu"] : !primary to !whole
      %2 = zero.to_local %1 : !whole to tensor<16x8xf32>
      return %2 : tensor<16x8xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<2x8xf32>) -> tensor<16x8xf32> {
      %0 = zero.from_local %arg0 : tensor<2x8xf32> to <16x8xf32, dim 0 =
          ("node", "gpu") on #mesh>
      %1 = zero.all_gather %0 along ["node", "gpu"] : <16x8xf32, dim 0 =
          ("node", "gpu") on #mesh> to <16x8xf32, dim 0 = (2, 4) on #mesh>
      %2 = zero.to_local %1 : <16x8xf32, dim 0 = (2, 4) on #mesh> to
          tensor<16x8xf32>
      return %2 : tensor<16x8xf32>
    }
    ```
  }];
  let options = [
    Option<"after", "after", "::zpp::PipelinePhase",
           "::zpp::PipelinePhase::Import",
           "The phase that has run (default: import)",
           [{::llvm::cl::values(
               clEnumValN(::zpp::PipelinePhase::Import, "import", "P1"),
               clEnumValN(::zpp::PipelinePhase::Weights, "weights", "P2"),
               clEnumValN(::zpp::PipelinePhase::Gradients, "gradients", "P3"),
               clEnumValN(::zpp::PipelinePhase::Decompose, "decompose", "P4"),
               clEnumValN(::zpp::PipelinePhase::Schedule, "schedule", "P5"),
               clEnumValN(::zpp::PipelinePhase::Leave, "leave", "P6"))}]>,
  ];
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
    not so in a loop over at most `layer-trips` layers, which becomes layers
    (`zero-unroll-loops`). If the last buffer does not become full, its tensors
    join the one before it.
    Secondary partitions (hpZ) that are kept in one buffer are also sent in one
    piece if later gathers read all of them, or all but a small part; each
    counts with the bytes that it had when it was kept.

    In the body of a loop, tensors also join across heavy ops that take less
    time on a fast device than another transfer would cost, and small tensors
    join in any case: a gather the one before it, a gradient the one after it.
    A gradient counts where it is computed, since scans scatter all of them at
    the end of an iteration. Gathers that an iteration needs first take only
    small ones along, because `zero-rotate-loops` has them run an iteration
    ahead. Where the loop becomes layers, its last gradients join the ones
    before them if they are small.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%x: tensor<4x64xi8>, %y: tensor<4x32xi8>)
        -> (tensor<4x64xi8>, tensor<4x32xi8>) {
      %e = tensor.empty() : tensor<4x64xi8>
      %0 = zero.all_to_all %x along ["gpu"] on #mesh
          into %e {zpp.origin = {id = 0}} : tensor<4x64xi8>
          into tensor<4x64xi8> -> tensor<4x64xi8>
      %f = tensor.empty() : tensor<4x32xi8>
      %1 = zero.all_to_all %y along ["gpu"] on #mesh
          into %f {zpp.origin = {id = 1}} : tensor<4x32xi8>
          into tensor<4x32xi8> -> tensor<4x32xi8>
      return %0, %1 : tensor<4x64xi8>, tensor<4x32xi8>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<4x64xi8>, %arg1: tensor<4x32xi8>)
        -> (tensor<4x64xi8>, tensor<4x32xi8>) {
      %concat = tensor.concat dim(1) %arg0, %arg1
          : (tensor<4x64xi8>, tensor<4x32xi8>) -> tensor<4x96xi8>
      %0 = tensor.empty() : tensor<4x96xi8>
      %1 = zero.all_to_all %concat along ["gpu"] on #mesh
          into %0 {zpp.origin = [{before = [], group = "", id = 0 : i64,
          kind = "", model_bytes = 0 : i64, phase = "", role = "", share = 64
          : i64, trips = 0 : i64, weight = 0
          : i64}, {before = [], group = "", id = 1
          : i64, kind = "", model_bytes = 0
          : i64, phase = "", role = "", share = 32 : i64, trips = 0
          : i64, weight = 0 : i64} ]} : tensor<4x96xi8> into tensor<4x96xi8> ->
          tensor<4x96xi8>
      %extracted_slice = tensor.extract_slice %1[0, 0] [4, 64] [1, 1]
          : tensor<4x96xi8> to tensor<4x64xi8>
      %extracted_slice_0 = tensor.extract_slice %1[0, 64] [4, 32] [1, 1]
          : tensor<4x96xi8> to tensor<4x32xi8>
      return %extracted_slice, %extracted_slice_0
          : tensor<4x64xi8>, tensor<4x32xi8>
    }
    ```
  }];
  let options = [
    Option<"bytes", "bytes", "int64_t", "4194304",
           "Bytes that a device contributes to a buffer before it is full">,
    Option<"layerTrips", "layer-trips", "int64_t", "0",
           "Loops over at most so many layers become layers">,
  ];
}

def OutlineCollectivesPass : Zpp_ModulePass<"zero-outline-collectives"> {
  let summary = "Move collectives into functions that run beside the compute";
  let description = [{
    In each block, a chain of decomposed ops that use each other's results, with
    the tensor ops between them, becomes a function in the nested module
    `@zpp_host`, and a `zero.start` and a `zero.wait` of this function. Layers
    are alike, so equal chains share one function. If other locations, which
    name weights, are all that tells them apart, a chain has an instance
    (`zero.instance`) of the function. `tensor.empty` is cloned into the
    function. All other values that a chain reads are arguments, and
    those that other ops read are results.

    A secondary partition (hpZ) is the result of one chain and the argument of
    another, because the barrier between them is not a zero op.

    A chain may have to stay where it is, to be lowered portably: because it
    sends nothing quantized, lies in a branch, has slices that are not static,
    or because one of its operands depends on one of its results. A remark says
    why.

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
    #mesh = #zero.mesh<"node" = 2, "gpu" = 4>
    func.func @step(%arg0: tensor<4x272xi8>) -> tensor<4x272xi8> {
      %outputs = zero.start @zpp_host::@zpp_collective_0(%arg0)
          {origins = [[]]} : (tensor<4x272xi8>) -> tensor<4x272xi8>
      %outputs_0 = zero.wait %outputs from(%arg0 : tensor<4x272xi8>)
          : tensor<4x272xi8>
      return %outputs_0 : tensor<4x272xi8>
    }
    module @zpp_host {
      func.func @zpp_collective_0(%arg0: tensor<4x272xi8>)
          -> tensor<4x272xi8> {
        %0 = tensor.empty() : tensor<4x272xi8>
        %1 = zero.all_to_all %arg0 along ["gpu"] on #mesh into %0
            : tensor<4x272xi8> into tensor<4x272xi8> -> tensor<4x272xi8>
        return %1 : tensor<4x272xi8>
      }
    }
    ```
  }];
  let dependentDialects = ["::zpp::zero::ZeroDialect",
                           "::mlir::func::FuncDialect",
                           "::mlir::tensor::TensorDialect"];
}

def PipelineChunksPass : Zpp_ModulePass<"zero-pipeline-chunks"> {
  let summary = "Overlap the hops of one stage with those of others (4.1.2)";
  let description = [{
    Orders the ops of each function in the module `@zpp_host` by the times at
    which they would start if kernels and the exchanges of each tier had queues
    of their own. So a tier does not wait for kernels of a stage that itself
    waits for a slower tier. The order is the same on every rank.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 2>
    func.func @step(%g: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
      %0 = zero.start @zpp_host::@stages(%g) {origins = [{id = 1}, {id = 2}, {id
          = 3}, {id = 4} ]} : (tensor<4096x4096xf32>) -> tensor<1024x4096xf32>
      %1 = zero.wait %0 from(%g : tensor<4096x4096xf32>) : tensor<1024x4096xf32>
      return %1 : tensor<1024x4096xf32>
    }
    module @zpp_host {
      func.func @stages(%g: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
        %e0 = tensor.empty() : tensor<2x4259840xi8>
        %e1 = tensor.empty() : tensor<2x1081344xi8>
        %e2 = tensor.empty() : tensor<512x4096xf32>
        %0 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors =
            [2, 2], chunk = [1], stage = 0 of 2> into %e0
            : tensor<4096x4096xf32> into tensor<2x4259840xi8> ->
                tensor<2x4259840xi8>
        %1 = zero.all_to_all %0 along ["gpu"] on #mesh into %e0
            : tensor<2x4259840xi8> into tensor<2x4259840xi8> ->
                tensor<2x4259840xi8>
        %2 = zero.dequantize_reduce_quantize sum %1 quant <i8, block = 128>
            partial tensor<1024x4096xf32> to <i4, block = 128>
            slices <dim = 0, factors = [2], chunk = [0]> into %e1 :
                tensor<2x4259840xi8> into tensor<2x1081344xi8> ->
                tensor<2x1081344xi8>
        %3 = zero.all_to_all %2 along ["node"] on #mesh into %e1
            : tensor<2x1081344xi8> into tensor<2x1081344xi8> ->
                tensor<2x1081344xi8>
        %4 = zero.dequantize_reduce sum %3 quant <i4, block = 128> into %e2
            : tensor<2x1081344xi8> into tensor<512x4096xf32> ->
                tensor<512x4096xf32>
        %5 = zero.quantize %g quant <i8, block = 128> slices <dim = 0, factors =
            [2, 2], chunk = [1], stage = 1 of 2> into %e0
            : tensor<4096x4096xf32> into tensor<2x4259840xi8> ->
                tensor<2x4259840xi8>
        %6 = zero.all_to_all %5 along ["gpu"] on #mesh into %e0
            : tensor<2x4259840xi8> into tensor<2x4259840xi8> ->
                tensor<2x4259840xi8>
        %7 = zero.dequantize_reduce_quantize sum %6 quant <i8, block = 128>
            partial tensor<1024x4096xf32> to <i4, block = 128>
            slices <dim = 0, factors = [2], chunk = [0]> into %e1 :
                tensor<2x4259840xi8> into tensor<2x1081344xi8> ->
                tensor<2x1081344xi8>
        %8 = zero.all_to_all %7 along ["node"] on #mesh into %e1
            : tensor<2x1081344xi8> into tensor<2x1081344xi8> ->
                tensor<2x1081344xi8>
        %9 = zero.dequantize_reduce sum %8 quant <i4, block = 128> into %e2
            : tensor<2x1081344xi8> into tensor<512x4096xf32> ->
                tensor<512x4096xf32>
        %10 = tensor.concat dim(0) %4, %9 : (tensor<512x4096xf32>,
            tensor<512x4096xf32>) -> tensor<1024x4096xf32>
        return %10 : tensor<1024x4096xf32>
      }
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"node" = 2, "gpu" = 2>
    func.func @step(%arg0: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
      %outputs = zero.start @zpp_host::@stages(%arg0) {origins = [{id = 1 :
          i64}, {id = 3 : i64}, {id = 2 : i64}, {id = 4 : i64} ]} :
          (tensor<4096x4096xf32>) -> tensor<1024x4096xf32>
      %outputs_0 = zero.wait %outputs from(%arg0 : tensor<4096x4096xf32>) :
          tensor<1024x4096xf32>
      return %outputs_0 : tensor<1024x4096xf32>
    }
    module @zpp_host {
      func.func @stages(%arg0: tensor<4096x4096xf32>) -> tensor<1024x4096xf32> {
        %0 = tensor.empty() : tensor<2x4259840xi8>
        %1 = zero.quantize %arg0 quant <i8, block = 128> slices <dim = 0,
            factors = [2, 2], chunk = [1], stage = 0 of 2> into %0 :
            tensor<4096x4096xf32> into tensor<2x4259840xi8> ->
            tensor<2x4259840xi8>
        %2 = zero.quantize %arg0 quant <i8, block = 128> slices <dim = 0,
            factors = [2, 2], chunk = [1], stage = 1 of 2> into %0 :
            tensor<4096x4096xf32> into tensor<2x4259840xi8> ->
            tensor<2x4259840xi8>
        %3 = zero.all_to_all %1 along ["gpu"] on #mesh into %0 :
            tensor<2x4259840xi8> into tensor<2x4259840xi8> ->
            tensor<2x4259840xi8>
        %4 = zero.all_to_all %2 along ["gpu"] on #mesh into %0 :
            tensor<2x4259840xi8> into tensor<2x4259840xi8> ->
            tensor<2x4259840xi8>
        %5 = tensor.empty() : tensor<2x1081344xi8>
        %6 = zero.dequantize_reduce_quantize sum %3 quant <i8, block = 128>
            partial tensor<1024x4096xf32> to <i4, block = 128> slices <dim = 0,
            factors = [2], chunk = [0]> into %5 : tensor<2x4259840xi8> into
            tensor<2x1081344xi8> -> tensor<2x1081344xi8>
        %7 = zero.all_to_all %6 along ["node"] on #mesh into %5 :
            tensor<2x1081344xi8> into tensor<2x1081344xi8> ->
            tensor<2x1081344xi8>
        %8 = zero.dequantize_reduce_quantize sum %4 quant <i8, block = 128>
            partial tensor<1024x4096xf32> to <i4, block = 128> slices <dim = 0,
            factors = [2], chunk = [0]> into %5 : tensor<2x4259840xi8> into
            tensor<2x1081344xi8> -> tensor<2x1081344xi8>
        %9 = zero.all_to_all %8 along ["node"] on #mesh into %5 :
            tensor<2x1081344xi8> into tensor<2x1081344xi8> ->
            tensor<2x1081344xi8>
        %10 = tensor.empty() : tensor<512x4096xf32>
        %11 = zero.dequantize_reduce sum %7 quant <i4, block = 128> into %10 :
            tensor<2x1081344xi8> into tensor<512x4096xf32> ->
            tensor<512x4096xf32>
        %12 = zero.dequantize_reduce sum %9 quant <i4, block = 128> into %10 :
            tensor<2x1081344xi8> into tensor<512x4096xf32> ->
            tensor<512x4096xf32>
        %concat = tensor.concat dim(0) %11, %12 : (tensor<512x4096xf32>,
            tensor<512x4096xf32>) -> tensor<1024x4096xf32>
        return %concat : tensor<1024x4096xf32>
      }
    }
    ```
  }];
  let options = [
    LinksOption<" (default: each tier has a tenth of the speed of the next "
                "faster one)">,
  ];
}

def UnrollLoopsPass : Zpp_ModulePass<"zero-unroll-loops"> {
  let summary = "Write the layers of short loops one after the other (4.1.1)";
  let description = [{
    `zero-rotate-loops` takes one collective more than a loop has iterations,
    and the links are idle between two of them, which is too much for a loop
    over a few layers. Without a loop, the layers overlap as those of a step
    that was written without one.

    Replaced is a loop of at most `max-trips` iterations that are the layers of
    a model: all weights that it gathers depend on the number of the iteration,
    or it stores what it scatters in a stack, at its own place. So a loop over
    micro-batches stays one, as does a loop around other loops that communicate.
    XLA sees as little of the neighbors of an iteration as in a loop:
    activations that enter the loop pass through an `optimization_barrier`, so
    that a backward pass still computes them again where it was written so, and
    so do the number of each iteration and the stacks of weights, as early as
    these are there: a gather may start in front of the loop. Gradients are
    stored in their stacks after all iterations. Where a loop around this one
    adds up such stacks, of which each layer is written once, each layer is
    added to that of the sum instead, and there is no other stack. Where each
    iteration reads its layer of a stack and writes it again, as with
    differences, it reads it in front of the write of the iteration before.
    A stack that is joined from layers or begins as zeros, and is only read and
    written layer by layer, is replaced by its layers. Remarks say which loops
    stay, and why.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 8>
    module @zpp_host {
      func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
        %e = tensor.empty() : tensor<8x2x32xf32>
        %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e :
            tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
        %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into
            tensor<16x32xf32>
        return %1 : tensor<16x32xf32>
      }
    }
    func.func @layers(%x: tensor<4x16xf32>, %w: tensor<2x2x32xf32>, %v:
        tensor<32x16xf32>) -> tensor<4x16xf32> {
      %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () ->
          tensor<i32>
      %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () ->
          tensor<i32>
      %two = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : () ->
          tensor<i32>
      %r:3 = "stablehlo.while"(%zero, %x, %w) ({
      ^bb0(%i: tensor<i32>, %a: tensor<4x16xf32>, %s: tensor<2x2x32xf32>):
        %c = "stablehlo.compare"(%i, %two) <{comparison_direction =
            #stablehlo<comparison_direction LT>}> : (tensor<i32>,
                tensor<i32>) ->
            tensor<i1>
        "stablehlo.return"(%c) : (tensor<i1>) -> ()
      }, {
      ^bb0(%i: tensor<i32>, %a: tensor<4x16xf32>, %s: tensor<2x2x32xf32>):
        %0 = "stablehlo.dynamic_slice"(%s, %i, %zero, %zero) <{slice_sizes =
            array<i64: 1, 2, 32>}> : (tensor<2x2x32xf32>,
                tensor<i32>, tensor<i32>,
            tensor<i32>) -> tensor<1x2x32xf32>
        %1 = "stablehlo.reshape"(%0) : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
        %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"} ]} :
            (tensor<2x32xf32>) -> tensor<16x32xf32>
        %3 = zero.wait %2 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
        %4 = "stablehlo.dot_general"(%a, %3) <{dot_dimension_numbers =
            #stablehlo.dot<lhs_contracting_dimensions = [1],
            rhs_contracting_dimensions = [0]>}> : (tensor<4x16xf32>,
            tensor<16x32xf32>) -> tensor<4x32xf32>
        %5 = "stablehlo.dot_general"(%4, %v) <{dot_dimension_numbers =
            #stablehlo.dot<lhs_contracting_dimensions = [1],
            rhs_contracting_dimensions = [0]>}> : (tensor<4x32xf32>,
            tensor<32x16xf32>) -> tensor<4x16xf32>
        %n = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) ->
            tensor<i32>
        "stablehlo.return"(%n, %5, %s) : (tensor<i32>, tensor<4x16xf32>,
            tensor<2x2x32xf32>) -> ()
      }) : (tensor<i32>, tensor<4x16xf32>, tensor<2x2x32xf32>) -> (tensor<i32>,
          tensor<4x16xf32>, tensor<2x2x32xf32>)
      return %r#1 : tensor<4x16xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 8>
    module @zpp_host {
      func.func @gather(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
        %0 = tensor.empty() : tensor<8x2x32xf32>
        %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0
            : tensor<2x32xf32> into tensor<8x2x32xf32> ->
            tensor<8x2x32xf32>
        %collapsed = tensor.collapse_shape %1 [[0, 1], [2]] :
            tensor<8x2x32xf32> into tensor<16x32xf32>
        return %collapsed : tensor<16x32xf32>
      }
    }
    func.func @layers(%arg0: tensor<4x16xf32>, %arg1: tensor<2x2x32xf32>,
        %arg2: tensor<32x16xf32>) -> tensor<4x16xf32> {
      %0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : ()
          -> tensor<i32>
      %1:2 = "stablehlo.optimization_barrier"(%0, %arg1) : (tensor<i32>,
          tensor<2x2x32xf32>) -> (tensor<i32>, tensor<2x2x32xf32>)
      %2 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : ()
          -> tensor<i32>
      %3:2 = "stablehlo.optimization_barrier"(%2, %arg1) : (tensor<i32>,
          tensor<2x2x32xf32>) -> (tensor<i32>, tensor<2x2x32xf32>)
      %4 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : ()
          -> tensor<i32>
      %5 = "stablehlo.constant"() <{value = dense<2> : tensor<i32>}> : ()
          -> tensor<i32>
      %6 = "stablehlo.dynamic_slice"(%1#1, %1#0, %4, %4) <{slice_sizes =
          array<i64: 1, 2, 32>}> : (tensor<2x2x32xf32>, tensor<i32>,
          tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
      %7 = "stablehlo.reshape"(%6) : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
      %outputs = zero.start @zpp_host::@gather(%7) {origins = [{role =
          "weight"} ]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
      %outputs_0 = zero.wait %outputs from(%7 : tensor<2x32xf32>) :
          tensor<16x32xf32>
      %8 = "stablehlo.dot_general"(%arg0, %outputs_0)
          <{dot_dimension_numbers =
          #stablehlo.dot<lhs_contracting_dimensions = [1],
          rhs_contracting_dimensions = [0]>}> : (tensor<4x16xf32>,
              tensor<16x32xf32>) -> tensor<4x32xf32>
      %9 = "stablehlo.dot_general"(%8, %arg2) <{dot_dimension_numbers =
          #stablehlo.dot<lhs_contracting_dimensions = [1],
          rhs_contracting_dimensions = [0]>}> : (tensor<4x32xf32>,
              tensor<32x16xf32>) -> tensor<4x16xf32>
      %10 = "stablehlo.dynamic_slice"(%3#1, %3#0, %4, %4) <{slice_sizes =
          array<i64: 1, 2, 32>}> : (tensor<2x2x32xf32>, tensor<i32>,
          tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
      %11 = "stablehlo.reshape"(%10) : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
      %outputs_1 = zero.start @zpp_host::@gather(%11) {origins = [{role =
          "weight"} ]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
      %outputs_2 = zero.wait %outputs_1 from(%11 : tensor<2x32xf32>) :
          tensor<16x32xf32>
      %12 = "stablehlo.dot_general"(%9, %outputs_2)
          <{dot_dimension_numbers =
          #stablehlo.dot<lhs_contracting_dimensions = [1],
          rhs_contracting_dimensions = [0]>}> : (tensor<4x16xf32>,
              tensor<16x32xf32>) -> tensor<4x32xf32>
      %13 = "stablehlo.dot_general"(%12, %arg2) <{dot_dimension_numbers =
          #stablehlo.dot<lhs_contracting_dimensions = [1],
          rhs_contracting_dimensions = [0]>}> : (tensor<4x32xf32>,
              tensor<32x16xf32>) -> tensor<4x16xf32>
      return %13 : tensor<4x16xf32>
    }
    ```
  }];
  let options = [
    Option<"maxTrips", "max-trips", "int64_t", "16",
           "The most iterations of a loop that is replaced">,
  ];
}

def RotateLoopsPass : Zpp_ModulePass<"zero-rotate-loops"> {
  let summary = "Gather a loop's weights one iteration ahead, scatter its "
                "gradients one behind (4.1.1)";
  let description = [{
    In a loop (`lax.scan` over layers or micro-batches), two kinds of
    collectives have too little compute in their own iteration to hide under.
    Both move to another iteration:

    - Weights that are needed before the first heavy op are gathered one
      iteration ahead: those of the first iteration before the loop, and in each
      iteration those of the next one, which the loop carries. Their operands
      must be slices of values that the loop carries unchanged, chosen by its
      counter. The gather of the last iteration is not used.
    - Gradients whose scatters the compute after them does not hide are
      scattered one iteration later: those that would not end with the iteration
      if the links took as long for all of its gradients as it computes. The loop
      carries them, each iteration scatters those of the one before, and those of
      the last iteration are scattered after the loop. The loop must do nothing with the result except store it in a slice
      of a stack or add it to a sum, and must have at least two iterations. The
      first iteration scatters zeros: they are stored where the true result
      replaces them later, or are added to the sum.
    - All that follows from a scatter moves with it, further scatters too.
      Scatters that follow from each other share the compute of the iteration.

    Both take one collective more than the loop has iterations, so loops of
    fewer than `min-trips` iterations are left alone. Remarks say what moves,
    and why the rest does not.

    *Input*, with `min-trips=2`:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 8>
    module @zpp_host {
      func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
        %e = tensor.empty() : tensor<8x2x32xf32>
        %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e :
            tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
        %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into
            tensor<16x32xf32>
        return %1 : tensor<16x32xf32>
      }
    }
    func.func @layers(%x: tensor<4x16xf32>, %w: tensor<3x2x32xf32>, %v:
        tensor<32x16xf32>) -> tensor<4x16xf32> {
      %zero = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () ->
          tensor<i32>
      %one = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () ->
          tensor<i32>
      %three = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () ->
          tensor<i32>
      %r:3 = "stablehlo.while"(%zero, %x, %w) ({
      ^bb0(%i: tensor<i32>, %a: tensor<4x16xf32>, %s: tensor<3x2x32xf32>):
        %c = "stablehlo.compare"(%i, %three) <{comparison_direction =
            #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>)
            -> tensor<i1>
        "stablehlo.return"(%c) : (tensor<i1>) -> ()
      }, {
      ^bb0(%i: tensor<i32>, %a: tensor<4x16xf32>, %s: tensor<3x2x32xf32>):
        %0 = "stablehlo.dynamic_slice"(%s, %i, %zero, %zero) <{slice_sizes =
            array<i64: 1, 2, 32>}> : (tensor<3x2x32xf32>, tensor<i32>,
            tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
        %1 = "stablehlo.reshape"(%0) : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
        %2 = zero.start @zpp_host::@gather(%1) {origins = [{role = "weight"} ]}
            : (tensor<2x32xf32>) -> tensor<16x32xf32>
        %3 = zero.wait %2 from(%1 : tensor<2x32xf32>) : tensor<16x32xf32>
        %4 = "stablehlo.dot_general"(%a, %3) <{dot_dimension_numbers =
            #stablehlo.dot<lhs_contracting_dimensions = [1],
            rhs_contracting_dimensions = [0]>}> : (tensor<4x16xf32>,
            tensor<16x32xf32>) -> tensor<4x32xf32>
        %5 = "stablehlo.dot_general"(%4, %v) <{dot_dimension_numbers =
            #stablehlo.dot<lhs_contracting_dimensions = [1],
            rhs_contracting_dimensions = [0]>}> : (tensor<4x32xf32>,
            tensor<32x16xf32>) -> tensor<4x16xf32>
        %n = "stablehlo.add"(%i, %one) : (tensor<i32>, tensor<i32>) ->
            tensor<i32>
        "stablehlo.return"(%n, %5, %s) : (tensor<i32>, tensor<4x16xf32>,
            tensor<3x2x32xf32>) -> ()
      }) : (tensor<i32>, tensor<4x16xf32>, tensor<3x2x32xf32>) -> (tensor<i32>,
          tensor<4x16xf32>, tensor<3x2x32xf32>)
      return %r#1 : tensor<4x16xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 8>
    module @zpp_host {
      func.func @gather(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
        %0 = tensor.empty() : tensor<8x2x32xf32>
        %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 :
            tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
        %collapsed = tensor.collapse_shape %1 [[0, 1], [2]] : tensor<8x2x32xf32>
            into tensor<16x32xf32>
        return %collapsed : tensor<16x32xf32>
      }
    }
    func.func @layers(%arg0: tensor<4x16xf32>, %arg1: tensor<3x2x32xf32>, %arg2:
        tensor<32x16xf32>) -> tensor<4x16xf32> {
      %0 = "stablehlo.constant"() <{value = dense<0> : tensor<i32>}> : () ->
          tensor<i32>
      %1 = "stablehlo.constant"() <{value = dense<1> : tensor<i32>}> : () ->
          tensor<i32>
      %2 = "stablehlo.constant"() <{value = dense<3> : tensor<i32>}> : () ->
          tensor<i32>
      %3 = "stablehlo.dynamic_slice"(%arg1, %0, %0, %0) <{slice_sizes =
          array<i64: 1, 2, 32>}> : (tensor<3x2x32xf32>, tensor<i32>,
          tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
      %4 = "stablehlo.reshape"(%3) : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
      %outputs = zero.start @zpp_host::@gather(%4) {origins = [{role = "weight"}
          ]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
      %outputs_0 = zero.wait %outputs from(%4 : tensor<2x32xf32>) :
          tensor<16x32xf32>
      %5:4 = "stablehlo.while"(%0, %arg0, %arg1, %outputs_0) ({
      ^bb0(%arg3: tensor<i32>, %arg4: tensor<4x16xf32>, %arg5:
          tensor<3x2x32xf32>, %arg6: tensor<16x32xf32>):
        %6 = "stablehlo.compare"(%arg3, %2) <{comparison_direction =
            #stablehlo<comparison_direction LT>}> : (tensor<i32>, tensor<i32>)
            -> tensor<i1>
        "stablehlo.return"(%6) : (tensor<i1>) -> ()
      }, {
      ^bb0(%arg3: tensor<i32>, %arg4: tensor<4x16xf32>, %arg5:
          tensor<3x2x32xf32>, %arg6: tensor<16x32xf32>):
        %6 = "stablehlo.add"(%arg3, %1) : (tensor<i32>, tensor<i32>) ->
            tensor<i32>
        %7 = "stablehlo.dynamic_slice"(%arg5, %6, %0, %0) <{slice_sizes =
            array<i64: 1, 2, 32>}> : (tensor<3x2x32xf32>, tensor<i32>,
            tensor<i32>, tensor<i32>) -> tensor<1x2x32xf32>
        %8 = "stablehlo.reshape"(%7) : (tensor<1x2x32xf32>) -> tensor<2x32xf32>
        %outputs_1 = zero.start @zpp_host::@gather(%8) {origins = [{role =
            "weight"} ]} : (tensor<2x32xf32>) -> tensor<16x32xf32>
        %outputs_2 = zero.wait %outputs_1 from(%8 : tensor<2x32xf32>) :
            tensor<16x32xf32>
        %9 = "stablehlo.dot_general"(%arg4, %arg6) <{dot_dimension_numbers =
            #stablehlo.dot<lhs_contracting_dimensions = [1],
            rhs_contracting_dimensions = [0]>}> : (tensor<4x16xf32>,
            tensor<16x32xf32>) -> tensor<4x32xf32>
        %10 = "stablehlo.dot_general"(%9, %arg2) <{dot_dimension_numbers =
            #stablehlo.dot<lhs_contracting_dimensions = [1],
            rhs_contracting_dimensions = [0]>}> : (tensor<4x32xf32>,
            tensor<32x16xf32>) -> tensor<4x16xf32>
        %11 = "stablehlo.add"(%arg3, %1) : (tensor<i32>, tensor<i32>) ->
            tensor<i32>
        "stablehlo.return"(%11, %10, %arg5, %outputs_2) : (tensor<i32>,
            tensor<4x16xf32>, tensor<3x2x32xf32>, tensor<16x32xf32>) -> ()
      }) : (tensor<i32>, tensor<4x16xf32>, tensor<3x2x32xf32>,
          tensor<16x32xf32>) -> (tensor<i32>, tensor<4x16xf32>,
          tensor<3x2x32xf32>, tensor<16x32xf32>)
      return %5#1 : tensor<4x16xf32>
    }
    ```
  }];
  let options = [
    PrefetchBytesOption<"that a loop may carry from one iteration to the "
                        "next: first gathered weights, then gradients and "
                        "the results of their scatters">,
    Option<"minTrips", "min-trips", "int64_t", "8",
           "Leave loops alone that are known to have fewer iterations">,
  ];
}

def OverlapCollectivesPass : Zpp_ModulePass<"zero-overlap-collectives"> {
  let summary = "Start collectives early and wait for them late (4.1.1)";
  let description = [{
    Moves starts up and waits down, in the same order on every rank:

    - Gathers of weights start in the order in which their results are needed,
      each as soon as its operand is available and the bytes in flight stay
      within `prefetch-bytes`. Each is waited for where its result is needed
      first. Casts, shape changes and arithmetic of weights move with them. A
      second gather of a weight reads its operand from before the barrier that
      kept the two apart, since ties do this from now on. If the operand is
      cast, the cast is repeated after a barrier of its own. Where several
      layers are read of a stack that is kept beyond that, each is read after a
      barrier of its own, through which the tied value passes: XLA would read
      all of them at once.
    - A scatter of gradients starts once its gradient is available, and is
      waited for where its result is needed. Arithmetic that nothing else reads,
      such as a scale, moves with it. It is waited for earlier only if
      `prefetch-bytes` are in flight and another scatter is to start.

    With `prefetch-bytes=-1` each block has what one layer needs, and at least
    256 MiB: the bytes of the largest one of its layers, which are the transfers
    after which their sizes repeat; all of a loop's body if they do not; or the
    largest transfer if that is more.

    XLA respects no other order than that of data, so values of the compute are
    tied through starts and waits:

    - An operand of the next heavy op (a product, a convolution, a loop, a call,
      or the op on the most data) passes through a start, which then cannot come
      later than this op.
    - The value that was computed last passes through a wait, which then cannot
      come earlier. A wait that makes room for a gradient has this gradient pass
      through it. An operand of the next product, which the one before may have
      read, XLA would copy.
    - Products that only later products and scatters read, and the gradients and
      results of scatters that are left to XLA, pass through the next wait. XLA
      would leave much of this work for the end and keep its operands in memory.
      For the same reason a layer of a stack that a wait brings to make room is
      stored behind it, and the stack passes through the next wait.
    - After the last heavy op, outside of loops, ops are sorted by the scatters
      that they need, and updates of at least 1 MiB pass through the next wait.
      XLA would wait for all gradients first. So the last ones are on the way
      while the weights of earlier ones are updated. Where a start comes before
      such updates, their gradients pass through it: XLA would run the updates
      first.
    - A stack of layers, or a loop, that begins with a broadcast of zero has a
      broadcast of its own, behind a barrier with a value that is there last.
      XLA would compute equal zeros together, before the first of all stacks
      begins. Of stacks that one op reads, one begins when the one before is
      complete.

    A block that has ties has been scheduled already and stays as it is.

    For each transfer a remark says where it starts, where it is waited for,
    under how many heavy ops it runs and how many bytes are in flight. If there
    is nothing to hide under, the remark is a missed one.

    *Input*, with `prefetch-bytes=2048`:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 8>
    module @zpp_host {
      func.func @gather(%x: tensor<2x32xf32>) -> tensor<16x32xf32> {
        %e = tensor.empty() : tensor<8x2x32xf32>
        %0 = zero.all_gather_chunks %x along ["gpu"] on #mesh into %e :
            tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
        %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<8x2x32xf32> into
            tensor<16x32xf32>
        return %1 : tensor<16x32xf32>
      }
    }
    func.func @forward(%x: tensor<4x16xf32>, %v: tensor<2x32xf32>) ->
        tensor<4x32xf32> {
      %0 = "stablehlo.tanh"(%x) : (tensor<4x16xf32>) -> tensor<4x16xf32>
      %1 = "stablehlo.dot_general"(%0, %x) <{dot_dimension_numbers =
          #stablehlo.dot<lhs_contracting_dimensions = [1],
          rhs_contracting_dimensions = [1]>}> : (tensor<4x16xf32>,
          tensor<4x16xf32>) -> tensor<4x4xf32>
      %2 = "stablehlo.dot_general"(%1, %x) <{dot_dimension_numbers =
          #stablehlo.dot<lhs_contracting_dimensions = [1],
          rhs_contracting_dimensions = [0]>}> : (tensor<4x4xf32>,
          tensor<4x16xf32>) -> tensor<4x16xf32>
      %3 = zero.start @zpp_host::@gather(%v) {origins = [{role = "weight"} ]} :
          (tensor<2x32xf32>) -> tensor<16x32xf32>
      %4 = zero.wait %3 from(%v : tensor<2x32xf32>) : tensor<16x32xf32>
      %5 = "stablehlo.dot_general"(%2, %4) <{dot_dimension_numbers =
          #stablehlo.dot<lhs_contracting_dimensions = [1],
          rhs_contracting_dimensions = [0]>}> : (tensor<4x16xf32>,
          tensor<16x32xf32>) -> tensor<4x32xf32>
      return %5 : tensor<4x32xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 8>
    module attributes {zpp.prefetch_bytes = 2048 : i64} {
      module @zpp_host {
        func.func @gather(%arg0: tensor<2x32xf32>) -> tensor<16x32xf32> {
          %0 = tensor.empty() : tensor<8x2x32xf32>
          %1 = zero.all_gather_chunks %arg0 along ["gpu"] on #mesh into %0 :
              tensor<2x32xf32> into tensor<8x2x32xf32> -> tensor<8x2x32xf32>
          %collapsed = tensor.collapse_shape %1 [[0, 1], [2]] :
              tensor<8x2x32xf32> into tensor<16x32xf32>
          return %collapsed : tensor<16x32xf32>
        }
      }
      func.func @forward(%arg0: tensor<4x16xf32>, %arg1: tensor<2x32xf32>) ->
          tensor<4x32xf32> {
        %0 = "stablehlo.tanh"(%arg0) : (tensor<4x16xf32>) -> tensor<4x16xf32>
        %outputs, %tied = zero.start @zpp_host::@gather(%arg1) ties(%0 :
            tensor<4x16xf32>) {origins = [{role = "weight"} ]} :
            (tensor<2x32xf32>) -> tensor<16x32xf32>
        %1 = "stablehlo.dot_general"(%tied, %arg0) <{dot_dimension_numbers =
            #stablehlo.dot<lhs_contracting_dimensions = [1],
            rhs_contracting_dimensions = [1]>}> : (tensor<4x16xf32>,
            tensor<4x16xf32>) -> tensor<4x4xf32>
        %2 = "stablehlo.dot_general"(%1, %arg0) <{dot_dimension_numbers =
            #stablehlo.dot<lhs_contracting_dimensions = [1],
            rhs_contracting_dimensions = [0]>}> : (tensor<4x4xf32>,
            tensor<4x16xf32>) -> tensor<4x16xf32>
        %outputs_0, %tied_1 = zero.wait %outputs from(%arg1 : tensor<2x32xf32>)
            ties(%2 : tensor<4x16xf32>) : tensor<16x32xf32>
        %3 = "stablehlo.dot_general"(%tied_1, %outputs_0)
            <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions
            = [1], rhs_contracting_dimensions = [0]>}> : (tensor<4x16xf32>,
            tensor<16x32xf32>) -> tensor<4x32xf32>
        return %3 : tensor<4x32xf32>
      }
    }
    ```
  }];
  let options = [
    PrefetchBytesOption<"of weights that may be gathered before they are "
                        "needed, and of gradients that may wait to be "
                        "scattered">,
  ];
}

def DeferStartsPass : Zpp_ModulePass<"zero-defer-starts"> {
  let summary = "Let starts be queued beside XLA's thread";
  let description = [{
    To queue the work of a start can take a thread longer than the device needs
    for a product. A thread other than XLA's may queue it if all collectives,
    including those of XLA, keep one order on all ranks. Such starts become
    `deferrable`. The conditions are:

    - All starts are in one `sdy.manual_computation` along all axes, and the
      values around it need no resharding, so that the partitioner adds no
      collectives.
    - The collectives that are left to XLA come after the last wait. Those that
      do not are moved there and read an operand that is tied through the wait.
      They must be few and small.

    If starts are not deferrable, a remark says why.

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
      %r = "sdy.manual_computation"(%x) <{in_shardings =
          #sdy.sharding_per_value<[<@mesh, [{"gpu"} ]>]>, out_shardings =
          #sdy.sharding_per_value<[<@mesh, [{}, {} ]>]>}> ({
      ^bb0(%a: tensor<4xf32>):
        %y = zero.start @zpp_host::@gather(%a) : (tensor<4xf32>) ->
            tensor<2x4xf32>
        %w = zero.wait %y from(%a : tensor<4xf32>) : tensor<2x4xf32>
        "sdy.return"(%w) : (tensor<2x4xf32>) -> ()
      }) : (tensor<4xf32>) -> tensor<2x4xf32>
      return %r : tensor<2x4xf32>
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
      %0 = "sdy.manual_computation"(%arg0) <{in_shardings =
          #sdy.sharding_per_value<[<@mesh, [{"gpu"} ]>]>, out_shardings =
          #sdy.sharding_per_value<[<@mesh, [{}, {} ]>]>}> ({
      ^bb0(%arg1: tensor<4xf32>):
        %outputs = zero.start @zpp_host::@gather(%arg1) {deferrable} :
            (tensor<4xf32>) -> tensor<2x4xf32>
        %outputs_0 = zero.wait %outputs from(%arg1 : tensor<4xf32>) :
            tensor<2x4xf32>
        "sdy.return"(%outputs_0) : (tensor<2x4xf32>) -> ()
      }) : (tensor<4xf32>) -> tensor<2x4xf32>
      return %0 : tensor<2x4xf32>
    }
    ```
  }];
}

def ReportPass : Pass<"zero-report", "::mlir::ModuleOp"> {
  let summary = "Report the bytes that collectives send per tier (3.4)";
  let description = [{
    The report lists every collective of the step with its location, kind, role,
    phase and group, and with the bytes that a device sends over each tier in a
    step, before and after a rewrite earlier in the pipeline. For a collective
    that was left alone it gives the reason. It ends with totals, also in units
    of M as in the paper's volume table (a plain gather of all weights is 1),
    and with the memory that secondary partitions take.

    With `target=cuda` it also shows the schedule: every start and wait in
    order, the op of the compute before which it stands, the bytes in flight and
    the number of heavy ops between start and wait. It flags weights that are
    gathered too early (more than the schedule's `prefetch-bytes` in flight),
    weights that are waited for before they are needed, and transfers without a
    heavy op to hide under.

    Bytes are those of the minimal algorithm: a plain gather or scatter crosses
    a tier once, and a direct all-to-all sends each pair's part. Scales and
    padding are counted.

    With the option `device` the report also predicts the time of a step. It
    places all ops on one stream for compute and one stream per tier, in the
    order of starts and waits if there are any, and otherwise as XLA orders its
    own collectives. The time of compute follows from floating-point operations
    and bytes and from the device's data sheet, the time of exchanges from
    `links`. The report then also gives the memory that a device holds as
    arguments of the step, and an estimate of its peak.

    *Input*, with `mesh=node:2,gpu:4`:

    ```mlir
    module attributes {mhlo.num_partitions = 8 : i32} {
      func.func @step(%w: tensor<2x8xf32>) -> tensor<16x8xf32> {
        %0 = "stablehlo.all_gather"(%w) <{all_gather_dim = 0 : i64,
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
            replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> :
            tensor<1x8xi64>, use_global_device_ids}> : (tensor<2x8xf32>) ->
            tensor<16x8xf32>
        return %0 : tensor<16x8xf32>
      }
    }
    ```

    *Output*:

    ```mlir
    module attributes {mhlo.num_partitions = 8 : i32} {
      func.func @step(%arg0: tensor<2x8xf32>) -> tensor<16x8xf32> {
        %0 = "stablehlo.all_gather"(%arg0) <{all_gather_dim = 0 : i64,
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
            replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> :
            tensor<1x8xi64>, use_global_device_ids}> : (tensor<2x8xf32>) ->
            tensor<16x8xf32>
        return %0 : tensor<16x8xf32>
      }
    }
    ```
  }];
  let options = [
    MeshOption<"the tiers of the rewrite, otherwise the module's own mesh">,
    Option<"device", "device", "std::string", "\"\"",
           "Predict the time on this device: a name such as h200, or the peak in "
           "16 bits and the memory, such as 989tflops,4800gbyte">,
    Option<"computeScale", "compute-scale", "double", "1",
           "Measured time of compute, divided by the predicted one">,
    LinksOption<" (default: NVLink on the fastest tier, a tenth of the speed on "
                "each slower one)">,
    Option<"timeline", "timeline", "bool", "false",
           "List the predicted tasks as [stream, begin, end, label] (format=json)">,
    WeightsOfOption<"For a step that is not rewritten: ">,
    GradientsOfOption<"For a step that is not rewritten: ">,
    Option<"format", "format", "::zpp::ReportFormat",
           "::zpp::ReportFormat::Table", "Format of the report",
           [{::llvm::cl::values(
               clEnumValN(::zpp::ReportFormat::Table, "table", "for people"),
               clEnumValN(::zpp::ReportFormat::Json, "json", "for programs"))}]>,
    Option<"output", "output", "std::string", "\"\"",
           "File to write; - is standard output (default: standard error, "
           "beside the module on standard output)">,
  ];
}

def ConcatInPlacePass : Pass<"zero-concat-in-place"> {
  let summary = "Compute parts of concatenations in their place";
  let description = [{
    Replaces a concatenation with insertions into one tensor, each directly
    after the op that computes the part. After `eliminate-empty-tensors`, every
    part is then computed in its final place, and bufferization needs no copies.
    This applies to chunks of several tensors in the buffer of one exchange, and
    to the stages of a collective in its result.

    Bufferization takes very long to analyze long chains of insertions.
    Concatenations of more than 16 parts are left to `zero-forward-parts` if it
    can handle them: if each part is computed by a zero op in the same block and
    has no other reader, and only zero ops read the whole.

    *Input*:

    ```mlir
    func.func @join(%x: tensor<2x256xf32>, %y: tensor<2x256xf32>)
        -> tensor<2x544xi8> {
      %e = tensor.empty() : tensor<2x272xi8>
      %0 = zero.quantize %x quant <i8, block = 128> into %e
          : tensor<2x256xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
      %f = tensor.empty() : tensor<2x272xi8>
      %1 = zero.quantize %y quant <i8, block = 128> into %f
          : tensor<2x256xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
      %2 = tensor.concat dim(1) %0, %1 : (tensor<2x272xi8>, tensor<2x272xi8>)
          -> tensor<2x544xi8>
      return %2 : tensor<2x544xi8>
    }
    ```

    *Output*:

    ```mlir
    func.func @join(%arg0: tensor<2x256xf32>, %arg1: tensor<2x256xf32>)
        -> tensor<2x544xi8> {
      %0 = tensor.empty() : tensor<2x544xi8>
      %1 = tensor.empty() : tensor<2x272xi8>
      %2 = zero.quantize %arg0 quant <i8, block = 128> into %1
          : tensor<2x256xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
      %inserted_slice = tensor.insert_slice %2 into %0[0, 0] [2, 272] [1, 1]
          : tensor<2x272xi8> into tensor<2x544xi8>
      %3 = tensor.empty() : tensor<2x272xi8>
      %4 = zero.quantize %arg1 quant <i8, block = 128> into %3
          : tensor<2x256xf32> into tensor<2x272xi8> -> tensor<2x272xi8>
      %inserted_slice_0 = tensor.insert_slice %4
          into %inserted_slice[0, 272] [2, 272] [1, 1] : tensor<2x272xi8>
          into tensor<2x544xi8>
      return %inserted_slice_0 : tensor<2x544xi8>
    }
    ```
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
}

def ViewPartsPass : Pass<"zero-view-parts"> {
  let summary = "Read the parts of a tensor as views of its buffer";
  let description = [{
    Where zero ops read more than `max-slices` slices of what an op has written
    into a tensor of its own, and nothing else is done with it, replaces the
    slices by views of its future buffer. Bufferization gives the same with and
    without this pass, but compares each slice with all others, in quadratic
    time.

    *Input*, with `max-slices=1`:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 4>
    func.func @parts(%x: tensor<1x160xi8>, %a: tensor<4x64xf32>,
        %b: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x64xf32>) {
      %empty = tensor.empty() : tensor<4x1x160xi8>
      %all = zero.all_gather_chunks %x along ["gpu"] on #mesh into %empty :
          tensor<1x160xi8> into tensor<4x1x160xi8> -> tensor<4x1x160xi8>
      %0 = tensor.extract_slice %all[0, 0, 0] [4, 1, 80] [1, 1, 1] :
          tensor<4x1x160xi8> to tensor<4x80xi8>
      %1 = zero.dequantize %0 quant <i8, block = 64> into %a :
          tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
      %2 = tensor.extract_slice %all[0, 0, 80] [4, 1, 80] [1, 1, 1] :
          tensor<4x1x160xi8> to tensor<4x80xi8>
      %3 = zero.dequantize %2 quant <i8, block = 64> into %b :
          tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
      return %1, %3 : tensor<4x64xf32>, tensor<4x64xf32>
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 4>
    func.func @parts(%x: tensor<1x160xi8>, %a: tensor<4x64xf32>,
        %b: tensor<4x64xf32>) -> (tensor<4x64xf32>, tensor<4x64xf32>) {
      %empty = tensor.empty() : tensor<4x1x160xi8>
      %all = zero.all_gather_chunks %x along ["gpu"] on #mesh into %empty :
          tensor<1x160xi8> into tensor<4x1x160xi8> -> tensor<4x1x160xi8>
      %buffer = bufferization.to_buffer %all read_only : tensor<4x1x160xi8> to
          memref<4x1x160xi8>
      %view = memref.subview %buffer[0, 0, 0] [4, 1, 80] [1, 1, 1] :
          memref<4x1x160xi8> to memref<4x80xi8, strided<[160, 1]>>
      %0 = bufferization.to_tensor %view restrict :
          memref<4x80xi8, strided<[160, 1]>> to tensor<4x80xi8>
      %1 = zero.dequantize %0 quant <i8, block = 64> into %a :
          tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
      %view_0 = memref.subview %buffer[0, 0, 80] [4, 1, 80] [1, 1, 1] :
          memref<4x1x160xi8> to
          memref<4x80xi8, strided<[160, 1], offset: 80>>
      %2 = bufferization.to_tensor %view_0 restrict :
          memref<4x80xi8, strided<[160, 1], offset: 80>> to tensor<4x80xi8>
      %3 = zero.dequantize %2 quant <i8, block = 64> into %b :
          tensor<4x80xi8> into tensor<4x64xf32> -> tensor<4x64xf32>
      return %1, %3 : tensor<4x64xf32>, tensor<4x64xf32>
    }
    ```
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
  let summary = "Compute parts of bufferized concatenations in their place";
  let description = [{
    Bufferization turns a concatenation into an allocation, directly followed by
    copies of the parts. Where a zero op of the same block computes a part into
    a buffer that only the copy reads, the op writes to the place in the whole
    instead, and the copy is gone. The time is linear in the number of parts.

    *Input*:

    ```mlir
    func.func @join(%x: memref<4x40xf32>, %y: memref<4x24xf32>) ->
        memref<4x112xi8> {
      %a = memref.alloc() : memref<4x64xi8>
      zero.quantize %x quant <i8, block = 64> into %a : memref<4x40xf32> into
          memref<4x64xi8>
      %b = memref.alloc() : memref<4x48xi8>
      zero.quantize %y quant <i8, block = 32> into %b : memref<4x24xf32> into
          memref<4x48xi8>
      %whole = memref.alloc() : memref<4x112xi8>
      %0 = memref.subview %whole[0, 0] [4, 64] [1, 1] : memref<4x112xi8> to
          memref<4x64xi8, strided<[112, 1]>>
      memref.copy %a, %0 : memref<4x64xi8> to memref<4x64xi8, strided<[112, 1]>>
      %1 = memref.subview %whole[0, 64] [4, 48] [1, 1] : memref<4x112xi8> to
          memref<4x48xi8, strided<[112, 1], offset: 64>>
      memref.copy %b, %1 : memref<4x48xi8> to memref<4x48xi8, strided<[112, 1],
          offset: 64>>
      return %whole : memref<4x112xi8>
    }
    ```

    *Output*:

    ```mlir
    func.func @join(%arg0: memref<4x40xf32>, %arg1: memref<4x24xf32>) ->
        memref<4x112xi8> {
      %alloc = memref.alloc() : memref<4x112xi8>
      %subview = memref.subview %alloc[0, 0] [4, 64] [1, 1] : memref<4x112xi8>
          to memref<4x64xi8, strided<[112, 1]>>
      zero.quantize %arg0 quant <i8, block = 64> into %subview :
          memref<4x40xf32> into memref<4x64xi8, strided<[112, 1]>>
      %subview_0 = memref.subview %alloc[0, 64] [4, 48] [1, 1] :
          memref<4x112xi8> to memref<4x48xi8, strided<[112, 1], offset: 64>>
      zero.quantize %arg1 quant <i8, block = 32> into %subview_0 :
          memref<4x24xf32> into memref<4x48xi8, strided<[112, 1], offset: 64>>
      return %alloc : memref<4x112xi8>
    }
    ```
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

    *Input*:

    ```mlir
    func.func @copy(%x: memref<4xf32>) -> memref<4xf32> {
      %0 = memref.alloc() : memref<4xf32>
      memref.copy %x, %0 : memref<4xf32> to memref<4xf32>
      return %0 : memref<4xf32>
    }
    ```

    *Output*:

    ```mlir
    func.func @copy(%arg0: memref<4xf32>,
        %arg1: memref<4xf32> {bufferize.result}) {
      memref.copy %arg0, %arg1 : memref<4xf32> to memref<4xf32>
      return
    }
    ```
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect"];
}

def DenseOperandsPass : Pass<"zero-dense-operands"> {
  let summary = "Copy buffers to where the runtime can use them";
  let description = [{
    If the runtime does not support the strides of an operand of a `zero` op,
    the op gets a new dense buffer instead. An input is copied into it before
    the op; a destination is copied out of it after the op.

    *Input*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 4>
    func.func @exchange(%x: memref<4x8xi8, strided<[16, 1]>>, %y: memref<4x8xi8,
        strided<[32, 1], offset: 8>>) {
      zero.all_to_all %x along ["gpu"] on #mesh into %y : memref<4x8xi8,
          strided<[16, 1]>> into memref<4x8xi8, strided<[32, 1], offset: 8>>
      return
    }
    ```

    *Output*:

    ```mlir
    #mesh = #zero.mesh<"gpu" = 4>
    func.func @exchange(%arg0: memref<4x8xi8, strided<[16, 1]>>, %arg1:
        memref<4x8xi8, strided<[32, 1], offset: 8>>) {
      %alloc = memref.alloc() : memref<4x8xi8>
      memref.copy %arg0, %alloc : memref<4x8xi8, strided<[16, 1]>> to
          memref<4x8xi8>
      %alloc_0 = memref.alloc() : memref<4x8xi8>
      zero.all_to_all %alloc along ["gpu"] on #mesh into %alloc_0 :
          memref<4x8xi8> into memref<4x8xi8>
      memref.copy %alloc_0, %arg1 : memref<4x8xi8> to memref<4x8xi8,
          strided<[32, 1], offset: 8>>
      return
    }
    ```
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

    *Input*:

    ```mlir
    func.func @host(%x: memref<4x256xf32>, %z: memref<4x256xf32>) {
      %0 = memref.alloc() : memref<4x272xi8>
      zero.quantize %x quant <i8, block = 128> into %0 : memref<4x256xf32>
          into memref<4x272xi8>
      zero.dequantize %0 quant <i8, block = 128> into %z : memref<4x272xi8>
          into memref<4x256xf32>
      return
    }
    ```

    *Output*:

    ```mlir
    func.func @host(%arg0: memref<4x256xf32>, %arg1: memref<4x256xf32>,
        %arg2: memref<1280xi8> {zpp.workspace}) {
      %c0 = arith.constant 0 : index
      %view = memref.view %arg2[%c0][] : memref<1280xi8> to memref<4x272xi8>
      zero.quantize %arg0 quant <i8, block = 128> into %view
          : memref<4x256xf32> into memref<4x272xi8>
      zero.dequantize %view quant <i8, block = 128> into %arg1
          : memref<4x272xi8> into memref<4x256xf32>
      return
    }
    ```
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

    *Input*:

    ```mlir
    func.func @host(%rank: !llvm.ptr, %x: memref<4xf32>) {
      return
    }
    ```

    *Output*:

    ```mlir
    func.func @host(%arg0: !llvm.ptr, %arg1: !llvm.ptr) {
      return
    }
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

#endif // ZPP_TRANSFORMS_PASSES
