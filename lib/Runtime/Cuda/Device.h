//===- Device.h - A rank's GPU and its memory -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_DEVICE_H
#define ZPP_LIB_RUNTIME_CUDA_DEVICE_H

#include "CudaStatus.h"
#include "Operations.h"

#include <set>

namespace zpp::rt {

/// Makes the device of rank `index` the calling thread's current one, loads the
/// kernels on it, and says which one it is among how many. `wanted` is as in
/// zpp_rt_rank_desc.
Status openDevice(int64_t index, int64_t wanted, int &device, int &count);

/// Memory of the current device. What is not freed goes with this.
class DeviceMemory {
public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  Status allocate(int64_t bytes, void *&data);
  /// Waits for the device, and so for the operations.
  Status free(void *data);

private:
  std::set<void *> allocations;
};

/// Queues a copy of the rows of `footprint` between any memory of the device
/// and of the host.
Status copyRows(const Footprint &footprint, const void *input, void *output,
                cudaStream_t stream);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_DEVICE_H
