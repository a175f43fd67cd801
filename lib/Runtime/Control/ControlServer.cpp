//===- ControlServer.cpp - Connections of the control server --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Control.h"
#include "ControlLedger.h"
#include "ControlWire.h"
#include "Socket.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <optional>
#include <poll.h>
#include <system_error>
#include <thread>

using namespace zpp::rt;
using namespace std::chrono_literals;

/// How long someone who connects may take to say who it is.
static constexpr auto kHelloLimit = 10s;
/// Others that may be doing so, besides the ranks.
static constexpr size_t kMaxStrangers = 64;
/// How often ranks hear how far they are, unless they ask.
static constexpr auto kProgressInterval = 20ms;
/// How long ranks of a failed world may take to leave.
static constexpr auto kPartingLimit = 3s;
/// Of one rank, read before others get their turn.
static constexpr size_t kMaxReadBytes = 1 << 20;

namespace {
struct Connection {
  explicit Connection(Descriptor socket)
      : socket(std::move(socket)), since(Clock::now()) {}

  Descriptor socket;
  Clock::time_point since;
  FrameParser in{kMaxHelloBytes};
  std::string out;
  size_t sent = 0;
  /// -1 before Hello.
  int64_t rank = -1;
  /// Ends as soon as `out` is sent.
  bool isEnding = false;
  bool isBroken = false;
  /// What poll() said last.
  bool hasInput = false;
  std::vector<std::shared_ptr<const ControlLedger::Exchange>> definitions;
  /// What the rank knows that is matched, and what it asked for.
  uint64_t reported = 0;
  uint64_t awaited = 0;
};
} // namespace

class ControlServer::Loop {
public:
  Loop(Endpoint endpoint, int64_t numRanks, std::chrono::microseconds timeLimit,
       std::string greeting)
      : endpoint(std::move(endpoint)), timeLimit(timeLimit),
        ledger(numRanks, timeLimit, std::move(greeting)),
        byRank(numRanks, nullptr) {}
  ~Loop();

  Status start();

  Endpoint endpoint;
  std::string endpointText;

private:
  void run();
  /// Waits for something to do.
  void wait();
  void stop(Clock::time_point now);
  bool isDone(Clock::time_point now) const;
  void acceptAll();
  /// Whether all that has arrived was read.
  bool read(Connection &connection);
  bool handle(Connection &connection, Frame frame, std::string_view payload);
  bool handleHello(Connection &connection, std::string_view payload);
  bool handleDefine(Connection &connection, std::string_view payload);
  void welcome();
  void loseBroken();
  void deliver();
  void reportProgress(Clock::time_point now);
  void dropStrangers(Clock::time_point now);
  void write(Connection &connection);

  const std::chrono::microseconds timeLimit;
  Descriptor listener;
  WakeUp wakeUp;
  std::atomic<bool> mustStop{false};
  std::thread thread;

  // Of the thread.
  ControlLedger ledger;
  /// In the order in which they came.
  std::list<Connection> connections;
  std::vector<Connection *> byRank;
  bool isWelcome = false;
  std::vector<pollfd> polled;
  Clock::time_point nextReport;
  Clock::time_point nextAccept;
  std::optional<Clock::time_point> stopDeadline;
};

//===----------------------------------------------------------------------===//
// Start and stop
//===----------------------------------------------------------------------===//

Status ControlServer::Loop::start() {
  if (Status status = listenOn(endpoint, listener); !status.ok())
    return status;
  endpointText = endpoint.str();
  if (Status status = wakeUp.create(); !status.ok())
    return status;
  try {
    thread = std::thread([this] {
      try {
        run();
      } catch (const std::exception &) {
        // Out of memory. Ranks notice that their connection ends.
        connections.clear();
        listener.reset();
      }
    });
  } catch (const std::system_error &error) {
    return {ZPP_RT_SYSTEM_ERROR, expected("a thread", quote(error.what()))};
  }
  return {};
}

ControlServer::Loop::~Loop() {
  mustStop = true;
  if (thread.joinable()) {
    wakeUp.signal();
    thread.join();
  }
}

