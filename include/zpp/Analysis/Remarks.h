//===- Remarks.h - What passes say about an op ------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_REMARKS_H
#define ZPP_ANALYSIS_REMARKS_H

#include "mlir/IR/Remarks.h"

namespace zpp {

/// Begins a remark of `pass` about `op`, to which `<<` adds the text. Files of
/// remarks take only plain places: its place is the first position in a file
/// that the location of `op` names, and the function around `op`.
mlir::remark::detail::InFlightRemark
remarkPassed(mlir::Operation *op, llvm::StringRef pass, llvm::StringRef name);
/// The same of what was not done.
mlir::remark::detail::InFlightRemark
remarkMissed(mlir::Operation *op, llvm::StringRef pass, llvm::StringRef name);
/// The same of what is not known.
mlir::remark::detail::InFlightRemark
remarkAnalysis(mlir::Operation *op, llvm::StringRef pass, llvm::StringRef name);

} // namespace zpp

#endif // ZPP_ANALYSIS_REMARKS_H
