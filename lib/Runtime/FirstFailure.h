//===- FirstFailure.h - The failure that everybody is told ------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_FIRSTFAILURE_H
#define ZPP_LIB_RUNTIME_FIRSTFAILURE_H

#include "Status.h"

#include <atomic>
#include <mutex>

namespace zpp::rt {

/// The first failure wins: what comes later is usually its consequence. All
/// functions may be called from any thread. `FailureT` has ok(), which is true
/// of a default one.
template <typename FailureT = Status> class FirstFailure {
public:
  /// Keeps `cause`, a failure, unless there is one already. Returns whether it
  /// is the first.
  bool set(FailureT cause) {
    std::lock_guard<std::mutex> lock(mutex);
    if (isSet)
      return false;
    failure = std::move(cause);
    isSet = true;
    return true;
  }

  /// Whether there is a failure. Takes no lock.
  bool has() const { return isSet; }

  /// Returns the failure, or an empty one if there is none. The result never
  /// changes and lives as long as this object.
  const FailureT &get() const {
    static const FailureT none{};
    return isSet ? failure : none;
  }

private:
  std::mutex mutex;
  /// Written once, before `isSet` is.
  FailureT failure;
  std::atomic<bool> isSet{false};
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_FIRSTFAILURE_H
