//===- FormatOptions.h - Wire formats as pass options -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_TRANSFORMS_FORMATOPTIONS_H
#define ZPP_LIB_TRANSFORMS_FORMATOPTIONS_H

#include "zpp/Dialect/Zero/IR/Zero.h"
#include "zpp/Support/LinkModel.h"

namespace zpp {

/// The quantization that `format` ("none", "i8" or "i4") and `block` name; null
/// for none. Emits an error at `op` for anything else.
mlir::FailureOr<zero::QuantAttr>
parseFormat(mlir::Operation *op, llvm::StringRef format, int64_t block);

/// The same for a list of formats, separated by ':'.
mlir::FailureOr<llvm::SmallVector<zero::QuantAttr>>
parseFormats(mlir::Operation *op, llvm::StringRef formats, int64_t block);

/// The links that `links` names for the tiers of `mesh`, or nullopt where it is
/// empty. Emits an error at `op` where it does not parse.
mlir::FailureOr<std::optional<LinkModel>>
parseLinks(mlir::Operation *op, llvm::StringRef links, const Mesh &mesh);

} // namespace zpp

#endif // ZPP_LIB_TRANSFORMS_FORMATOPTIONS_H
