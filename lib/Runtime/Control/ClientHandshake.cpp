//===- ClientHandshake.cpp - How a rank finds the server of its job -------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ControlClient.h"
#include "Handshake.h"

#include <algorithm>
#include <poll.h>
#include <system_error>

using namespace zpp::rt;
using namespace std::chrono_literals;

//===----------------------------------------------------------------------===//
// Start
//===----------------------------------------------------------------------===//

Status ControlClient::checkOptions() const {
  if (options.greeting.size() > kMaxTextBytes)
    return invalid(expected("a greeting of at most " +
                                std::to_string(kMaxTextBytes) + " bytes",
                            options.greeting.size()));
  return checkToken(options.token);
}

Status ControlClient::getSilence() const {
  return {ZPP_RT_TIMEOUT,
          expected("an answer of the process of rank 0 at " + options.endpoint +
                       " within " + std::to_string(options.timeLimit.count()) +
                       " usec",
                   "none")};
}

Status ControlClient::getForeign() const {
  return {ZPP_RT_SYSTEM_ERROR,
          expected("a zpp process of the same version at " + options.endpoint,
                   "one that speaks another protocol")};
}

Status ControlClient::start() {
  ZPP_RT_TRY(checkOptions());
  Endpoint endpoint;
  ZPP_RT_TRY(Endpoint::parse(options.endpoint, endpoint));
  if (endpoint.port == "0")
    return invalid(expected("the port at which rank 0 listens",
                            "0 in " + quote(options.endpoint)));
  ZPP_RT_TRY(wakeUp.create());
  ZPP_RT_TRY(shakeHands(endpoint));
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

Status ControlClient::shakeHands(const Endpoint &endpoint) {
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

ControlClient::Answer ControlClient::ask(const std::string &data, Frame kind,
                                         Clock::time_point deadline,
                                         std::string &text) {
  size_t position = 0;
  bool isSent = false, hasEnded = false;
  while (true) {
    if (!isSent) {
      IoResult result = send(connection, data, position);
      // The messages that the other side sent before it hung up still count.
      isSent = result != IoResult::Blocked;
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
      hasEnded = receive(connection, in.data) == IoResult::Ended;
  }
}

Status ControlClient::proveToken(Clock::time_point deadline, bool &mustRetry) {
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
  ZPP_RT_TRY(makeNonce(handshake.clientNonce));
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
