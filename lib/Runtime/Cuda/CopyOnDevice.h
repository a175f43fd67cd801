//===- CopyOnDevice.h - Copies within a device ------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_COPYONDEVICE_H
#define ZPP_LIB_RUNTIME_CUDA_COPYONDEVICE_H

#include "zpp/kernels/Checks.h"

#include <cstdint>

namespace zpp::rt {

/// Whether copyByKernel() can copy it.
inline bool fitsKernel(const void *input, const void *output, int64_t bytes) {
  return kernels::isAligned(input, 16) && kernels::isAligned(output, 16) &&
         bytes % 16 == 0;
}
/// Within the device our kernel is faster than the copy engine.
inline cudaError_t copyByKernel(const void *input, void *output, int64_t bytes,
                                const kernels::LaunchTarget &target) {
  SliceMap map;
  map.unit = map.extent = bytes;
  return kernels::pack(input, 1, map, output, bytes, target);
}

/// Copies memory that is known to be the device's.
inline cudaError_t copyOnDevice(const void *input, void *output, int64_t bytes,
                                cudaStream_t stream) {
  if (fitsKernel(input, output, bytes))
    return copyByKernel(input, output, bytes, stream);
  return cudaMemcpyAsync(output, input, bytes, cudaMemcpyDeviceToDevice,
                         stream);
}

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_COPYONDEVICE_H
