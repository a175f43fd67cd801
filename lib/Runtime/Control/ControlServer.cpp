//===- ControlServer.cpp - Connections of the control server --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ControlServer.h"
#include "Text.h"

#include <algorithm>
#include <system_error>

using namespace zpp::rt;
using namespace std::chrono_literals;

/// How long a client may take to prove that it knows the token.
static constexpr auto kHelloLimit = 10s;
/// How many connections may be doing so, besides those of the ranks.
static constexpr size_t kMaxStrangers = 64;
/// How often ranks hear how far they are, unless they ask.
static constexpr auto kProgressInterval = 20ms;
/// How long ranks of a failed world may take to leave.
static constexpr auto kPartingLimit = 3s;

//===----------------------------------------------------------------------===//
// Start and stop
//===----------------------------------------------------------------------===//

Status ControlServer::create(Options options,
                             std::unique_ptr<ControlServer> &server) {
  Endpoint endpoint;
  ZPP_RT_TRY(Endpoint::parse(options.endpoint, endpoint));
  if (options.numRanks < 1)
    return invalid(expected("at least 1 rank", options.numRanks));
  ZPP_RT_TRY(checkToken(options.token));
  std::unique_ptr<ControlServer> made(
      new ControlServer(std::move(options), std::move(endpoint)));
  ZPP_RT_TRY(made->start());
  server = std::move(made);
  return {};
}

Status ControlServer::start() {
  bool isLocal = false;
  ZPP_RT_TRY(listenOn(endpoint, listener, isLocal));
  // A name of this host may be a loopback address in its own files.
  if (isLocal && endpoint.host != "localhost" && !endpoint.isAddress())
    ledger.setNote("rank 0 listens on " + endpoint.host +
                   ", which only this host reaches");
  endpointText = endpoint.str();
  ZPP_RT_TRY(wakeUp.create());
  try {
    thread = std::thread([this] {
      try {
        run();
      } catch (const std::exception &) {
        // Out of memory. Ranks notice that their connections end.
        connections.clear();
        listener.reset();
      }
    });
  } catch (const std::system_error &error) {
    return {ZPP_RT_SYSTEM_ERROR, expected("a thread", quote(error.what()))};
  }
  return {};
}

ControlServer::~ControlServer() {
  mustStop = true;
  if (thread.joinable()) {
    wakeUp.signal();
    thread.join();
  }
}

void ControlServer::stop(Clock::time_point now) {
  if (!stopDeadline) {
    // Let the next program listen here.
    listener.reset();
    if (!ledger.isComplete())
      ledger.close();
    stopDeadline = now + timeLimit;
  } else if (now >= *stopDeadline && !ledger.hasFailed()) {
    ledger.close();
    stopDeadline = now + kPartingLimit;
  }
  if (ledger.hasFailed())
    stopDeadline = std::min(*stopDeadline, now + kPartingLimit);
}

bool ControlServer::isDone(Clock::time_point now) const {
  if (!stopDeadline)
    return false;
  return now >= *stopDeadline ||
         std::none_of(connections.begin(), connections.end(),
                      [](const ServerConnection &connection) {
                        return connection.rank >= 0;
                      });
}

//===----------------------------------------------------------------------===//
// Loop
//===----------------------------------------------------------------------===//

void ControlServer::run() {
  while (true) {
    Clock::time_point now = Clock::now();
    if (mustStop)
      stop(now);
    reportProgress(now);
    deliver();
    for (ServerConnection &connection : connections)
      write(connection);
    dropStrangers(now);
    loseBroken();
    connections.remove_if(
        [](const ServerConnection &connection) { return connection.isBroken; });
    if (isDone(now))
      return;

    wait();
    wakeUp.clear();
    bool isUpToDate = true;
    for (ServerConnection &connection : connections)
      if (connection.hasInput && !read(connection))
        isUpToDate = false;
    loseBroken();
    acceptAll();
    // Nobody is late whose announcement has arrived but was not read yet. A
    // rank that never stops talking makes nobody wait for ever.
    now = Clock::now();
    if (isUpToDate)
      behindSince.reset();
    else if (!behindSince)
      behindSince = now;
    if (isUpToDate || now >= *behindSince + timeLimit)
      ledger.expire(now);
  }
}

