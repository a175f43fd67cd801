//===- ControlServer.cpp - Connections of the control server --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Control.h"
#include "ControlLedger.h"
#include "ControlWire.h"
#include "Handshake.h"
#include "Socket.h"
#include "Text.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <optional>
#include <poll.h>
#include <system_error>
#include <thread>

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
/// Bytes of one rank that are read before others get their turn.
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
  /// The messages before Proof.
  Handshake handshake;
  /// -1 before Proof.
  int64_t rank = -1;
  /// Ends as soon as `out` is sent.
  bool isEnding = false;
  bool isBroken = false;
  /// The last result of poll().
  bool hasInput = false;
  std::vector<std::shared_ptr<const ControlLedger::Exchange>> definitions;
  /// The number of matched announcements that the rank knows of, and the number
  /// that it asked for.
  uint64_t reported = 0;
  uint64_t awaited = 0;
};
} // namespace

class ControlServer::Loop {
public:
  Loop(Options options, Endpoint endpoint)
      : endpoint(std::move(endpoint)), timeLimit(options.timeLimit),
        token(std::move(options.token)),
        ledger(options.numRanks, timeLimit, std::move(options.greeting)),
        byRank(options.numRanks, nullptr) {}
  ~Loop();

  Status start();

  Endpoint endpoint;
  std::string endpointText;

private:
  void run();
  /// Waits until there is something to do.
  void wait();
  void stop(Clock::time_point now);
  bool isDone(Clock::time_point now) const;
  void acceptAll();
  /// Whether everything that has arrived was read.
  bool read(Connection &connection);
  bool handle(Connection &connection, Frame frame, std::string_view payload);
  bool handleHello(Connection &connection, std::string_view payload);
  bool handleProof(Connection &connection, std::string_view payload);
  bool handleBroadcast(const Connection &connection, std::string_view payload);
  bool handleDefine(Connection &connection, std::string_view payload);
  void welcome();
  void loseBroken();
  void deliver();
  void reportProgress(Clock::time_point now);
  void dropStrangers(Clock::time_point now);
  void write(Connection &connection);

  const std::chrono::microseconds timeLimit;
  const std::string token;
  Descriptor listener;
  WakeUp wakeUp;
  std::atomic<bool> mustStop{false};
  std::thread thread;

  // Used by the thread.
  ControlLedger ledger;
  /// In the order in which they arrived.
  std::list<Connection> connections;
  std::vector<Connection *> byRank;
  bool isWelcome = false;
  /// Since when there was always something left to read.
  std::optional<Clock::time_point> behindSince;
  std::vector<pollfd> polled;
  Clock::time_point nextReport;
  Clock::time_point nextAccept;
  std::optional<Clock::time_point> stopDeadline;
};

//===----------------------------------------------------------------------===//
// Start and stop
//===----------------------------------------------------------------------===//

