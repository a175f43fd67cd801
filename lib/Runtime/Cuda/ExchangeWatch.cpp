//===- ExchangeWatch.cpp - Exchanges that may wait for other ranks --------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExchangeWatch.h"

using namespace zpp::rt;

/// How much longer than the time limit an exchange may take in which all ranks
/// take part. A rank that has not come is found first, and its error says more.
static constexpr std::chrono::seconds kGrace{2};

void ExchangeWatch::add(const CudaStreams::Position &position,
                        std::shared_ptr<const OperationName> name) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!findOldest())
    lastProgress = Clock::now();
  pending[position.stream].push_back({position, std::move(name), ++numAdded});
}

void ExchangeWatch::clear() {
  std::lock_guard<std::mutex> lock(mutex);
  for (std::deque<Exchange> &stream : pending)
    stream.clear();
}

Status ExchangeWatch::check() {
  std::lock_guard<std::mutex> lock(mutex);
  Clock::time_point now = Clock::now();
  for (std::deque<Exchange> &stream : pending)
    while (!stream.empty()) {
      bool done;
      Status status = streams.isDone(stream.front().position, done);
      if (!status.ok()) {
        status.message = stream.front().name->title + ": " + status.message;
        return status;
      }
      if (!done)
        break;
      lastProgress = now;
      stream.pop_front();
    }
  const Exchange *oldest = findOldest();
  if (!oldest)
    return {};
  if (!streams.isEntered(oldest->position))
    lastProgress = now;
  if (now - lastProgress <= timeLimit + kGrace)
    return {};
  return {ZPP_RT_TIMEOUT, oldest->name->title + ": expected an end within " +
                              std::to_string(timeLimit.count()) +
                              " usec, but got none"};
}

const ExchangeWatch::Exchange *ExchangeWatch::findOldest() const {
  const Exchange *oldest = nullptr;
  for (const std::deque<Exchange> &stream : pending)
    if (!stream.empty() && (!oldest || stream.front().number < oldest->number))
      oldest = &stream.front();
  return oldest;
}
