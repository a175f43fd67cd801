//===- State.h - Memory, streams and events of the simulator ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_SIMULATEDGPU_STATE_H
#define ZPP_UNITTESTS_SIMULATEDGPU_STATE_H

#include "Simulator.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace zpp::simulated {

using Guard = std::unique_lock<std::mutex>;

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

/// A vector clock: how much of each lane is ordered before something. A lane is
/// a stream; streams that are created later reuse the lanes of destroyed ones.
class Clock {
public:
  uint64_t get(size_t lane) const {
    return lane < ticks.size() ? ticks[lane] : 0;
  }
  void set(size_t lane, uint64_t tick) {
    if (lane >= ticks.size())
      ticks.resize(lane + 1);
    ticks[lane] = tick;
  }
  void join(const Clock &other) {
    if (other.ticks.size() > ticks.size())
      ticks.resize(other.ticks.size());
    for (size_t lane = 0; lane < other.ticks.size(); ++lane)
      ticks[lane] = std::max(ticks[lane], other.ticks[lane]);
  }
  bool covers(const Clock &other) const {
    for (size_t lane = 0; lane < other.ticks.size(); ++lane)
      if (other.ticks[lane] > get(lane))
        return false;
    return true;
  }

private:
  std::vector<uint64_t> ticks;
};

/// A read or write of these bytes.
struct Record {
  uintptr_t begin, end;
  bool isWrite;
  size_t lane;
  uint64_t tick;
  std::shared_ptr<const std::string> name;
};
using History = std::vector<Record>;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

struct Allocation {
  uintptr_t begin = 0;
  int64_t bytes = 0;
  /// -1: pinned memory of the host.
  int device = -1;
  bool isFreed = false;
  History history;

  uintptr_t end() const { return begin + bytes; }
};

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

struct Stream;

/// A task in a queue, or an event's place in it.
struct Item {
  std::function<void()> run;
  std::vector<std::shared_ptr<Item>> waitsFor;
  bool isDone = false;
  std::chrono::steady_clock::time_point time;
  /// To be told when it is done.
  std::vector<Stream *> streams;
  int64_t hostThreads = 0;
};

struct Capture;

struct Stream {
  int64_t id;
  int device;
  /// Ordered with the device's default stream.
  bool isBlocking;
  size_t lane;
  Clock clock;
  std::deque<std::shared_ptr<Item>> queue;
  /// The last one that was queued; may be null.
  std::shared_ptr<Item> last;
  std::condition_variable changed;
  bool isDestroyed = false;
  /// The capture that it is part of, and its clock within that.
  std::shared_ptr<Capture> capture;
  Clock captureClock;

  std::string describe() const;
};

struct Event {
  int device;
  bool hasTiming;
  /// Null: never recorded.
  std::shared_ptr<Item> item;
  Clock clock;
  /// The capture in which it was recorded, if any.
  std::shared_ptr<Capture> capture;
};

/// The tasks that a launch of a graph queues, in this order.
struct Node {
  Task task;
  /// Recorded instead, outside of the graph.
  std::shared_ptr<Event> event;
};

struct Graph {
  std::vector<Node> nodes;
};

struct Capture {
  int64_t id;
  Stream *origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool isInvalid = false;
  bool isEnded = false;
  std::set<std::shared_ptr<Stream>> streams;
  Graph graph;
  std::map<uintptr_t, History> histories;
};

struct Device {
  /// The addresses that programs see, and where the memory is.
  uintptr_t base = 0;
  uint8_t *memory = nullptr;
  int64_t reserved = 0;
  int64_t allocated = 0;
  std::shared_ptr<Stream> defaultStream;
  bool hasKernels = false;
  /// The result of all calls once the device has failed.
  cudaError_t error = cudaSuccess;
  bool isLost = false;
};

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

/// The whole state of the simulator in a process. Never destroyed, because the
/// threads of streams outlive main. All functions except the constructor are
/// called with `mutex` held by `guard`.
class State {
public:
  static State &get();

  std::mutex mutex;

