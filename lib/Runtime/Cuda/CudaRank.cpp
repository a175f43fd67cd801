//===- CudaRank.cpp - A rank on a GPU -----------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaRank.h"

#include "CopyOnDevice.h"
#include "CudaKernels.h"

#include <algorithm>

using namespace zpp;
using namespace zpp::rt;

using Clock = std::chrono::steady_clock;

/// How often the watching thread looks.
static constexpr std::chrono::milliseconds kWatchPeriod{5};
/// How synchronization waits: at first without sleeping, then looking this
/// often.
static constexpr std::chrono::microseconds kSpinTime{500};
static constexpr std::chrono::microseconds kPollPeriod{50};
/// An operation that reads or writes more pieces than this is taken to touch
/// what lies between them, too.
static constexpr int64_t kMaxPieces = 16;
/// Shorter rows are copied by the copy engine.
static constexpr int64_t kMinRowBytes = 256;

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

static std::vector<std::string> getAxisNames(const Mesh &mesh) {
  std::vector<std::string> names;
  for (const MeshAxis &axis : mesh.getAxes())
    names.push_back(axis.name);
  return names;
}

CudaRank::CudaRank(World &world)
    : world(world), streamPlan(getAxisNames(world.mesh)) {}

std::string zpp::rt::getGreeting(const Mesh &mesh) {
  return "libzpp_rt 1 cuda mesh " + mesh.str();
}

Status CudaRank::create(World &world, const Place &place, int64_t index,
                        int64_t device, std::unique_ptr<RankBackend> &result) {
  std::unique_ptr<CudaRank> self(new CudaRank(world));
  // Connect first, so that other ranks learn of all that goes wrong from here
  // on.
  ControlClient::Options options;
  options.endpoint = place.endpoint;
  options.token = place.token;
  options.rank = index;
  options.numRanks = world.mesh.numDevices();
  options.greeting = getGreeting(world.mesh);
  options.timeLimit = world.timeLimit;
  options.onFailure = [rank = self.get()](const Failure &failure) {
    rank->stop(failure.getStatus());
  };
  ZPP_RT_TRY(ControlClient::connect(std::move(options), self->control));
  Status status = self->start(index, device);
  if (!status.ok()) {
    self->control->fail(status.message);
    return status;
  }
  result = std::move(self);
  return {};
}

Status CudaRank::start(int64_t index, int64_t wanted) {
  int count;
  ZPP_RT_TRY(openDevice(index, wanted, device, count));
  ZPP_RT_TRY(loadNccl(nccl));

  ZPP_RT_TRY(CudaStreams::create(index, streamPlan.getNames(),
                                 world.trace.get(), streams));
  exchanges = std::make_unique<ExchangeWatch>(*streams, world.timeLimit);
  Status status = NcclCommunicators::create(*nccl, world.mesh, index, *control,
                                            world.timeLimit, communicators);
  // NCCL can be told to allow several ranks on a GPU. If it is not, its own
  // error says less than this.
  if (status.code == ZPP_RT_SYSTEM_ERROR && world.rendezvous.empty() &&
      world.mesh.numDevices() > count)
    status.message +=
        "; " + expected("a GPU for each of " +
                            std::to_string(world.mesh.numDevices()) + " ranks",
                        count);
  ZPP_RT_TRY(status);
  std::vector<bool> isFast;
  for (size_t tier = 0; tier < streamPlan.numTiers(); ++tier) {
    Communicator *group;
    ZPP_RT_TRY(communicators->getOrCreate({world.mesh.getAxis(tier)}, group));
    isFast.push_back(group->isLocal);
  }
  queue =
      std::make_unique<DeviceQueue>(streamPlan, *streams, std::move(isFast));
  watcher = std::thread([this] { watch(); });
  return {};
}

