//===- ZeroTypes.td - Types of the zero dialect ------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_ZERO_IR_ZEROTYPES
#define ZPP_DIALECT_ZERO_IR_ZEROTYPES

include "zpp/Dialect/Zero/IR/ZeroAttrs.td"

def Zero_ShardType : TypeDef<Zero_Dialect, "Shard"> {
  let mnemonic = "shard";
  let summary = "A tensor partitioned over a mesh";
  let description = [{
    The type consists of the logical (global) tensor type, the partitioned dim,
    and the factors that the dim is split into, most significant first. Each
    factor is partitioned over a mesh axis or held whole. A dim of extent D that
    is split into factors with product F has units of ceil(D / F) elements. Its
    padded extent is F units; D is its true extent.

    ```mlir
    // ZeRO-3: device (n, g) holds slice n * 4 + g.
    !zero.shard<256x64xbf16, dim 0 = ("node", "gpu") on #mesh>
    // hpZ: device (n, g) holds slices g and 4 + g.
    !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh>
    // The whole tensor on every device.
    !zero.shard<256x64xbf16, dim 0 = (2, 4) on #mesh>
    // In quantized form: one wire chunk per unit that the device holds.
    !zero.shard<256x64xbf16, dim 0 = (2, "gpu") on #mesh, #zero.quant<i8, block = 128>>
    ```
  }];
  let parameters = (ins "::mlir::RankedTensorType":$global, "int64_t":$dim,
                        ArrayRefParameter<"::zpp::zero::FactorAttr">:$factors,
                        "::zpp::zero::MeshAttr":$mesh,
                        OptionalParameter<"::zpp::zero::QuantAttr">:$quant);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Elements of the partitioned dim in one unit: ceil(D / product(factors)).
    int64_t getUnit() const;
    /// Size of every factor.
    ::llvm::SmallVector<int64_t> getFactorSizes() const;
    /// Sizes of the factors held whole, in order.
    ::llvm::SmallVector<int64_t> getWholeSizes() const;
    /// Axes of the partitioned factors, in order.
    ::llvm::SmallVector<::zpp::AxisRef> getAxes() const;
    bool isWhole() const { return getAxes().empty(); }
    /// The type of what a device holds. If the type is not encoded, this is the
    /// global type with the extent of the units that the device holds (the true
    /// extent if it holds all of them). If it is encoded, this is
    /// tensor<units x chunkBytes x i8>.
    ::mlir::RankedTensorType getLocalType() const;
    /// getLocalType() of the type without its quant.
    ::mlir::RankedTensorType getDecodedLocalType() const;
    /// Elements of one unit: what one wire chunk of an encoded shard holds.
    int64_t getElementsPerUnit() const;
    ShardType withFactors(::llvm::ArrayRef<FactorAttr> factors) const;
    /// The same with the factors over `along`, each axis of which partitions
    /// one, whole.
    ShardType withWhole(::mlir::ArrayAttr along) const;
    ShardType withQuant(QuantAttr quant) const;
    ShardType withElementType(::mlir::Type type) const;
    /// The positions of the factors over `along`, in the order of `along`, or
    /// nullopt if an axis partitions no factor.
    std::optional<::llvm::SmallVector<int64_t>>
    findFactors(::mlir::ArrayAttr along) const;
  }];
}

#endif // ZPP_DIALECT_ZERO_IR_ZEROTYPES
