//===- CpuRendezvous.cpp - Where threads meet for a collective ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CpuRendezvous.h"
#include "Wait.h"

#include <algorithm>
#include <cstring>

using namespace zpp;
using namespace zpp::rt;

CpuRendezvous::Group &
CpuRendezvous::getGroup(int64_t rank, const std::vector<AxisRef> &axes) {
  auto [it, isNew] = groups.try_emplace(axes);
  if (isNew)
    for (std::vector<int64_t> &members : world.mesh.getGroups(axes)) {
      auto round = std::make_shared<Round>(members.size());
      it->second.push_back({std::move(members), std::move(round)});
    }
  return *std::find_if(
      it->second.begin(), it->second.end(), [&](const Group &group) {
        return std::find(group.members.begin(), group.members.end(), rank) !=
               group.members.end();
      });
}

void CpuRendezvous::start(Group &group, Round &round) {
  round.hasStarted = true;
  const ExchangeOperation &first = *round.arrivals[0].operation;
  for (size_t i = 1; i < group.members.size(); ++i) {
    const ExchangeOperation &other = *round.arrivals[i].operation;
    auto disagree = [&](const std::string &a, const std::string &b) {
      round.outcome = mismatch({group.members[0], first.name->title, a},
                               {group.members[i], other.name->title, b});
    };
    if (std::strcmp(first.name->kind, other.name->kind) != 0)
      return disagree(first.name->kind, other.name->kind);
    if (first.chunkBytes != other.chunkBytes)
      return disagree("chunks of " + std::to_string(first.chunkBytes) +
                          " bytes",
                      std::to_string(other.chunkBytes));
  }
}

Status CpuRendezvous::getObstacle(const Group &group,
                                  const Round &round) const {
  if (world.failure.has())
    return world.failure.get();
  std::vector<int64_t> gone;
  for (size_t i = 0; i < group.members.size(); ++i)
    if (!round.arrivals[i].operation &&
        world.members[group.members[i]] == World::Member::Gone)
      gone.push_back(group.members[i]);
  if (!gone.empty())
    return {ZPP_RT_RANK_LOST,
            "expected " + std::to_string(group.members.size()) +
                " ranks, but " + describeRanks(gone) + " left"};
  return {};
}

Status CpuRendezvous::meet(int64_t rank, const ExchangeOperation &operation,
                           const void *input, const Copy &copy) {
  auto deadline = std::chrono::steady_clock::now() + world.timeLimit;
  std::unique_lock<std::mutex> lock(world.mutex);
  Group &group = getGroup(rank, operation.axes);
  std::shared_ptr<Round> round = group.next;
  size_t self = std::find(group.members.begin(), group.members.end(), rank) -
                group.members.begin();

  if (Status obstacle = getObstacle(group, *round); !obstacle.ok())
    return obstacle;
  round->arrivals[self] = {&operation, input, /*hasGivenUp=*/false};
  if (++round->arrived == group.members.size()) {
    group.next = std::make_shared<Round>(group.members.size());
    start(group, *round);
    world.changed.notify_all();
  }
  world.changed.wait_until(lock, deadline, [&] {
    return round->hasStarted || !getObstacle(group, *round).ok();
  });
  if (!round->hasStarted) {
    Status obstacle = getObstacle(group, *round);
    if (obstacle.ok()) {
      std::vector<int64_t> missing;
      for (size_t i = 0; i < group.members.size(); ++i)
        if (!round->arrivals[i].operation && !round->arrivals[i].hasGivenUp)
          missing.push_back(group.members[i]);
      obstacle = {ZPP_RT_TIMEOUT,
                  "expected " + std::to_string(group.members.size()) +
                      " ranks within " +
                      std::to_string(world.timeLimit.count()) + " usec, but " +
                      describeRanks(missing) + " did not arrive"};
    }
    // From here on nobody may start this round: that would read `input`.
    round->arrivals[self] = {nullptr, nullptr, /*hasGivenUp=*/true};
    --round->arrived;
    return obstacle;
  }

  if (!round->outcome.ok())
    return round->outcome;
  std::vector<const void *> inputs;
  for (const Round::Arrival &arrival : round->arrivals)
    inputs.push_back(arrival.input);
  lock.unlock();
  copy(inputs, self);
  lock.lock();

  // Every member is copying or has copied, so this wait ends without a time
  // limit. It must not end earlier, because others still read `input`.
  if (++round->done == group.members.size())
    world.changed.notify_all();
  waitUntil(world.changed, lock,
            [&] { return round->done == group.members.size(); });
  return {};
}
