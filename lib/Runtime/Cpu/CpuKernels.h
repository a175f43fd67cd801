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

void packSlicesOnCpu(const PackOperation &operation, const void *input,
                     void *output);
void unpackSlicesOnCpu(const PackOperation &operation, const void *input,
                       void *output);
/// `held` may be null, and the output of dequantizeOnCpu().
void quantizeOnCpu(const QuantizeOperation &operation, const void *input,
                   const void *held, void *output);
void dequantizeOnCpu(const QuantizeOperation &operation, const void *input,
                     const void *held, void *output);
void reduceOnCpu(const ReduceOperation &operation, const void *input,
                 void *output);
void reduceQuantizeOnCpu(const ReduceQuantizeOperation &operation,
                         const void *input, void *output);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CPUKERNELS_H
