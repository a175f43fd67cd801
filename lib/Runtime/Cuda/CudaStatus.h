//===- CudaStatus.h - Failures of CUDA as statuses --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDASTATUS_H
#define ZPP_LIB_RUNTIME_CUDASTATUS_H

#include "Status.h"

#include <cuda_runtime_api.h>

namespace zpp::rt {

/// Returns the status for `error`, which the call `what` returned on the
/// current device. Clears errors that are not sticky, so that no later call of
/// the process, which may not be ours, finds them.
Status getStatus(cudaError_t error, const char *what);

/// Makes a device the calling thread's current one until the guard is
/// destroyed.
class DeviceGuard {
public:
  explicit DeviceGuard(int device) {
    isChanged = cudaGetDevice(&previous) == cudaSuccess && previous != device &&
                cudaSetDevice(device) == cudaSuccess;
  }
  ~DeviceGuard() {
    if (isChanged)
      cudaSetDevice(previous);
  }
  DeviceGuard(const DeviceGuard &) = delete;
  DeviceGuard &operator=(const DeviceGuard &) = delete;

private:
  int previous = 0;
  bool isChanged;
};

} // namespace zpp::rt

/// Calls a function of the CUDA runtime; returns from the function on failure.
#define ZPP_RT_CUDA(FUNCTION, ...)                                             \
  ZPP_RT_TRY(::zpp::rt::getStatus(FUNCTION(__VA_ARGS__), #FUNCTION))

#endif // ZPP_LIB_RUNTIME_CUDASTATUS_H
