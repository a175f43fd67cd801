//===- ZeroDialect.td - The zero dialect -------------------*- tablegen -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_ZERO_IR_ZERODIALECT
#define ZPP_DIALECT_ZERO_IR_ZERODIALECT

include "mlir/IR/OpBase.td"

def Zero_Dialect : Dialect {
  let name = "zero";
  let cppNamespace = "::zpp::zero";
  let summary = "Collectives of sharded training on partitioned tensors";
  let description = [{
    The collectives that ZeRO-3/FSDP adds to a training step, at two levels.

    *Logical* ops work on `!zero.shard`, a tensor whose placement over the
    device mesh is part of its type: `from_local`, `to_local`, `all_gather`,
    `reduce_scatter`, `encode`, `decode`. A rewrite that would misplace a slice
    does not type-check.

    *Decomposed* ops work on local tensors and byte buffers, in
    destination-passing style: `pack_slices`, `unpack_slices`, `quantize`,
    `dequantize`, `reduce`, `dequantize_reduce`, `dequantize_reduce_quantize`,
    `all_to_all`, `all_gather_chunks`. Numerics and wire layout are those of
    `zpp/Support/BlockQuant.h`, slice order that of `zpp/Support/SliceMap.h`.

    Ops of the *schedule* run functions of decomposed ops beside the compute:
    `start`, `wait`.

    Collectives have effects, because no pass may duplicate, drop or reorder
    them: ranks would disagree.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let dependentDialects = ["::mlir::tensor::TensorDialect"];
  let extraClassDeclaration = [{
  private:
    // Each in the file that has the storage.
    void registerAttributes();
    void registerTypes();

  public:
  }];
}

#endif // ZPP_DIALECT_ZERO_IR_ZERODIALECT
