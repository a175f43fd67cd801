//===- ZeroOps.td - Operations of the zero dialect ---------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_ZERO_IR_ZEROOPS
#define ZPP_DIALECT_ZERO_IR_ZEROOPS

include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "zpp/Dialect/Zero/IR/ZeroInterfaces.td"
include "zpp/Dialect/Zero/IR/ZeroTypes.td"

class Zero_Op<string mnemonic, list<Trait> traits = []>
    : Op<Zero_Dialect, mnemonic, traits>;

def Zero_ReduceKind : I32EnumAttr<"ReduceKind", "reduction",
    [I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Mean", 1, "mean">]> {
  let cppNamespace = "::zpp::zero";
  let genSpecializedAttr = 0;
}
def Zero_ReduceKindAttr : EnumAttr<Zero_Dialect, Zero_ReduceKind, "reduce_kind"> {
  let assemblyFormat = "$value";
}

def Zero_FloatLike : AnyTypeOf<[F32, BF16, F16]>;
def Zero_FloatTensor : StaticShapeTensorOf<[Zero_FloatLike]>;

//===----------------------------------------------------------------------===//
// Logical ops
//===----------------------------------------------------------------------===//

def Zero_FromLocalOp : Zero_Op<"from_local", [Pure]> {
  let summary = "The partitioned tensor whose parts the devices hold";
  let description = [{
    Interprets the tensor that each device holds as its part of a partitioned
    tensor. Nothing moves.

    ```mlir
    %p = zero.from_local %w : tensor<32x64xbf16> to
        !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
    ```

    **Constraints**

    - C1: the operand has the local type of the result.
  }];
  let arguments = (ins AnyRankedTensor:$local);
  let results = (outs Zero_ShardType:$shard);
  let assemblyFormat = "$local attr-dict `:` type($local) `to` type($shard)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Zero_ToLocalOp : Zero_Op<"to_local", [Pure]> {
  let summary = "The part of a partitioned tensor that a device holds";
  let description = [{
    The inverse of `from_local`.

    ```mlir
    %w = zero.to_local %p : !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh> to
        tensor<256x64xbf16>
    ```

    **Constraints**

    - C1: the result has the local type of the operand.
  }];
  let arguments = (ins Zero_ShardType:$shard);
  let results = (outs AnyRankedTensor:$local);
  let assemblyFormat = "$shard attr-dict `:` type($shard) `to` type($local)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

class Zero_LogicalCollectiveOp<string mnemonic, list<Trait> traits = []>
    : Zero_Op<mnemonic, !listconcat([
        DeclareOpInterfaceMethods<Zero_CollectiveOpInterface, ["getMeshAttr"]>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>], traits)> {
  let extraClassDefinition = [{
    MeshAttr $cppClass::getMeshAttr() {
      return getOperand().getType().getMesh();
    }
    void $cppClass::getEffects(Effects &effects) { addNetworkEffects(effects); }
  }];
}

def Zero_AllGatherOp : Zero_LogicalCollectiveOp<"all_gather"> {
  let summary = "Makes partitioned factors whole";
  let description = [{
    The devices along `along` exchange their parts, so that the factors over
    those axes are held whole.

    ```
                     gpu 0     gpu 1                  gpu 0     gpu 1
    node 0           [0]       [1]      node   ->     [0 2]     [1 3]
    node 1           [2]       [3]                    [0 2]     [1 3]
    ```

    ```mlir
    %s = zero.all_gather %p along ["node"]
        : !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh> to
          !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh>
    ```

    **Constraints**

    - C1: every axis of `along` partitions a factor of the operand.
    - C2: the result type is the operand type with these factors whole.
  }];
  let arguments = (ins Zero_ShardType:$operand, Zero_AxisRefArrayAttr:$along);
  let results = (outs Zero_ShardType:$result);
  let assemblyFormat = [{
    $operand `along` custom<Axes>($along) attr-dict
    `:` type($operand) `to` type($result)
  }];
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

def Zero_ReduceScatterOp : Zero_LogicalCollectiveOp<"reduce_scatter"> {
  let summary = "Reduces over devices and partitions whole factors";
  let description = [{
    Sums (or averages) over the devices along `along`. Each device keeps the
    slices whose factors are now partitioned over those axes. `wire` is the
    format in which contributions are sent, and each is rounded to it. Without
    `wire`, the element type is sent.

    ```
                  gpu 0        gpu 1               gpu 0        gpu 1
    node 0        [a0 .. a3]   [b0 .. b3]   gpu -> [ab0 ab2]    [ab1 ab3]
    node 1        [c0 .. c3]   [d0 .. d3]          [cd0 cd2]    [cd1 cd3]
    ```

    ```mlir
    %s = zero.reduce_scatter sum %g along ["gpu"] wire <i8, block = 128>
        : !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh> to
          !zero.shard<256x64xf32, dim 0 = (2, "gpu") on #mesh>
    ```

    **Constraints**

    - C1: the result type is the operand type with one whole factor, of the
      axis' size, partitioned over each axis of `along`.
    - C2: operand and result have the same element type, or one has f32 (a
      partial sum between two hops).
    - C3: neither is encoded.
    - C4: the elements are f32, bf16 or f16.
  }];
  let arguments = (ins Zero_ReduceKindAttr:$kind, Zero_ShardType:$operand,
                       Zero_AxisRefArrayAttr:$along,
                       OptionalAttr<Zero_QuantAttr>:$wire);
  let results = (outs Zero_ShardType:$result);
  let assemblyFormat = [{
    custom<ReduceKind>($kind) $operand `along` custom<Axes>($along)
    (`wire` $wire^)? attr-dict `:` type($operand) `to` type($result)
  }];
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

def Zero_AllReduceOp
    : Zero_LogicalCollectiveOp<"all_reduce", [SameOperandsAndResultType]> {
  let summary = "Reduces over devices that all get the result";
  let description = [{
    Sums (or averages) what the devices along `along` hold of a partitioned
    tensor; each of them then holds the result.

    ```
                  gpu 0     gpu 1                gpu 0     gpu 1
    node 0        [a]       [b]      node ->     [ac]      [bd]
    node 1        [c]       [d]                  [ac]      [bd]
    ```

    ```mlir
    %s = zero.all_reduce sum %g along ["node"]
        : !zero.shard<256x64xbf16, dim 0 = ("gpu") on #mesh>
    ```

    **Constraints**

    - C1: no axis of `along` partitions the operand.
    - C2: operand and result have the same type.
    - C3: they are not encoded.
    - C4: the elements are f32, bf16 or f16.
  }];
  let arguments = (ins Zero_ReduceKindAttr:$kind, Zero_ShardType:$operand,
                       Zero_AxisRefArrayAttr:$along);
  let results = (outs Zero_ShardType:$result);
  let assemblyFormat = [{
    custom<ReduceKind>($kind) $operand `along` custom<Axes>($along) attr-dict
    `:` type($operand)
  }];
  let hasVerifier = 1;
}

def Zero_EncodeOp : Zero_Op<"encode", [Pure]> {
  let summary = "A partitioned tensor in quantized form";
  let description = [{
    Quantizes every unit that a device holds into a wire chunk of its own
    (qwZ, paper section 3.1). Gathering an encoded tensor moves chunks. With
    `minus`, how much the tensor differs from what is held of it is quantized.

    ```mlir
    %e = zero.encode %w minus %h
        : !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh> to
          !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh,
                      quant <i4, block = 128>>
    ```

    **Constraints**

    - C1: the result type is the operand type with `quant`; the element types
      may differ.
    - C2: with `minus`, both tensors have the same type, and the format does not
      rotate.
  }];
  let arguments = (ins Zero_ShardType:$operand, Optional<Zero_ShardType>:$held);
  let results = (outs Zero_ShardType:$result);
  let assemblyFormat = [{
    $operand (`minus` $held^)? attr-dict
    `:` type($operand) custom<HeldType>(ref($held), type($held), ref(type($operand)))
    `to` type($result)
  }];
  let hasVerifier = 1;
}

def Zero_DecodeOp : Zero_Op<"decode", [Pure]> {
  let summary = "The values of a quantized partitioned tensor";
  let description = [{
    The inverse of `encode`, up to rounding. With `plus`, the values are added
    to what is held of the tensor, and the sums rounded to its elements.

    **Constraints**

    - C1: the operand type is the result type with `quant`; the element types
      may differ.
    - C2: with `plus`, what is held has the result type, and the format does not
      rotate.
  }];
  let arguments = (ins Zero_ShardType:$operand, Optional<Zero_ShardType>:$held);
  let results = (outs Zero_ShardType:$result);
  let assemblyFormat = [{
    $operand (`plus` $held^)? attr-dict
    `:` type($operand) `to` type($result)
    custom<HeldType>(ref($held), type($held), ref(type($result)))
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Decomposed ops
//===----------------------------------------------------------------------===//

def Zero_Data : AnyTypeOf<[AnyStaticShapeTensor, AnyStaticShapeMemRef]>;

/// How the format of a local op ends.
defvar Zero_Into = "`into` $init attr-dict\n`:` type($input) `into` type($init) "
                   "(`->` type($results)^)?";

/// An op on local data with one input and one destination, tensors or buffers.
class Zero_LocalOp<string mnemonic, dag extraArguments,
                   list<Trait> traits = []>
    : Zero_Op<mnemonic, !listconcat([
        DestinationStyleOpInterface, Zero_DecomposedOpInterface,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
        PredOpTrait<"input and destination are both tensors or both buffers",
                    CPred<"::llvm::isa<::mlir::TensorType>("
                          "$_op.getOperand(0).getType()) == "
                          "::llvm::isa<::mlir::TensorType>("
                          "$_op.getOperand(1).getType())">>], traits)> {
  let arguments = !con((ins Zero_Data:$input, Zero_Data:$init), extraArguments);
  let results = (outs Variadic<AnyStaticShapeTensor>:$results);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getInitMutable(); }
  }];
  let extraClassDefinition = [{
    void $cppClass::getEffects(Effects &effects) {
      addLocalEffects(*this, effects);
    }
  }];
}

def Zero_PackSlicesOp
    : Zero_LocalOp<"pack_slices", (ins Zero_SlicesAttr:$slices)> {
  let summary = "Brings the slices of each chunk together";
  let description = [{
    Tensor slice reordering (paper section 3.3.3): copies a tensor into its
    chunk form, in which the data for one device is contiguous. Padding is zero.
    A destination of bytes lets tensors of several types share a buffer.

    ```mlir
    %c = zero.pack_slices %g slices <dim = 0, factors = [2, 4], chunk = [1]>
        into %e : tensor<256x64xbf16> into tensor<4x64x64xbf16> -> tensor<4x64x64xbf16>
    ```

    **Constraints**

    - C1: `slices` fits the input.
    - C2: the destination has the shape of the chunk form of the input and its
      element type; or it is CxBxi8, where B is the number of bytes of a chunk.
  }];
  let assemblyFormat = !strconcat("$input `slices` $slices ", Zero_Into);
}

def Zero_UnpackSlicesOp
    : Zero_LocalOp<"unpack_slices", (ins Zero_SlicesAttr:$slices)> {
  let summary = "Puts the slices of chunks back in their order";
  let description = [{
    The inverse of `pack_slices`: copies the chunk form of a tensor into the
    tensor. Padding is dropped.

    **Constraints**

    - C1: `slices` fits the destination and covers it (one stage).
    - C2: the input has the elements of the chunk form of the destination, chunk
      by chunk, and its element type; or its elements are bytes, and its last
      dim has the bytes of a chunk.
  }];
  let assemblyFormat = !strconcat("$input `slices` $slices ", Zero_Into);
}

def Zero_QuantizeOp
    : Zero_LocalOp<"quantize", (ins Zero_QuantAttr:$quant,
                                    OptionalAttr<Zero_SlicesAttr>:$slices)> {
  let summary = "Quantizes chunks into wire chunks";
  let description = [{
    Each chunk of the input becomes one wire chunk, which holds codes and
    scales. Chunks are numbered by the leading dim, or, with `slices`, are those
    that `pack_slices` would form.

    ```mlir
    %b = zero.quantize %g quant <i8, block = 128>
        slices <dim = 0, factors = [2, 4], chunk = [1]> into %e
        : tensor<256x64xbf16> into tensor<4x4160xi8> -> tensor<4x4160xi8>
    ```

    **Constraints**

    - C1: the input has float elements (f32, bf16, f16).
    - C2: `slices` fits the input.
    - C3: the destination is CxBxi8 with C chunks of B bytes.
  }];
  let assemblyFormat = !strconcat(
      "$input `quant` $quant (`slices` $slices^)? ", Zero_Into);
}

def Zero_DequantizeOp
    : Zero_LocalOp<"dequantize", (ins Zero_QuantAttr:$quant,
                                      OptionalAttr<Zero_SlicesAttr>:$slices)> {
  let summary = "Reads wire chunks";
  let description = [{
    The inverse of `quantize`, up to rounding. With `slices`, the values go
    where `unpack_slices` would put them.

    **Constraints**

    - C1: the destination has float elements (f32, bf16, f16).
    - C2: `slices` fits the destination and covers it (one stage).
    - C3: the last dim of the input has the bytes of a chunk; the other dims
      number the chunks.
  }];
  let assemblyFormat = !strconcat(
      "$input `quant` $quant (`slices` $slices^)? ", Zero_Into);
}

/// An op that also reads what is held of a tensor, of the type of that tensor.
class Zero_DifferenceOp<string mnemonic>
    : Zero_LocalOp<mnemonic, (ins Zero_Data:$held, Zero_QuantAttr:$quant,
                                  OptionalAttr<Zero_SlicesAttr>:$slices)>;

def Zero_QuantizeDifferenceOp : Zero_DifferenceOp<"quantize_difference"> {
  let summary = "Quantizes what a tensor differs from what is held of it";
  let description = [{
    `quantize` of the input minus what is held, in one. The difference is taken
    in f32.

    ```mlir
    %b = zero.quantize_difference %w minus %h quant <i4, block = 128> into %e
        : tensor<4x4096xbf16>, tensor<4x4096xbf16> into tensor<4x2112xi8>
        -> tensor<4x2112xi8>
    ```

    **Constraints**

    - C1: the input has float elements (f32, bf16, f16), and what is held has
      its shape and elements.
    - C2: `slices` fits the input.
    - C3: the destination is CxBxi8 with C chunks of B bytes.
    - C4: `quant` does not rotate.
  }];
  let assemblyFormat = [{
    $input `minus` $held `quant` $quant (`slices` $slices^)? `into` $init
    attr-dict `:` type($input) `,` type($held) `into` type($init)
    (`->` type($results)^)?
  }];
}

def Zero_DequantizeAddOp : Zero_DifferenceOp<"dequantize_add"> {
  let summary = "Reads wire chunks and adds them to what is held";
  let description = [{
    `dequantize` and the sum of its values and what is held, in one. The sum is
    taken in f32 and rounded once. On buffers, the destination may be what is
    held.

    **Constraints**

    - C1: the destination has float elements (f32, bf16, f16), and what is held
      has its shape and elements.
    - C2: `slices` fits the destination and covers it (one stage).
    - C3: the last dim of the input has the bytes of a chunk; the other dims
      number the chunks.
    - C4: `quant` does not rotate.
  }];
  let assemblyFormat = [{
    $input `plus` $held `quant` $quant (`slices` $slices^)? `into` $init
    attr-dict `:` type($input) `,` type($held) `into` type($init)
    (`->` type($results)^)?
  }];
}

def Zero_ReduceOp
    : Zero_LocalOp<"reduce", (ins Zero_ReduceKindAttr:$kind)> {
  let summary = "Reduces over the leading dim";
  let description = [{
    Sums the rows in f32, in their order, divides by their number for `mean`,
    and rounds once. Each row comes from one source.

    **Constraints**

    - C1: input and destination have float elements (f32, bf16, f16).
    - C2: the input has the shape of the destination after a leading dim of at
      least 1.
  }];
  let assemblyFormat = !strconcat(
      "custom<ReduceKind>($kind) $input ", Zero_Into);
}

def Zero_DequantizeReduceOp
    : Zero_LocalOp<"dequantize_reduce", (ins Zero_ReduceKindAttr:$kind,
                                             Zero_QuantAttr:$quant)> {
  let summary = "Reads and reduces wire chunks";
  let description = [{
    `dequantize` and `reduce` in one (paper section 4.2). With `rotate`, the
    sum or mean is rotated back, not each chunk.

    **Constraints**

    - C1: the destination has float elements (f32, bf16, f16).
    - C2: the input is CxBxi8 with at least 1 chunk, and B bytes hold as many
      elements as the destination has.
  }];
  let assemblyFormat = !strconcat(
      "custom<ReduceKind>($kind) $input `quant` $quant ", Zero_Into);
}

def Zero_DequantizeReduceQuantizeOp
    : Zero_LocalOp<"dequantize_reduce_quantize",
                   (ins Zero_ReduceKindAttr:$kind, Zero_QuantAttr:$quant,
                        TypeAttrOf<Zero_FloatTensor>:$partial,
                        Zero_QuantAttr:$to, Zero_SlicesAttr:$slices)> {
  let summary = "Reads, reduces and requantizes wire chunks";
  let description = [{
    `dequantize_reduce` to a tensor of type `partial`, then `quantize` with `to`
    and `slices`, in one (paper section 4.2): the step between two hops.

    **Constraints**

    - C1: the input is CxBxi8 with at least 1 chunk, and B bytes hold as many
      elements as `partial` has.
    - C2: `slices` fits `partial`.
    - C3: the destination is CxBxi8 with the chunks of `partial` in format `to`.
    - C4: if one of `quant` and `to` rotates, so does the other, and `slices`
      move the groups as a whole. The sums then stay rotated.
  }];
  let assemblyFormat = !strconcat(
      "custom<ReduceKind>($kind) $input `quant` $quant `partial` $partial "
      "`to` $to `slices` $slices ", Zero_Into);
}

class Zero_ExchangeOp<string mnemonic, dag extraArguments>
    : Zero_LocalOp<mnemonic,
                   !con((ins Zero_AxisRefArrayAttr:$along, Zero_MeshAttr:$mesh),
                        extraArguments),
                   [DeclareOpInterfaceMethods<Zero_CollectiveOpInterface>]>;

def Zero_AllToAllOp
    : Zero_ExchangeOp<"all_to_all",
                      (ins OptionalAttr<Zero_SlicesAttr>:$slices,
                           OptionalAttr<Zero_QuantAttr>:$wire)> {
  let summary = "Sends chunk i to device i of the group";
  let description = [{
    Device r of the group receives chunk r of device s and stores it at index s
    of the leading dim. Chunks are numbered by the leading dim of the input, or,
    with `slices`, are those that `pack_slices` would form. With `wire`, the
    values are rounded to that format, and the destination may be f32.

    ```mlir
    %r = zero.all_to_all %b along ["gpu"] on #mesh into %e
        : tensor<4x4160xi8> into tensor<4x4160xi8> -> tensor<4x4160xi8>
    ```

    **Constraints**

    - C1: the number of chunks is the group's size; `slices`, if present, fits
      the input.
    - C2: the destination has the shape of the chunk form.
    - C3: the element types agree, or both are floats and there is `wire`.
  }];
  let assemblyFormat = !strconcat(
      "$input `along` custom<Axes>($along) `on` $mesh (`slices` $slices^)? "
      "(`wire` $wire^)? ", Zero_Into);
}

def Zero_AllGatherChunksOp
    : Zero_ExchangeOp<"all_gather_chunks", (ins)> {
  let summary = "Stacks the inputs of all devices of the group";
  let description = [{
    The input of device s of the group is stored at index s of the destination's
    leading dim.

    **Constraints**

    - C1: the destination has a leading dim of the group's size, followed by the
      shape of the input, and the element type of the input.
  }];
  let assemblyFormat = !strconcat(
      "$input `along` custom<Axes>($along) `on` $mesh ", Zero_Into);
}

//===----------------------------------------------------------------------===//
// Ops of the schedule
//===----------------------------------------------------------------------===//

/// An op that orders collectives among the compute. `ties` are values of the
/// compute that the op returns unchanged, as `tied`: it comes after the ops
/// that compute them and before the ops that read the results.
class Zero_ScheduledOp<string mnemonic, list<Trait> traits = []>
    : Zero_Op<mnemonic, !listconcat([
        AttrSizedOperandSegments, AttrSizedResultSegments,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
        RangedTypesMatchWith<"ties keep their types", "ties", "tied", "$_self">
      ], traits)> {
  let extraClassDefinition = [{
    void $cppClass::getEffects(Effects &effects) { addNetworkEffects(effects); }
  }];
}

def Zero_StartOp : Zero_ScheduledOp<"start",
    [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Starts outlined collectives beside the compute";
  let description = [{
    Queues the function `callee`, which contains exchanges and the local ops
    around them. It runs beside the compute, and its results are available after
    the `wait` that reads them. It starts after all of `ties` are computed and
    before anything reads `tied`, which are the same values.

    ```
    compute    --- t ---+--- reads t' ---------- z ---+--- reads y', z' ---
                        |                             |
    runtime             +=== callee(x) =============> y
                      start                         wait
    ```

    ```mlir
    %y, %u = zero.start @zpp_host::@zpp_collective_0(%x) ties(%t : tensor<8xf32>)
        : (tensor<4xf32>) -> tensor<16xf32>
    ```

    Several starts can share a function, so the function does not record their
    origins. `origins` has one `zpp.origin` for each exchange in the callee, in
    program order.

    `deferrable` states that between this op and its wait only starts and waits
    communicate. Another thread may then queue the callee.

    **Constraints**

    - C1: `callee` is a function or an instance of one. On tensors it takes the
      inputs and returns the outputs. On buffers it takes both, and at most one
      workspace memref<Wxi8>.
    - C2: there is at least one output.

    The contract of a schedule (`verifySchedule`):

    - S1: one `wait` in the same block, and no other op, reads all outputs.
    - S2: `origins`, if present, has an attribute for each exchange in `callee`.
  }];
  let arguments = (ins SymbolRefAttr:$callee,
                       Variadic<AnyStaticShapeTensor>:$inputs,
                       Variadic<AnyStaticShapeTensor>:$ties,
                       OptionalAttr<ArrayAttr>:$origins,
                       UnitAttr:$deferrable);
  let results = (outs Variadic<AnyStaticShapeTensor>:$outputs,
                      Variadic<AnyStaticShapeTensor>:$tied);
  let assemblyFormat = [{
    $callee `(` $inputs `)`
    (`ties` `(` custom<Ties>($ties, type($ties), type($tied))^ `)`)? attr-dict
    `:` functional-type($inputs, $outputs)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The wait that reads the outputs. Valid after `verifySchedule`.
    ::zpp::zero::WaitOp getWait();
  }];
}

def Zero_WaitOp : Zero_ScheduledOp<"wait",
    [RangedTypesMatchWith<"outputs keep their types", "started", "outputs",
                          "$_self">]> {
  let summary = "Waits for outlined collectives";
  let description = [{
    Returns the outputs of a `start` once they are available. It comes after all
    of `ties` are computed and before anything reads `tied`, which are the same
    values. The inputs of the start stay alive until then.

    ```mlir
    %r, %v = zero.wait %y from(%x : tensor<4xf32>) ties(%z : tensor<8xf32>)
        : tensor<16xf32>
    ```

    **Constraints**

    - C1: it waits for at least one output.

    The contract of a schedule (`verifySchedule`):

    - S3: `started` are all outputs of one `start`, in order.
    - S4: `inputs` are those of that start.
    - S5: it is in the block of that start.
  }];
  let arguments = (ins Variadic<AnyStaticShapeTensor>:$started,
                       Variadic<AnyStaticShapeTensor>:$inputs,
                       Variadic<AnyStaticShapeTensor>:$ties);
  let results = (outs Variadic<AnyStaticShapeTensor>:$outputs,
                      Variadic<AnyStaticShapeTensor>:$tied);
  let assemblyFormat = [{
    $started `from` `(` ($inputs^ `:` type($inputs))? `)`
    (`ties` `(` custom<Ties>($ties, type($ties), type($tied))^ `)`)? attr-dict
    `:` custom<SameTypes>(type($started), type($outputs))
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The start that it waits for. Valid after `verifySchedule`.
    ::zpp::zero::StartOp getStart();
  }];
}

def Zero_InstanceOp : Zero_Op<"instance",
    [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A function that differs from another in locations only";
  let description = [{
    Stands for a copy of `function` in which each location of `from` is the one
    at its place in `to`. Layers are alike but for the weights that their
    locations name, so that one function is compiled for all of them, and names
    are data beside it.

    ```
    start @layer_0 --+                    "weight #1 at step.py:3:7"
                     +--- @layer_0, with
    start @layer_1 --+                    "weight #9 at step.py:3:7"
    ```

    ```mlir
    zero.instance @layer_1 of @layer_0 from [loc("weight #1")]
        to [loc("weight #9")]
    ```

    **Constraints**

    - C1: `function` is a function in the same module.
    - C2: `from` and `to` are as many locations.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$function,
                       ArrayAttr:$from, ArrayAttr:$to);
  let assemblyFormat = [{
    $sym_name `of` $function `from` $from `to` $to attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// `locations`, of ops in the function, as they are in this copy.
    ::llvm::SmallVector<::mlir::Location>
    translate(::llvm::ArrayRef<::mlir::Location> locations);
  }];
}

#endif // ZPP_DIALECT_ZERO_IR_ZEROOPS
