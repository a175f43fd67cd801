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
#include "NvtxRange.h"
#include "Operations.h"
#include "World.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace zpp::rt {

/// The streams of a rank. Used by the thread of the rank, unless a function
/// says otherwise, on the calling thread's device.
class CudaStreams {
public:
  /// One stream per name; `trace` may be null.
  static Status create(int64_t rank, std::vector<std::string> names,
                       Trace *trace, std::unique_ptr<CudaStreams> &streams);
  ~CudaStreams();

  /// An event that is reused when its last owner goes. May outlive this object.
  using Event = std::shared_ptr<std::remove_pointer_t<cudaEvent_t>>;

  /// The end of an operation.
  struct Position {
    size_t stream;
    Event event;
    /// How many times the caller's stream had been entered.
    int64_t entered;
  };

  /// The slice of an operation in a trace.
  struct Slice {
    const OperationName &name;
    Footprint footprint;
    /// Appended to the label.
    const char *suffix = "";
    /// The number of other operations that it represents as well.
    int64_t others = 0;
  };

  /// Returns the operations that conflict with `accesses`, for the functions
  /// below. Valid until something is queued.
  Hazards::Conflicts find(const Accesses &accesses) {
    if (captureId != 0 && !isCapturing())
      leaveCapture();
    return hazards.find(accesses);
  }
  /// Whether these include the last operation of `stream`.
  bool includeLast(const Hazards::Conflicts &conflicts, size_t stream) const {
    return conflicts.operations[stream] == hazards.getLast(stream);
  }
  /// Queues an operation with `launch(cudaStream_t)`, after everything that
  /// conflicts with `accesses`.
  template <typename Launch>
  Status run(size_t stream, const Slice &slice, const Accesses &accesses,
             const Hazards::Conflicts &conflicts, const Launch &launch) {
    ZPP_RT_TRY(begin(stream, accesses, conflicts));
    NvtxRange range(slice.name.label, slice.footprint.bytesRead());
    ZPP_RT_TRY(launch(streams[stream].handle));
    return end(stream, slice);
  }

  /// The same in steps, for an operation that gets more accesses before it is
  /// launched. begin() makes it wait for what conflicts with `accesses`,
  /// extend() does so for more accesses, and end() follows the launch. Nothing
  /// else may be queued in between.
  Status begin(size_t stream, const Accesses &accesses,
               const Hazards::Conflicts &conflicts);
  Status extend(size_t stream, const Accesses &accesses,
                const Hazards::Conflicts &conflicts);
  Status end(size_t stream, const Slice &slice);
  cudaStream_t getHandle(size_t stream) const { return streams[stream].handle; }

  /// Returns the last operation of each stream, and the last one before the
  /// caller's stream was entered.
  Hazards::Numbers getLast() const;
  Hazards::Numbers getLastBeforeEntry() const;
  /// Returns the end of the last operation.
  Position getPosition(size_t stream) const {
    return {stream, getEvent(stream, hazards.getLast(stream)), numEntered};
  }

  /// See RankBackend. The time for which leave() makes a stream wait becomes a
  /// slice of the trace, a stall.
  Status markStream(cudaStream_t other, std::unique_ptr<Mark> &mark);
  Status enter(const Mark &mark);
  std::unique_ptr<Mark> markOperations(const Accesses &accesses);
  Status leave(cudaStream_t other, const Mark &mark);

  /// Whether operations go into a graph instead of being executed.
  bool isCapturing();

  /// Whether an operation is done, and what the caller had queued before it.
  /// From any thread. Not for captured operations.
  Status isDone(const Position &position, bool &done) const;
  bool isEntered(const Position &position) const;
  /// Whether all operations are done.
  Status isIdle(bool &idle) const;
  /// Called when all operations are done: forgets their order and moves their
  /// times to the trace.
  Status settle();

private:
  CudaStreams(int64_t rank, Trace *trace, size_t numStreams);
  /// Makes `stream` wait for operations of other streams.
  Status waitFor(size_t stream, const Hazards::Numbers &numbers);
  /// Returns the event of operation `number`, or of a later one.
  const Event &getEvent(size_t stream, int64_t number) const {
    return streams[stream].events[number % kEvents];
  }
  /// Whether one of these operations comes after the last entry.
  bool areEntered(const Hazards::Numbers &numbers) const;
  /// Makes a stream wait for the caller's stream, unless it has done so
  /// already.
  Status join(size_t stream);
  /// Forgets what belongs to another capture, or to none.
  void leaveCapture();
  Status prune();

  /// An event whose time on the host's clock is known. CUDA tells the time
  /// between two events in float milliseconds, which are precise to a
  /// microsecond for ten seconds only. So events are compared with a recent
  /// anchor.
  struct Anchor;
  /// Returns the anchor for an event that is recorded now. From any thread.
  Status getAnchor(std::shared_ptr<const Anchor> &result);

  /// The time between two events, for the trace.
  struct Timed {
    Trace::Slice slice;
    /// The number of the operation; 0 for a stall.
    size_t stream;
    int64_t number;
    cudaEvent_t begin, end;
    std::shared_ptr<const Anchor> anchor;
  };
  /// Creates the events and records the first one.
  Status beginTimed(cudaStream_t handle, Timed &timed);
  /// Moves what has ended to the trace.
  Status resolveTimes(std::vector<Timed> &timed);

  /// Events are reused in turn unless somebody else holds them. If the event of
  /// an operation was reused, waiters wait for the newer operation, which is
  /// later than necessary but correct.
  static constexpr int64_t kEvents = 256;
  static constexpr int64_t kEntries = 16;
  /// More segments of hazards are pruned, except those of operations under way.
  static constexpr size_t kMaxSegments = 1 << 11;
  static constexpr size_t kMaxTimed = 1 << 12;

  class Pool;
  struct StreamMark;
  struct OperationsMark;

  struct Stream {
    std::string name;
    cudaStream_t handle = nullptr;
    std::array<Event, kEvents> events;
    /// The last entry that operations wait for.
    int64_t entered = 0;
    /// The last operation before the last entry.
    int64_t lastBefore = 0;
    /// The first operation of the current capture, and the last operation of
    /// the last capture: operations up to that one have no event to query.
    int64_t firstCaptured = 0;
    int64_t lastCaptured = 0;
  };

  const int64_t rank;
  Trace *const trace;
  Hazards hazards;
  std::vector<Stream> streams;

  const std::shared_ptr<Pool> pool;
  /// Guards the entries, which other threads read while the rank's thread
  /// writes.
  mutable std::mutex entriesMutex;
  /// The state of the caller's streams when they were entered.
  std::array<Event, kEntries> entries;
  std::atomic<int64_t> numEntered{0};
  cudaStream_t lastEntered = nullptr;
  /// The capture that operations go into; 0 for none. The first stream is part
  /// of it from beginning to end.
  unsigned long long captureId = 0;

  size_t pruneAbove = kMaxSegments;

  std::vector<Timed> timed;
  std::mutex stallsMutex;
  std::vector<Timed> stalls;
  /// Whether the operation between begin and end is in `timed`.
  bool isTimed = false;
  std::mutex anchorMutex;
  std::shared_ptr<const Anchor> lastAnchor;
  /// For anchors, which must not wait for anything else.
  cudaStream_t clockStream = nullptr;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDASTREAMS_H
