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

cudaError_t packSlicesOnDevice(const PackOperation &operation,
                               const void *input, void *output,
                               const kernels::LaunchTarget &target);
cudaError_t unpackSlicesOnDevice(const PackOperation &operation,
                                 const void *input, void *output,
                                 const kernels::LaunchTarget &target);
/// `held` may be null, and the output of dequantizeOnDevice().
cudaError_t quantizeOnDevice(const QuantizeOperation &operation,
                             const void *input, const void *held, void *output,
                             const kernels::LaunchTarget &target);
cudaError_t dequantizeOnDevice(const QuantizeOperation &operation,
                               const void *input, const void *held,
                               void *output,
                               const kernels::LaunchTarget &target);
cudaError_t reduceOnDevice(const ReduceOperation &operation, const void *input,
                           void *output, const kernels::LaunchTarget &target);
cudaError_t reduceQuantizeOnDevice(const ReduceQuantizeOperation &operation,
                                   const void *input, void *output,
                                   const kernels::LaunchTarget &target);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_CUDAKERNELS_H
