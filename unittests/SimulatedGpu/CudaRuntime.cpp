//===- CudaRuntime.cpp - The CUDA runtime's functions, simulated ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Signatures, errors and what waits for what are those of cuda_runtime_api.h.
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <cstring>
#include <utility>

using namespace zpp::simulated;

static thread_local cudaError_t lastError = cudaSuccess;
static thread_local cudaStreamCaptureMode captureMode =
    cudaStreamCaptureModeGlobal;

namespace {
/// A call of a function of the runtime: counted, failed if a test wants it to,
/// and with the state locked.
class Call {
public:
  enum Kind {
    Plain,
    /// Not allowed while a thread captures.
    Unsafe,
    /// Works even on a device that has failed.
    Always,
  };
  explicit Call(const char *function, Kind kind = Plain)
      : error(static_cast<cudaError_t>(countCall(function))),
        state(State::get()), guard(state.mutex) {
    if (error == cudaSuccess && kind != Always)
      error = state.devices[currentDevice()].error;
    if (error == cudaSuccess && kind == Unsafe)
      error = state.checkUnsafe(captureMode);
  }

  /// The call's result, unless it has failed before.
  cudaError_t end(cudaError_t result) {
    if (error == cudaSuccess)
      error = result;
    if (error != cudaSuccess)
      lastError = error;
    return error;
  }
  bool isBad() const { return error != cudaSuccess; }

  cudaError_t error;
  State &state;
  Guard guard;
};
} // namespace

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

cudaError_t cudaGetLastError() { return std::exchange(lastError, cudaSuccess); }

cudaError_t cudaPeekAtLastError() { return lastError; }

namespace {
struct ErrorText {
  cudaError_t error;
  const char *name;
  const char *text;
};
} // namespace

static constexpr ErrorText kErrors[] = {
#define ZPP_ERROR(NAME, TEXT) {NAME, #NAME, TEXT}
    ZPP_ERROR(cudaSuccess, "no error"),
    ZPP_ERROR(cudaErrorInvalidValue, "invalid argument"),
    ZPP_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ZPP_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ZPP_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ZPP_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ZPP_ERROR(cudaErrorInsufficientDriver,
              "CUDA driver version is insufficient for CUDA runtime version"),
    ZPP_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ZPP_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ZPP_ERROR(cudaErrorIllegalState,
              "the operation cannot be performed in the present state"),
    ZPP_ERROR(cudaErrorNotReady, "device not ready"),
    ZPP_ERROR(cudaErrorIllegalAddress,
              "an illegal memory access was encountered"),
    ZPP_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    ZPP_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ZPP_ERROR(cudaErrorNotSupported, "operation not supported"),
    ZPP_ERROR(cudaErrorStreamCaptureUnsupported,
              "operation not permitted when stream is capturing"),
    ZPP_ERROR(cudaErrorStreamCaptureInvalidated,
              "operation failed due to a previous error during capture"),
    ZPP_ERROR(cudaErrorStreamCaptureMerge,
              "operation would result in a merge of separate capture "
              "sequences"),
    ZPP_ERROR(cudaErrorStreamCaptureUnmatched,
              "capture was not ended in the same stream as it began"),
    ZPP_ERROR(cudaErrorStreamCaptureUnjoined,
              "capturing stream has unjoined work"),
    ZPP_ERROR(cudaErrorStreamCaptureIsolation,
              "dependency created on uncaptured work in another stream"),
    ZPP_ERROR(cudaErrorStreamCaptureImplicit,
              "operation would make the legacy stream depend on a capturing "
              "blocking stream"),
    ZPP_ERROR(cudaErrorCapturedEvent,
              "operation not permitted on an event last recorded in a "
              "capturing stream"),
    ZPP_ERROR(cudaErrorStreamCaptureWrongThread,
              "attempt to terminate a thread-local capture sequence from "
              "another thread"),
#undef ZPP_ERROR
};

const char *cudaGetErrorName(cudaError_t error) {
  for (const ErrorText &entry : kErrors)
    if (entry.error == error)
      return entry.name;
  return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
  for (const ErrorText &entry : kErrors)
    if (entry.error == error)
      return entry.text;
  return "unrecognized error code";
}

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

