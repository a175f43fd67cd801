//===- ControlClient.cpp - A rank's end of the control plane --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Control.h"
#include "ControlWire.h"
#include "FirstFailure.h"
#include "Handshake.h"
#include "Socket.h"
#include "Text.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <system_error>
#include <thread>
#include <tuple>

using namespace zpp::rt;
using namespace std::chrono_literals;

/// How late the server may answer: it measures time from the first rank that
/// came, and may be busy.
static constexpr auto kAnswerLimit = 5s;
/// How long the server may take to notice that a rank leaves.
static constexpr auto kPartingLimit = 2s;
/// How long an announcement may wait before it is sent. A rank that announces
/// often need not wake the thread each time.
static constexpr auto kNap = 1ms;
/// How long after the last announcement the thread keeps looking for more.
static constexpr auto kAttention = 100ms;

namespace {
/// A definition that the server knows by a number.
struct Definition {
  uint32_t id;
  std::string title;
};

/// What identifies a definition.
template <typename Text> struct Exchange {
  int64_t group;
  int64_t chunkBytes;
  Text title;
  Text kind;

  auto tie() const { return std::tie(group, chunkBytes, title, kind); }
};
/// Compares strings with views of them.
struct Before {
  using is_transparent = void;
  template <typename A, typename B>
  bool operator()(const Exchange<A> &a, const Exchange<B> &b) const {
    return a.tie() < b.tie();
  }
};
} // namespace

class ControlClient::Loop {
public:
  explicit Loop(Options options) : options(std::move(options)) {}
  ~Loop();

  Status start();
  Status broadcast(std::string &bytes);
  Status addGroup(const std::vector<int64_t> &members, int64_t &group);
  void announce(int64_t group, std::string_view kind, int64_t chunkBytes,
                const std::string &title);
  std::string getPlace();
  Status confirm();
  void fail(const std::string &message);
  void leave();
  Failure getFailure() const { return failure.get(); }

private:
  using Lock = std::unique_lock<std::mutex>;

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
  /// The error if there is no answer, or an answer in another protocol.
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
  std::mutex mutex;
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
  std::map<Exchange<std::string>, std::shared_ptr<const Definition>, Before>
      definitions;
  /// Announcements that are not known to be matched.
  std::deque<std::shared_ptr<const Definition>> pending;
  /// The last announcement; null before the first.
  std::shared_ptr<const Definition> last;
  uint64_t announced = 0;
  uint64_t matched = 0;
};

//===----------------------------------------------------------------------===//
// Start and stop
//===----------------------------------------------------------------------===//

Status ControlClient::Loop::checkOptions() const {
  if (options.greeting.size() > kMaxTextBytes)
    return invalid(expected("a greeting of at most " +
                                std::to_string(kMaxTextBytes) + " bytes",
                            options.greeting.size()));
  return checkToken(options.token);
}

Status ControlClient::Loop::getSilence() const {
  return {ZPP_RT_TIMEOUT,
          expected("an answer of the process of rank 0 at " + options.endpoint +
                       " within " + std::to_string(options.timeLimit.count()) +
                       " usec",
                   "none")};
}

Status ControlClient::Loop::getForeign() const {
  return {ZPP_RT_SYSTEM_ERROR,
          expected("a zpp process of the same version at " + options.endpoint,
                   "one that speaks another protocol")};
}

Status ControlClient::Loop::start() {
  if (Status status = checkOptions(); !status.ok())
    return status;
  Endpoint endpoint;
  if (Status status = Endpoint::parse(options.endpoint, endpoint); !status.ok())
    return status;
  if (endpoint.port == "0")
    return invalid(expected("the port at which rank 0 listens",
                            "0 in " + quote(options.endpoint)));
  if (Status status = wakeUp.create(); !status.ok())
    return status;
  if (Status status = shakeHands(endpoint); !status.ok())
    return status;
  try {
    thread = std::thread([this] {
      try {
        run();
      } catch (const std::exception &error) {
        giveUp({ZPP_RT_OUT_OF_MEMORY, "", error.what()});
      }
    });
  } catch (const std::system_error &error) {
    return {ZPP_RT_SYSTEM_ERROR, expected("a thread", quote(error.what()))};
  }
  Lock lock(mutex);
  bool hasAnswer =
      changed.wait_until(lock, Clock::now() + options.timeLimit + kAnswerLimit,
                         [&] { return isWelcome || failure.has(); });
  if (!hasAnswer)
    return getSilence();
  return isWelcome ? Status() : failure.get().getStatus();
}

