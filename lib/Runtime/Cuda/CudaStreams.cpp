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
  // There may be none.
  std::string where;
  if (int device; cudaGetDevice(&device) == cudaSuccess)
    where = " on GPU " + std::to_string(device);
  cudaGetLastError();
  zpp_rt_status code = error == cudaErrorMemoryAllocation ? ZPP_RT_OUT_OF_MEMORY
                                                          : ZPP_RT_SYSTEM_ERROR;
  return {code, what + where + ": " + cudaGetErrorString(error) + " (" +
                    cudaGetErrorName(error) + ")"};
}

//===----------------------------------------------------------------------===//
// Marks
//===----------------------------------------------------------------------===//

/// Creates events and reuses them. From any thread.
class CudaStreams::Pool : public std::enable_shared_from_this<Pool> {
public:
  ~Pool() {
    for (cudaEvent_t event : events)
      cudaEventDestroy(event);
  }

  /// The event returns to the pool when its last owner goes.
  Status take(Event &event) {
    cudaEvent_t handle = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!events.empty()) {
        handle = events.back();
        events.pop_back();
      }
    }
    if (!handle)
      ZPP_RT_CUDA(cudaEventCreateWithFlags, &handle, cudaEventDisableTiming);
    event = Event(handle, [pool = shared_from_this()](cudaEvent_t handle) {
      std::lock_guard<std::mutex> lock(pool->mutex);
      pool->events.push_back(handle);
    });
    return {};
  }

private:
  std::mutex mutex;
  std::vector<cudaEvent_t> events;
};

/// The work on a stream at some moment.
struct CudaStreams::StreamMark final : Mark {
  cudaStream_t stream;
  unsigned long long capture;
  Event event;
};

/// The ends of those operations after which all others have ended.
struct CudaStreams::OperationsMark final : Mark {
  std::vector<Event> events;
  /// The label of the operation that was called last, if it is traced.
  std::string label;
};

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

CudaStreams::CudaStreams(int64_t rank, Trace *trace, size_t numStreams)
    : rank(rank), trace(trace), hazards(numStreams),
      pool(std::make_shared<Pool>()) {}

Status CudaStreams::create(int64_t rank, std::vector<std::string> names,
                           Trace *trace, std::unique_ptr<CudaStreams> &result) {
  std::unique_ptr<CudaStreams> self(new CudaStreams(rank, trace, names.size()));
  // A higher priority than compute has: hops are short, and others wait for
  // them.
  int least, greatest;
  ZPP_RT_CUDA(cudaDeviceGetStreamPriorityRange, &least, &greatest);
  for (std::string &name : names) {
    Stream &stream = self->streams.emplace_back();
    stream.name = std::move(name);
    ZPP_RT_CUDA(cudaStreamCreateWithPriority, &stream.handle,
                cudaStreamNonBlocking, greatest);
    for (Event &event : stream.events)
      ZPP_RT_TRY(self->pool->take(event));
  }
  if (trace)
    ZPP_RT_CUDA(cudaStreamCreateWithFlags, &self->clockStream,
                cudaStreamNonBlocking);
  result = std::move(self);
  return {};
}

