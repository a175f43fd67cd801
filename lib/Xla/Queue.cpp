//===- Queue.cpp - A thread that runs tasks in order ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Queue.h"

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
  {
    std::lock_guard<std::mutex> lock(mutex);
    tasks.push_back(std::move(task));
  }
  changed.notify_one();
}

void Queue::run() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return isClosed || !tasks.empty(); });
    if (tasks.empty())
      return;
    std::function<void()> task = std::move(tasks.front());
    tasks.pop_front();
    lock.unlock();
    task();
    // What it holds is released outside of the lock.
    task = nullptr;
    lock.lock();
  }
}
