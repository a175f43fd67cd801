//===- ControlServer.h - Where the ranks of a world meet --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROL_CONTROLSERVER_H
#define ZPP_LIB_RUNTIME_CONTROL_CONTROLSERVER_H

#include "Control.h"
#include "ControlLedger.h"
#include "ControlWire.h"
#include "Handshake.h"
#include "Socket.h"

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <poll.h>
#include <thread>

namespace zpp::rt {

/// A client of a server, or who wants to become one.
struct ServerConnection {
  explicit ServerConnection(Descriptor socket)
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

/// The server that ranks connect to: one per world, in the process of rank 0.
class ControlServer {
public:
  struct Options {
    /// The endpoint to listen at: "HOST:PORT" or "[ADDRESS]:PORT". A name
    /// stands for an address of this host. Port 0 is any free port.
    std::string endpoint;
    int64_t numRanks;
    /// How long ranks wait for each other, to begin with and in each exchange.
    std::chrono::microseconds timeLimit;
    /// The text that all ranks must agree on: mesh, version of the interface.
    std::string greeting;
    /// The secret of the processes of the job.
    std::string token;
  };
  static Status create(Options options, std::unique_ptr<ControlServer> &server);

  /// Waits until all ranks have left, but not longer than the time limit, and
  /// not longer than a few seconds once the world has failed. Ranks of this
  /// process must have left before, unless another thread makes them leave.
  ~ControlServer();

  /// Returns the endpoint with the port that is listened on.
  const std::string &getEndpoint() const { return endpointText; }

private:
  ControlServer(Options options, Endpoint endpoint)
      : endpoint(std::move(endpoint)), timeLimit(options.timeLimit),
        token(std::move(options.token)),
        ledger(options.numRanks, timeLimit, std::move(options.greeting)),
        byRank(options.numRanks, nullptr) {}

  Status start();
  void run();
  /// Waits until there is something to do.
  void wait();
  void stop(Clock::time_point now);
  bool isDone(Clock::time_point now) const;
  void acceptAll();
  /// Whether everything that has arrived was read.
  bool read(ServerConnection &connection);
  bool handle(ServerConnection &connection, Frame frame,
              std::string_view payload);
  bool handleHello(ServerConnection &connection, FrameReader &reader);
  bool handleProof(ServerConnection &connection, FrameReader &reader);
  bool handleBroadcast(const ServerConnection &connection, FrameReader &reader);
  bool handleDefine(ServerConnection &connection, FrameReader &reader);
  void welcome();
  void loseBroken();
  void deliver();
  void reportProgress(Clock::time_point now);
  void dropStrangers(Clock::time_point now);
  void write(ServerConnection &connection);

  Endpoint endpoint;
  std::string endpointText;
  const std::chrono::microseconds timeLimit;
  const std::string token;
  Descriptor listener;
  WakeUp wakeUp;
  std::atomic<bool> mustStop{false};
  std::thread thread;

  // Used by the thread.
  ControlLedger ledger;
  /// In the order in which they arrived.
  std::list<ServerConnection> connections;
  std::vector<ServerConnection *> byRank;
  bool isWelcome = false;
  /// Since when there was always something left to read.
  std::optional<Clock::time_point> behindSince;
  std::vector<pollfd> polled;
  Clock::time_point nextReport;
  Clock::time_point nextAccept;
  std::optional<Clock::time_point> stopDeadline;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROL_CONTROLSERVER_H
