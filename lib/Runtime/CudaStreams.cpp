//===- CudaStreams.cpp - The streams of a rank ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaStreams.h"

using namespace zpp;
using namespace zpp::rt;

Status rt::getStatus(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return {};
  cudaGetLastError();
  int device = -1;
  cudaGetDevice(&device);
  zpp_rt_status code = error == cudaErrorMemoryAllocation ? ZPP_RT_OUT_OF_MEMORY
                                                          : ZPP_RT_SYSTEM_ERROR;
  return {code, std::string(what) + " on GPU " + std::to_string(device) + ": " +
                    cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
                    ")"};
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

Status CudaStreams::create(int64_t rank, std::vector<std::string> names,
                           Trace *trace, std::unique_ptr<CudaStreams> &result) {
  std::unique_ptr<CudaStreams> self(new CudaStreams(rank, trace, names.size()));
  // Above the priority of compute: hops are short, and others wait for them.
  int least, greatest;
  ZPP_RT_CUDA(cudaDeviceGetStreamPriorityRange, &least, &greatest);
  for (std::string &name : names) {
    Stream &stream = self->streams.emplace_back();
    stream.name = std::move(name);
    ZPP_RT_CUDA(cudaStreamCreateWithPriority, &stream.handle,
                cudaStreamNonBlocking, greatest);
    for (cudaEvent_t &event : stream.events)
      ZPP_RT_CUDA(cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
  }
  for (cudaEvent_t &event : self->entries)
    ZPP_RT_CUDA(cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
  if (trace) {
    ZPP_RT_CUDA(cudaEventCreateWithFlags, &self->origin, cudaEventDefault);
    ZPP_RT_CUDA(cudaEventRecord, self->origin, self->streams.front().handle);
    ZPP_RT_CUDA(cudaEventSynchronize, self->origin);
    self->originTime = Trace::Clock::now();
  }
  result = std::move(self);
  return {};
}

CudaStreams::~CudaStreams() {
  for (const Timed &slice : timed) {
    cudaEventDestroy(slice.begin);
    cudaEventDestroy(slice.end);
  }
  for (Stream &stream : streams) {
    for (cudaEvent_t event : stream.events)
      if (event)
        cudaEventDestroy(event);
    if (stream.handle)
      cudaStreamDestroy(stream.handle);
  }
  for (cudaEvent_t event : entries)
    if (event)
      cudaEventDestroy(event);
  if (origin)
    cudaEventDestroy(origin);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

Status CudaStreams::wait(cudaStream_t waiter, size_t stream, int64_t number) {
  ZPP_RT_CUDA(cudaStreamWaitEvent, waiter,
              streams[stream].events[number % kEvents], 0);
  return {};
}

Status CudaStreams::join(size_t stream) {
  Stream &self = streams[stream];
  if (self.entered == numEntered)
    return {};
  self.entered = numEntered;
  ZPP_RT_CUDA(cudaStreamWaitEvent, self.handle, entries[numEntered % kEntries],
              0);
  return {};
}

Status CudaStreams::begin(size_t stream, const std::vector<Access> &accesses) {
  if (captureId != 0 && !isCapturing())
    ZPP_RT_TRY(leaveCapture());
  if (hazards.size() > kMaxSegments && captureId == 0)
    ZPP_RT_TRY(prune());
  ZPP_RT_TRY(join(stream));
  Hazards::Numbers waits = hazards.add(stream, accesses);
  for (size_t other = 0; other < waits.size(); ++other)
    if (waits[other] > 0)
      ZPP_RT_TRY(wait(streams[stream].handle, other, waits[other]));
  isTimed = trace && trace->isRecording() && captureId == 0;
  if (isTimed)
    ZPP_RT_TRY(beginTimed(streams[stream].handle, timed.emplace_back()));
  return {};
}

Status CudaStreams::end(size_t stream, const Operation &operation) {
  Stream &self = streams[stream];
  if (isTimed) {
    Timed &last = timed.back();
    last.row = self.name;
    last.label = operation.label;
    last.kind = operation.kind;
    last.footprint = operation.footprint;
    last.stream = stream;
    last.number = hazards.getLast(stream);
    ZPP_RT_CUDA(cudaEventRecord, last.end, self.handle);
    if (timed.size() >= kMaxTimed)
      ZPP_RT_TRY(resolveTimes());
  }
  ZPP_RT_CUDA(cudaEventRecord, self.events[hazards.getLast(stream) % kEvents],
              self.handle);
  return {};
}

Hazards::Numbers
CudaStreams::getProducers(const std::vector<Access> &accesses) const {
  std::vector<Access> reads;
  for (const Access &access : accesses)
    if (!access.isWrite)
      reads.push_back(access);
  Hazards::Numbers numbers = hazards.find(reads);
  // Memory that an older operation has written may be the caller's by now.
  for (size_t stream = 0; stream < numbers.size(); ++stream)
    if (numbers[stream] <= streams[stream].lastBefore)
      numbers[stream] = 0;
  return numbers;
}

//===----------------------------------------------------------------------===//
// The caller's streams
//===----------------------------------------------------------------------===//

/// The number of the capture that `stream` is in, 0 for none.
static unsigned long long getCapture(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
#if CUDART_VERSION >= 13000
  cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &id, nullptr,
                                               nullptr, nullptr, nullptr);
#else
  cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &id);
#endif
  if (error != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

bool CudaStreams::isCapturing() {
  return captureId != 0 && getCapture(streams.front().handle) == captureId;
}

Status CudaStreams::leaveCapture() {
  // Events of a graph mean nothing outside of it, nor do older ones inside.
  hazards.clear();
  captureId = 0;
  for (Stream &stream : streams) {
    stream.entered = numEntered;
    stream.firstCaptured = 0;
  }
  return {};
}

Status CudaStreams::enter(cudaStream_t other) {
  unsigned long long capture = getCapture(other);
  if (capture != captureId) {
    ZPP_RT_TRY(leaveCapture());
    captureId = capture;
    for (size_t stream = 0; stream < streams.size(); ++stream)
      streams[stream].firstCaptured = hazards.getLast(stream) + 1;
  } else if (numEntered > 0 && other != lastEntered && capture == 0) {
    // Operations come after both.
    for (size_t stream = 0; stream < streams.size(); ++stream)
      ZPP_RT_TRY(join(stream));
  }
  lastEntered = other;
  for (size_t stream = 0; stream < streams.size(); ++stream)
    streams[stream].lastBefore = hazards.getLast(stream);
  ZPP_RT_CUDA(cudaEventRecord, entries[(numEntered + 1) % kEntries], other);
  ++numEntered;
  if (captureId != 0)
    ZPP_RT_TRY(join(0));
  return {};
}

Status CudaStreams::leave(cudaStream_t other,
                          const std::vector<Access> &accesses) {
  Hazards::Numbers waits = hazards.find(accesses);
  bool capturing = isCapturing();
  // A graph must end with all streams joined, whatever they touch.
  for (size_t stream = 0; stream < streams.size() && capturing; ++stream)
    if (hazards.getLast(stream) >= streams[stream].firstCaptured)
      waits[stream] = hazards.getLast(stream);
  Timed stall;
  if (!capturing)
    stall.label = getLabel(waits);
  if (!stall.label.empty())
    ZPP_RT_TRY(beginTimed(other, stall));
  for (size_t stream = 0; stream < streams.size(); ++stream)
    if (waits[stream] > 0)
      ZPP_RT_TRY(wait(other, stream, waits[stream]));
  if (!stall.label.empty()) {
    stall.row = "stalls";
    stall.kind = "stall";
    ZPP_RT_CUDA(cudaEventRecord, stall.end, other);
    timed.push_back(std::move(stall));
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Completion
//===----------------------------------------------------------------------===//

static Status query(cudaError_t error, const char *what, bool &done) {
  done = error == cudaSuccess;
  if (error != cudaErrorNotReady)
    return getStatus(error, what);
  cudaGetLastError();
  return {};
}

Status CudaStreams::isDone(const Position &position, bool &done) const {
  cudaEvent_t event =
      streams[position.stream].events[position.number % kEvents];
  return query(cudaEventQuery(event), "cudaEventQuery", done);
}

bool CudaStreams::isEntered(const Position &position) const {
  if (position.entered == 0 || position.entered + kEntries <= numEntered)
    return true;
  bool done;
  Status status = query(cudaEventQuery(entries[position.entered % kEntries]),
                        "cudaEventQuery", done);
  return done || !status.ok();
}

Status CudaStreams::isIdle(bool &idle) const {
  idle = true;
  for (const Stream &stream : streams) {
    bool done;
    ZPP_RT_TRY(query(cudaStreamQuery(stream.handle), "cudaStreamQuery", done));
    idle &= done;
  }
  return {};
}

Status CudaStreams::settle() {
  hazards.clear();
  return resolveTimes();
}

Status CudaStreams::prune() {
  Hazards::Numbers done(streams.size());
  for (size_t stream = 0; stream < streams.size(); ++stream) {
    int64_t last = hazards.getLast(stream);
    // Of the operations whose events are not reused yet.
    for (int64_t number = last; number > 0 && number > last - kEvents;
         number -= kEvents / 8) {
      bool isDone;
      ZPP_RT_TRY(this->isDone({stream, number, 0}, isDone));
      if (isDone) {
        done[stream] = number;
        break;
      }
    }
  }
  hazards.prune(done);
  return {};
}

Status CudaStreams::beginTimed(cudaStream_t handle, Timed &slice) const {
  ZPP_RT_CUDA(cudaEventCreateWithFlags, &slice.begin, cudaEventDefault);
  ZPP_RT_CUDA(cudaEventCreateWithFlags, &slice.end, cudaEventDefault);
  ZPP_RT_CUDA(cudaEventRecord, slice.begin, handle);
  return {};
}

std::string CudaStreams::getLabel(const Hazards::Numbers &numbers) const {
  for (auto it = timed.rbegin(); it != timed.rend(); ++it)
    if (it->number > 0 && it->number == numbers[it->stream])
      return it->label;
  return "";
}

Status CudaStreams::resolveTimes() {
  std::vector<Timed> pending;
  for (Timed &slice : timed) {
    bool isDone;
    ZPP_RT_TRY(query(cudaEventQuery(slice.end), "cudaEventQuery", isDone));
    if (!isDone) {
      pending.push_back(std::move(slice));
      continue;
    }
    float begin = 0, end = 0;
    ZPP_RT_CUDA(cudaEventElapsedTime, &begin, origin, slice.begin);
    ZPP_RT_CUDA(cudaEventElapsedTime, &end, origin, slice.end);
    auto at = [&](float milliseconds) {
      return originTime +
             std::chrono::duration_cast<Trace::Clock::duration>(
                 std::chrono::duration<double, std::milli>(milliseconds));
    };
    trace->add({rank, slice.row, slice.label, slice.kind,
                slice.footprint.inputBytes, slice.footprint.outputBytes,
                at(begin), at(end)});
    cudaEventDestroy(slice.begin);
    cudaEventDestroy(slice.end);
  }
  timed = std::move(pending);
  return {};
}
