//===- ExternalCudaBackend.cpp - A GPU, exchanges of the caller -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All operations are queued on the stream that the caller has entered, in the
// order of the calls. So the caller's functions find their input on it, and no
// other order has to be kept.
//
//===----------------------------------------------------------------------===//

#include "Backend.h"
#include "Cuda/CopyOnDevice.h"
#include "Cuda/CudaKernels.h"
#include "Cuda/Device.h"
#include "ExternalExchanges.h"

#include <utility>

using namespace zpp;
using namespace zpp::rt;

namespace {
class Event {
public:
  ~Event() {
    if (handle)
      cudaEventDestroy(handle);
  }
  /// The work on `stream` up to now.
  Status record(cudaStream_t stream) {
    if (!handle)
      ZPP_RT_CUDA(cudaEventCreateWithFlags, &handle, cudaEventDisableTiming);
    ZPP_RT_CUDA(cudaEventRecord, handle, stream);
    return {};
  }
  Status makeWait(cudaStream_t stream) const {
    ZPP_RT_CUDA(cudaStreamWaitEvent, stream, handle, 0);
    return {};
  }

private:
  cudaEvent_t handle = nullptr;
};

struct StreamMark : Mark {
  explicit StreamMark(cudaStream_t stream) : stream(stream) {}
  const cudaStream_t stream;
};

struct OperationsMark : Mark {
  /// The stream of the operations.
  cudaStream_t stream;
  Event event;
};

class ExternalCudaRank : public RankBackend {
public:
  static Status create(World &world, int64_t index, int64_t wanted,
                       std::unique_ptr<RankBackend> &result) {
    int device, count;
    ZPP_RT_TRY(openDevice(index, wanted, device, count));
    result.reset(new ExternalCudaRank(world, index, device));
    return {};
  }
  ~ExternalCudaRank() override {
    DeviceGuard guard(device);
    // Queued operations use memory that is freed now.
    cudaStreamSynchronize(stream);
    cudaGetLastError();
    memory.reset();
  }

  Status allocate(int64_t bytes, void *&data) override {
    DeviceGuard guard(device);
    return memory->allocate(bytes, data);
  }
  Status free(void *data) override {
    DeviceGuard guard(device);
    return memory->free(data);
  }
  Status copy(const Operation &operation, const void *input,
              void *output) override {
    DeviceGuard guard(device);
    const Pieces &rows = operation.footprint.input;
    if (rows.count == 0 || rows.bytes == 0)
      return {};
    return copyRows(operation.footprint, input, output, stream);
  }

  Status markStream(void *other, std::unique_ptr<Mark> &mark) override {
    mark = std::make_unique<StreamMark>(static_cast<cudaStream_t>(other));
    return {};
  }
  /// Queues all further operations on that stream, after the mark and after
  /// earlier operations.
  Status enter(const Mark &mark) override {
    DeviceGuard guard(device);
    cudaStream_t next = static_cast<const StreamMark &>(mark).stream;
    if (next == stream)
      return {};
    ZPP_RT_TRY(last.record(stream));
    ZPP_RT_TRY(last.makeWait(next));
    stream = next;
    return {};
  }
  Status copyOnStream(void *other, const void *input, void *output,
                      int64_t bytes) override {
    DeviceGuard guard(device);
    ZPP_RT_CUDA(copyOnDevice, input, output, bytes,
                static_cast<cudaStream_t>(other));
    return {};
  }
  Status markOperations(const std::vector<zpp_rt_buffer> &buffers,
                        std::unique_ptr<Mark> &result) override {
    DeviceGuard guard(device);
    auto mark = std::make_unique<OperationsMark>();
    mark->stream = stream;
    ZPP_RT_TRY(mark->event.record(stream));
    result = std::move(mark);
    return {};
  }
  Status leave(void *other, const Mark &mark) override {
    DeviceGuard guard(device);
    const auto &operations = static_cast<const OperationsMark &>(mark);
    if (other == operations.stream)
      return {};
    return operations.event.makeWait(static_cast<cudaStream_t>(other));
  }

  Status compute(LocalOperation operation, const void *input, const void *held,
                 void *output) override {
    DeviceGuard guard(device);
    return getStatus(computeOnDevice(operation, input, held, output, stream),
                     "launch of a kernel");
  }
  Status exchange(const ExchangeOperation &operation, const void *input,
                  void *output) override {
    DeviceGuard guard(device);
    if (!exchanges.isCopy(operation))
      return exchanges.run(operation, stream, input, output);
    if (operation.chunkBytes > 0)
      ZPP_RT_CUDA(cudaMemcpyAsync, output, input, operation.chunkBytes,
                  cudaMemcpyDefault, stream);
    return {};
  }

  Status synchronize() override {
    DeviceGuard guard(device);
    ZPP_RT_CUDA(cudaStreamSynchronize, stream);
    return {};
  }

private:
  ExternalCudaRank(World &world, int64_t rank, int device)
      : device(device), exchanges(world, rank),
        memory(std::make_unique<DeviceMemory>()) {}

  const int device;
  /// The stream that was entered last.
  cudaStream_t stream = nullptr;
  /// The operations before that.
  Event last;
  ExternalExchanges exchanges;
  std::unique_ptr<DeviceMemory> memory;
};
} // namespace

Status rt::createExternalCudaBackend(World &world, WorldBackend &backend) {
  if (world.trace)
    return {ZPP_RT_UNSUPPORTED,
            expected("no trace of a world of 'cuda' with exchanges of the "
                     "caller",
                     "one")};
  backend.createRank = [&world](int64_t rank, int64_t device, auto &result) {
    return ExternalCudaRank::create(world, rank, device, result);
  };
  return {};
}
