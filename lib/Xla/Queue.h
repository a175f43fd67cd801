//===- Queue.h - A thread that runs tasks in order --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_XLA_QUEUE_H
#define ZPP_LIB_XLA_QUEUE_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

namespace zpp::xla {

/// Runs tasks one after the other, in the order in which they were added, on a
/// thread of its own. The destructor waits for all of them.
class Queue {
public:
  /// After a task the thread looks for more for as long as `patience` before it
  /// sleeps, because it takes long to wake up.
  explicit Queue(std::chrono::microseconds patience = {})
      : patience(patience), thread([this] { run(); }) {}
  ~Queue();
  Queue(const Queue &) = delete;
  Queue &operator=(const Queue &) = delete;

  void add(std::function<void()> task);

  /// Adds `function`, and returns its future result.
  template <typename Function> auto submit(Function function) {
    using Result = std::invoke_result_t<Function>;
    auto task =
        std::make_shared<std::packaged_task<Result()>>(std::move(function));
    std::future<Result> result = task->get_future();
    add([task] { (*task)(); });
    return result;
  }

private:
  void run();

  const std::chrono::microseconds patience;
  /// The size of `tasks`, for readers without the lock.
  std::atomic<int64_t> numTasks{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool isAsleep = false;
  bool isClosed = false;
  /// The last member, because it uses all others.
  std::thread thread;
};

} // namespace zpp::xla

#endif // ZPP_LIB_XLA_QUEUE_H