//===----------------------------------------------------------------------===//
// Handshake
//===----------------------------------------------------------------------===//

Status ControlClient::Loop::shakeHands(const Endpoint &endpoint) {
  const Clock::time_point deadline = Clock::now() + options.timeLimit;
  for (auto pause = 5ms;; pause = std::min(2 * pause, 250ms)) {
    std::string error;
    if (!connectTo(endpoint, deadline, connection, error))
      return {ZPP_RT_TIMEOUT,
              expected("to reach the process of rank 0 at " + options.endpoint +
                           " within " +
                           std::to_string(options.timeLimit.count()) + " usec",
                       quote(error))};
    bool mustRetry = false;
    Status status = proveToken(deadline, mustRetry);
    // A server to which many strangers connect may drop the wrong ones.
    if (!mustRetry || Clock::now() + pause >= deadline)
      return status;
    std::this_thread::sleep_for(pause);
  }
}

ControlClient::Loop::Answer ControlClient::Loop::ask(const std::string &data,
                                                     Frame kind,
                                                     Clock::time_point deadline,
                                                     std::string &text) {
  size_t position = 0;
  bool isSent = false, hasEnded = false;
  while (true) {
    if (!isSent) {
      Transfer result = send(connection, data, position);
      // The messages that the other side sent before it hung up still count.
      isSent = result != Transfer::Blocked;
    }
    Frame frame;
    std::string_view payload;
    switch (in.next(frame, payload)) {
    case FrameParser::Result::Frame: {
      FrameReader reader(payload);
      text = reader.text();
      bool isAnswer = frame == kind && reader.isComplete();
      in.compact();
      return isAnswer ? Answer::Arrived : Answer::Foreign;
    }
    case FrameParser::Result::Malformed:
      return Answer::Foreign;
    case FrameParser::Result::NeedMore:
      break;
    }
    if (hasEnded)
      return Answer::Ended;
    if (Clock::now() >= deadline)
      return Answer::Late;
    pollfd polled = {connection.get(),
                     static_cast<short>(POLLIN | (isSent ? 0 : POLLOUT)), 0};
    ::poll(&polled, 1, getPollTimeout(deadline));
    if (polled.revents & ~POLLOUT)
      hasEnded = receive(connection, in.data) == Transfer::Ended;
  }
}

Status ControlClient::Loop::proveToken(Clock::time_point deadline,
                                       bool &mustRetry) {
  auto fail = [&](Answer answer) -> Status {
    if (answer == Answer::Late)
      return getSilence();
    if (answer == Answer::Foreign)
      return getForeign();
    return {ZPP_RT_MISMATCH,
            expected("a process at " + options.endpoint +
                         " that knows the token of this job",
                     "one that hung up; all processes of a job need the same "
                     "token")};
  };
  in = FrameParser(kMaxHelloBytes);
  Handshake handshake;
  handshake.rank = options.rank;
  handshake.numRanks = options.numRanks;
  handshake.greeting = options.greeting;
  if (Status status = makeNonce(handshake.clientNonce); !status.ok())
    return status;
  std::string hello(kPreamble);
  FrameWriter(hello, Frame::Hello).text(handshake.clientNonce);
  Answer answer = ask(hello, Frame::Challenge, deadline, handshake.serverNonce);
  mustRetry = answer == Answer::Ended;
  if (answer != Answer::Arrived)
    return mustRetry ? getSilence() : fail(answer);
  if (handshake.serverNonce.size() != kNonceBytes)
    return fail(Answer::Foreign);

  std::string message, proof;
  FrameWriter(message, Frame::Proof)
      .text(handshake.prove(Handshake::Side::Client, options.token))
      .i64(handshake.rank)
      .i64(handshake.numRanks)
      .text(handshake.greeting);
  answer = ask(message, Frame::Accept, deadline, proof);
  if (answer != Answer::Arrived)
    return fail(answer);
  if (!handshake.isProof(Handshake::Side::Server, options.token, proof))
    return {ZPP_RT_MISMATCH, expected("a process at " + options.endpoint +
                                          " that knows the token of this job",
                                      "one that does not")};
  in.maxBytes = kMaxFrameBytes;
  return {};
}

