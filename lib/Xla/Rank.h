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

/// What a start and its wait have in common.
struct Collective {
  HostFunction function = nullptr;
  /// Of the function, for messages.
  std::string name;
  /// As the function takes them: inputs, outputs, workspace.
  std::vector<zpp_rt_buffer> buffers;
  /// Those before it are inputs.
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
  /// ranks do. Once, before all else.
  std::future<Status> join(zpp_rt_world *world, int64_t index, int64_t device);

  /// Hands the host function to the rank's thread. `stream` is where the inputs
  /// are made; null where memory has no streams. Where the start is not
  /// deferrable, XLA may start collectives of its own before the wait, and this
  /// returns when the function has queued its operations: NCCL needs one order
  /// of both on all ranks.
  virtual Status start(Collective collective, void *stream,
                       bool isDeferrable) = 0;
  /// Calls `done`, now or from another thread, when the outputs may be used by
  /// what follows on `stream`. Blocks at most until the function has returned,
  /// and not at all where it does the work itself.
  virtual void wait(const Collective &collective, void *stream, Done done) = 0;

  /// Waits for what was started and returns the rank's status.
  Status synchronize();

protected:
  /// `patience` is that of the queue of operations.
  explicit Rank(std::chrono::microseconds patience = {})
      : operations(patience) {}
  /// Leaves the world after all operations; the end of each destructor.
  void leave();

  /// Fails the rank, and with it the world.
  void abort(const std::string &reason) {
    zpp_rt_rank_abort(handle, reason.c_str());
  }

  using Mark = std::shared_ptr<zpp_rt_mark>;

  /// A start whose wait has not come yet.
  struct Ticket {
    Collective collective;
    /// Guards all below; that it is done may be seen without.
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> isDone{false};
    Status status;
    Done done;
    /// What the stream of the wait has to come after.
    Mark operations;
  };

  /// A new ticket. One that is left over under the same address belongs to a
  /// program that has ended early, and goes.
  std::shared_ptr<Ticket> open(Collective collective);
  /// The ticket of the start with the same buffers, taken; an error where there
  /// is none. Null without an error where there are no outputs to wait for.
  Status close(const Collective &collective, std::shared_ptr<Ticket> &ticket);

  /// Of the thread of the operations: waits for them.
  Status getStatus();

  zpp_rt_rank *handle = nullptr;
  /// Its thread calls all functions of the rank that not any thread may: it is
  /// the one whose device is the rank's.
  Queue operations;

private:
  std::mutex mutex;
  std::unordered_map<const void *, std::shared_ptr<Ticket>> tickets;
};

/// For back ends whose operations are done when their calls return.
std::unique_ptr<Rank> createHostRank();
/// For back ends whose operations run on streams.
std::unique_ptr<Rank> createStreamRank();

} // namespace zpp::xla

#endif // ZPP_LIB_XLA_RANK_H
