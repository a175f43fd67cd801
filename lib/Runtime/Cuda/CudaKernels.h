//===- CudaKernels.h - Local operations on a device -------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_CUDAKERNELS_H
#define ZPP_LIB_RUNTIME_CUDA_CUDAKERNELS_H

#include "Operations.h"
#include "zpp/kernels/Kernels.h"

namespace zpp::rt {

/// `held` may be null, and the output of a dequantization.
cudaError_t computeOnDevice(LocalOperation operation, const void *input,
                            const void *held, void *output,
                            const kernels::LaunchTarget &target);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_CUDAKERNELS_H