ControlClient::Loop::~Loop() {
  if (!thread.joinable())
    return;
  leave();
  {
    Lock lock(mutex);
    stopDeadline = Clock::now() + kPartingLimit;
  }
  wakeUp.signal();
  thread.join();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

void ControlClient::Loop::wake() {
  if (std::exchange(rest, Rest::None) != Rest::None)
    wakeUp.signal();
}

bool ControlClient::Loop::setFailure(Failure cause) {
  Lock lock(mutex);
  if (hasLeft || !failure.set(std::move(cause)))
    return false;
  changed.notify_all();
  return true;
}

Status ControlClient::Loop::addGroup(const std::vector<int64_t> &members,
                                     int64_t &group) {
  std::vector<int64_t> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t member : members)
    if (member < 0 || member >= options.numRanks)
      return invalid(expected(
          "ranks in [0, " + std::to_string(options.numRanks) + ")", member));
  auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    return invalid(
        expected("different ranks", std::to_string(*twice) + " twice"));
  if (!std::binary_search(sorted.begin(), sorted.end(), options.rank))
    return invalid(expected("a group of rank " + std::to_string(options.rank),
                            "one without it"));
  Lock lock(mutex);
  auto it = std::find(groups.begin(), groups.end(), members);
  group = it - groups.begin();
  if (it != groups.end())
    return {};
  if (groups.size() == kMaxGroups)
    return {
        ZPP_RT_UNSUPPORTED,
        expected("at most " + std::to_string(kMaxGroups) + " groups of a rank",
                 "another one")};
  groups.push_back(members);
  return {};
}

void ControlClient::Loop::announce(int64_t group, std::string_view kind,
                                   int64_t chunkBytes,
                                   const std::string &title) {
  Lock lock(mutex);
  if (failure.has() || hasLeft)
    return;
  auto it = definitions.find(
      Exchange<std::string_view>{group, chunkBytes, clip(title, kMaxTitleBytes),
                                 clip(kind, kMaxTitleBytes)});
  if (it == definitions.end()) {
    // Only a program whose exchanges never repeat gets here.
    if (definitions.size() == kMaxDefinitions)
      definitions.clear();
    Exchange<std::string> exchange{group, chunkBytes,
                                   std::string(clip(title, kMaxTitleBytes)),
                                   std::string(clip(kind, kMaxTitleBytes))};
    auto definition = std::make_shared<Definition>(
        Definition{static_cast<uint32_t>(definitions.size()), exchange.title});
    FrameWriter frame(outgoing, Frame::Define);
    frame.u32(definition->id)
        .i64(chunkBytes)
        .text(exchange.kind)
        .text(exchange.title);
    for (int64_t member : groups[group])
      frame.i64(member);
    it = definitions.emplace(std::move(exchange), std::move(definition)).first;
  }
  FrameWriter(outgoing, Frame::Announce).u32(it->second->id);
  pending.push_back(it->second);
  last = it->second;
  ++announced;
  if (rest == Rest::Sleep)
    wake();
}

std::string ControlClient::Loop::getPlace() {
  Lock lock(mutex);
  return last ? "after the call of " + last->title : "";
}

