//===- ControlClient.cpp - A rank's end of the control plane --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ControlClient.h"
#include "Text.h"

#include <algorithm>
#include <poll.h>
#include <utility>

using namespace zpp::rt;
using namespace std::chrono_literals;

/// How long the server may take to notice that a rank leaves.
static constexpr auto kPartingLimit = 2s;
/// How long an announcement may wait before it is sent. A rank that announces
/// often need not wake the thread each time.
static constexpr auto kNap = 1ms;
/// How long after the last announcement the thread keeps looking for more.
static constexpr auto kAttention = 100ms;

ControlClient::~ControlClient() {
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

Status ControlClient::connect(Options options,
                              std::unique_ptr<ControlClient> &client) {
  std::unique_ptr<ControlClient> made(new ControlClient(std::move(options)));
  ZPP_RT_TRY(made->start());
  client = std::move(made);
  return {};
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

void ControlClient::wake() {
  if (std::exchange(rest, Rest::None) != Rest::None)
    wakeUp.signal();
}

bool ControlClient::setFailure(Failure cause) {
  Lock lock(mutex);
  if (hasLeft || !failure.set(std::move(cause)))
    return false;
  changed.notify_all();
  return true;
}

Status ControlClient::addGroup(const std::vector<int64_t> &members,
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

void ControlClient::announce(int64_t group, std::string_view kind,
                             int64_t chunkBytes, const std::string &title) {
  Lock lock(mutex);
  if (failure.has() || hasLeft)
    return;
  Exchange exchange{group, chunkBytes, clip(title, kMaxTitleBytes),
                    clip(kind, kMaxTitleBytes)};
  auto it = definitions.find(exchange);
  if (it == definitions.end()) {
    // Only a program whose exchanges never repeat gets here.
    if (definitions.size() == kMaxDefinitions)
      definitions.clear();
    const std::string &shown = std::get<2>(exchange);
    auto definition = std::make_shared<Definition>(
        Definition{static_cast<uint32_t>(definitions.size()), shown});
    FrameWriter frame(outgoing, Frame::Define);
    frame.u32(definition->id)
        .i64(chunkBytes)
        .text(std::get<3>(exchange))
        .text(shown);
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

std::string ControlClient::getPlace() const {
  Lock lock(mutex);
  return last ? "after the call of " + last->title : "";
}

Status ControlClient::confirm() {
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

Status ControlClient::broadcast(std::string &bytes) {
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

void ControlClient::fail(const std::string &message) {
  if (!setFailure({ZPP_RT_ABORTED, "", message}))
    return;
  Lock lock(mutex);
  FrameWriter(outgoing, Frame::Fail).text(clip(message, kMaxTextBytes));
  wake();
}

void ControlClient::leave() {
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
std::optional<Clock::time_point> ControlClient::sendOutgoing() {
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
  IoResult result = send(connection, out, sent);
  if (result == IoResult::Blocked)
    return limit;
  // After an error, what the server has said matters more than the error.
  out.clear();
  sent = 0;
  return now;
}

void ControlClient::run() {
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
bool ControlClient::receiveAll() {
  IoResult result = receive(connection, in.data);
  if (!handleAll())
    return false;
  if (result == IoResult::Ended)
    handleEnd();
  return result != IoResult::Ended;
}

/// Handles the frames that have arrived. False if one of them is not allowed.
bool ControlClient::handleAll() {
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
bool ControlClient::handle(Frame frame, std::string_view payload) {
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

void ControlClient::handleEnd() {
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

void ControlClient::giveUp(Failure cause) {
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
