//===- Queue.cpp - A thread that runs tasks in order ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Queue.h"
#include "../Runtime/Wait.h"

using namespace zpp::xla;

Queue::~Queue() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isClosed = true;
  }
  changed.notify_one();
  thread.join();
}

void Queue::add(std::function<void()> task) {
  bool mustWake;
  {
    std::lock_guard<std::mutex> lock(mutex);
    tasks.push_back(std::move(task));
    ++numTasks;
    mustWake = isAsleep;
  }
  if (mustWake)
    changed.notify_one();
}

void Queue::run() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point end = Clock::now();
  while (true) {
    while (numTasks == 0 && Clock::now() < end)
      std::this_thread::yield();
    std::function<void()> task;
    {
      std::unique_lock<std::mutex> lock(mutex);
      isAsleep = true;
      zpp::rt::waitUntil(changed, lock,
                         [this] { return isClosed || !tasks.empty(); });
      isAsleep = false;
      if (tasks.empty())
        return;
      task = std::move(tasks.front());
      tasks.pop_front();
      --numTasks;
    }
    task();
    // Release what the task holds before the next one runs.
    task = nullptr;
    end = Clock::now() + patience;
  }
}