Status ControlClient::Loop::confirm() {
  Lock lock(mutex);
  if (!failure.has() && !hasLeft && matched < announced) {
    writeFrame(outgoing, Frame::Confirm);
    wake();
  }
  const uint64_t target = announced;
  while (!failure.has() && !hasLeft && matched < target) {
    // The server fails each exchange after the time limit, one after the other.
    uint64_t before = matched;
    bool hasAnswer = changed.wait_until(
        lock, Clock::now() + options.timeLimit + kAnswerLimit,
        [&] { return failure.has() || hasLeft || matched != before; });
    if (!hasAnswer)
      return getSilence();
  }
  return failure.get().getStatus();
}

Status ControlClient::Loop::broadcast(std::string &bytes) {
  if (bytes.size() > kMaxBroadcastBytes)
    return invalid(expected("at most " + std::to_string(kMaxBroadcastBytes) +
                                " bytes to broadcast",
                            bytes.size()));
  Lock lock(mutex);
  if (options.rank == 0) {
    if (!failure.has() && !hasLeft) {
      FrameWriter(outgoing, Frame::Broadcast).text(bytes);
      wake();
    }
    return failure.get().getStatus();
  }
  bool hasEnded =
      changed.wait_until(lock, Clock::now() + options.timeLimit, [&] {
        return !broadcasts.empty() || failure.has() || hasLeft;
      });
  if (!broadcasts.empty()) {
    bytes = std::move(broadcasts.front());
    broadcasts.pop_front();
    broadcastBytes -= bytes.size();
    return {};
  }
  if (!hasEnded)
    return {ZPP_RT_TIMEOUT,
            expected("a broadcast of rank 0 within " +
                         std::to_string(options.timeLimit.count()) + " usec",
                     "none")};
  return failure.get().getStatus();
}

void ControlClient::Loop::fail(const std::string &message) {
  if (!setFailure({ZPP_RT_ABORTED, "", message}))
    return;
  Lock lock(mutex);
  FrameWriter(outgoing, Frame::Fail).text(clip(message, kMaxTextBytes));
  wake();
}

void ControlClient::Loop::leave() {
  Lock lock(mutex);
  if (std::exchange(hasLeft, true))
    return;
  writeFrame(outgoing, Frame::Goodbye);
  wake();
  changed.notify_all();
}

//===----------------------------------------------------------------------===//
// Thread
//===----------------------------------------------------------------------===//

/// Returns until when to wait for something to do; none if there is nothing
/// left to do.
std::optional<Clock::time_point> ControlClient::Loop::sendOutgoing() {
  Clock::time_point now = Clock::now();
  Clock::time_point limit = now + 1h;
  {
    Lock lock(mutex);
    rest = Rest::None;
    if (stopDeadline)
      limit = *stopDeadline;
    if (now >= limit)
      return std::nullopt;
    if (out.empty()) {
      // Swapping keeps the memory of both.
      std::swap(out, outgoing);
      if (!out.empty())
        lastSent = now;
      else if (now < lastSent + kAttention)
        rest = Rest::Nap;
      else
        rest = Rest::Sleep;
    }
    if (rest == Rest::Nap)
      limit = std::min<Clock::time_point>(limit, now + kNap);
  }
  if (out.empty())
    return limit;
  Transfer result = send(connection, out, sent);
  if (result == Transfer::Blocked)
    return limit;
  // After an error, what the server has said matters more than the error.
  out.clear();
  sent = 0;
  return now;
}

void ControlClient::Loop::run() {
  // Frames may have arrived together with the server's proof.
  if (!handleAll())
    return;
  while (std::optional<Clock::time_point> deadline = sendOutgoing()) {
    pollfd polled[] = {
        {wakeUp.get(), POLLIN, 0},
        {connection.get(),
         static_cast<short>(POLLIN | (out.empty() ? 0 : POLLOUT)), 0}};
    ::poll(polled, 2, getPollTimeout(*deadline));
    if (polled[0].revents)
      wakeUp.clear();
    if ((polled[1].revents & ~POLLOUT) && !receiveAll())
      return;
  }
}

/// Whether the connection goes on.
bool ControlClient::Loop::receiveAll() {
  Transfer result = receive(connection, in.data);
  if (!handleAll())
    return false;
  if (result == Transfer::Ended)
    handleEnd();
  return result != Transfer::Ended;
}

