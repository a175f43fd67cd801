//===- Rank.h - Starts and waits of one device ------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_XLA_RANK_H
#define ZPP_LIB_XLA_RANK_H

#include "../Runtime/Status.h"
#include "Queue.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace zpp::xla {

using rt::Status;

/// A host function of a bundle.
using HostFunction = void (*)(zpp_rt_rank *rank, void *const *buffers);

/// The data that a start and its wait share.
struct Collective {
  HostFunction function = nullptr;
  /// The name of the function, for messages.
  std::string name;
  /// The arguments of the function: inputs, outputs, workspace.
  std::vector<zpp_rt_buffer> buffers;
  /// The index of the first output; all buffers before it are inputs.
  size_t firstOutput = 0;
};

/// A device of this process as a rank of a world.
///
/// A start and its wait find each other by the address of the first output: the
/// program passes it on from one to the other, and XLA must not put a copy in
/// between, because the copy would be made while the collective is under way.
class Rank {
public:
  using Done = std::function<void(Status)>;

  virtual ~Rank() = default;
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  /// Joins `world` as rank `index` on `device`, which may take until all other
  /// ranks have joined. Called once, before anything else.
  std::future<Status> join(zpp_rt_world *world, int64_t index, int64_t device);

  /// Hands the host function to the rank's thread. `stream` is the stream on
  /// which the inputs are made; null if there are no streams. If the start is
  /// not deferrable, XLA may start collectives of its own before the wait. Then
  /// this returns only when the function has queued its operations, because
  /// NCCL needs the same order of both on all ranks.
  virtual Status start(Collective collective, void *stream,
                       bool isDeferrable) = 0;
  /// Calls `done`, now or from another thread, when work that follows on
  /// `stream` may use the outputs. Blocks at most until the function has
  /// returned, and not at all if the function does the work itself.
  virtual void wait(const Collective &collective, void *stream, Done done) = 0;

  /// Copies memory of the device on `stream`, after the work that is there.
  Status copy(void *stream, const void *source, void *dest, int64_t bytes);

  /// Waits for what was started and returns the rank's status.
  Status synchronize();

  /// Returns the time from waits until their operations were done, since the
  /// last call; 0 where streams wait.
  std::chrono::steady_clock::duration takeStalled() {
    return std::chrono::steady_clock::duration(stalled.exchange(0));
  }

protected:
  /// `patience` is passed to the queue of operations.
  explicit Rank(std::chrono::microseconds patience = {})
      : operations(patience) {}
  /// Leaves the world after all operations. Each destructor ends with this.
  void leave();

  /// Fails the rank, and with it the world.
  void abort(const std::string &reason) {
    zpp_rt_rank_abort(handle, reason.c_str());
  }

  using Mark = std::shared_ptr<zpp_rt_mark>;

  /// A start whose wait has not come yet.
  struct Ticket {
    Collective collective;
    /// Guards all members below. `isDone` may be read without it.
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> isDone{false};
    Status status;
    Done done;
    /// When the wait came.
    std::chrono::steady_clock::time_point waited;
    /// The operations that the stream of the wait must wait for.
    Mark operations;
  };

  /// Adds a ticket. If there is one with the same address, it belongs to a
  /// program that has ended early, and is dropped.
  std::shared_ptr<Ticket> open(Collective collective);
  /// Takes the ticket of the start with the same buffers. An error if there is
  /// none. Null, without an error, if there are no outputs to wait for.
  Status close(const Collective &collective, std::shared_ptr<Ticket> &ticket);

  /// Returns what a call for the rank has returned, with its message.
  Status getStatus(zpp_rt_status code);
  /// Waits for the operations. Called on their thread.
  Status getStatus();

  void addStalled(std::chrono::steady_clock::duration duration) {
    stalled += duration.count();
  }

  zpp_rt_rank *handle = nullptr;
  /// The thread that calls all functions of the rank except those that any
  /// thread may call. Its current device is the rank's.
  Queue operations;

private:
  std::atomic<std::chrono::steady_clock::rep> stalled{0};
  std::mutex mutex;
  std::unordered_map<const void *, std::shared_ptr<Ticket>> tickets;
};

/// For back ends whose operations are done when their calls return.
std::unique_ptr<Rank> createHostRank();
/// For back ends whose operations run on streams.
std::unique_ptr<Rank> createStreamRank();

} // namespace zpp::xla

#endif // ZPP_LIB_XLA_RANK_H
