//===- CpuBackend.cpp - Ranks as threads of one process -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference: all ranks can read the memory of all.
//
//===----------------------------------------------------------------------===//

#include "CpuRank.h"
#include "Wait.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

using namespace zpp;
using namespace zpp::rt;

//===----------------------------------------------------------------------===//
// Rendezvous
//===----------------------------------------------------------------------===//

namespace {
/// Brings the ranks of a group together and lets each read the inputs of all.
class CpuRendezvous {
public:
  explicit CpuRendezvous(World &world) : world(world) {}

  /// Copies from the inputs of the members of a group, which are in the order
  /// of the group. `self` is the position of the rank among them.
  using Copy = std::function<void(const std::vector<const void *> &inputs,
                                  int64_t self)>;

  /// Waits for all members of the group of `rank`, runs `copy`, and waits until
  /// all members have done so. Either all members copy or none does.
  Status meet(int64_t rank, const ExchangeOperation &operation,
              const void *input, const Copy &copy);

private:
  /// One collective of a group. It starts when all members have arrived. Until
  /// then a member can give up; afterwards none does.
  struct Round {
    explicit Round(size_t members) : arrivals(members) {}
    struct Arrival {
      const ExchangeOperation *operation = nullptr;
      const void *input = nullptr;
      /// Whether the member had arrived but stopped waiting.
      bool hasGivenUp = false;
    };
    std::vector<Arrival> arrivals;
    size_t arrived = 0;
    size_t done = 0;
    bool hasStarted = false;
    /// The result of the round for all members.
    Status outcome;
  };
  struct Group {
    std::vector<int64_t> members;
    /// The round that waits for members.
    std::shared_ptr<Round> next;
  };

  Group &getGroup(int64_t rank, const std::vector<AxisRef> &axes);
  /// All members have arrived.
  static void start(Group &group, Round &round);
  /// Why to give up a round that has not started; OK to go on waiting.
  Status getObstacle(const Group &group, const Round &round) const;

  World &world;
  /// Groups by their axes, those along the same axes in the order of their
  /// first ranks. The world's mutex guards them and their rounds.
  std::map<std::vector<AxisRef>, std::vector<Group>, ByAxes> groups;
};
} // namespace

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
  auto getClaim = [&](size_t member) {
    const ExchangeOperation &operation = *round.arrivals[member].operation;
    return Claim{group.members[member], operation.name->title,
                 operation.name->kind, operation.chunkBytes};
  };
  for (size_t i = 1; i < group.members.size() && round.outcome.ok(); ++i)
    round.outcome = compare(getClaim(0), getClaim(i));
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
    return getLoss(group.members.size(), gone, Loss::Left);
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
      obstacle = getTimeout(group.members.size(), world.timeLimit, missing);
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

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

namespace {
class ThreadRank : public CpuRank {
public:
  ThreadRank(World &world, CpuRendezvous &rendezvous, int64_t rank)
      : CpuRank(world, rank), rendezvous(rendezvous) {}

  Status exchange(const ExchangeOperation &operation, const void *input,
                  void *output) override {
    // Chunk i of the output is what member i holds at `self * stride`.
    int64_t stride = operation.isGather ? 0 : operation.chunkBytes;
    auto copy = [&](const std::vector<const void *> &inputs, int64_t self) {
      if (operation.chunkBytes == 0)
        return;
      auto *dest = static_cast<uint8_t *>(output);
      for (const void *source : inputs) {
        std::memcpy(dest, bytesAt(source, self * stride), operation.chunkBytes);
        dest += operation.chunkBytes;
      }
    };
    return timed(operation,
                 [&] { return rendezvous.meet(rank, operation, input, copy); });
  }

private:
  CpuRendezvous &rendezvous;
};
} // namespace

Status rt::createCpuBackend(World &world, WorldBackend &backend) {
  if (!world.rendezvous.empty())
    return {ZPP_RT_UNSUPPORTED,
            expected("all ranks in one process on 'cpu'",
                     "the rendezvous " + quote(world.rendezvous))};
  backend.createRank = [&world,
                        rendezvous = std::make_shared<CpuRendezvous>(world)](
                           int64_t rank, int64_t, auto &result) {
    result = std::make_unique<ThreadRank>(world, *rendezvous, rank);
    return Status();
  };
  return {};
}
