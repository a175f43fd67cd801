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

  /// Queues what the host function does. `stream` is where the inputs are made;
  /// null where memory has no streams. Does not wait for other ranks, but the
  /// first time.
  virtual Status start(Collective collective, void *stream) = 0;
  /// Calls `done`, now or from another thread, when the outputs may be used by
  /// what follows on `stream`. Does not block.
  virtual void wait(const Collective &collective, void *stream, Done done) = 0;

  /// Waits for what was started and returns the rank's status.
  virtual Status synchronize() = 0;

protected:
  Rank() = default;
  /// Leaves the world after all operations; the end of each destructor.
  void leave();

  /// Fails the rank, and with it the world.
  void abort(const std::string &reason) {
    zpp_rt_rank_abort(handle, reason.c_str());
  }

  /// A start whose wait has not come yet.
  struct Ticket {
    Collective collective;
    /// Guards all below.
    std::mutex mutex;
    bool isDone = false;
    Status status;
    Done done;
  };

  /// A new ticket. One that is left over under the same address belongs to a
  /// program that has ended early, and goes.
  std::shared_ptr<Ticket> open(Collective collective);
  /// The ticket of the start with the same buffers, taken; an error where there
  /// is none. Null without an error where there are no outputs to wait for.
  Status close(const Collective &collective, std::shared_ptr<Ticket> &ticket);

  /// Waits for what was started, where no other thread uses the handle.
  Status getStatus();

  zpp_rt_rank *handle = nullptr;
  /// Its thread does what a thread of the program would need the rank's device
  /// for: one that went back to its own, 0 unless it has chosen, would make a
  /// context there.
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
