//===- Queue.h - A thread that runs tasks in order --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_XLA_QUEUE_H
#define ZPP_LIB_XLA_QUEUE_H

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace zpp::xla {

/// Runs tasks one after the other, in the order in which they were added, on a
/// thread of its own. The destructor waits for all of them.
class Queue {
public:
  Queue() : thread([this] { run(); }) {}
  ~Queue();
  Queue(const Queue &) = delete;
  Queue &operator=(const Queue &) = delete;

  void add(std::function<void()> task);

private:
  void run();

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool isClosed = false;
  /// The last member: it uses all others.
  std::thread thread;
};

} // namespace zpp::xla

#endif // ZPP_LIB_XLA_QUEUE_H
