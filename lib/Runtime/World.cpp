//===- World.cpp - Which ranks there are and whether they are well --------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "World.h"

using namespace zpp::rt;

Status World::join(int64_t rank) {
  int64_t size = members.size();
  if (rank < 0 || rank >= size)
    return invalid(
        expected("a rank in [0, " + std::to_string(size) + ")", rank));
  std::lock_guard<std::mutex> lock(mutex);
  if (members[rank] != Member::Absent)
    return invalid(expected("a rank that has not joined yet", rank));
  members[rank] = Member::Present;
  return {};
}

void World::leave(int64_t rank) {
  std::lock_guard<std::mutex> lock(mutex);
  members[rank] = Member::Gone;
  changed.notify_all();
}

void World::fail(int64_t rank, const Status &cause) {
  {
    // Under the lock, so that nobody who begins to wait misses it.
    std::lock_guard<std::mutex> lock(mutex);
    failure.set({ZPP_RT_ABORTED,
                 "rank " + std::to_string(rank) + " failed: " + cause.message});
    changed.notify_all();
  }
  announceFailure(failure.get().message);
}

void World::announceFailure(const std::string &message) {
  if (onFailure && !isAnnounced.exchange(true))
    onFailure(message);
}