  // Errors.
  std::vector<std::string> errors;
  void report(std::string message);

  // Memory.
  cudaError_t allocate(int device, int64_t bytes, void *&data);
  cudaError_t allocateHost(int64_t bytes, void *&data);
  /// Returns the allocation that holds `data`, also if it was freed; or null.
  Allocation *find(const void *data);
  uint8_t *translate(const void *data);
  /// Frees the memory. The address is never reused.
  void release(Allocation &allocation);

  // Order.
  /// Returns the work that comes before a call of this thread.
  Clock getHostClock();
  /// The calling thread has seen that what is in `clock` is done.
  void joinHost(const Clock &clock, bool hasWaited);

  // Streams.
  std::shared_ptr<Stream> createStream(int device, bool isBlocking);
  void destroyStream(cudaStream_t handle);
  /// Returns the stream of a handle, or null.
  std::shared_ptr<Stream> find(cudaStream_t handle);
  /// Queues a task, or adds it to the capture of the stream. `item` is null in
  /// a capture.
  cudaError_t submit(Stream &stream, Task task,
                     std::shared_ptr<Item> *item = nullptr);
  cudaError_t record(Stream &stream, const std::shared_ptr<Event> &event,
                     bool isExternal);
  cudaError_t waitEvent(const std::shared_ptr<Stream> &stream, Event &event,
                        bool isExternal);
  void wait(Guard &guard, const std::shared_ptr<Item> &item);
  void waitDevice(Guard &guard, int device);

  // Captures.
  cudaError_t beginCapture(const std::shared_ptr<Stream> &stream,
                           cudaStreamCaptureMode mode);
  cudaError_t endCapture(Stream &stream, Graph &graph);
  /// The result of a call that is unsafe while a thread captures.
  cudaError_t checkUnsafe(cudaStreamCaptureMode threadMode);
  cudaError_t launch(Stream &stream, const Graph &graph);

  // Handles, which are never used twice.
  std::map<int64_t, std::shared_ptr<Stream>> streams;
  std::map<int64_t, std::shared_ptr<Event>> events;
  std::map<int64_t, Graph> graphs;
  int64_t nextHandle = 1;

  std::vector<Device> devices;

  // Faults.
  struct Fault {
    std::string function;
    int64_t calls;
    int error;
    int device;
  };
  std::vector<Fault> faults;
  std::map<std::string, int64_t> calls;
  int64_t memoryLimit;
  std::map<int, int> ncclErrors;
  bool ncclInitHangs = false;
  int64_t delayUsec;
  /// How far the devices' clock is ahead of the host's.
  std::chrono::nanoseconds clockOffset{0};
  std::mt19937_64 random;
  void resetFaults();

private:
  State();
  std::string describe(const Access &access);
  /// A problem with the memory that a task accesses, or empty.
  std::string checkMemory(const Task &task, int device);
  /// Enters accesses at a point of a lane into histories, and reports those
  /// that conflict with unordered ones.
  void checkOrder(const Task &task, const Stream &stream, const Clock &clock,
                  Capture *capture);
  std::shared_ptr<Item> enqueue(Stream &stream, std::shared_ptr<Item> item);
  void runStream(std::shared_ptr<Stream> stream);

  std::map<uintptr_t, Allocation> allocations;
  std::vector<uint64_t> laneTicks;
  std::vector<size_t> freeLanes;
  /// The work that all threads know to be done.
  Clock hostClock;
  std::vector<std::weak_ptr<Capture>> captures;
  int64_t nextCapture = 1;
  /// Host threads that wait.
  std::condition_variable done;
};

/// The current device of the calling thread.
int &currentDevice();

template <typename Handle> Handle makeHandle(int64_t id) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(id) << 8);
}
template <typename Handle> int64_t idOf(Handle handle) {
  auto bits = reinterpret_cast<uintptr_t>(handle);
  return bits & 0xff ? -1 : static_cast<int64_t>(bits >> 8);
}

} // namespace zpp::simulated

#endif // ZPP_UNITTESTS_SIMULATEDGPU_STATE_H