Status ControlServer::Loop::start() {
  bool isLocal = false;
  if (Status status = listenOn(endpoint, listener, isLocal); !status.ok())
    return status;
  // A name of this host may be a loopback address in its own files.
  if (isLocal && endpoint.host != "localhost" && !endpoint.isAddress())
    ledger.setNote("rank 0 listens on " + endpoint.host +
                   ", which only this host reaches");
  endpointText = endpoint.str();
  if (Status status = wakeUp.create(); !status.ok())
    return status;
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

ControlServer::Loop::~Loop() {
  mustStop = true;
  if (thread.joinable()) {
    wakeUp.signal();
    thread.join();
  }
}

void ControlServer::Loop::stop(Clock::time_point now) {
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

void ControlServer::Loop::wait() {
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
  for (const Connection &connection : connections) {
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

/// Whether the frame is one that a client may send now.
bool ControlServer::Loop::handle(Connection &connection, Frame frame,
                                 std::string_view payload) {
  FrameReader reader(payload);
  bool isFromRank = frame != Frame::Hello && frame != Frame::Proof;
  if (isFromRank != (connection.rank >= 0))
    return false;
  switch (frame) {
  case Frame::Hello:
    return handleHello(connection, payload);
  case Frame::Proof:
    return handleProof(connection, payload);
  case Frame::Define:
    return handleDefine(connection, payload);
  case Frame::Announce: {
    uint32_t id = reader.u32();
    if (!reader.isComplete() || id >= connection.definitions.size())
      return false;
    return ledger.announce(connection.rank, connection.definitions[id],
                           Clock::now());
  }
  case Frame::Confirm:
    connection.awaited = ledger.getAnnounced(connection.rank);
    return reader.isComplete();
  case Frame::Fail: {
    std::string_view message = reader.text();
    if (!reader.isComplete() || message.size() > kMaxTextBytes)
      return false;
    ledger.fail(connection.rank, escapeControls(message));
    return true;
  }
  case Frame::Broadcast:
    return handleBroadcast(connection, payload);
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
  Handshake &handshake = connection.handshake;
  std::string_view nonce = reader.text();
  if (!reader.isComplete() || nonce.size() != kNonceBytes ||
      !handshake.clientNonce.empty() || !makeNonce(handshake.serverNonce).ok())
    return false;
  handshake.clientNonce = nonce;
  connection.out = kPreamble;
  FrameWriter(connection.out, Frame::Challenge).text(handshake.serverNonce);
  return true;
}

bool ControlServer::Loop::handleProof(Connection &connection,
                                      std::string_view payload) {
  FrameReader reader(payload);
  Handshake &handshake = connection.handshake;
  std::string_view proof = reader.text();
  handshake.rank = reader.i64();
  handshake.numRanks = reader.i64();
  std::string_view greeting = reader.text();
  if (!reader.isComplete() || handshake.clientNonce.empty() ||
      greeting.size() > kMaxTextBytes)
    return false;
  handshake.greeting = greeting;
  if (!handshake.isProof(Handshake::Side::Client, token, proof)) {
    ledger.turnAway("it does not know the token of this job");
    return false;
  }
  FrameWriter(connection.out, Frame::Accept)
      .text(handshake.prove(Handshake::Side::Server, token));
  Status status = ledger.join(handshake.rank, handshake.numRanks,
                              escapeControls(greeting), Clock::now());
  if (!status.ok()) {
    FrameWriter(connection.out, Frame::Failure)
        .i64(status.code)
        .text({})
        .text(status.message);
    connection.isEnding = true;
    return true;
  }
  connection.rank = handshake.rank;
  connection.in.maxBytes = kMaxFrameBytes;
  byRank[connection.rank] = &connection;
  welcome();
  return true;
}

/// NCCL connects to what the others are told, so only rank 0 tells them, and
/// only when all are there to hear it.
bool ControlServer::Loop::handleBroadcast(const Connection &connection,
                                          std::string_view payload) {
  FrameReader reader(payload);
  std::string_view bytes = reader.text();
  if (!reader.isComplete() || connection.rank != 0 || !isWelcome ||
      bytes.size() > kMaxBroadcastBytes)
    return false;
  for (Connection *other : byRank)
    if (other && other != &connection)
      FrameWriter(other->out, Frame::Broadcast).text(bytes);
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
      id > connection.definitions.size() || kind.size() > kMaxTitleBytes ||
      title.size() > kMaxTitleBytes)
    return false;
  std::shared_ptr<const ControlLedger::Exchange> exchange =
      ledger.define(connection.rank, members, chunkBytes, escapeControls(kind),
                    escapeControls(title));
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

/// Reports all lost ranks at once, so that the message names them all.
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
  if (result == Transfer::Blocked) {
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

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

ControlServer::ControlServer(std::unique_ptr<Loop> loop)
    : loop(std::move(loop)) {}
ControlServer::~ControlServer() = default;

Status ControlServer::create(Options options,
                             std::unique_ptr<ControlServer> &server) {
  Endpoint endpoint;
  if (Status status = Endpoint::parse(options.endpoint, endpoint); !status.ok())
    return status;
  if (options.numRanks < 1)
    return invalid(expected("at least 1 rank", options.numRanks));
  if (Status status = checkToken(options.token); !status.ok())
    return status;
  auto loop = std::make_unique<Loop>(std::move(options), std::move(endpoint));
  if (Status status = loop->start(); !status.ok())
    return status;
  server.reset(new ControlServer(std::move(loop)));
  return {};
}

const std::string &ControlServer::getEndpoint() const {
  return loop->endpointText;
}
