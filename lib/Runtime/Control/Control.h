//===- Control.h - How ranks of several processes keep together -*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Data moves by other means; this is how ranks find each other, agree on what
// comes next and learn that it will not. Every rank has a TCP connection to a
// server in the process of rank 0, which compares what the ranks announce.
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

/// Why a rank must give up.
struct Failure {
  zpp_rt_status code = ZPP_RT_OK;
  /// The exchange of its own that the rank waits in, or getPlace().
  std::string title;
  std::string message;

  bool ok() const { return code == ZPP_RT_OK; }
  /// "all_to_all 'x' along gpu: expected 4 ranks, but rank 3 left"
  Status getStatus() const {
    return {code, title.empty() ? message : title + ": " + message};
  }
};

/// Where ranks meet: one per world, in the process of rank 0.
class ControlServer {
public:
  /// Listens on `endpoint`, "HOST:PORT" or "[ADDRESS]:PORT": on that address if
  /// HOST is one or localhost, on all addresses if it is another name, which
  /// may mean something else to other hosts. Port 0 is any that is free. Ranks
  /// must bring the same `greeting`; `timeLimit` is how long they wait for each
  /// other, to begin with and in each exchange.
  static Status create(const std::string &endpoint, int64_t numRanks,
                       std::chrono::microseconds timeLimit,
                       std::string greeting,
                       std::unique_ptr<ControlServer> &server);

  /// Waits until all ranks have left, but not longer than the time limit, nor
  /// than a few seconds once the world has failed. Ranks of this process must
  /// have left before, unless another thread sees to it.
  ~ControlServer();

  /// With the port that is listened on.
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
    /// Of the server.
    std::string endpoint;
    int64_t rank;
    int64_t numRanks;
    /// What all ranks must agree on: mesh, version of the interface.
    std::string greeting;
    std::chrono::microseconds timeLimit;
    /// Called at most once, by the client's thread, when this rank must give up
    /// because of others; possibly before connect() has returned, never when
    /// connect() fails or after the destructor. Must not destroy the client.
    std::function<void(const Failure &failure)> onFailure;
  };

  /// Waits until all ranks are there. The server may start later than this.
  static Status connect(Options options,
                        std::unique_ptr<ControlClient> &client);

  /// Leaves, and waits (shortly) until the server has noticed.
  ~ControlClient();

  /// The bytes of rank 0 arrive in `bytes` of all ranks: calls meet in their
  /// order. Waits, except on rank 0. For setup.
  Status broadcast(std::string &bytes);

  /// Numbers a group for announce(): ranks in the order that all members give.
  Status addGroup(const std::vector<int64_t> &members, int64_t &group);

  /// This rank is about to take part in the next exchange of `group`, a result
  /// of addGroup(). Returns at once, without a system call where announcements
  /// follow each other; the server hears of it within a millisecond. Nothing
  /// happens on a rank that has failed or left.
  void announce(int64_t group, std::string_view kind, int64_t chunkBytes,
                const std::string &title);

  /// "after the call of " the exchange that was announced last, which may be
  /// under way although all members have announced it; empty if none was.
  std::string getPlace() const;

  /// Waits until all exchanges announced so far were found equal on all their
  /// members, or returns the failure.
  Status confirm();

  /// Tells all other ranks that this one has failed; ends confirm() and
  /// broadcast() of this rank.
  void fail(const std::string &message);

  /// Says goodbye, after all that was announced: others that wait for this rank
  /// from now on fail, those that do not go on.
  void leave();

  /// What onFailure was told, or fail().
  Failure getFailure() const;

  class Loop;

private:
  explicit ControlClient(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROL_H
