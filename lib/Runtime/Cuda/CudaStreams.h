//===- CudaStreams.h - The streams of a rank --------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Puts each operation on a stream and makes it wait, on the device, for what it
// must come after: operations of other streams (Hazards) and the caller's
// stream. Nothing waits on the host, and everything can be captured in a graph.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDASTREAMS_H
#define ZPP_LIB_RUNTIME_CUDASTREAMS_H

#include "Backend.h"
#include "CudaStatus.h"
#include "Hazards.h"
#include "Operations.h"
#include "World.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace zpp::rt {

/// Used by the thread of the rank, except where it says otherwise. The device
/// is the calling thread's.
class CudaStreams {
public:
  /// One stream per name; `trace` may be null.
  static Status create(int64_t rank, std::vector<std::string> names,
                       Trace *trace, std::unique_ptr<CudaStreams> &streams);
  ~CudaStreams();

  /// Comes back to be used again when nobody has it any more. May outlive this.
  using Event = std::shared_ptr<std::remove_pointer_t<cudaEvent_t>>;

  /// The end of an operation.
  struct Position {
    size_t stream;
    Event event;
    /// How often the caller's stream had been entered.
    int64_t entered;
  };

  /// What an operation is in a trace.
  struct Slice {
    const OperationName &name;
    Footprint footprint;
    /// Follows the label.
    const char *suffix = "";
    /// Operations that it is besides.
    int64_t others = 0;
  };

  /// What an operation with `accesses` conflicts with: for the functions below,
  /// where nothing is queued before them.
  Hazards::Conflicts find(Accesses accesses) {
    if (captureId != 0 && !isCapturing())
      leaveCapture();
    return hazards.find(accesses);
  }
  /// Whether these include the last operation of `stream`.
  bool includeLast(const Hazards::Conflicts &conflicts, size_t stream) const {
    return conflicts.operations[stream] == hazards.getLast(stream);
  }
  /// Queues an operation with `launch(cudaStream_t)`, behind all that conflicts
  /// with `accesses`.
  template <typename Launch>
  Status run(size_t stream, const Slice &slice, Accesses accesses,
             const Hazards::Conflicts &conflicts, const Launch &launch) {
    ZPP_RT_TRY(begin(stream, accesses, conflicts));
    ZPP_RT_TRY(launch(streams[stream].handle));
    return end(stream, slice);
  }

  /// The same in steps, for an operation that gets more accesses before it is
  /// launched: begin() puts it behind what conflicts with `accesses`, extend()
  /// does so for more, and end() comes after the launch. Nothing else is queued
  /// in between.
  Status begin(size_t stream, Accesses accesses,
               const Hazards::Conflicts &conflicts);
  Status extend(size_t stream, Accesses accesses,
                const Hazards::Conflicts &conflicts);
  Status end(size_t stream, const Slice &slice);
  cudaStream_t getHandle(size_t stream) const { return streams[stream].handle; }

  /// The last operation of each stream, and the last one before the caller's
  /// stream was entered.
  Hazards::Numbers getLast() const;
  Hazards::Numbers getLastBeforeEntry() const;
  /// Of the last operation.
  Position getPosition(size_t stream) const {
    return {stream, getEvent(stream, hazards.getLast(stream)), numEntered};
  }

  /// As in RankBackend. What leave() makes a stream wait for is a slice of the
  /// trace, a stall.
  Status markStream(cudaStream_t other, std::unique_ptr<Mark> &mark);
  Status enter(const Mark &mark);
  std::unique_ptr<Mark> markOperations(Accesses accesses);
  Status leave(cudaStream_t other, const Mark &mark);

  /// Whether operations go into a graph instead of being executed.
  bool isCapturing();

  /// Whether an operation, and what the caller had queued before it, are done.
  /// Any thread; not for captured operations.
  Status isDone(const Position &position, bool &done) const;
  bool isEntered(const Position &position) const;
  /// Whether all operations are done.
  Status isIdle(bool &idle) const;
  /// All operations are done: nothing is ordered by them any more, and their
  /// times are known.
  Status settle();

private:
  CudaStreams(int64_t rank, Trace *trace, size_t numStreams);
  /// Makes `stream` wait for operations of others.
  Status waitFor(size_t stream, const Hazards::Numbers &numbers);
  /// Of operation `number`, or of a later one.
  const Event &getEvent(size_t stream, int64_t number) const {
    return streams[stream].events[number % kEvents];
  }
  /// Whether one of these operations comes after the last entry.
  bool areEntered(const Hazards::Numbers &numbers) const;
  /// Makes a stream wait for what it has not waited for of the caller's.
  Status join(size_t stream);
  /// What is remembered belongs to another capture, or to none.
  void leaveCapture();
  Status prune();

  /// When an event was, by the host's clock. CUDA says how far two events are
  /// apart in float milliseconds, which are exact to a microsecond for ten
  /// seconds only: so events are compared with a recent anchor.
  struct Anchor;
  /// The anchor for an event that is recorded now. From any thread.
  Status getAnchor(std::shared_ptr<const Anchor> &result);

  /// What lies between two events, for the trace.
  struct Timed {
    std::string row;
    std::string label;
    const char *kind;
    Footprint footprint;
    /// The operation; 0 for what is none.
    size_t stream;
    int64_t number;
    cudaEvent_t begin, end;
    std::shared_ptr<const Anchor> anchor;
  };
  /// Creates the events and records the first.
  Status beginTimed(cudaStream_t handle, Timed &timed);
  /// Moves what is over to the trace.
  Status resolveTimes(std::vector<Timed> &timed);

  /// Events are reused in turns, unless somebody else has them: one that is
  /// newer than asked for is waited for instead, which is later than necessary
  /// but right.
  static constexpr int64_t kEvents = 256;
  static constexpr int64_t kEntries = 16;
  /// Of hazards: more are pruned, but for those of operations under way.
  static constexpr size_t kMaxSegments = 1 << 11;
  static constexpr size_t kMaxTimed = 1 << 12;

  class Pool;
  struct StreamMark;
  struct OperationsMark;

  struct Stream {
    std::string name;
    cudaStream_t handle = nullptr;
    std::array<Event, kEvents> events;
    /// Last entry that operations have been put behind.
    int64_t entered = 0;
    /// The last operation before the last entry.
    int64_t lastBefore = 0;
    /// The first operation of the capture, and the last one of the last
    /// capture: what is before it has no event to ask.
    int64_t firstCaptured = 0;
    int64_t lastCaptured = 0;
  };

  const int64_t rank;
  Trace *const trace;
  Hazards hazards;
  std::vector<Stream> streams;

  const std::shared_ptr<Pool> pool;
  /// Guards what other threads than the rank's read, while it writes.
  mutable std::mutex entriesMutex;
  /// Where the caller's streams stood when they were entered.
  std::array<Event, kEntries> entries;
  std::atomic<int64_t> numEntered{0};
  cudaStream_t lastEntered = nullptr;
  /// The capture that operations go into, 0 for none. The first stream is part
  /// of it as long as it lasts.
  unsigned long long captureId = 0;

  size_t pruneAbove = kMaxSegments;

  std::vector<Timed> timed;
  std::mutex stallsMutex;
  std::vector<Timed> stalls;
  /// Whether the operation between begin and end is in `timed`.
  bool isTimed = false;
  std::mutex anchorMutex;
  std::shared_ptr<const Anchor> lastAnchor;
  /// For anchors: nothing else is queued here that they would wait for.
  cudaStream_t clockStream = nullptr;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDASTREAMS_H
