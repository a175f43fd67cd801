//===- TransferNames.h - What profilers call transfers ----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_CONVERSION_TRANSFERNAMES_H
#define ZPP_LIB_CONVERSION_TRANSFERNAMES_H

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Dialect/Zero/IR/Zero.h"

namespace zpp {

/// Returns the name of what `start` sends with its host function:
/// "reduce_scatter gradient #3 and 2 more, 12.6 MB over node, i8:i4". XLA's
/// profiler and Nsight Systems show the names of calls.
std::string describeTransfer(zero::StartOp start,
                             mlir::FunctionOpInterface function);

} // namespace zpp

#endif // ZPP_LIB_CONVERSION_TRANSFERNAMES_H
