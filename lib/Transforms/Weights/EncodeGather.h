//===- EncodeGather.h - Gathers of encoded values ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_WEIGHTS_ENCODEGATHER_H
#define ZPP_LIB_TRANSFORMS_WEIGHTS_ENCODEGATHER_H

#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {

/// Replaces `gather` by one that moves its values encoded, and returns that
/// one. It keeps the origin, and the attribute `kept` if there is one.
zero::AllGatherOp encodeGather(zero::AllGatherOp gather, zero::QuantAttr quant,
                               llvm::StringRef kept);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_WEIGHTS_ENCODEGATHER_H