/// Handles the frames that have arrived. False if one of them is not allowed.
bool ControlClient::Loop::handleAll() {
  Frame frame;
  std::string_view payload;
  FrameParser::Result parsed;
  while ((parsed = in.next(frame, payload)) == FrameParser::Result::Frame)
    if (!handle(frame, payload))
      break;
  if (parsed != FrameParser::Result::NeedMore) {
    Status foreign = getForeign();
    giveUp({foreign.code, "", foreign.message});
    return false;
  }
  in.compact();
  return true;
}

/// Whether the frame is one that a server may send now.
bool ControlClient::Loop::handle(Frame frame, std::string_view payload) {
  FrameReader reader(payload);
  switch (frame) {
  case Frame::Welcome: {
    Lock lock(mutex);
    isWelcome = true;
    changed.notify_all();
    break;
  }
  case Frame::Progress: {
    uint64_t count = reader.u64();
    Lock lock(mutex);
    if (count > pending.size())
      return false;
    pending.erase(pending.begin(), pending.begin() + count);
    matched += count;
    changed.notify_all();
    break;
  }
  case Frame::Failure: {
    int64_t code = reader.i64();
    std::string title = escapeControls(reader.text());
    std::string message = escapeControls(reader.text());
    // A failure with an unknown code is still a failure.
    if (code <= ZPP_RT_OK || code > ZPP_RT_SYSTEM_ERROR)
      code = ZPP_RT_SYSTEM_ERROR;
    if (reader.isComplete())
      giveUp({static_cast<zpp_rt_status>(code), std::move(title),
              std::move(message)});
    break;
  }
  case Frame::Broadcast: {
    std::string bytes(reader.text());
    Lock lock(mutex);
    if (broadcastBytes + bytes.size() > kMaxUnreadBytes ||
        broadcasts.size() == kMaxBroadcasts)
      return false;
    broadcastBytes += bytes.size();
    broadcasts.push_back(std::move(bytes));
    changed.notify_all();
    break;
  }
  default:
    return false;
  }
  return reader.isComplete();
}

void ControlClient::Loop::handleEnd() {
  std::string title;
  {
    Lock lock(mutex);
    if (!pending.empty())
      title = pending.front()->title;
  }
  giveUp({ZPP_RT_RANK_LOST, title,
          "expected " + std::to_string(options.numRanks) +
              " ranks, but rank 0 was lost"});
}

void ControlClient::Loop::giveUp(Failure cause) {
  // The server does not know an exchange in which the rank waits.
  if (cause.title.empty())
    cause.title = getPlace();
  bool mustTell;
  {
    Lock lock(mutex);
    // Otherwise connect() returns it.
    mustTell = isWelcome;
  }
  if (setFailure(cause) && mustTell && options.onFailure)
    options.onFailure(cause);
}

//===----------------------------------------------------------------------===//
// Interface
//===----------------------------------------------------------------------===//

ControlClient::ControlClient(std::unique_ptr<Loop> loop)
    : loop(std::move(loop)) {}
ControlClient::~ControlClient() = default;

Status ControlClient::connect(Options options,
                              std::unique_ptr<ControlClient> &client) {
  auto loop = std::make_unique<Loop>(std::move(options));
  if (Status status = loop->start(); !status.ok())
    return status;
  client.reset(new ControlClient(std::move(loop)));
  return {};
}

Status ControlClient::broadcast(std::string &bytes) {
  return loop->broadcast(bytes);
}
Status ControlClient::addGroup(const std::vector<int64_t> &members,
                               int64_t &group) {
  return loop->addGroup(members, group);
}
void ControlClient::announce(int64_t group, std::string_view kind,
                             int64_t chunkBytes, const std::string &title) {
  loop->announce(group, kind, chunkBytes, title);
}
std::string ControlClient::getPlace() const { return loop->getPlace(); }
Status ControlClient::confirm() { return loop->confirm(); }
void ControlClient::fail(const std::string &message) { loop->fail(message); }
void ControlClient::leave() { loop->leave(); }
Failure ControlClient::getFailure() const { return loop->getFailure(); }
