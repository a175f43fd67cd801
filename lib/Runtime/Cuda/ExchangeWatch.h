//===- ExchangeWatch.h - Exchanges that may wait for other ranks *- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_EXCHANGEWATCH_H
#define ZPP_LIB_RUNTIME_CUDA_EXCHANGEWATCH_H

#include "CudaStreams.h"

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>

namespace zpp::rt {

/// The exchanges that are under way, and the time limit on them. Every function
/// may be called from any thread.
class ExchangeWatch {
public:
  ExchangeWatch(const CudaStreams &streams, std::chrono::microseconds timeLimit)
      : streams(streams), timeLimit(timeLimit) {}

  void add(const CudaStreams::Position &position,
           std::shared_ptr<const OperationName> name);
  void clear();

  /// Forgets what is done. An exchange that has not ended although nothing else
  /// has, the caller's own work included, for the time limit is a failure.
  Status check();

private:
  using Clock = std::chrono::steady_clock;
  struct Exchange {
    CudaStreams::Position position;
    std::shared_ptr<const OperationName> name;
    /// Counts all that were added.
    int64_t number;
  };

  /// Null if nothing is under way.
  const Exchange *findOldest() const;

  const CudaStreams &streams;
  const std::chrono::microseconds timeLimit;
  std::mutex mutex;
  /// The exchanges of each stream. They end in order, so only the first is
  /// checked.
  std::array<std::deque<Exchange>, Hazards::kMaxStreams> pending;
  int64_t numAdded = 0;
  Clock::time_point lastProgress;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_EXCHANGEWATCH_H
