//===- Rank.cpp - Starts and waits of one device --------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rank.h"
#include "../Runtime/Wait.h"
#include "HostTimes.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <iterator>
#include <set>

using namespace zpp;
using namespace zpp::xla;

//===----------------------------------------------------------------------===//
// Life
//===----------------------------------------------------------------------===//

std::future<Status> Rank::join(zpp_rt_world *world, int64_t index,
                               int64_t device) {
  return operations.submit([=]() -> Status {
    char text[1024] = "";
    zpp_rt_rank_desc desc{sizeof(desc), index, device};
    zpp_rt_status code =
        zpp_rt_rank_create(world, &desc, &handle, text, sizeof(text));
    return {code, text};
  });
}

void Rank::leave() {
  operations.submit([this] { zpp_rt_rank_destroy(handle); }).get();
}

Status Rank::getStatus(zpp_rt_status code) {
  return {code, code == ZPP_RT_OK ? "" : zpp_rt_rank_message(handle)};
}

Status Rank::getStatus() { return getStatus(zpp_rt_rank_synchronize(handle)); }

Status Rank::copy(void *stream, const void *source, void *dest, int64_t bytes) {
  return getStatus(zpp_rt_copy_on_stream(handle, stream, dest, source, bytes));
}

Status Rank::synchronize() {
  return operations.submit([this] { return getStatus(); }).get();
}

//===----------------------------------------------------------------------===//
// Tickets
//===----------------------------------------------------------------------===//

/// Returns the first byte that the function writes, or null.
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

/// Returns the buffers without the inputs that are outputs as well, which a
/// wait gets as outputs only.
static std::vector<zpp_rt_buffer> getKept(const Collective &collective) {
  auto outputs = collective.buffers.begin() +
                 static_cast<ptrdiff_t>(collective.firstOutput);
  std::set<const void *> written;
  for (auto it = outputs; it != collective.buffers.end(); ++it)
    if (it->bytes > 0)
      written.insert(it->data);
  std::vector<zpp_rt_buffer> kept;
  std::copy_if(collective.buffers.begin(), outputs, std::back_inserter(kept),
               [&](const zpp_rt_buffer &input) {
                 return written.count(input.data) == 0;
               });
  kept.insert(kept.end(), outputs, collective.buffers.end());
  return kept;
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
  std::vector<zpp_rt_buffer> kept;
  bool isAll = ticket->collective.buffers.size() == collective.buffers.size();
  if (!isAll)
    kept = getKept(ticket->collective);
  const std::vector<zpp_rt_buffer> &given =
      isAll ? ticket->collective.buffers : kept;
  if (given.size() != collective.buffers.size())
    return rt::invalid(
        rt::expected(std::to_string(given.size()) + " buffers of zpp.start",
                     std::to_string(collective.buffers.size())));
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
/// Neither start nor wait blocks one of XLA's threads: there is one per core
/// for all devices, so a blocked thread could keep the very device from running
/// that it waits for.
class HostRank final : public Rank {
public:
  ~HostRank() override {
    // Operations under way end with an error at once, not at the time limit.
    if (pending > 0)
      abort("the world was destroyed");
    leave();
  }

  Status start(Collective collective, void *, bool) override {
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
      // XLA frees the buffers after an error, so end everything that uses them.
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
        ticket->waited = std::chrono::steady_clock::now();
        return;
      }
    }
    done(ticket ? ticket->status : Status());
  }

private:
  void complete(Ticket &ticket, Status status) {
    std::lock_guard<std::mutex> lock(ticket.mutex);
    ticket.isDone = true;
    ticket.status = std::move(status);
    if (ticket.done) {
      addStalled(std::chrono::steady_clock::now() - ticket.waited);
      answers.add([done = std::move(ticket.done), status = ticket.status] {
        done(status);
      });
    }
  }

  /// Functions that were started and have not returned.
  std::atomic<int64_t> pending{0};
  /// XLA continues the program in the thread that calls `done`. That must not
  /// be the thread of the operations, which would have to wait for it.
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
/// Functions run on the rank's thread: they take ten microseconds to queue each
/// operation, and may wait for other ranks the first time. Marks keep the order
/// on the device.
class StreamRank final : public Rank {
public:
  StreamRank() : Rank(kPatience) {}
  ~StreamRank() override { leave(); }

  Status start(Collective collective, void *stream,
               bool isDeferrable) override {
    zpp_rt_mark *inputs;
    ZPP_RT_TRY(getStatus(zpp_rt_mark_stream(handle, stream, &inputs)));
    std::shared_ptr<Ticket> ticket = open(std::move(collective));
    operations.add([this, ticket, inputs = Mark(inputs, zpp_rt_mark_destroy)] {
      const Collective &collective = ticket->collective;
      zpp_rt_mark *mark = nullptr;
      {
        HostTimes::Timer timer(queueTimes);
        if (zpp_rt_enter_mark(handle, inputs.get()) == ZPP_RT_OK) {
          collective.function(handle, getPointers(collective).data());
          zpp_rt_mark_operations(handle, collective.buffers.data(),
                                 collective.buffers.size(), &mark);
        }
      }
      std::lock_guard<std::mutex> lock(ticket->mutex);
      if (mark)
        ticket->operations = Mark(mark, zpp_rt_mark_destroy);
      ticket->isDone = true;
      ticket->changed.notify_all();
    });
    if (!isDeferrable)
      waitUntilQueued(*ticket);
    return {};
  }

  void wait(const Collective &collective, void *stream, Done done) override {
    std::shared_ptr<Ticket> ticket;
    Status status = close(collective, ticket);
    if (!status.ok()) {
      abort(collective.name + ": " + status.message);
    } else if (ticket) {
      waitUntilQueued(*ticket);
      // If there is no mark, the rank has failed, and this returns its status.
      status = getStatus(
          zpp_rt_leave_mark(handle, stream, ticket->operations.get()));
    }
    done(std::move(status));
  }

private:
  static void waitUntilQueued(Ticket &ticket) {
    // Do not sleep at first: waking up takes long.
    auto end = std::chrono::steady_clock::now() + kPatience;
    while (!ticket.isDone && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    std::unique_lock<std::mutex> lock(ticket.mutex);
    rt::waitUntil(ticket.changed, lock, [&] { return ticket.isDone.load(); });
  }

  /// Longer than the usual time between two collectives of a step.
  static constexpr std::chrono::microseconds kPatience{1000};
};
} // namespace

std::unique_ptr<Rank> zpp::xla::createStreamRank() {
  return std::make_unique<StreamRank>();
}