void ControlServer::Loop::stop(Clock::time_point now) {
  if (!stopDeadline) {
    // The next program may listen here.
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

bool ControlServer::Loop::isDone(Clock::time_point now) const {
  if (!stopDeadline)
    return false;
  return now >= *stopDeadline ||
         std::none_of(
             connections.begin(), connections.end(),
             [](const Connection &connection) { return connection.rank >= 0; });
}

//===----------------------------------------------------------------------===//
// Loop
//===----------------------------------------------------------------------===//

void ControlServer::Loop::run() {
  while (true) {
    Clock::time_point now = Clock::now();
    if (mustStop)
      stop(now);
    reportProgress(now);
    deliver();
    for (Connection &connection : connections)
      write(connection);
    dropStrangers(now);
    loseBroken();
    connections.remove_if(
        [](const Connection &connection) { return connection.isBroken; });
    if (isDone(now))
      return;

    wait();
    wakeUp.clear();
    bool isUpToDate = true;
    for (Connection &connection : connections)
      if (connection.hasInput && !read(connection))
        isUpToDate = false;
    loseBroken();
    acceptAll();
    // Nobody is late whose announcement is only not read yet.
    if (isUpToDate)
      ledger.expire(Clock::now());
  }
}

void ControlServer::Loop::wait() {
  Clock::time_point deadline = Clock::now() + 1h;
  auto until = [&](Clock::time_point time) {
    deadline = std::min(deadline, time);
  };
  polled.clear();
  polled.push_back({wakeUp.get(), POLLIN, 0});
  // What cannot be accepted now must not keep the loop busy.
  bool mayAccept = Clock::now() >= nextAccept;
  polled.push_back({mayAccept ? listener.get() : -1, POLLIN, 0});
  if (!mayAccept)
    until(nextAccept);
  for (const Connection &connection : connections) {
    bool mustWrite = connection.sent < connection.out.size();
    polled.push_back({connection.socket.get(),
                      static_cast<short>(POLLIN | (mustWrite ? POLLOUT : 0)),
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
  for (Connection &connection : connections)
    connection.hasInput = polled[next++].revents & ~POLLOUT;
}

void ControlServer::Loop::acceptAll() {
  if (!listener || Clock::now() < nextAccept)
    return;
  for (size_t i = 0; i < kMaxStrangers; ++i) {
    Descriptor socket;
    Transfer result = acceptFrom(listener, socket);
    if (result == Transfer::Exhausted)
      nextAccept = Clock::now() + 100ms;
    if (result == Transfer::Exhausted || result == Transfer::Blocked)
      return;
    if (result != Transfer::Done)
      continue;
    connections.emplace_back(std::move(socket));
    connections.back().out = kPreamble;
  }
}

//===----------------------------------------------------------------------===//
// Read
//===----------------------------------------------------------------------===//

bool ControlServer::Loop::read(Connection &connection) {
  size_t total = 0;
  while (!connection.isBroken && !connection.isEnding) {
    if (total >= kMaxReadBytes)
      return false;
    size_t before = connection.in.data.size();
    Transfer result = receive(connection.socket, connection.in.data);
    total += connection.in.data.size() - before;
    if (result == Transfer::Blocked)
      return true;
    if (result == Transfer::Ended) {
      connection.isBroken = true;
      return true;
    }
    Frame frame;
    std::string_view payload;
    FrameParser::Result parsed;
    while ((parsed = connection.in.next(frame, payload)) ==
               FrameParser::Result::Frame &&
           !connection.isEnding)
      if (!handle(connection, frame, payload)) {
        connection.isBroken = true;
        return true;
      }
    if (parsed == FrameParser::Result::Malformed)
      connection.isBroken = true;
    connection.in.compact();
  }
  return true;
}

/// Whether the frame is one that a client sends.
bool ControlServer::Loop::handle(Connection &connection, Frame frame,
                                 std::string_view payload) {
  FrameReader reader(payload);
  if ((frame == Frame::Hello) != (connection.rank < 0))
    return false;
  switch (frame) {
  case Frame::Hello:
    return handleHello(connection, payload);
  case Frame::Define:
    return handleDefine(connection, payload);
  case Frame::Announce: {
    uint32_t id = reader.u32();
    if (!reader.isComplete() || id >= connection.definitions.size())
      return false;
    ledger.announce(connection.rank, connection.definitions[id], Clock::now());
    return true;
  }
  case Frame::Confirm:
    connection.awaited = ledger.getAnnounced(connection.rank);
    return reader.isComplete();
  case Frame::Fail: {
    std::string_view message = reader.text();
    if (!reader.isComplete())
      return false;
    ledger.fail(connection.rank, message);
    return true;
  }
  case Frame::Broadcast: {
    std::string_view bytes = reader.text();
    if (!reader.isComplete())
      return false;
    for (Connection *other : byRank)
      if (other && other != &connection)
        FrameWriter(other->out, Frame::Broadcast).text(bytes);
    return true;
  }
  case Frame::Goodbye:
    ledger.leave(connection.rank);
    connection.isEnding = true;
    return reader.isComplete();
  default:
    return false;
  }
}

bool ControlServer::Loop::handleHello(Connection &connection,
                                      std::string_view payload) {
  FrameReader reader(payload);
  int64_t rank = reader.i64();
  int64_t numRanks = reader.i64();
  std::string_view greeting = reader.text();
  if (!reader.isComplete())
    return false;
  Status status = ledger.join(rank, numRanks, greeting, Clock::now());
  if (!status.ok()) {
    FrameWriter(connection.out, Frame::Failure)
        .i64(status.code)
        .text({})
        .text(status.message);
    connection.isEnding = true;
    return true;
  }
  connection.rank = rank;
  connection.in.maxBytes = kMaxFrameBytes;
  byRank[rank] = &connection;
  welcome();
  return true;
}

void ControlServer::Loop::welcome() {
  if (isWelcome || !ledger.isComplete() || ledger.hasFailed())
    return;
  isWelcome = true;
  for (Connection *connection : byRank)
    if (connection)
      writeFrame(connection->out, Frame::Welcome);
}

bool ControlServer::Loop::handleDefine(Connection &connection,
                                       std::string_view payload) {
  FrameReader reader(payload);
  uint32_t id = reader.u32();
  int64_t chunkBytes = reader.i64();
  std::string_view kind = reader.text();
  std::string_view title = reader.text();
  std::vector<int64_t> members;
  while (reader.hasMore())
    members.push_back(reader.i64());
  if (!reader.isComplete() || id >= kMaxDefinitions ||
      id > connection.definitions.size())
    return false;
  std::shared_ptr<const ControlLedger::Exchange> exchange =
      ledger.define(connection.rank, members, chunkBytes, kind, title);
  if (!exchange)
    return false;
  if (id == connection.definitions.size())
    connection.definitions.emplace_back();
  connection.definitions[id] = std::move(exchange);
  return true;
}

//===----------------------------------------------------------------------===//
// Write
//===----------------------------------------------------------------------===//

/// All at once, so that the story names them all.
void ControlServer::Loop::loseBroken() {
  std::vector<int64_t> lost;
  for (Connection &connection : connections) {
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

void ControlServer::Loop::deliver() {
  for (const ControlLedger::Notice &notice : ledger.takeNotices())
    if (Connection *connection = byRank[notice.rank])
      FrameWriter(connection->out, Frame::Failure)
          .i64(notice.failure.code)
          .text(notice.failure.title)
          .text(notice.failure.message);
}

void ControlServer::Loop::reportProgress(Clock::time_point now) {
  bool isTime = now >= nextReport;
  bool hasReported = false;
  for (Connection &connection : connections) {
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

void ControlServer::Loop::dropStrangers(Clock::time_point now) {
  size_t numStrangers =
      std::count_if(connections.begin(), connections.end(),
                    [](const Connection &other) { return other.rank < 0; });
  for (Connection &connection : connections) {
    if (connection.rank >= 0)
      continue;
    bool areTooMany = numStrangers > kMaxStrangers + byRank.size();
    if (areTooMany || now >= connection.since + kHelloLimit) {
      connection.isBroken = true;
      --numStrangers;
    }
  }
}

void ControlServer::Loop::write(Connection &connection) {
  if (connection.isBroken)
    return;
  Transfer result = send(connection.socket, connection.out, connection.sent);
  if (result == Transfer::Blocked)
    return;
  // Whether the other side has more to say is for read() to find out.
  connection.out.clear();
  connection.sent = 0;
  connection.isBroken = connection.isEnding;
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

ControlServer::ControlServer(std::unique_ptr<Loop> loop)
    : loop(std::move(loop)) {}
ControlServer::~ControlServer() = default;

Status ControlServer::create(const std::string &endpoint, int64_t numRanks,
                             std::chrono::microseconds timeLimit,
                             std::string greeting,
                             std::unique_ptr<ControlServer> &server) {
  Endpoint parsed;
  if (Status status = Endpoint::parse(endpoint, parsed); !status.ok())
    return status;
  if (numRanks < 1)
    return invalid(expected("at least 1 rank", numRanks));
  auto loop = std::make_unique<Loop>(std::move(parsed), numRanks, timeLimit,
                                     std::move(greeting));
  if (Status status = loop->start(); !status.ok())
    return status;
  server.reset(new ControlServer(std::move(loop)));
  return {};
}

const std::string &ControlServer::getEndpoint() const {
  return loop->endpointText;
}
