//===- Device.cpp - A rank's GPU and its memory ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Device.h"

#include "zpp/kernels/Kernels.h"

#include <algorithm>

using namespace zpp;
using namespace zpp::rt;

Status rt::openDevice(int64_t index, int64_t wanted, int &device, int &count) {
  ZPP_RT_CUDA(cudaGetDeviceCount, &count);
  if (count == 0)
    return {ZPP_RT_SYSTEM_ERROR, expected("a GPU", "none")};
  if (wanted < -1 || wanted >= count)
    return invalid(
        expected("a device in [-1, " + std::to_string(count) + ")", wanted));
  device = static_cast<int>(wanted < 0 ? index % count : wanted);
  // The device stays current: a thread that switched back to device 0, the
  // default, would create a context there.
  ZPP_RT_CUDA(cudaSetDevice, device);
  return getStatus(kernels::load(), "loading the kernels");
}

DeviceMemory::~DeviceMemory() {
  for (void *data : allocations)
    cudaFree(data);
  cudaGetLastError();
}

Status DeviceMemory::allocate(int64_t bytes, void *&data) {
  // At least one byte, so that there is an address.
  cudaError_t error =
      cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  if (error != cudaSuccess) {
    data = nullptr;
    Status status = getStatus(error, "cudaMalloc");
    status.message = "expected " + std::to_string(bytes) + " bytes, but got " +
                     status.message;
    return status;
  }
  allocations.insert(data);
  return {};
}

Status DeviceMemory::free(void *data) {
  if (allocations.erase(data) == 0)
    return unknownMemory();
  if (cudaFree(data) != cudaSuccess)
    cudaGetLastError();
  return {};
}

Status rt::copyRows(const Footprint &footprint, const void *input, void *output,
                    cudaStream_t stream) {
  const Pieces &from = footprint.input, &to = footprint.output;
  bool isDense =
      from.count == 1 || (from.stride == from.bytes && to.stride == to.bytes);
  if (isDense)
    ZPP_RT_CUDA(cudaMemcpyAsync, output, input, from.count * from.bytes,
                cudaMemcpyDefault, stream);
  else
    ZPP_RT_CUDA(cudaMemcpy2DAsync, output, to.stride, input, from.stride,
                from.bytes, from.count, cudaMemcpyDefault, stream);
  return {};
}
