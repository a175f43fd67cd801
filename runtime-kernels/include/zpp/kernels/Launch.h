//===- Launch.h - What the launchers share ----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_LAUNCH_H
#define ZPP_KERNELS_LAUNCH_H

#include "zpp/kernels/Kernels.h"
#include "zpp/kernels/SupportMatrix.h"

#include <algorithm>
#include <limits>

namespace zpp::kernels {

inline constexpr int64_t kMaxGridYZ = 65535;

constexpr int64_t divideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Remembers a kernel for load(). Always true.
bool addKernel(const void *kernel);

template <auto kernel> struct LaunchedKernel {
  static inline const bool isAdded =
      addKernel(reinterpret_cast<const void *>(kernel));
};

/// Queues `kernel` with `threadBlocks` for each chunk: see chunkOfBlock().
template <auto kernel, typename Params>
cudaError_t launch(int64_t threadBlocks, int64_t chunks, int threads,
                   const Params &params, cudaStream_t stream) {
  // Done when the library is loaded, for every kernel that is launched here.
  static_cast<void>(LaunchedKernel<kernel>::isAdded);
  int64_t rows = std::min(chunks, kMaxGridYZ);
  int64_t layers = divideUp(chunks, rows);
  if (threadBlocks > std::numeric_limits<int32_t>::max() || layers > kMaxGridYZ)
    return cudaErrorInvalidConfiguration;
  dim3 grid(static_cast<unsigned>(threadBlocks), static_cast<unsigned>(rows),
            static_cast<unsigned>(layers));
  void *arguments[] = {const_cast<Params *>(&params)};
  return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid,
                          dim3(threads), arguments, 0, stream);
}

constexpr int32_t log2Of(int64_t powerOfTwo) {
  int32_t log2 = 0;
  while (powerOfTwo >>= 1)
    ++log2;
  return log2;
}

inline bool isAligned(const void *address, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

/// Whether `buffer` can hold `count` chunks of `elements`.
template <typename Void>
cudaError_t checkChunks(const ChunkBuffer<Void> &buffer, int64_t count,
                        int64_t elements) {
  if (buffer.count != count || count < 1 || elements < 0)
    return cudaErrorInvalidValue;
  int64_t bytes, alignment;
  if (buffer.format == WireFormat::None) {
    alignment = elementBytes(buffer.type);
    bytes = elements * alignment;
  } else {
    if (!isValidBlock(buffer.block))
      return cudaErrorInvalidValue;
    alignment = kChunkAlignment;
    bytes = getChunkLayout(elements, buffer.format, buffer.block).chunkBytes;
  }
  if (count > 1 && buffer.stride < bytes)
    return cudaErrorInvalidValue;
  if (!isAligned(buffer.data, alignment) ||
      (count > 1 && buffer.stride % alignment != 0))
    return cudaErrorMisalignedAddress;
  return cudaSuccess;
}

template <typename Void>
cudaError_t checkTensor(const TensorBuffer<Void> &buffer) {
  return isAligned(buffer.data, elementBytes(buffer.type))
             ? cudaSuccess
             : cudaErrorMisalignedAddress;
}

template <typename Void> Kind kindOf(const ChunkBuffer<Void> &buffer) {
  return kindOf(buffer.type, buffer.format);
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_LAUNCH_H
