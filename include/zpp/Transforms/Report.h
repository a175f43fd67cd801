//===- Report.h - The report in the memory of a program ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_REPORT_H
#define ZPP_TRANSFORMS_REPORT_H

#include "mlir/Pass/Pass.h"

namespace zpp {

/// zero-report that writes to `os`, whatever its option `output` says.
std::unique_ptr<mlir::Pass> createReportPass(llvm::raw_ostream &os);

} // namespace zpp

#endif // ZPP_TRANSFORMS_REPORT_H
