//===- SentBytes.h - The attribute of gathers of joined products -*- C++ -*-==//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_IMPORT_SENTBYTES_H
#define ZPP_TRANSFORMS_IMPORT_SENTBYTES_H

#include "llvm/ADT/StringRef.h"

namespace zpp {

/// On a gather that zero-join-products has made: the bytes that a device sends
/// over each axis with the collectives in whose place it stands.
inline constexpr llvm::StringLiteral kSentAttr = "zpp.sent";

} // namespace zpp

#endif // ZPP_TRANSFORMS_IMPORT_SENTBYTES_H