CudaStreams::~CudaStreams() {
  for (const std::vector<Timed> &list : {timed, stalls})
    for (const Timed &slice : list) {
      cudaEventDestroy(slice.begin);
      cudaEventDestroy(slice.end);
    }
  for (Stream &stream : streams)
    if (stream.handle)
      cudaStreamDestroy(stream.handle);
  if (clockStream)
    cudaStreamDestroy(clockStream);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

Status CudaStreams::join(size_t stream) {
  Stream &self = streams[stream];
  if (self.entered == numEntered)
    return {};
  self.entered = numEntered;
  ZPP_RT_CUDA(cudaStreamWaitEvent, self.handle,
              entries[numEntered % kEntries].get(), 0);
  return {};
}

Status CudaStreams::begin(size_t stream, const Accesses &accesses,
                          const Hazards::Conflicts &conflicts) {
  if (hazards.size() > pruneAbove && captureId == 0)
    ZPP_RT_TRY(prune());
  Hazards::Numbers waits = hazards.add(stream, accesses, conflicts);
  // An operation that waited for the caller's stream stands for it.
  if (areEntered(waits))
    streams[stream].entered = numEntered;
  ZPP_RT_TRY(join(stream));
  ZPP_RT_TRY(waitFor(stream, waits));
  isTimed = trace && trace->isRecording() && captureId == 0;
  if (isTimed)
    ZPP_RT_TRY(beginTimed(streams[stream].handle, timed.emplace_back()));
  return {};
}

Status CudaStreams::extend(size_t stream, const Accesses &accesses,
                           const Hazards::Conflicts &conflicts) {
  return waitFor(stream, hazards.extend(stream, accesses, conflicts));
}

Hazards::Numbers CudaStreams::getLast() const {
  Hazards::Numbers numbers{};
  for (size_t stream = 0; stream < streams.size(); ++stream)
    numbers[stream] = hazards.getLast(stream);
  return numbers;
}

Hazards::Numbers CudaStreams::getLastBeforeEntry() const {
  Hazards::Numbers numbers{};
  for (size_t stream = 0; stream < streams.size(); ++stream)
    numbers[stream] = streams[stream].lastBefore;
  return numbers;
}

bool CudaStreams::areEntered(const Hazards::Numbers &numbers) const {
  for (size_t stream = 0; stream < streams.size(); ++stream)
    if (numbers[stream] > streams[stream].lastBefore)
      return true;
  return false;
}

Status CudaStreams::waitFor(size_t stream, const Hazards::Numbers &numbers) {
  for (size_t other = 0; other < streams.size(); ++other)
    if (numbers[other] > 0)
      ZPP_RT_CUDA(cudaStreamWaitEvent, streams[stream].handle,
                  getEvent(other, numbers[other]).get(), 0);
  return {};
}

Status CudaStreams::end(size_t stream, const Slice &slice) {
  Stream &self = streams[stream];
  if (isTimed) {
    Timed &last = timed.back();
    std::string label = slice.name.label + slice.suffix;
    if (slice.others > 0)
      label += " and " + std::to_string(slice.others) + " more";
    last.slice = {rank,
                  self.name,
                  std::move(label),
                  slice.name.kind,
                  slice.name.along,
                  slice.footprint.bytesRead(),
                  slice.footprint.output.span()};
    last.stream = stream;
    last.number = hazards.getLast(stream);
    ZPP_RT_CUDA(cudaEventRecord, last.end, self.handle);
    if (timed.size() >= kMaxTimed)
      ZPP_RT_TRY(resolveTimes(timed));
  }
  Event &event = self.events[hazards.getLast(stream) % kEvents];
  if (event.use_count() > 1)
    ZPP_RT_TRY(pool->take(event));
  ZPP_RT_CUDA(cudaEventRecord, event.get(), self.handle);
  return {};
}

//===----------------------------------------------------------------------===//
// The caller's streams
//===----------------------------------------------------------------------===//

/// Returns the id of the capture that `stream` is part of; 0 for none.
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

void CudaStreams::leaveCapture() {
  // Events of a graph mean nothing outside of it, and older events mean nothing
  // inside.
  hazards.clear();
  captureId = 0;
  for (size_t stream = 0; stream < streams.size(); ++stream) {
    Stream &self = streams[stream];
    self.entered = numEntered;
    if (self.firstCaptured > 0)
      self.lastCaptured = hazards.getLast(stream);
    self.firstCaptured = 0;
  }
}

Status CudaStreams::markStream(cudaStream_t other,
                               std::unique_ptr<Mark> &mark) {
  auto self = std::make_unique<StreamMark>();
  self->stream = other;
  self->capture = getCapture(other);
  ZPP_RT_TRY(pool->take(self->event));
  ZPP_RT_CUDA(cudaEventRecord, self->event.get(), other);
  mark = std::move(self);
  return {};
}

Status CudaStreams::enter(const Mark &given) {
  const auto &mark = static_cast<const StreamMark &>(given);
  if (mark.capture != captureId) {
    leaveCapture();
    captureId = mark.capture;
    for (size_t stream = 0; stream < streams.size(); ++stream)
      streams[stream].firstCaptured = hazards.getLast(stream) + 1;
  } else if (numEntered > 0 && mark.stream != lastEntered && captureId == 0) {
    // Operations must come after the work on both streams.
    for (size_t stream = 0; stream < streams.size(); ++stream)
      ZPP_RT_TRY(join(stream));
  }
  lastEntered = mark.stream;
  for (size_t stream = 0; stream < streams.size(); ++stream)
    streams[stream].lastBefore = hazards.getLast(stream);
  {
    std::lock_guard<std::mutex> lock(entriesMutex);
    entries[(numEntered + 1) % kEntries] = mark.event;
    ++numEntered;
  }
  if (captureId != 0)
    ZPP_RT_TRY(join(0));
  return {};
}

std::unique_ptr<Mark> CudaStreams::markOperations(const Accesses &accesses) {
  auto mark = std::make_unique<OperationsMark>();
  Hazards::Numbers numbers = hazards.reduce(find(accesses).operations);
  bool capturing = isCapturing();
  for (size_t stream = 0; stream < streams.size(); ++stream) {
    // A graph must end with all streams joined, whatever they touch.
    if (capturing && hazards.getLast(stream) >= streams[stream].firstCaptured)
      numbers[stream] = hazards.getLast(stream);
    if (numbers[stream] > 0)
      mark->events.push_back(getEvent(stream, numbers[stream]));
  }
  for (auto it = timed.rbegin(); it != timed.rend() && mark->label.empty();
       ++it)
    if (it->number == numbers[it->stream])
      mark->label = it->slice.name;
  return mark;
}

Status CudaStreams::leave(cudaStream_t other, const Mark &given) {
  const auto &mark = static_cast<const OperationsMark &>(given);
  bool isStall = !mark.label.empty() && getCapture(other) == 0;
  Timed stall{};
  stall.slice = {rank, "stalls", mark.label, "stall", "", 0, 0};
  if (isStall)
    ZPP_RT_TRY(beginTimed(other, stall));
  for (const Event &event : mark.events)
    ZPP_RT_CUDA(cudaStreamWaitEvent, other, event.get(), 0);
  if (isStall) {
    ZPP_RT_CUDA(cudaEventRecord, stall.end, other);
    std::lock_guard<std::mutex> lock(stallsMutex);
    stalls.push_back(std::move(stall));
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

static Status queryEvent(cudaEvent_t event, bool &done) {
  return query(cudaEventQuery(event), "cudaEventQuery", done);
}

Status CudaStreams::isDone(const Position &position, bool &done) const {
  return queryEvent(position.event.get(), done);
}

bool CudaStreams::isEntered(const Position &position) const {
  if (position.entered == 0 || position.entered + kEntries <= numEntered)
    return true;
  Event event;
  {
    std::lock_guard<std::mutex> lock(entriesMutex);
    event = entries[position.entered % kEntries];
  }
  bool done;
  Status status = queryEvent(event.get(), done);
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
  pruneAbove = kMaxSegments;
  ZPP_RT_TRY(resolveTimes(timed));
  std::lock_guard<std::mutex> lock(stallsMutex);
  return resolveTimes(stalls);
}

Status CudaStreams::prune() {
  Hazards::Numbers done{};
  for (size_t stream = 0; stream < streams.size(); ++stream) {
    int64_t last = hazards.getLast(stream);
    done[stream] = streams[stream].lastCaptured;
    // Only these operations have events that were not reused.
    for (int64_t number = last;
         number > done[stream] && number > last - kEvents;
         number -= kEvents / 8) {
      bool isDone;
      ZPP_RT_TRY(queryEvent(getEvent(stream, number).get(), isDone));
      if (isDone) {
        done[stream] = number;
        break;
      }
    }
  }
  hazards.prune(done);
  pruneAbove = std::max(kMaxSegments, 2 * hazards.size());
  return {};
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

/// How old an anchor may be that events are compared with, and how old an
/// anchor that a new one is compared with. For longer times the host's clock is
/// more precise.
static constexpr std::chrono::seconds kAnchorAge{1};
static constexpr std::chrono::seconds kMaxAnchorAge{10};

static Trace::Clock::duration toDuration(float milliseconds) {
  return std::chrono::duration_cast<Trace::Clock::duration>(
      std::chrono::duration<double, std::milli>(milliseconds));
}

struct CudaStreams::Anchor {
  ~Anchor() { cudaEventDestroy(event); }
  cudaEvent_t event = nullptr;
  Trace::Clock::time_point time;
  /// The value of Trace::getRecording().
  int64_t recording = 0;

  /// When `other` was recorded, a short time before or after.
  Status getTime(cudaEvent_t other, Trace::Clock::time_point &result) const {
    float elapsed;
    ZPP_RT_CUDA(cudaEventElapsedTime, &elapsed, event, other);
    result = time + toDuration(elapsed);
    return {};
  }
};

namespace {
/// Lets this thread wait while others capture graphs.
class RelaxedCapture {
public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode); }
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
};
} // namespace

Status CudaStreams::getAnchor(std::shared_ptr<const Anchor> &result) {
  std::lock_guard<std::mutex> lock(anchorMutex);
  int64_t recording = trace->getRecording();
  bool isSameRecording = lastAnchor && lastAnchor->recording == recording;
  Trace::Clock::duration age{};
  if (isSameRecording)
    age = Trace::Clock::now() - lastAnchor->time;
  if (!isSameRecording || age > kAnchorAge) {
    RelaxedCapture relaxed;
    auto anchor = std::make_shared<Anchor>();
    anchor->recording = recording;
    ZPP_RT_CUDA(cudaEventCreateWithFlags, &anchor->event, cudaEventDefault);
    ZPP_RT_CUDA(cudaEventRecord, anchor->event, clockStream);
    ZPP_RT_CUDA(cudaEventSynchronize, anchor->event);
    anchor->time = Trace::Clock::now();
    // The device's clock is preferred, so that slices before and after an
    // anchor fit together.
    if (isSameRecording && age < kMaxAnchorAge)
      ZPP_RT_TRY(lastAnchor->getTime(anchor->event, anchor->time));
    lastAnchor = std::move(anchor);
  }
  result = lastAnchor;
  return {};
}

Status CudaStreams::beginTimed(cudaStream_t handle, Timed &timed) {
  ZPP_RT_TRY(getAnchor(timed.anchor));
  ZPP_RT_CUDA(cudaEventCreateWithFlags, &timed.begin, cudaEventDefault);
  ZPP_RT_CUDA(cudaEventCreateWithFlags, &timed.end, cudaEventDefault);
  ZPP_RT_CUDA(cudaEventRecord, timed.begin, handle);
  return {};
}

Status CudaStreams::resolveTimes(std::vector<Timed> &timed) {
  std::vector<Timed> pending;
  for (Timed &each : timed) {
    bool isDone;
    ZPP_RT_TRY(queryEvent(each.end, isDone));
    if (!isDone) {
      pending.push_back(std::move(each));
      continue;
    }
    ZPP_RT_TRY(each.anchor->getTime(each.begin, each.slice.begin));
    float duration;
    ZPP_RT_CUDA(cudaEventElapsedTime, &duration, each.begin, each.end);
    each.slice.end = each.slice.begin + toDuration(duration);
    trace->add(std::move(each.slice));
    cudaEventDestroy(each.begin);
    cudaEventDestroy(each.end);
  }
  timed = std::move(pending);
  return {};
}
