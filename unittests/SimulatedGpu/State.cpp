//===- State.cpp - Memory, streams and events of the simulator ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

using namespace zpp::simulated;

static int64_t readEnvironment(const char *name, int64_t otherwise) {
  const char *text = std::getenv(name);
  return text && *text ? std::atoll(text) : otherwise;
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

static constexpr int64_t kDefaultMemoryLimit = INT64_C(4) << 30;
/// Address space, of which a process uses a part, each address once.
static constexpr int64_t kAddressesPerDevice = INT64_C(64) << 30;
static constexpr int64_t kPageBytes = 4096;
/// The alignment that cudaMalloc promises, and no more.
static constexpr int64_t kAlignment = 256;
/// Shows as NaN in every element type.
static constexpr int kPoison = 0xff;
/// The exit status of a process with errors that no test has taken.
static constexpr int kErrorStatus = 86;

static thread_local Clock threadClock;

int &zpp::simulated::currentDevice() {
  static thread_local int device = 0;
  return device;
}

State &State::get() {
  static State *state = new State;
  return *state;
}

static void reserve(Device &device) {
  auto map = [](int protection) {
    void *address = mmap(nullptr, kAddressesPerDevice, protection,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
      std::perror("simulated GPU: mmap");
      std::abort();
    }
    return address;
  };
  device.base = reinterpret_cast<uintptr_t>(map(PROT_NONE));
  device.memory = static_cast<uint8_t *>(map(PROT_READ | PROT_WRITE));
}

State::State() {
  devices.resize(readEnvironment("ZPP_SIMULATED_GPUS", 8));
  for (Device &device : devices)
    reserve(device);
  resetFaults();
  std::atexit([] {
    // Threads of streams may go on and report more.
    bool isBad;
    {
      Guard guard(State::get().mutex);
      isBad = !State::get().errors.empty();
    }
    if (isBad)
      _exit(kErrorStatus);
  });
}

void State::resetFaults() {
  faults.clear();
  memoryLimit = kDefaultMemoryLimit;
  ncclErrors.clear();
  ncclInitHangs = false;
  delayUsec = readEnvironment("ZPP_SIMULATED_DELAY_USEC", 0);
  random.seed(readEnvironment("ZPP_SIMULATED_SEED", 1));
  for (Device &device : devices)
    device.error = cudaSuccess;
  // A device that comes back has lost its memory.
  for (auto &[begin, allocation] : allocations)
    if (allocation.device >= 0 && devices[allocation.device].isLost)
      allocation.isFreed = true;
  for (Device &device : devices)
    if (std::exchange(device.isLost, false))
      device.allocated = 0;
}

void State::report(std::string message) {
  std::fprintf(stderr, "simulated GPU: %s\n", message.c_str());
  errors.push_back(std::move(message));
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static int64_t alignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

cudaError_t State::allocate(int index, int64_t bytes, void *&data) {
  data = nullptr;
  Device &device = devices[index];
  if (bytes == 0)
    return cudaSuccess;
  if (bytes < 0 || bytes > memoryLimit - device.allocated)
    return cudaErrorMemoryAllocation;
  int64_t pages = alignUp(kAlignment + bytes, kPageBytes);
  if (pages > kAddressesPerDevice - device.reserved) {
    report("used up the addresses of device " + std::to_string(index));
    return cudaErrorMemoryAllocation;
  }
  // Not at the beginning of a page, so that nobody relies on such an alignment.
  Allocation allocation;
  allocation.begin = device.base + device.reserved + kAlignment;
  allocation.bytes = bytes;
  allocation.device = index;
  std::memset(device.memory + device.reserved + kAlignment, kPoison, bytes);
  device.reserved += pages;
  device.allocated += bytes;
  data = reinterpret_cast<void *>(allocation.begin);
  allocations[allocation.begin] = std::move(allocation);
  return cudaSuccess;
}

cudaError_t State::allocateHost(int64_t bytes, void *&data) {
  data = nullptr;
  if (bytes == 0)
    return cudaSuccess;
  if (bytes < 0 || bytes > memoryLimit)
    return cudaErrorMemoryAllocation;
  data = std::aligned_alloc(kAlignment, alignUp(bytes, kAlignment));
  if (!data)
    return cudaErrorMemoryAllocation;
  std::memset(data, kPoison, bytes);
  Allocation allocation;
  allocation.begin = reinterpret_cast<uintptr_t>(data);
  allocation.bytes = bytes;
  allocations[allocation.begin] = std::move(allocation);
  return cudaSuccess;
}

Allocation *State::find(const void *data) {
  auto address = reinterpret_cast<uintptr_t>(data);
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin())
    return nullptr;
  Allocation &allocation = std::prev(it)->second;
  return address < allocation.end() ? &allocation : nullptr;
}

uint8_t *State::translate(const void *data) {
  auto address = reinterpret_cast<uintptr_t>(data);
  for (const Device &device : devices)
    if (address >= device.base && address - device.base < kAddressesPerDevice)
      return device.memory + (address - device.base);
  return static_cast<uint8_t *>(const_cast<void *>(data));
}

void State::release(Allocation &allocation) {
  if (allocation.device < 0) {
    std::free(reinterpret_cast<void *>(allocation.begin));
    allocations.erase(allocation.begin);
    return;
  }
  Device &device = devices[allocation.device];
  uint8_t *page = device.memory + (allocation.begin - device.base) - kAlignment;
  madvise(page, alignUp(kAlignment + allocation.bytes, kPageBytes),
          MADV_DONTNEED);
}

/// "bytes [0, 16) of 64 on device 0"
std::string State::describe(const Access &access) {
  auto begin = reinterpret_cast<uintptr_t>(access.data);
  const Allocation *allocation = find(access.data);
  char text[160];
  if (!allocation)
    std::snprintf(text, sizeof(text), "%lld bytes at %p",
                  static_cast<long long>(access.bytes), access.data);
  else
    std::snprintf(
        text, sizeof(text), "bytes [%lld, %lld) of %lld on %s at %p",
        static_cast<long long>(begin - allocation->begin),
        static_cast<long long>(begin - allocation->begin + access.bytes),
        static_cast<long long>(allocation->bytes),
        allocation->device < 0
            ? "the host"
            : ("device " + std::to_string(allocation->device)).c_str(),
        reinterpret_cast<void *>(allocation->begin));
  return text;
}

std::string State::checkMemory(const Task &task, int device) {
  for (const Access &access : task.accesses) {
    if (access.bytes == 0)
      continue;
    const char *verb = access.isWrite ? " writes " : " reads ";
    auto begin = reinterpret_cast<uintptr_t>(access.data);
    const Allocation *allocation = find(access.data);
    std::string problem;
    if (!allocation) {
      bool isDevice = translate(access.data) != access.data;
      if (task.kind == Task::Copy && !isDevice)
        continue;
      problem = isDevice ? ", which nobody allocated"
                         : ", which is memory of the host";
    } else if (allocation->isFreed) {
      problem = ", which is freed";
    } else if (allocation->end() - begin < static_cast<uintptr_t>(access.bytes))
      problem = ", past the end";
    else if (task.kind == Task::Kernel && allocation->device >= 0 &&
             allocation->device != device)
      problem = ", but runs on device " + std::to_string(device);
    if (!problem.empty())
      return task.name + verb + describe(access) + problem;
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

Clock State::getHostClock() {
  Clock clock = threadClock;
  clock.join(hostClock);
  return clock;
}

void State::joinHost(const Clock &clock, bool hasWaited) {
  threadClock.join(clock);
  if (hasWaited)
    hostClock.join(clock);
}

void State::checkOrder(const Task &task, const Stream &stream,
                       const Clock &clock, Capture *capture) {
  auto name = std::make_shared<const std::string>(task.name + " on " +
                                                  stream.describe());
  bool isReported = false;
  for (const Access &access : task.accesses) {
    Allocation *allocation = access.bytes ? find(access.data) : nullptr;
    // The simulator does not see what the host does with its own memory.
    if (!allocation)
      continue;
    History &history =
        capture ? capture->histories[allocation->begin] : allocation->history;
    Record record{reinterpret_cast<uintptr_t>(access.data),
                  reinterpret_cast<uintptr_t>(access.data) + access.bytes,
                  access.isWrite,
                  stream.lane,
                  clock.get(stream.lane),
                  name};
    auto isObsolete = [&](const Record &other) {
      if (!capture && other.tick <= hostClock.get(other.lane))
        return true;
      bool isOrdered = other.tick <= clock.get(other.lane);
      bool overlaps = other.begin < record.end && record.begin < other.end;
      if (overlaps && !isOrdered && (other.isWrite || record.isWrite) &&
          !isReported) {
        report(
            "race: " + *name + (record.isWrite ? " writes " : " reads ") +
            describe(access) + ", and nothing orders it after " + *other.name +
            ", which " + (other.isWrite ? "writes " : "reads ") +
            describe({reinterpret_cast<const void *>(other.begin),
                      static_cast<int64_t>(other.end - other.begin), false}));
        isReported = true;
      }
      // Work that comes after this one also comes after the other.
      return isOrdered && record.begin <= other.begin &&
             other.end <= record.end &&
             (record.isWrite || (!other.isWrite && other.lane == record.lane));
    };
    history.erase(std::remove_if(history.begin(), history.end(), isObsolete),
                  history.end());
    history.push_back(std::move(record));
  }
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

std::string Stream::describe() const {
  return (id == 0 ? "the default stream" : "stream " + std::to_string(id)) +
         " of device " + std::to_string(device);
}

std::shared_ptr<Stream> State::createStream(int device, bool isBlocking) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->isBlocking = isBlocking;
  if (freeLanes.empty()) {
    stream->lane = laneTicks.size();
    laneTicks.push_back(0);
  } else {
    stream->lane = freeLanes.back();
    freeLanes.pop_back();
  }
  stream->id = nextHandle++;
  streams[stream->id] = stream;
  std::thread([this, stream] { runStream(stream); }).detach();
  return stream;
}

std::shared_ptr<Stream> State::find(cudaStream_t handle) {
  if (!handle || handle == cudaStreamLegacy) {
    int device = currentDevice();
    std::shared_ptr<Stream> &stream = devices[device].defaultStream;
    if (!stream) {
      stream = createStream(device, /*isBlocking=*/true);
      streams.erase(stream->id);
      stream->id = 0;
    }
    return stream;
  }
  auto it = streams.find(idOf(handle));
  if (it == streams.end() || it->second->isDestroyed) {
    report("use of a stream that is destroyed or never was");
    return nullptr;
  }
  return it->second;
}

void State::destroyStream(cudaStream_t handle) {
  Stream &stream = *streams[idOf(handle)];
  stream.isDestroyed = true;
  stream.changed.notify_all();
}

void State::runStream(std::shared_ptr<Stream> stream) {
  Guard guard(mutex);
  while (true) {
    stream->changed.wait(
        guard, [&] { return !stream->queue.empty() || stream->isDestroyed; });
    if (stream->queue.empty())
      break;
    std::shared_ptr<Item> item = stream->queue.front();
    for (const std::shared_ptr<Item> &other : item->waitsFor)
      while (!other->isDone) {
        other->streams.push_back(stream.get());
        stream->changed.wait(guard);
      }
    item->waitsFor.clear();
    if (item->run && devices[stream->device].error == cudaSuccess) {
      guard.unlock();
      delay();
      item->run();
      item->run = nullptr;
      guard.lock();
    }
    item->isDone = true;
    item->time = std::chrono::steady_clock::now() + clockOffset;
    stream->queue.pop_front();
    for (Stream *other : item->streams)
      other->changed.notify_all();
    item->streams.clear();
    if (item->hostThreads > 0)
      done.notify_all();
  }
  streams.erase(stream->id);
  freeLanes.push_back(stream->lane);
}

std::shared_ptr<Item> State::enqueue(Stream &stream,
                                     std::shared_ptr<Item> item) {
  if (stream.queue.empty())
    stream.changed.notify_all();
  stream.queue.push_back(item);
  stream.last = item;
  return item;
}

/// The next point of the stream's lane, after what the host has seen, and for
/// streams that the default stream waits for, after those; `item` waits for
/// them.
static void advance(State &state, Stream &stream, Item &item, uint64_t &tick) {
  auto follow = [&](const Stream &other) {
    if (&other == &stream || !other.last)
      return;
    stream.clock.join(other.clock);
    if (!other.last->isDone)
      item.waitsFor.push_back(other.last);
  };
  const std::shared_ptr<Stream> &defaultStream =
      state.devices[stream.device].defaultStream;
  if (stream.id == 0) {
    for (auto &[id, other] : state.streams)
      if (other->isBlocking && other->device == stream.device)
        follow(*other);
  } else if (stream.isBlocking && defaultStream) {
    follow(*defaultStream);
  }
  stream.clock.join(state.getHostClock());
  stream.clock.set(stream.lane, ++tick);
}

cudaError_t State::submit(Stream &stream, Task task,
                          std::shared_ptr<Item> *result) {
  if (result)
    result->reset();
  if (std::string problem = checkMemory(task, stream.device);
      !problem.empty()) {
    report(problem);
    if (task.kind == Task::Copy)
      return cudaErrorInvalidValue;
    // The device is lost from now on; the launch itself does not tell.
    devices[stream.device].error = cudaErrorIllegalAddress;
    return cudaSuccess;
  }
  if (stream.capture) {
    if (stream.capture->isInvalid)
      return cudaErrorStreamCaptureInvalidated;
    stream.captureClock.set(stream.lane,
                            stream.captureClock.get(stream.lane) + 1);
    checkOrder(task, stream, stream.captureClock, stream.capture.get());
    stream.capture->graph.nodes.push_back({std::move(task), nullptr});
    return cudaSuccess;
  }
  if (stream.id == 0)
    for (auto &[id, other] : streams)
      if (other->isBlocking && other->capture &&
          other->device == stream.device) {
        other->capture->isInvalid = true;
        return cudaErrorStreamCaptureImplicit;
      }
  auto item = std::make_shared<Item>();
  advance(*this, stream, *item, laneTicks[stream.lane]);
  checkOrder(task, stream, stream.clock, nullptr);
  item->run = std::move(task.run);
  enqueue(stream, item);
  if (result)
    *result = item;
  return cudaSuccess;
}

cudaError_t State::record(Stream &stream, const std::shared_ptr<Event> &event,
                          bool isExternal) {
  if (stream.capture) {
    if (stream.capture->isInvalid)
      return cudaErrorStreamCaptureInvalidated;
    if (isExternal) {
      stream.capture->graph.nodes.push_back({{}, event});
      return cudaSuccess;
    }
    event->capture = stream.capture;
    event->clock = stream.captureClock;
    event->item = nullptr;
    return cudaSuccess;
  }
  auto item = std::make_shared<Item>();
  advance(*this, stream, *item, laneTicks[stream.lane]);
  event->capture = nullptr;
  event->clock = stream.clock;
  event->item = enqueue(stream, item);
  return cudaSuccess;
}

cudaError_t State::waitEvent(const std::shared_ptr<Stream> &stream,
                             Event &event, bool isExternal) {
  if (event.capture) {
    Capture &capture = *event.capture;
    if (capture.isEnded)
      return cudaErrorCapturedEvent;
    if (capture.isInvalid)
      return cudaErrorStreamCaptureInvalidated;
    if (stream->capture && stream->capture != event.capture) {
      stream->capture->isInvalid = capture.isInvalid = true;
      return cudaErrorStreamCaptureMerge;
    }
    if (stream->id == 0) {
      capture.isInvalid = true;
      return cudaErrorStreamCaptureImplicit;
    }
    if (!stream->capture) {
      stream->capture = event.capture;
      stream->captureClock = Clock();
      capture.streams.insert(stream);
    }
    stream->captureClock.join(event.clock);
    return cudaSuccess;
  }
  if (stream->capture) {
    if (stream->capture->isInvalid)
      return cudaErrorStreamCaptureInvalidated;
    stream->capture->isInvalid = true;
    return isExternal ? cudaErrorStreamCaptureUnsupported
                      : cudaErrorStreamCaptureIsolation;
  }
  if (!event.item)
    return cudaSuccess;
  auto item = std::make_shared<Item>();
  advance(*this, *stream, *item, laneTicks[stream->lane]);
  stream->clock.join(event.clock);
  if (!event.item->isDone)
    item->waitsFor.push_back(event.item);
  enqueue(*stream, item);
  return cudaSuccess;
}

void State::wait(Guard &guard, const std::shared_ptr<Item> &item) {
  ++item->hostThreads;
  done.wait(guard, [&] { return item->isDone; });
  --item->hostThreads;
}

void State::waitDevice(Guard &guard, int device) {
  std::vector<std::shared_ptr<Item>> items;
  Clock clock;
  auto add = [&](const Stream &stream) {
    if (!stream.last)
      return;
    items.push_back(stream.last);
    clock.join(stream.clock);
  };
  if (devices[device].defaultStream)
    add(*devices[device].defaultStream);
  for (auto &[id, stream] : streams)
    if (stream->device == device)
      add(*stream);
  for (const std::shared_ptr<Item> &item : items)
    wait(guard, item);
  joinHost(clock, /*hasWaited=*/true);
}

//===----------------------------------------------------------------------===//
// Captures
//===----------------------------------------------------------------------===//

cudaError_t State::beginCapture(const std::shared_ptr<Stream> &stream,
                                cudaStreamCaptureMode mode) {
  if (stream->id == 0)
    return cudaErrorStreamCaptureUnsupported;
  if (stream->capture)
    return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = nextCapture++;
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams.insert(stream);
  stream->capture = capture;
  stream->captureClock = Clock();
  captures.push_back(capture);
  return cudaSuccess;
}

cudaError_t State::endCapture(Stream &stream, Graph &graph) {
  std::shared_ptr<Capture> capture = stream.capture;
  if (!capture)
    return cudaErrorIllegalState;
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  if (capture->origin != &stream) {
    capture->isInvalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  cudaError_t error =
      capture->isInvalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  for (const std::shared_ptr<Stream> &other : capture->streams)
    if (error == cudaSuccess && other->captureClock.get(other->lane) >
                                    stream.captureClock.get(other->lane))
      error = cudaErrorStreamCaptureUnjoined;
  capture->isEnded = true;
  auto streamsOfCapture = std::move(capture->streams);
  for (const std::shared_ptr<Stream> &other : streamsOfCapture)
    other->capture = nullptr;
  // Events may keep the capture.
  Graph captured = std::move(capture->graph);
  capture->histories.clear();
  if (error == cudaSuccess)
    graph = std::move(captured);
  return error;
}

cudaError_t State::checkUnsafe(cudaStreamCaptureMode threadMode) {
  cudaError_t error = cudaSuccess;
  captures.erase(std::remove_if(captures.begin(), captures.end(),
                                [](const std::weak_ptr<Capture> &weak) {
                                  auto capture = weak.lock();
                                  return !capture || capture->isEnded;
                                }),
                 captures.end());
  if (threadMode == cudaStreamCaptureModeRelaxed)
    return cudaSuccess;
  for (const std::weak_ptr<Capture> &weak : captures) {
    auto capture = weak.lock();
    if (capture->mode == cudaStreamCaptureModeRelaxed)
      continue;
    bool isOwn = capture->thread == std::this_thread::get_id();
    if (!isOwn && (threadMode == cudaStreamCaptureModeThreadLocal ||
                   capture->mode != cudaStreamCaptureModeGlobal))
      continue;
    capture->isInvalid = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t State::launch(Stream &stream, const Graph &graph) {
  for (const Node &node : graph.nodes) {
    cudaError_t error = node.event ? record(stream, node.event, true)
                                   : submit(stream, node.task);
    if (error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

//===----------------------------------------------------------------------===//
// Simulator.h
//===----------------------------------------------------------------------===//

std::vector<std::string> zpp::simulated::takeErrors() {
  State &state = State::get();
  Guard guard(state.mutex);
  return std::exchange(state.errors, {});
}

void zpp::simulated::reportError(const std::string &message) {
  State &state = State::get();
  Guard guard(state.mutex);
  state.report(message);
}

cudaError_t zpp::simulated::submit(cudaStream_t handle, Task task) {
  State &state = State::get();
  Guard guard(state.mutex);
  std::shared_ptr<Stream> stream = state.find(handle);
  // A kernel belongs to the current device.
  if (!stream ||
      (task.kind == Task::Kernel && stream->device != currentDevice()))
    return cudaErrorInvalidResourceHandle;
  if (cudaError_t error = state.devices[stream->device].error)
    return error;
  return state.submit(*stream, std::move(task));
}

void zpp::simulated::loadKernels() {
  State &state = State::get();
  Guard guard(state.mutex);
  if (!std::exchange(state.devices[currentDevice()].hasKernels, true))
    state.waitDevice(guard, currentDevice());
}

uint8_t *zpp::simulated::at(void *data) { return State::get().translate(data); }
const uint8_t *zpp::simulated::at(const void *data) {
  return State::get().translate(data);
}

bool zpp::simulated::hasFailed(int device) {
  State &state = State::get();
  Guard guard(state.mutex);
  return state.devices[device].error != cudaSuccess;
}

void zpp::simulated::failCall(const std::string &function, int64_t n, int error,
                              int device) {
  State &state = State::get();
  Guard guard(state.mutex);
  state.faults.push_back({function, n, error, device});
}

int64_t zpp::simulated::getCallCount(const std::string &function) {
  State &state = State::get();
  Guard guard(state.mutex);
  return state.calls[function];
}

void zpp::simulated::setMemoryLimit(int64_t bytes) {
  State &state = State::get();
  Guard guard(state.mutex);
  state.memoryLimit = bytes;
}

int64_t zpp::simulated::getAllocatedBytes(int device) {
  State &state = State::get();
  Guard guard(state.mutex);
  return state.devices[device].allocated;
}

void zpp::simulated::failDevice(int device, cudaError_t error) {
  State &state = State::get();
  Guard guard(state.mutex);
  state.devices[device].error = error;
  state.devices[device].isLost = true;
}

void zpp::simulated::setNcclError(int device, int result) {
  State &state = State::get();
  Guard guard(state.mutex);
  state.ncclErrors[device] = result;
}

void zpp::simulated::setNcclInitHangs(bool hangs) {
  State &state = State::get();
  Guard guard(state.mutex);
  state.ncclInitHangs = hangs;
}

void zpp::simulated::setDelay(int64_t usec, uint64_t seed) {
  State &state = State::get();
  Guard guard(state.mutex);
  state.delayUsec = usec;
  state.random.seed(seed);
}

void zpp::simulated::advanceClock(std::chrono::nanoseconds duration) {
  State &state = State::get();
  Guard guard(state.mutex);
  state.clockOffset += duration;
}

void zpp::simulated::resetFaults() {
  State &state = State::get();
  Guard guard(state.mutex);
  state.resetFaults();
}

int zpp::simulated::countCall(const char *function) {
  State &state = State::get();
  Guard guard(state.mutex);
  ++state.calls[function];
  int error = 0;
  for (State::Fault &fault : state.faults)
    if (fault.calls > 0 && fault.function == function &&
        (fault.device < 0 || fault.device == currentDevice()) &&
        --fault.calls == 0)
      error = fault.error;
  return error;
}

int zpp::simulated::getNcclError(int device) {
  State &state = State::get();
  Guard guard(state.mutex);
  auto it = state.ncclErrors.find(device);
  return it == state.ncclErrors.end() ? 0 : it->second;
}

bool zpp::simulated::ncclInitHangs() {
  State &state = State::get();
  Guard guard(state.mutex);
  return state.ncclInitHangs;
}

void zpp::simulated::delay() {
  State &state = State::get();
  int64_t usec = 0;
  {
    Guard guard(state.mutex);
    if (state.delayUsec > 0)
      usec = state.random() % (state.delayUsec + 1);
  }
  if (usec > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(usec));
}
