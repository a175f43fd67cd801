//===- Launch.h - Launches of kernels for several tensors -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_KERNELS_LAUNCH_H
#define ZPP_KERNELS_LAUNCH_H

#include "zpp/kernels/Checks.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>

namespace zpp::kernels {

inline constexpr int64_t kMaxGridYZ = 65535;

/// Remembers a kernel for load(). Always true.
bool addKernel(const void *kernel);

template <auto kernel> struct LaunchedKernel {
  static inline const bool isAdded =
      addKernel(reinterpret_cast<const void *>(kernel));
};

/// Thread blocks of `kernel` that the current device runs at a time.
int64_t countResident(const void *kernel, int threads);

/// How many of a chunk's `items` each thread of `kernel` handles, one after the
/// other, loading one while it works on the one before. The more there are, the
/// less the time to begin counts; but each thread block then works at a place
/// of its own, which is slower if memory is what the kernel waits for.
template <auto kernel>
int32_t chooseRows(int64_t items, int64_t chunks, int threads,
                   bool waitsForMemory) {
  // So many turns of the device, as they do not end at the same time.
  constexpr int64_t kTurns = 3;
  static const int64_t resident =
      countResident(reinterpret_cast<const void *>(kernel), threads);
  int64_t most = divideUp(items, threads) * chunks / (kTurns * resident);
  return static_cast<int32_t>(
      std::clamp<int64_t>(most, 1, waitsForMemory ? 2 : 7));
}

/// The argument of a kernel: the parameters of several tensors, whose thread
/// blocks follow each other in x.
template <typename Params> struct Batch {
  Params params[kMaxBatch];
  /// The first thread block of each tensor. Entries without a tensor are past
  /// the last thread block.
  int32_t begin[kMaxBatch];

#if defined(__CUDACC__)
  /// Returns the parameters of the tensor that this thread block works on, and
  /// the number of the thread block among those of the tensor.
  __device__ __forceinline__ const Params &find(int &threadBlock) const {
    int tensor = 0;
#pragma unroll
    for (int i = 1; i < kMaxBatch; ++i)
      tensor += static_cast<int32_t>(blockIdx.x) >= begin[i] ? 1 : 0;
    threadBlock = static_cast<int>(blockIdx.x) - begin[tensor];
    return params[tensor];
  }
#endif
};

/// The launch that is not made yet.
struct Launches::State {
  /// The size of kernel parameters that all GPUs support.
  static constexpr size_t kMaxBytes = 4096;

  cudaStream_t stream = nullptr;
  const void *kernel = nullptr;
  int64_t threadBlocks = 0;
  int64_t chunks = 0;
  int threads = 0;
  int count = 0;
  alignas(16) unsigned char batch[kMaxBytes];

  /// Whether a launch with these arguments can become part of this one.
  bool canJoin(const void *otherKernel, int64_t otherThreadBlocks,
               int64_t otherChunks) const {
    return count > 0 && count < kMaxBatch && kernel == otherKernel &&
           chunks == otherChunks &&
           threadBlocks + otherThreadBlocks <=
               std::numeric_limits<int32_t>::max();
  }
  cudaError_t flush();
};

/// Queues `kernel`, which takes a Batch<Params>, with `threadBlocks` for each
/// chunk: see chunkOfBlock().
template <auto kernel, typename Params>
cudaError_t launch(int64_t threadBlocks, int64_t chunks, int threads,
                   const Params &params, const LaunchTarget &target) {
  // Registered when the library is loaded, for every kernel that is launched
  // here.
  static_cast<void>(LaunchedKernel<kernel>::isAdded);
  static_assert(sizeof(Batch<Params>) <= Launches::State::kMaxBytes);
  if (threadBlocks > std::numeric_limits<int32_t>::max() ||
      divideUp(chunks, std::min(chunks, kMaxGridYZ)) > kMaxGridYZ)
    return cudaErrorInvalidConfiguration;
  Launches::State alone;
  alone.stream = target.stream;
  Launches::State &state =
      target.launches ? target.launches->getState() : alone;
  auto *address = reinterpret_cast<const void *>(kernel);
  if (!state.canJoin(address, threadBlocks, chunks)) {
    if (cudaError_t error = state.flush())
      return error;
    auto *batch = new (state.batch) Batch<Params>;
    std::fill(std::begin(batch->begin), std::end(batch->begin),
              std::numeric_limits<int32_t>::max());
    state.kernel = address;
    state.chunks = chunks;
    state.threads = threads;
    state.threadBlocks = 0;
  }
  auto *batch = reinterpret_cast<Batch<Params> *>(state.batch);
  batch->params[state.count] = params;
  batch->begin[state.count] = static_cast<int32_t>(state.threadBlocks);
  state.threadBlocks += threadBlocks;
  ++state.count;
  return target.launches ? cudaSuccess : state.flush();
}

/// The same for threads that handle `params.rows` of a chunk's `items` each:
/// see chooseRows().
template <auto kernel, typename Params>
cudaError_t launchRows(int64_t items, int64_t chunks, int threads,
                       bool waitsForMemory, Params params,
                       const LaunchTarget &target) {
  params.rows = chooseRows<kernel>(items, chunks, threads, waitsForMemory);
  return launch<kernel>(divideUp(items, params.rows * threads), chunks, threads,
                        params, target);
}

} // namespace zpp::kernels

#endif // ZPP_KERNELS_LAUNCH_H
