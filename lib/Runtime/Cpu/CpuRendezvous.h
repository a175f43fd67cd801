//===- CpuRendezvous.h - Where threads meet for a collective ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CPURENDEZVOUS_H
#define ZPP_LIB_RUNTIME_CPURENDEZVOUS_H

#include "Operations.h"
#include "World.h"

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace zpp::rt {

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

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CPURENDEZVOUS_H
