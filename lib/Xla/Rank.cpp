//===- Rank.cpp - Starts and waits of one device --------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rank.h"

#include <atomic>
#include <future>

using namespace zpp;
using namespace zpp::xla;

//===----------------------------------------------------------------------===//
// Life
//===----------------------------------------------------------------------===//

std::future<Status> Rank::join(zpp_rt_world *world, int64_t index,
                               int64_t device) {
  return operations.submit([=]() -> Status {
    char text[1024] = "";
    zpp_rt_status code =
        zpp_rt_rank_create(world, index, device, &handle, text, sizeof(text));
    return {code, text};
  });
}

void Rank::leave() {
  operations.submit([this] { zpp_rt_rank_destroy(handle); }).get();
}

Status Rank::getStatus() {
  Status status;
  status.code = zpp_rt_rank_synchronize(handle);
  if (!status.ok())
    status.message = zpp_rt_rank_message(handle);
  return status;
}

//===----------------------------------------------------------------------===//
// Tickets
//===----------------------------------------------------------------------===//

/// The first byte that the function writes, or null.
static const void *getKey(const Collective &collective) {
  for (size_t i = collective.firstOutput; i < collective.buffers.size(); ++i)
    if (collective.buffers[i].bytes > 0)
      return collective.buffers[i].data;
  return nullptr;
}

static std::string toText(const void *address) {
  char text[32];
  std::snprintf(text, sizeof(text), "%p", address);
  return text;
}

std::shared_ptr<Rank::Ticket> Rank::open(Collective collective) {
  auto ticket = std::make_shared<Ticket>();
  ticket->collective = std::move(collective);
  if (const void *key = getKey(ticket->collective)) {
    std::lock_guard<std::mutex> lock(mutex);
    tickets[key] = ticket;
  }
  return ticket;
}

Status Rank::close(const Collective &collective,
                   std::shared_ptr<Ticket> &ticket) {
  const void *key = getKey(collective);
  if (!key)
    return {};
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = tickets.find(key);
    if (found != tickets.end() &&
        found->second->collective.function == collective.function) {
      ticket = std::move(found->second);
      tickets.erase(found);
    }
  }
  if (!ticket)
    return rt::invalid(
        rt::expected("the output that zpp.start was given",
                     "a copy of it at " + toText(key) +
                         "; the program uses it before zpp.wait, or passes it "
                         "through a loop that copies it"));
  const std::vector<zpp_rt_buffer> &given = ticket->collective.buffers;
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].bytes > 0 && given[i].data != collective.buffers[i].data)
      return rt::invalid(rt::expected(
          "buffer " + std::to_string(i) + " that zpp.start was given, at " +
              toText(given[i].data),
          "a copy of it at " + toText(collective.buffers[i].data)));
  return {};
}

//===----------------------------------------------------------------------===//
// Host
//===----------------------------------------------------------------------===//

static std::vector<void *> getPointers(const Collective &collective) {
  std::vector<void *> pointers;
  for (const zpp_rt_buffer &buffer : collective.buffers)
    pointers.push_back(const_cast<void *>(buffer.data));
  return pointers;
}

namespace {
/// Neither start nor wait blocks a thread of XLA, which has one per core for
/// all devices: a device that blocked one could keep the very device that it
/// waits for from running.
class HostRank final : public Rank {
public:
  ~HostRank() override {
    // What is under way ends with an error instead of at the time limit.
    if (pending > 0)
      abort("the world was destroyed");
    leave();
  }

  Status start(Collective collective, void *) override {
    std::shared_ptr<Ticket> ticket = open(std::move(collective));
    ++pending;
    operations.add([this, ticket] {
      ticket->collective.function(handle,
                                  getPointers(ticket->collective).data());
      Status status = getStatus();
      --pending;
      complete(*ticket, std::move(status));
    });
    return {};
  }

  void wait(const Collective &collective, void *, Done done) override {
    std::shared_ptr<Ticket> ticket;
    if (Status status = close(collective, ticket); !status.ok()) {
      // XLA frees the buffers after an error: nobody may use them any more.
      abort(collective.name + ": " + status.message);
      operations.add([this, status, done = std::move(done)] {
        answers.add([status, done] { done(status); });
      });
      return;
    }
    if (ticket) {
      std::lock_guard<std::mutex> lock(ticket->mutex);
      if (!ticket->isDone) {
        ticket->done = std::move(done);
        return;
      }
    }
    done(ticket ? ticket->status : Status());
  }

  Status synchronize() override {
    return operations.submit([this] { return getStatus(); }).get();
  }

private:
  void complete(Ticket &ticket, Status status) {
    std::lock_guard<std::mutex> lock(ticket.mutex);
    ticket.isDone = true;
    ticket.status = std::move(status);
    if (ticket.done)
      answers.add([done = std::move(ticket.done), status = ticket.status] {
        done(status);
      });
  }

  /// Functions that were started and have not returned.
  std::atomic<int64_t> pending{0};
  /// XLA continues the program in the thread that calls `done`: not in that of
  /// the operations, which would have to wait for it.
  Queue answers;
};
} // namespace

std::unique_ptr<Rank> zpp::xla::createHostRank() {
  return std::make_unique<HostRank>();
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

namespace {
/// The functions are called by XLA's thread, which also starts the collectives
/// that XLA has itself: NCCL needs one order of both on all ranks, and a thread
/// of our own would mix them differently on each.
class StreamRank final : public Rank {
public:
  ~StreamRank() override { leave(); }

  Status start(Collective collective, void *stream) override {
    std::shared_ptr<Ticket> ticket = open(std::move(collective));
    std::lock_guard<std::mutex> lock(mutex);
    if (zpp_rt_status code = zpp_rt_enter(handle, stream); code != ZPP_RT_OK)
      return {code, zpp_rt_rank_message(handle)};
    ticket->collective.function(handle, getPointers(ticket->collective).data());
    return {};
  }

  void wait(const Collective &collective, void *stream, Done done) override {
    std::shared_ptr<Ticket> ticket;
    Status status = close(collective, ticket);
    if (!status.ok()) {
      abort(collective.name + ": " + status.message);
    } else {
      std::lock_guard<std::mutex> lock(mutex);
      status.code = zpp_rt_leave(handle, stream, collective.buffers.data(),
                                 collective.buffers.size());
      if (!status.ok())
        status.message = zpp_rt_rank_message(handle);
    }
    done(std::move(status));
  }

  Status synchronize() override {
    return operations
        .submit([this] {
          std::lock_guard<std::mutex> lock(mutex);
          return getStatus();
        })
        .get();
  }

private:
  /// A rank is used by one thread at a time.
  std::mutex mutex;
};
} // namespace

std::unique_ptr<Rank> zpp::xla::createStreamRank() {
  return std::make_unique<StreamRank>();
}