void ControlServer::wait() {
  Clock::time_point deadline = Clock::now() + 1h;
  auto until = [&](Clock::time_point time) {
    deadline = std::min(deadline, time);
  };
  polled.clear();
  polled.push_back({wakeUp.get(), POLLIN, 0});
  // A connection that cannot be accepted now must not keep the loop busy.
  bool mayAccept = Clock::now() >= nextAccept;
  polled.push_back({mayAccept ? listener.get() : -1, POLLIN, 0});
  if (!mayAccept)
    until(nextAccept);
  for (const ServerConnection &connection : connections) {
    bool mustWrite = connection.sent < connection.out.size();
    // What comes after the end is not read, and must not keep the loop busy.
    polled.push_back({connection.socket.get(),
                      static_cast<short>((connection.isEnding ? 0 : POLLIN) |
                                         (mustWrite ? POLLOUT : 0)),
                      0});
    if (connection.rank < 0)
      until(connection.since + kHelloLimit);
    else if (ledger.getMatched(connection.rank) != connection.reported)
      until(nextReport);
  }
  if (std::optional<Clock::time_point> time = ledger.getDeadline())
    until(*time);
  if (stopDeadline)
    until(*stopDeadline);
  ::poll(polled.data(), polled.size(), getPollTimeout(deadline));
  size_t next = 2;
  for (ServerConnection &connection : connections)
    connection.hasInput = polled[next++].revents & ~POLLOUT;
}

void ControlServer::acceptAll() {
  if (!listener || Clock::now() < nextAccept)
    return;
  for (size_t i = 0; i < kMaxStrangers; ++i) {
    Descriptor socket;
    IoResult result = acceptFrom(listener, socket);
    if (result == IoResult::Exhausted)
      nextAccept = Clock::now() + 100ms;
    if (result == IoResult::Exhausted || result == IoResult::Blocked)
      return;
    if (result != IoResult::Done)
      continue;
    connections.emplace_back(std::move(socket));
  }
}

//===----------------------------------------------------------------------===//
// Write
//===----------------------------------------------------------------------===//

/// Reports all lost ranks at once, so that the message names them all.
void ControlServer::loseBroken() {
  std::vector<int64_t> lost;
  for (ServerConnection &connection : connections) {
    if (!connection.isBroken || connection.rank < 0 ||
        byRank[connection.rank] != &connection)
      continue;
    byRank[connection.rank] = nullptr;
    if (!connection.isEnding)
      lost.push_back(connection.rank);
  }
  std::sort(lost.begin(), lost.end());
  ledger.lose(lost);
}

void ControlServer::deliver() {
  for (const ControlLedger::Notice &notice : ledger.takeNotices())
    if (ServerConnection *connection = byRank[notice.rank])
      FrameWriter(connection->out, Frame::Failure)
          .i64(notice.failure.code)
          .text(notice.failure.title)
          .text(notice.failure.message);
}

void ControlServer::reportProgress(Clock::time_point now) {
  bool isTime = now >= nextReport;
  bool hasReported = false;
  for (ServerConnection &connection : connections) {
    if (connection.rank < 0 || connection.isEnding)
      continue;
    uint64_t matched = ledger.getMatched(connection.rank);
    bool isAwaited = connection.awaited > connection.reported &&
                     matched >= connection.awaited;
    if (matched == connection.reported || !(isTime || isAwaited))
      continue;
    FrameWriter(connection.out, Frame::Progress)
        .u64(matched - connection.reported);
    connection.reported = matched;
    hasReported |= isTime;
  }
  if (hasReported)
    nextReport = now + kProgressInterval;
}

void ControlServer::dropStrangers(Clock::time_point now) {
  size_t numStrangers = std::count_if(
      connections.begin(), connections.end(),
      [](const ServerConnection &other) { return other.rank < 0; });
  for (ServerConnection &connection : connections) {
    if (connection.rank >= 0)
      continue;
    bool areTooMany = numStrangers > kMaxStrangers + byRank.size();
    if (areTooMany || now >= connection.since + kHelloLimit) {
      connection.isBroken = true;
      --numStrangers;
    }
  }
}

void ControlServer::write(ServerConnection &connection) {
  if (connection.isBroken)
    return;
  IoResult result = send(connection.socket, connection.out, connection.sent);
  if (result == IoResult::Blocked) {
    connection.isBroken =
        connection.out.size() - connection.sent > kMaxUnreadBytes;
    // A rank that reads slowly may never read everything.
    if (connection.sent > connection.out.size() / 2) {
      connection.out.erase(0, connection.sent);
      connection.sent = 0;
    }
    return;
  }
  // read() finds out whether the other side has more to say.
  connection.out.clear();
  connection.sent = 0;
  connection.isBroken = connection.isEnding;
}
