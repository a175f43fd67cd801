//===- HostTimes.h - What starts and waits cost the host --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_XLA_HOSTTIMES_H
#define ZPP_LIB_XLA_HOSTTIMES_H

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace zpp::xla {

/// How long calls took since the last take().
class HostTimes {
public:
  using Clock = std::chrono::steady_clock;

  /// Measures from its construction to its destruction.
  class Timer {
  public:
    explicit Timer(HostTimes &times) : times(times) {}
    ~Timer() { times.add(Clock::now() - begin); }
    Timer(const Timer &) = delete;
    Timer &operator=(const Timer &) = delete;

  private:
    HostTimes &times;
    const Clock::time_point begin = Clock::now();
  };

  /// The median in microseconds and the number of calls.
  std::pair<double, int64_t> take() {
    std::vector<float> values;
    {
      std::lock_guard<std::mutex> lock(mutex);
      values.swap(usec);
    }
    if (values.empty())
      return {0, 0};
    auto median = values.begin() + values.size() / 2;
    std::nth_element(values.begin(), median, values.end());
    return {*median, values.size()};
  }

private:
  void add(Clock::duration duration) {
    std::lock_guard<std::mutex> lock(mutex);
    if (usec.size() < kMost)
      usec.push_back(
          std::chrono::duration<float, std::micro>(duration).count());
  }

  /// The list stops growing here if nobody calls take().
  static constexpr size_t kMost = 1 << 16;
  std::mutex mutex;
  std::vector<float> usec;
};

/// The times of starts and waits on XLA's threads, and of the functions of
/// starts on the ranks' threads, if these functions only queue work on streams.
inline HostTimes startTimes, waitTimes, queueTimes;

} // namespace zpp::xla

#endif // ZPP_LIB_XLA_HOSTTIMES_H
