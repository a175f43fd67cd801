//===- ControlClient.h - A rank in the control plane ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROL_CONTROLCLIENT_H
#define ZPP_LIB_RUNTIME_CONTROL_CONTROLCLIENT_H

#include "Control.h"
#include "ControlWire.h"
#include "FirstFailure.h"
#include "Socket.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

namespace zpp::rt {

/// How late the server may answer: it measures time from the first rank that
/// came, and may be busy.
inline constexpr std::chrono::seconds kAnswerLimit{5};

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
  Failure getFailure() const { return failure.get(); }

private:
  explicit ControlClient(Options options) : options(std::move(options)) {}
  Status start();

  using Lock = std::unique_lock<std::mutex>;

  /// A definition that the server knows by a number.
  struct Definition {
    uint32_t id;
    std::string title;
  };

  /// The key of a definition: group, bytes of a chunk, title and kind.
  using Exchange = std::tuple<int64_t, int64_t, std::string, std::string>;

  Status checkOptions() const;
  /// Connects, and finds out whether the other side is the server of the job.
  Status shakeHands(const Endpoint &endpoint);
  /// Both sides prove that they know the token. Sets `mustRetry` if the other
  /// side hung up before it had asked for a proof.
  Status proveToken(Clock::time_point deadline, bool &mustRetry);
  /// Sends `data`, and waits for a frame of `kind`, which contains one text.
  enum class Answer { Arrived, Ended, Foreign, Late };
  Answer ask(const std::string &data, Frame kind, Clock::time_point deadline,
             std::string &text);
  /// Gets the thread to send `outgoing` at once.
  void wake();
  /// Ends what the rank waits for. False if it had failed before, or left.
  bool setFailure(Failure cause);
  /// Returns the error if there is no answer, or an answer in another protocol.
  Status getSilence() const;
  Status getForeign() const;

  // Called by the thread.
  void run();
  std::optional<Clock::time_point> sendOutgoing();
  bool receiveAll();
  bool handleAll();
  bool handle(Frame frame, std::string_view payload);
  void giveUp(Failure cause);
  void handleEnd();

  const Options options;
  Descriptor connection;
  WakeUp wakeUp;
  std::thread thread;
  FrameParser in{kMaxFrameBytes};
  std::string out;
  size_t sent = 0;
  Clock::time_point lastSent = Clock::now();

  /// Guards all below.
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::string outgoing;
  /// The state of the thread: it works, waits for kNap, or waits until it is
  /// woken.
  enum class Rest { None, Nap, Sleep } rest = Rest::None;
  bool isWelcome = false;
  bool hasLeft = false;
  FirstFailure<Failure> failure;
  /// Set by the destructor.
  std::optional<Clock::time_point> stopDeadline;
  std::deque<std::string> broadcasts;
  /// Those that broadcast() has not returned yet.
  size_t broadcastBytes = 0;
  std::vector<std::vector<int64_t>> groups;
  std::map<Exchange, std::shared_ptr<const Definition>> definitions;
  /// Announcements that are not known to be matched.
  std::deque<std::shared_ptr<const Definition>> pending;
  /// The last announcement; null before the first.
  std::shared_ptr<const Definition> last;
  uint64_t announced = 0;
  uint64_t matched = 0;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROL_CONTROLCLIENT_H
