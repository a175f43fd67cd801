//===- PeakMemory.h - What is alive at one time -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_COST_PEAKMEMORY_H
#define ZPP_LIB_ANALYSIS_COST_PEAKMEMORY_H

#include "ComputeCosts.h"
#include "StoredValues.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace zpp {

/// Bytes that a device holds of the arguments of `function`, which runs on
/// `devices` devices.
int64_t getStateBytes(mlir::FunctionOpInterface function, int64_t devices);

/// Returns the most bytes that are alive at one time in `block`, without its
/// arguments, in the order in which XLA runs its ops on GPUs: a value that is
/// stored is alive from its op to the last op that reads it, or that reads what
/// moves or fuses it. Results of the block take the memory of its arguments, as
/// in a step whose arguments are donated, and so do the results of loops.
int64_t getPeakBytes(mlir::Block &block, ComputeCosts &costs,
                     StoredValues &stored);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_COST_PEAKMEMORY_H
