//===- Accumulated.h - What partial sums of gradients take ------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_ACCUMULATED_H
#define ZPP_TRANSFORMS_ACCUMULATED_H

#include "llvm/ADT/StringRef.h"

namespace zpp {

/// The attribute of a module that says how many bytes partial sums of gradients
/// take on a device beyond the gradients.
inline constexpr llvm::StringLiteral kAccumulatedAttr = "zpp.accumulated";
/// The attribute of a module that says of how many micro-batches gradients are
/// added up before they are sent.
inline constexpr llvm::StringLiteral kMicroBatchesAttr = "zpp.micro_batches";

} // namespace zpp

#endif // ZPP_TRANSFORMS_ACCUMULATED_H
