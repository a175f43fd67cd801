//===- Control.h - How ranks of several processes keep together -*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How ranks find each other, agree on the next exchange, and learn of failures.
// Tensor data moves by other means. Every rank has a TCP connection to a server
// in the process of rank 0, which compares what the ranks announce.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROL_H
#define ZPP_LIB_RUNTIME_CONTROL_H

#include "Status.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zpp::rt {

/// The reason why a rank must give up.
struct Failure {
  zpp_rt_status code = ZPP_RT_OK;
  /// The exchange in which the rank waits, or getPlace().
  std::string title;
  std::string message;

  bool ok() const { return code == ZPP_RT_OK; }
  /// "all_to_all 'x' along gpu: expected 4 ranks, but rank 3 left"
  Status getStatus() const {
    return {code, title.empty() ? message : title + ": " + message};
  }
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
  const std::string &getEndpoint() const;

  class Loop;

private:
  explicit ControlServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop;
};

/// One rank's end. Functions may be called by several threads at once.
class ControlClient {
public:
  struct Options {
    /// The endpoint of the server.
    std::string endpoint;
    int64_t rank;
    int64_t numRanks;
    /// As in ControlServer::Options.
    std::string greeting;
    std::string token;
    std::chrono::microseconds timeLimit;
    /// Called at most once, by the client's thread, when this rank must give up
    /// because of others. This can be before connect() has returned, but not if
    /// connect() fails, and not after the destructor. Must not destroy the
    /// client.
    std::function<void(const Failure &failure)> onFailure;
  };

  /// Waits until all ranks are connected. The server may start later than this.
  static Status connect(Options options,
                        std::unique_ptr<ControlClient> &client);

  /// Leaves, and waits for a short time until the server has noticed.
  ~ControlClient();

  /// Copies the bytes of rank 0 to `bytes` on all ranks. The n-th calls of all
  /// ranks belong together. Waits, except on rank 0. For setup.
  Status broadcast(std::string &bytes);

  /// Numbers a group for announce(). All members give the same order.
  Status addGroup(const std::vector<int64_t> &members, int64_t &group);

  /// Announces that this rank is about to take part in the next exchange of
  /// `group`, a result of addGroup(). Returns at once, and without a system
  /// call if announcements follow each other. The server gets it within a
  /// millisecond. Does nothing if the rank has failed or left.
  void announce(int64_t group, std::string_view kind, int64_t chunkBytes,
                const std::string &title);

  /// "after the call of " the exchange that was announced last. It may be under
  /// way even if all members have announced it. Empty if none was announced.
  std::string getPlace() const;

  /// Waits until all exchanges announced so far were found equal on all their
  /// members, or returns the failure.
  Status confirm();

  /// Tells all other ranks that this one has failed; ends confirm() and
  /// broadcast() of this rank.
  void fail(const std::string &message);

  /// Leaves after all that was announced. Ranks that wait for this one from now
  /// on fail; others continue.
  void leave();

  /// Returns the failure that was passed to onFailure or fail().
  Failure getFailure() const;

  class Loop;

private:
  explicit ControlClient(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROL_H
