//===- CpuKernels.h - Local operations on the host --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CPUKERNELS_H
#define ZPP_LIB_RUNTIME_CPUKERNELS_H

#include "Operations.h"

namespace zpp::rt {

/// `held` may be null, and the output of a dequantization.
void computeOnCpu(LocalOperation operation, const void *input, const void *held,
                  void *output);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CPUKERNELS_H
