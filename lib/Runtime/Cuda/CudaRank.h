//===- CudaRank.h - A rank on a GPU -----------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Local operations are the fused kernels, exchanges are sends and receives of
// NCCL. A thread watches what is under way, so that nobody waits forever after
// a failure of another rank, the network or the device.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_CUDARANK_H
#define ZPP_LIB_RUNTIME_CUDA_CUDARANK_H

#include "Backend.h"
#include "Control/ControlClient.h"
#include "Control/ControlServer.h"
#include "CudaStreams.h"
#include "Device.h"
#include "DeviceQueue.h"
#include "ExchangePlan.h"
#include "ExchangeWatch.h"
#include "FirstFailure.h"
#include "NcclCommunicators.h"
#include "NcclLibrary.h"
#include "StreamPlan.h"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace zpp::rt {

/// Returns the text that all ranks of a world must agree on when they join.
std::string getGreeting(const Mesh &mesh);

class CudaRank : public RankBackend {
public:
  /// The endpoint where the ranks of the world meet, and the token.
  struct Place {
    std::string endpoint;
    std::string token;
  };
  /// Returns when all ranks of the world have joined.
  static Status create(World &world, const Place &place, int64_t index,
                       int64_t device, std::unique_ptr<RankBackend> &result);
  ~CudaRank() override;

  Status allocate(int64_t bytes, void *&data) override;
  Status free(void *data) override;
  Status copy(const Operation &operation, const void *input,
              void *output) override;

  Status markStream(void *stream, std::unique_ptr<Mark> &mark) override;
  Status copyOnStream(void *stream, const void *input, void *output,
                      int64_t bytes) override;
  Status enter(const Mark &mark) override;
  Status markOperations(const std::vector<zpp_rt_buffer> &buffers,
                        std::unique_ptr<Mark> &mark) override;
  Status leave(void *stream, const Mark &mark) override;

  Status compute(LocalOperation operation, const void *input, const void *held,
                 void *output) override;
  Status exchange(const ExchangeOperation &operation, const void *input,
                  void *output) override;
  /// Calls a collective of NCCL with the communicator of a group, which is null
  /// for a group of one.
  using LibraryCall =
      std::function<ncclResult_t(ncclComm_t group, cudaStream_t stream)>;
  /// Queues `call`, which moves what `operation` says. The axes are in the
  /// order of the mesh.
  Status callLibrary(const ExchangeOperation &operation, const void *input,
                     void *output, const LibraryCall &call);
  const NcclLibrary &getLibrary() const { return *nccl; }

  Status synchronize() override;
  bool canMeasure() override { return !streams->isCapturing(); }
  Status getFailure() override { return failure.get(); }
  void fail(const Status &cause) override;

private:
  explicit CudaRank(World &world);
  Status start(int64_t index, int64_t wanted);

  // Return what an operation reads and writes. Valid until the next call.
  const Accesses &getAccesses(const Operation &operation, const void *input,
                              void *output, const void *held = nullptr);
  void addAccesses(const Pieces &pieces, const void *data, bool isWrite);

  // Exchanges.
  Status allToAll(const ExchangeOperation &operation, const void *input,
                  void *output);
  Status allGather(const ExchangeOperation &operation, const void *input,
                   void *output);
  /// Tells all members of the group that this one takes part; the first time it
  /// waits until all have said the same, and makes what NCCL needs for sends or
  /// for its own collectives.
  Status meet(const ExchangeOperation &operation, bool forSends,
              Communicator &group);
  /// Queues the steps of a plan, whose tiers are `groups`.
  Status run(const ExchangeOperation &operation, const ExchangePlan &plan,
             const std::vector<const Communicator *> &groups, const void *input,
             void *output);
  Status runStep(const ExchangeOperation &operation, const ExchangeStep &step,
                 const Communicator &group, const void *input, void *output);
  /// Queues functions of NCCL as one operation of a stream.
  Status communicate(const ExchangeOperation &operation,
                     const Footprint &footprint, size_t stream,
                     const Accesses &accesses,
                     const std::function<ncclResult_t(cudaStream_t)> &calls);
  /// Whether `axes` are whole axes in the order of the mesh.
  bool areTiers(const std::vector<AxisRef> &axes) const;
  /// Returns the stream for exchanges along `axes`.
  size_t getStream(const std::vector<AxisRef> &axes) const {
    return streamPlan.getExchanges(world.mesh.findSlowest(axes));
  }

  // Failures.
  void watch();
  void stop(const Status &cause);

  World &world;
  const StreamPlan streamPlan;
  int device = 0;
  const NcclLibrary *nccl = nullptr;
  std::unique_ptr<CudaStreams> streams;
  std::unique_ptr<DeviceQueue> queue;
  std::unique_ptr<ExchangeWatch> exchanges;
  std::unique_ptr<ControlClient> control;
  std::unique_ptr<NcclCommunicators> communicators;
  /// The result of getAccesses().
  Accesses accessList;
  /// On `device`.
  std::unique_ptr<DeviceMemory> memory = std::make_unique<DeviceMemory>();

  FirstFailure<> failure;
  /// Guards `isEnding`; `changed` tells the watcher of it, and of a failure.
  std::mutex mutex;
  std::condition_variable changed;
  bool isEnding = false;
  std::thread watcher;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_CUDARANK_H
