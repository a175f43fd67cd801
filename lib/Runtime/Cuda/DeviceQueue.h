//===- DeviceQueue.h - Operations on their way to the device ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_DEVICEQUEUE_H
#define ZPP_LIB_RUNTIME_CUDA_DEVICEQUEUE_H

#include "CudaStreams.h"
#include "StreamPlan.h"
#include "zpp/kernels/Kernels.h"

#include <memory>
#include <utility>
#include <vector>

namespace zpp::rt {

/// Puts each operation of a rank on the stream that StreamPlan chooses. Kernels
/// of a kind that follow each other and are independent become one launch:
/// tensors that travel together are quantized together. The last kernels may
/// wait for the next call. Used by the thread of the rank, on its device.
class DeviceQueue {
public:
  /// `isFast` says of each tier whether its exchanges stay within a host.
  DeviceQueue(const StreamPlan &plan, CudaStreams &streams,
              std::vector<bool> isFast)
      : plan(plan), streams(streams), isFast(std::move(isFast)) {}

  /// Queues a kernel that `launch(kernels::Launches &)` adds to launches.
  template <typename Launch>
  Status addKernel(const Operation &operation, const Accesses &accesses,
                   const Launch &launch) {
    ZPP_RT_TRY(addToBatch(operation, accesses));
    return getStatus(launch(batch.launches), "launch of a kernel");
  }

  /// Queues what `launch(cudaStream_t)` puts on a stream for kernels.
  template <typename Launch>
  Status addCopy(const CudaStreams::Slice &slice, const Accesses &accesses,
                 const Launch &launch) {
    ZPP_RT_TRY(flush());
    Hazards::Conflicts conflicts = streams.find(accesses);
    return streams.run(chooseStream(conflicts), slice, accesses, conflicts,
                       launch);
  }

  /// Queues what `launch(cudaStream_t)` puts on `stream`.
  template <typename Launch>
  Status addExchange(size_t stream, const CudaStreams::Slice &slice,
                     const Accesses &accesses, const Launch &launch) {
    ZPP_RT_TRY(flush());
    return streams.run(stream, slice, accesses, streams.find(accesses), launch);
  }

  /// Launches the kernels that wait.
  Status flush();

private:
  /// Opens a batch, or makes room in it.
  Status addToBatch(const Operation &operation, const Accesses &accesses);
  size_t chooseStream(const Hazards::Conflicts &conflicts) const;

  /// Kernels that are one operation of a stream and are not launched yet.
  struct Batch {
    kernels::Launches launches;
    int64_t count = 0;
    size_t stream = 0;
    /// The name of the first.
    std::shared_ptr<const OperationName> name;
    /// The memory that all of them read and write.
    Footprint footprint;
  };
  static constexpr int64_t kMaxBatched = 64;

  const StreamPlan &plan;
  CudaStreams &streams;
  const std::vector<bool> isFast;
  Batch batch;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_DEVICEQUEUE_H
