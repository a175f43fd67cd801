//===- Launch.cpp - Launches, and putting kernels on a device -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/kernels/Launch.h"

#include <vector>

using namespace zpp::kernels;

/// All kernels, filled while the library is loaded.
static std::vector<const void *> &getKernels() {
  static std::vector<const void *> kernels;
  return kernels;
}

bool zpp::kernels::addKernel(const void *kernel) {
  getKernels().push_back(kernel);
  return true;
}

cudaError_t zpp::kernels::load() {
  for (const void *kernel : getKernels()) {
    cudaFuncAttributes attributes;
    if (cudaError_t error = cudaFuncGetAttributes(&attributes, kernel))
      return error;
  }
  return cudaSuccess;
}

int64_t zpp::kernels::countResident(const void *kernel, int threads) {
  int device = 0, multiprocessors = 0, each = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                             device) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &each, kernel, threads, /*dynamicSMemSize=*/0) != cudaSuccess)
    return 1;
  return std::max<int64_t>(1, int64_t(multiprocessors) * each);
}

cudaError_t Launches::State::flush() {
  if (count == 0)
    return cudaSuccess;
  count = 0;
  int64_t rows = std::min(chunks, kMaxGridYZ);
  dim3 grid(static_cast<unsigned>(threadBlocks), static_cast<unsigned>(rows),
            static_cast<unsigned>(divideUp(chunks, rows)));
  void *arguments[] = {batch};
  return cudaLaunchKernel(kernel, grid, dim3(threads), arguments, 0, stream);
}

Launches::Launches() : state(std::make_unique<State>()) {}
Launches::~Launches() = default;

void Launches::setStream(cudaStream_t stream) { state->stream = stream; }

cudaError_t Launches::flush() { return state->flush(); }
