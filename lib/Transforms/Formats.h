//===- Formats.h - Wire formats that passes are given -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_FORMATS_H
#define ZPP_LIB_TRANSFORMS_FORMATS_H

#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/Decision.h"

namespace zpp {

/// The quantization given by `format` ("none", "i8" or "i4"), `block` and
/// `rotate`; null for "none". Emits an error at `op` for anything else.
mlir::FailureOr<zero::QuantAttr> parseFormat(mlir::Operation *op,
                                             llvm::StringRef format,
                                             int64_t block, int64_t rotate = 0);

/// The same for a list of formats, separated by ':'.
mlir::FailureOr<llvm::SmallVector<zero::QuantAttr>>
parseFormats(mlir::Operation *op, llvm::StringRef formats, int64_t block,
             int64_t rotate = 0);

/// True unless all of `quants` are null.
bool hasFormat(llvm::ArrayRef<zero::QuantAttr> quants);

/// Checks the option `stages` of a pass, where 0 lets the pass choose. Emits an
/// error at `op` for a number that is out of range.
llvm::LogicalResult checkStages(mlir::Operation *op, int64_t stages);

/// `quant`, or the wider format that the floors of the collectives `ops` ask
/// for (zero-set-floors), in smaller blocks if they move stacks of small
/// parameters; null if one of them is to travel unquantized. Null
/// ops have none.
zero::QuantAttr widen(zero::QuantAttr quant,
                      llvm::ArrayRef<mlir::Operation *> ops);

/// The bytes of what a device has of a tensor, as it is and in a format.
struct SliceBytes {
  SliceBytes(zero::ShardType shard, zero::QuantAttr quant);
  bool isShorter() const { return wire < plain; }
  /// Why it does not travel like this: "quantized".
  LeftAlone getReason(llvm::StringRef how) const;

  int64_t plain, wire;
};

/// Emits a remark of `pass` that the floor of `op` has it travel unquantized.
/// It may still be rewritten in other ways.
void remarkFloor(mlir::Operation *op, llvm::StringRef pass);

/// Replaces `gather` by one that moves its values encoded, and returns that
/// one. It keeps the origin, and the attribute `kept` if there is one.
zero::AllGatherOp encodeGather(zero::AllGatherOp gather, zero::QuantAttr quant,
                               llvm::StringRef kept);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_FORMATS_H
