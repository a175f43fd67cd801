//===- Wait.h - Waits without a time limit ----------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_WAIT_H
#define ZPP_LIB_RUNTIME_WAIT_H

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace zpp::rt {

/// Waits until `isDone()`, as changed.wait(lock, isDone) does. That one,
/// compiled by GCC 12 or newer, does not start with the libstdc++ of older
/// systems (GLIBCXX_3.4.30), where a wheel must run.
template <typename Condition>
void waitUntil(std::condition_variable &changed,
               std::unique_lock<std::mutex> &lock, const Condition &isDone) {
  while (!changed.wait_for(lock, std::chrono::hours(1), isDone)) {
  }
}

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_WAIT_H
