//===- ZeroAttrs.td - Attributes of the zero dialect -------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_ZERO_IR_ZEROATTRS
#define ZPP_DIALECT_ZERO_IR_ZEROATTRS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "zpp/Dialect/Zero/IR/ZeroDialect.td"

class Zero_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Zero_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def Zero_MeshAttr : Zero_Attr<"Mesh", "mesh"> {
  let summary = "Device mesh, axes from the slowest link to the fastest";
  let description = [{
    Devices form a row-major grid over the axes. Two tiers are the common case,
    but any number works. Axes of other kinds of parallelism may stand among
    them.

    ```mlir
    #zero.mesh<"node" = 2, "gpu" = 4>
    ```

    If devices are numbered in another order than that of their links, each axis
    has a stride: the difference of the ids of neighbours along it.

    ```mlir
    #zero.mesh<"node" = 2 stride 1, "gpu" = 4 stride 2>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr">:$names,
                        ArrayRefParameter<"int64_t">:$sizes,
                        OptionalArrayRefParameter<"int64_t">:$strides);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static MeshAttr get(::mlir::MLIRContext *context, const ::zpp::Mesh &mesh);
    /// The IR-free mesh.
    ::zpp::Mesh getMesh() const;
  }];
}

def Zero_AxisRefAttr : Zero_Attr<"AxisRef", "axis"> {
  let summary = "A mesh axis, or a part of one";
  let description = [{
    `"gpu"` is the whole axis. `"gpu":(2)2` is the part of size 2 that comes
    after a more significant part of size 2, as in sdy's sub-axes.
  }];
  let parameters = (ins "::mlir::StringAttr":$name,
                        DefaultValuedParameter<"int64_t", "0">:$preSize,
                        DefaultValuedParameter<"int64_t", "0">:$size);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// A size of 0 stands for the whole axis.
    bool isWholeAxis() const { return getSize() == 0; }
    static AxisRefAttr get(::mlir::MLIRContext *context,
                           const ::zpp::Mesh &mesh, const ::zpp::AxisRef &ref);
    /// The reference with its size on `mesh`, or nullopt if the mesh has no
    /// such axis or part.
    std::optional<::zpp::AxisRef> resolve(const ::zpp::Mesh &mesh) const;
  }];
}

def Zero_AxisRefArrayAttr
    : TypedArrayAttrBase<Zero_AxisRefAttr, "axes, most significant first">;

def Zero_FactorAttr : Zero_Attr<"Factor", "factor"> {
  let summary = "One factor that a partitioned dim is split into";
  let description = [{
    A factor is either partitioned over a mesh axis (`"gpu"`) or held whole by
    every device (`2`, its size).
  }];
  let parameters = (ins OptionalParameter<"::zpp::zero::AxisRefAttr">:$axis,
                        DefaultValuedParameter<"int64_t", "0">:$size);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isWhole() const { return !getAxis(); }
    static FactorAttr getWhole(::mlir::MLIRContext *context, int64_t size);
    static FactorAttr getPartitioned(AxisRefAttr axis);
  }];
}

def Zero_WireFormat : I32EnumAttr<"WireFormatKind", "wire format",
    [I32EnumAttrCase<"I8", 8, "i8">, I32EnumAttrCase<"I4", 4, "i4">]> {
  let cppNamespace = "::zpp::zero";
  let genSpecializedAttr = 0;
}

def Zero_QuantAttr : Zero_Attr<"Quant", "quant"> {
  let summary = "Block quantization of the data that a collective sends";
  let description = [{
    Each block of `block` elements has one bf16 scale, which is rounded up.
    Codes are symmetric and round to nearest even. With `rotate = 32`, groups of
    32 elements of a chunk are rotated before they are quantized, and back after
    they are dequantized. `zpp/Support/BlockQuant.h` defines the numerics and the
    wire layout.

    ```mlir
    #zero.quant<i4, block = 128>
    #zero.quant<i4, block = 128, rotate = 32>
    ```
  }];
  let parameters = (ins EnumParameter<Zero_WireFormat>:$format,
                        "int64_t":$block,
                        DefaultValuedParameter<"int64_t", "0">:$rotate);
  let assemblyFormat = [{
    `<` $format `,` `block` `=` $block (`,` `rotate` `=` $rotate^)? `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    ::zpp::WireFormat getWireFormat() const {
      return static_cast<::zpp::WireFormat>(getFormat());
    }
    bool isRotated() const { return getRotate() != 0; }
    /// Layout of a chunk of `elements` values.
    ::zpp::ChunkLayout getLayout(int64_t elements) const {
      return ::zpp::getChunkLayout(elements, getWireFormat(), getBlock());
    }
  }];
}

def Zero_SlicesAttr : Zero_Attr<"Slices", "slices"> {
  let summary = "How a dim is cut into slices and which of them form a chunk";
  let description = [{
    Dim `dim` of the tensor is split into `factors` and a unit; the factors at
    positions `chunk`, in that order, number the chunk. With `stage = s of S`
    only that part of every unit takes part. The chunk form of a tensor
    `tensor<...xDx...>` is `tensor<Cx...xD'x...>` with
    C = product(factors[chunk]) and D' = product(other factors) * part.
    See `zpp/Support/SliceMap.h`.

    ```mlir
    #zero.slices<dim = 0, factors = [2, 4], chunk = [1]>
    #zero.slices<dim = 0, factors = [2, 4], chunk = [1], stage = 0 of 2>
    ```
  }];
  let parameters = (ins "int64_t":$dim,
                        OptionalArrayRefParameter<"int64_t">:$factors,
                        OptionalArrayRefParameter<"int64_t">:$chunk,
                        DefaultValuedParameter<"int64_t", "0">:$stage,
                        DefaultValuedParameter<"int64_t", "1">:$stages);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The IR-free map for a tensor of this shape. It need not be valid: call
    /// its verify().
    ::zpp::SliceMap getMap(::llvm::ArrayRef<int64_t> tensorShape) const;
    /// Shape of the chunk form of a tensor of `tensorShape`.
    ::llvm::SmallVector<int64_t>
    getChunkShape(::llvm::ArrayRef<int64_t> tensorShape) const;
  }];
}

#endif // ZPP_DIALECT_ZERO_IR_ZEROATTRS