CudaRank::~CudaRank() {
  DeviceGuard guard(device);
  // Memory is freed only after what is queued has ended or failed.
  if (watcher.joinable()) {
    Status status = synchronize();
    if (status.ok())
      control->leave();
    else
      fail(status);
    {
      std::lock_guard<std::mutex> lock(mutex);
      isEnding = true;
    }
    changed.notify_all();
    watcher.join();
  }
  communicators.reset();
  // Leave: the server may be in this process and wait for this rank.
  control.reset();
  memory.reset();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Status CudaRank::allocate(int64_t bytes, void *&data) {
  DeviceGuard guard(device);
  return memory->allocate(bytes, data);
}

Status CudaRank::free(void *data) {
  DeviceGuard guard(device);
  Status flushed = queue->flush();
  Status freed = memory->free(data);
  return freed.ok() ? flushed : freed;
}

Status CudaRank::copy(const Operation &operation, const void *input,
                      void *output) {
  DeviceGuard guard(device);
  const Pieces &from = operation.footprint.input;
  const Pieces &to = operation.footprint.output;
  int64_t rows = from.count, rowBytes = from.bytes, bytes = rows * rowBytes;
  if (bytes == 0)
    return {};
  bool isSourceDense = rows == 1 || from.stride == rowBytes;
  bool isDestDense = rows == 1 || to.stride == rowBytes;
  bool isDense = isSourceDense && isDestDense;
  bool fits = isDense ? fitsKernel(input, output, bytes)
                      : (isSourceDense || isDestDense) &&
                            rowBytes >= kMinRowBytes &&
                            fitsKernel(input, output, rowBytes) &&
                            from.stride % 16 == 0 && to.stride % 16 == 0;
  if (fits) {
    cudaPointerAttributes source{}, dest{};
    ZPP_RT_CUDA(cudaPointerGetAttributes, &source, input);
    ZPP_RT_CUDA(cudaPointerGetAttributes, &dest, output);
    if (source.type == cudaMemoryTypeDevice &&
        dest.type == cudaMemoryTypeDevice && source.device == dest.device)
      return queue->addKernel(
          operation, getAccesses(operation, input, output),
          [&](kernels::Launches &launches) {
            if (isDense)
              return copyByKernel(input, output, bytes, launches);
            // Rows are the chunks of the tensor on the dense side.
            SliceMap map;
            map.factors = {rows};
            map.chunkFactors = {0};
            map.unit = rowBytes;
            map.extent = bytes;
            return isSourceDense ? kernels::pack(input, 1, map, output,
                                                 to.stride, launches)
                                 : kernels::unpack(input, 1, map, output,
                                                   from.stride, launches);
          });
  }
  return queue->addCopy(
      {*operation.name, operation.footprint},
      getAccesses(operation, input, output), [&](cudaStream_t stream) {
        return copyRows(operation.footprint, input, output, stream);
      });
}

//===----------------------------------------------------------------------===//
// The caller's streams
//===----------------------------------------------------------------------===//

Status CudaRank::markStream(void *stream, std::unique_ptr<Mark> &mark) {
  DeviceGuard guard(device);
  return streams->markStream(static_cast<cudaStream_t>(stream), mark);
}

Status CudaRank::copyOnStream(void *stream, const void *input, void *output,
                              int64_t bytes) {
  DeviceGuard guard(device);
  ZPP_RT_CUDA(copyOnDevice, input, output, bytes,
              static_cast<cudaStream_t>(stream));
  return {};
}

Status CudaRank::enter(const Mark &mark) {
  DeviceGuard guard(device);
  ZPP_RT_TRY(queue->flush());
  return streams->enter(mark);
}

Status CudaRank::markOperations(const std::vector<zpp_rt_buffer> &buffers,
                                std::unique_ptr<Mark> &mark) {
  DeviceGuard guard(device);
  ZPP_RT_TRY(queue->flush());
  // The caller may write to them next.
  Accesses accesses;
  accesses.reserve(buffers.size());
  for (const zpp_rt_buffer &buffer : buffers)
    accesses.push_back({buffer.data, buffer.bytes, /*isWrite=*/true});
  mark = streams->markOperations(accesses);
  return {};
}

Status CudaRank::leave(void *stream, const Mark &mark) {
  DeviceGuard guard(device);
  return streams->leave(static_cast<cudaStream_t>(stream), mark);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

const Accesses &CudaRank::getAccesses(const Operation &operation,
                                      const void *input, void *output,
                                      const void *held) {
  accessList.clear();
  addAccesses(operation.footprint.input, input, false);
  if (held)
    addAccesses(operation.footprint.held, held, false);
  addAccesses(operation.footprint.output, output, true);
  return accessList;
}

/// If there are only a few pieces, the memory between them is left out: tensors
/// that travel together lie between each other's pieces, and are independent.
void CudaRank::addAccesses(const Pieces &pieces, const void *data,
                           bool isWrite) {
  if (pieces.count > kMaxPieces || pieces.stride == pieces.bytes) {
    accessList.push_back({data, pieces.span(), isWrite});
    return;
  }
  for (int64_t i = 0; i < pieces.count; ++i)
    accessList.push_back(
        {bytesAt(data, i * pieces.stride), pieces.bytes, isWrite});
}

Status CudaRank::compute(LocalOperation operation, const void *input,
                         const void *held, void *output) {
  DeviceGuard guard(device);
  const Operation &common = getCommon(operation);
  return queue->addKernel(common, getAccesses(common, input, output, held),
                          [&](kernels::Launches &launches) {
                            return computeOnDevice(operation, input, held,
                                                   output, launches);
                          });
}

//===----------------------------------------------------------------------===//
// Completion and failure
//===----------------------------------------------------------------------===//

Status CudaRank::synchronize() {
  DeviceGuard guard(device);
  ZPP_RT_TRY(queue->flush());
  if (streams->isCapturing())
    return {ZPP_RT_UNSUPPORTED,
            "expected no graph that is being captured, but got one"};
  // Short waits do not sleep: a sleep takes 50 usec or more.
  Clock::time_point patience = Clock::now() + kSpinTime;
  while (true) {
    ZPP_RT_TRY(getFailure());
    bool idle;
    ZPP_RT_TRY(streams->isIdle(idle));
    if (idle)
      break;
    if (Clock::now() < patience)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kPollPeriod);
  }
  ZPP_RT_TRY(control->confirm());
  // After an abort the streams are idle, too.
  ZPP_RT_TRY(getFailure());
  exchanges->clear();
  return streams->settle();
}

void CudaRank::stop(const Status &cause) {
  {
    // Under the lock, so that the watcher does not miss it.
    std::lock_guard<std::mutex> lock(mutex);
    failure.set(cause);
  }
  changed.notify_all();
  world.announceFailure(cause.message);
}

void CudaRank::fail(const Status &cause) {
  control->fail(cause.message);
  stop(cause);
}

void CudaRank::watch() {
  cudaSetDevice(device);
  // This thread queries events while other threads may capture graphs.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock<std::mutex> lock(mutex);
  while (!failure.has() && !isEnding) {
    changed.wait_for(lock, kWatchPeriod);
    if (failure.has() || isEnding)
      break;
    lock.unlock();
    Status status = communicators->getAsyncError();
    if (status.ok())
      status = exchanges->check();
    else if (std::string place = control->getPlace(); !place.empty())
      status.message = place + ": " + status.message;
    if (!status.ok()) {
      control->fail(status.message);
      stop(status);
    }
    lock.lock();
  }
  lock.unlock();
  if (failure.has())
    communicators->abort();
}
