//===- Checks.h - What launchers ask of their arguments ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_CHECKS_H
#define ZPP_KERNELS_CHECKS_H

#include "zpp/kernels/Kernels.h"
#include "zpp/kernels/SupportMatrix.h"

namespace zpp::kernels {

constexpr int64_t divideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int32_t log2Of(int64_t powerOfTwo) {
  int32_t log2 = 0;
  while (powerOfTwo >>= 1)
    ++log2;
  return log2;
}

inline bool isAligned(const void *address, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

/// An error unless `buffer` can hold `count` chunks of `elements`.
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
    if (!isValidBlock(buffer.block) || !isValidRotation(buffer.rotate))
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

#endif // ZPP_KERNELS_CHECKS_H