cudaError_t cudaGetDeviceCount(int *count) {
  Call call("cudaGetDeviceCount", Call::Always);
  if (call.isBad())
    return call.end(cudaSuccess);
  *count = static_cast<int>(call.state.devices.size());
  return call.end(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int *device) {
  Call call("cudaGetDevice", Call::Always);
  *device = currentDevice();
  return call.end(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  Call call("cudaSetDevice", Call::Always);
  if (call.isBad())
    return call.end(cudaSuccess);
  if (device < 0 || device >= static_cast<int>(call.state.devices.size()))
    return call.end(cudaErrorInvalidDevice);
  currentDevice() = device;
  return call.end(call.state.devices[device].error);
}

cudaError_t cudaDeviceSynchronize() {
  Call call("cudaDeviceSynchronize", Call::Unsafe);
  if (!call.isBad())
    call.state.waitDevice(call.guard, currentDevice());
  return call.end(call.state.devices[currentDevice()].error);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  Call call("cudaDeviceGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return call.end(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

static cudaError_t createStream(Call &call, cudaStream_t *stream,
                                unsigned flags) {
  if (call.isBad())
    return call.end(cudaSuccess);
  if (flags & ~cudaStreamNonBlocking)
    return call.end(cudaErrorInvalidValue);
  *stream = makeHandle<cudaStream_t>(
      call.state
          .createStream(currentDevice(),
                        /*isBlocking=*/!(flags & cudaStreamNonBlocking))
          ->id);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  Call call("cudaStreamCreate");
  return createStream(call, stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  Call call("cudaStreamCreateWithFlags");
  return createStream(call, stream, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int) {
  Call call("cudaStreamCreateWithPriority");
  return createStream(call, stream, flags);
}

/// Looks up a stream; on failure `call` has the error.
static std::shared_ptr<Stream> getStream(Call &call, cudaStream_t handle) {
  if (call.isBad())
    return nullptr;
  std::shared_ptr<Stream> stream = call.state.find(handle);
  if (!stream)
    call.error = cudaErrorInvalidResourceHandle;
  else
    call.error = call.state.devices[stream->device].error;
  return call.isBad() ? nullptr : stream;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Call call("cudaStreamDestroy", Call::Always);
  if (!call.isBad()) {
    if (!handle || handle == cudaStreamLegacy || !call.state.find(handle))
      return call.end(cudaErrorInvalidResourceHandle);
    call.state.destroyStream(handle);
  }
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Call call("cudaStreamQuery", Call::Unsafe);
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream)
    return call.end(cudaSuccess);
  if (stream->capture) {
    stream->capture->isInvalid = true;
    return call.end(cudaErrorStreamCaptureUnsupported);
  }
  if (stream->last && !stream->last->isDone)
    return call.end(cudaErrorNotReady);
  call.state.joinHost(stream->clock, /*hasWaited=*/true);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Call call("cudaStreamSynchronize", Call::Unsafe);
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream)
    return call.end(cudaSuccess);
  if (stream->capture) {
    stream->capture->isInvalid = true;
    return call.end(cudaErrorStreamCaptureUnsupported);
  }
  Clock clock = stream->clock;
  if (std::shared_ptr<Item> last = stream->last)
    call.state.wait(call.guard, last);
  call.state.joinHost(clock, /*hasWaited=*/true);
  return call.end(call.state.devices[stream->device].error);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device) {
  Call call("cudaStreamGetDevice");
  if (std::shared_ptr<Stream> stream = getStream(call, handle))
    *device = stream->device;
  return call.end(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function,
                               void *data) {
  Call call("cudaLaunchHostFunc");
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream)
    return call.end(cudaSuccess);
  return call.end(call.state.submit(
      *stream, {"a host function", {}, [=] { function(data); }, Task::Copy}));
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

/// Looks up an event; on failure `call` has the error.
static std::shared_ptr<Event> getEvent(Call &call, cudaEvent_t handle) {
  if (call.isBad())
    return nullptr;
  auto it = call.state.events.find(idOf(handle));
  if (it != call.state.events.end())
    return it->second;
  call.state.report("use of an event that is destroyed or never was");
  call.error = cudaErrorInvalidResourceHandle;
  return nullptr;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *handle, unsigned flags) {
  Call call("cudaEventCreateWithFlags");
  if (call.isBad())
    return call.end(cudaSuccess);
  auto event = std::make_shared<Event>();
  event->device = currentDevice();
  event->hasTiming = !(flags & cudaEventDisableTiming);
  int64_t id = call.state.nextHandle++;
  call.state.events[id] = std::move(event);
  *handle = makeHandle<cudaEvent_t>(id);
  return call.end(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  Call call("cudaEventDestroy", Call::Always);
  if (getEvent(call, handle))
    call.state.events.erase(idOf(handle));
  return call.end(cudaSuccess);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream,
                                     unsigned flags) {
  Call call("cudaEventRecord");
  std::shared_ptr<Event> event = getEvent(call, handle);
  std::shared_ptr<Stream> on = event ? getStream(call, stream) : nullptr;
  if (!on)
    return call.end(cudaSuccess);
  if (event->device != on->device)
    return call.end(cudaErrorInvalidResourceHandle);
  return call.end(
      call.state.record(*on, event, flags & cudaEventRecordExternal));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle,
                                unsigned flags) {
  Call call("cudaStreamWaitEvent");
  std::shared_ptr<Event> event = getEvent(call, handle);
  std::shared_ptr<Stream> on = event ? getStream(call, stream) : nullptr;
  if (!on)
    return call.end(cudaSuccess);
  return call.end(
      call.state.waitEvent(on, *event, flags & cudaEventWaitExternal));
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  Call call("cudaEventQuery", Call::Unsafe);
  std::shared_ptr<Event> event = getEvent(call, handle);
  if (!event)
    return call.end(cudaSuccess);
  if (event->capture)
    return call.end(cudaErrorCapturedEvent);
  if (event->item && !event->item->isDone)
    return call.end(cudaErrorNotReady);
  call.state.joinHost(event->clock, /*hasWaited=*/false);
  return call.end(call.state.devices[event->device].error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  Call call("cudaEventSynchronize", Call::Unsafe);
  std::shared_ptr<Event> event = getEvent(call, handle);
  if (!event)
    return call.end(cudaSuccess);
  if (event->capture)
    return call.end(cudaErrorCapturedEvent);
  Clock clock = event->clock;
  if (std::shared_ptr<Item> item = event->item)
    call.state.wait(call.guard, item);
  call.state.joinHost(clock, /*hasWaited=*/true);
  return call.end(call.state.devices[event->device].error);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start,
                                 cudaEvent_t end) {
  Call call("cudaEventElapsedTime");
  std::shared_ptr<Event> first = getEvent(call, start);
  std::shared_ptr<Event> second = getEvent(call, end);
  if (!first || !second)
    return call.end(cudaSuccess);
  if (first->capture || second->capture)
    return call.end(cudaErrorCapturedEvent);
  if (!first->hasTiming || !second->hasTiming || !first->item || !second->item)
    return call.end(cudaErrorInvalidResourceHandle);
  if (!first->item->isDone || !second->item->isDone)
    return call.end(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(second->item->time -
                                                 first->item->time)
            .count();
  return call.end(cudaSuccess);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

cudaError_t cudaMalloc(void **data, size_t bytes) {
  Call call("cudaMalloc", Call::Unsafe);
  if (call.isBad())
    return call.end(cudaSuccess);
  return call.end(call.state.allocate(currentDevice(), bytes, *data));
}

/// Returns the allocation that begins at `data`; on failure `call` has the
/// error.
static Allocation *getAllocation(Call &call, void *data, bool isHost) {
  if (call.isBad() || !data)
    return nullptr;
  Allocation *allocation = call.state.find(data);
  if (!allocation || allocation->begin != reinterpret_cast<uintptr_t>(data) ||
      allocation->isFreed || (allocation->device < 0) != isHost) {
    call.state.report(allocation && allocation->isFreed
                          ? "memory is freed twice"
                          : "memory is freed that nobody allocated");
    call.error = cudaErrorInvalidValue;
    return nullptr;
  }
  return allocation;
}

cudaError_t cudaFree(void *data) {
  Call call("cudaFree", Call::Unsafe);
  Allocation *allocation = getAllocation(call, data, /*isHost=*/false);
  if (!allocation)
    return call.end(cudaSuccess);
  // Like the real one.
  call.state.waitDevice(call.guard, allocation->device);
  allocation->isFreed = true;
  allocation->history.clear();
  call.state.devices[allocation->device].allocated -= allocation->bytes;
  call.state.release(*allocation);
  return call.end(cudaSuccess);
}

cudaError_t cudaMallocAsync(void **data, size_t bytes, cudaStream_t handle) {
  Call call("cudaMallocAsync");
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream)
    return call.end(cudaSuccess);
  if (stream->capture) {
    stream->capture->isInvalid = true;
    return call.end(cudaErrorStreamCaptureUnsupported);
  }
  cudaError_t error = call.state.allocate(stream->device, bytes, *data);
  // It begins to exist here, which counts as a write.
  if (error == cudaSuccess && *data)
    error = call.state.submit(*stream,
                              {"cudaMallocAsync",
                               {{*data, static_cast<int64_t>(bytes), true}},
                               [] {},
                               Task::Kernel});
  return call.end(error);
}

cudaError_t cudaFreeAsync(void *data, cudaStream_t handle) {
  Call call("cudaFreeAsync");
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream)
    return call.end(cudaSuccess);
  if (stream->capture) {
    stream->capture->isInvalid = true;
    return call.end(cudaErrorStreamCaptureUnsupported);
  }
  Allocation *allocation = getAllocation(call, data, /*isHost=*/false);
  if (!allocation)
    return call.end(cudaSuccess);
  State *state = &call.state;
  cudaError_t error =
      call.state.submit(*stream, {"cudaFreeAsync",
                                  {{data, allocation->bytes, true}},
                                  [=] {
                                    Guard guard(state->mutex);
                                    state->release(*allocation);
                                  },
                                  Task::Kernel});
  // It must not be used after this call.
  allocation->isFreed = true;
  allocation->history.clear();
  call.state.devices[allocation->device].allocated -= allocation->bytes;
  return call.end(error);
}

cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned) {
  Call call("cudaHostAlloc", Call::Unsafe);
  if (call.isBad())
    return call.end(cudaSuccess);
  return call.end(call.state.allocateHost(bytes, *data));
}

cudaError_t cudaMallocHost(void **data, size_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *data) {
  Call call("cudaFreeHost", Call::Unsafe);
  Allocation *allocation = getAllocation(call, data, /*isHost=*/true);
  if (!allocation)
    return call.end(cudaSuccess);
  for (size_t device = 0; device < call.state.devices.size(); ++device)
    call.state.waitDevice(call.guard, static_cast<int>(device));
  call.state.release(*allocation);
  return call.end(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes,
                                     const void *data) {
  Call call("cudaPointerGetAttributes");
  if (call.isBad())
    return call.end(cudaSuccess);
  *attributes = {};
  attributes->device = -2;
  attributes->type = cudaMemoryTypeUnregistered;
  Allocation *allocation = call.state.find(data);
  if (allocation && !allocation->isFreed) {
    bool isHost = allocation->device < 0;
    attributes->type = isHost ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = isHost ? 0 : allocation->device;
    attributes->devicePointer = const_cast<void *>(data);
  }
  if (!allocation || allocation->device < 0)
    attributes->hostPointer = const_cast<void *>(data);
  return call.end(cudaSuccess);
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

namespace {
/// Rows of bytes.
struct Rows {
  uintptr_t data;
  size_t pitch;
};
} // namespace

static bool isDeviceMemory(State &state, uintptr_t data) {
  return state.translate(reinterpret_cast<void *>(data)) !=
         reinterpret_cast<uint8_t *>(data);
}

static cudaError_t copy(Call &call, Rows to, Rows from, size_t width,
                        size_t height, cudaMemcpyKind kind,
                        cudaStream_t handle) {
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream || width == 0 || height == 0)
    return call.end(cudaSuccess);
  State &state = call.state;
  bool toDevice = isDeviceMemory(state, to.data);
  bool fromDevice = isDeviceMemory(state, from.data);
  cudaMemcpyKind actual =
      toDevice ? fromDevice ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
      : fromDevice ? cudaMemcpyDeviceToHost
                   : cudaMemcpyHostToHost;
  if ((kind != cudaMemcpyDefault && kind != actual) || to.pitch < width ||
      from.pitch < width)
    return call.end(cudaErrorInvalidValue);

  Task task;
  task.name = "a copy";
  task.kind = Task::Copy;
  auto declare = [&](Rows rows, bool isWrite) {
    bool isDense = rows.pitch == width;
    for (size_t row = 0; row < (isDense ? 1 : height); ++row)
      task.accesses.push_back(
          {reinterpret_cast<void *>(rows.data + row * rows.pitch),
           static_cast<int64_t>(isDense ? width * height : width), isWrite});
  };
  declare(from, false);
  declare(to, true);
  auto *dest = state.translate(reinterpret_cast<void *>(to.data));
  auto *source = state.translate(reinterpret_cast<void *>(from.data));
  auto isPageable = [&](uintptr_t data) {
    return !state.find(reinterpret_cast<void *>(data));
  };
  // Pageable memory is read before the call returns.
  std::shared_ptr<std::vector<uint8_t>> staged;
  if (!fromDevice && isPageable(from.data) && !stream->capture) {
    staged = std::make_shared<std::vector<uint8_t>>(width * height);
    for (size_t row = 0; row < height; ++row)
      std::memcpy(staged->data() + row * width, source + row * from.pitch,
                  width);
    source = staged->data();
    from.pitch = width;
  }
  task.run = [=] {
    (void)staged;
    for (size_t row = 0; row < height; ++row)
      std::memcpy(dest + row * to.pitch, source + row * from.pitch, width);
  };
  std::shared_ptr<Item> item;
  cudaError_t error = state.submit(*stream, std::move(task), &item);
  // It is written before the call returns.
  if (error == cudaSuccess && item && !toDevice && isPageable(to.data)) {
    Clock clock = stream->clock;
    state.wait(call.guard, item);
    state.joinHost(clock, /*hasWaited=*/true);
    error = state.devices[stream->device].error;
  }
  return call.end(error);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  Call call("cudaMemcpyAsync");
  return copy(call, {reinterpret_cast<uintptr_t>(to), bytes},
              {reinterpret_cast<uintptr_t>(from), bytes}, bytes, 1, kind,
              stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t toPitch, const void *from,
                              size_t fromPitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  Call call("cudaMemcpy2DAsync");
  return copy(call, {reinterpret_cast<uintptr_t>(to), toPitch},
              {reinterpret_cast<uintptr_t>(from), fromPitch}, width, height,
              kind, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                       cudaMemcpyKind kind) {
  cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes,
                            cudaStream_t handle) {
  Call call("cudaMemsetAsync");
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream || bytes == 0)
    return call.end(cudaSuccess);
  auto *dest = call.state.translate(data);
  return call.end(
      call.state.submit(*stream, {"cudaMemsetAsync",
                                  {{data, static_cast<int64_t>(bytes), true}},
                                  [=] { std::memset(dest, value, bytes); },
                                  Task::Kernel}));
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
  std::swap(*mode, captureMode);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle,
                                   cudaStreamCaptureMode mode) {
  Call call("cudaStreamBeginCapture");
  std::shared_ptr<Stream> stream = getStream(call, handle);
  return call.end(stream ? call.state.beginCapture(stream, mode) : cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
  Call call("cudaStreamEndCapture");
  *graph = nullptr;
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream)
    return call.end(cudaSuccess);
  Graph nodes;
  cudaError_t error = call.state.endCapture(*stream, nodes);
  if (error == cudaSuccess) {
    int64_t id = call.state.nextHandle++;
    call.state.graphs[id] = std::move(nodes);
    *graph = makeHandle<cudaGraph_t>(id);
  }
  return call.end(error);
}

static cudaStreamCaptureStatus getStatus(const Stream &stream) {
  return !stream.capture             ? cudaStreamCaptureStatusNone
         : stream.capture->isInvalid ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle,
                                  cudaStreamCaptureStatus *status) {
  Call call("cudaStreamIsCapturing");
  if (std::shared_ptr<Stream> stream = getStream(call, handle))
    *status = getStatus(*stream);
  return call.end(cudaSuccess);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle,
                                     cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges,
                                     size_t *numDependencies) {
  Call call("cudaStreamGetCaptureInfo");
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream)
    return call.end(cudaSuccess);
  // Nodes have no handles here.
  if (graph || dependencies || edges || numDependencies)
    return call.end(cudaErrorNotSupported);
  *status = getStatus(*stream);
  if (id && stream->capture)
    *id = stream->capture->id;
  return call.end(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long) {
  Call call("cudaGraphInstantiate");
  auto it = call.state.graphs.find(idOf(graph));
  if (it == call.state.graphs.end())
    return call.end(cudaErrorInvalidValue);
  int64_t id = call.state.nextHandle++;
  call.state.graphs[id] = it->second;
  *exec = makeHandle<cudaGraphExec_t>(id);
  return call.end(cudaSuccess);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  Call call("cudaGraphLaunch");
  std::shared_ptr<Stream> stream = getStream(call, handle);
  if (!stream)
    return call.end(cudaSuccess);
  auto it = call.state.graphs.find(idOf(exec));
  if (it == call.state.graphs.end())
    return call.end(cudaErrorInvalidValue);
  return call.end(call.state.launch(*stream, it->second));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Call call("cudaGraphDestroy", Call::Always);
  return call.end(call.state.graphs.erase(idOf(graph)) ? cudaSuccess
                                                       : cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Call call("cudaGraphExecDestroy", Call::Always);
  return call.end(call.state.graphs.erase(idOf(exec)) ? cudaSuccess
                                                      : cudaErrorInvalidValue);
}
