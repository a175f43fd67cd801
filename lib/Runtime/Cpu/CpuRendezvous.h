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

  /// Inputs of the members of a group in their order, and the position of the
  /// rank among them.
  using Copy = std::function<void(const std::vector<const void *> &inputs,
                                  int64_t self)>;

  /// Waits for all members of the group of `rank`, runs `copy`, and waits until
  /// all members have. Either all members copy or none does.
  Status meet(int64_t rank, const ExchangeOperation &operation,
              const void *input, const Copy &copy);

private:
  /// One collective of a group. It starts when all members have arrived; until
  /// then a member can give up, and afterwards none does.
  struct Round {
    explicit Round(size_t members) : arrivals(members) {}
    struct Arrival {
      const ExchangeOperation *operation = nullptr;
      const void *input = nullptr;
      /// It had arrived, and has not waited any longer.
      bool hasGivenUp = false;
    };
    std::vector<Arrival> arrivals;
    size_t arrived = 0;
    size_t done = 0;
    bool hasStarted = false;
    /// What is wrong with the round, for all members.
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
  /// Why a round that has not started is given up, or OK to go on waiting.
  Status getObstacle(const Group &group, const Round &round) const;

  World &world;
  /// By the axes; each in the order of its first rank. Guarded, as all rounds
  /// are, by the world's mutex.
  std::map<std::vector<AxisRef>, std::vector<Group>, ByAxes> groups;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CPURENDEZVOUS_H
