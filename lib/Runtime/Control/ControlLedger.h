//===- ControlLedger.h - Who waits for whom ---------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the control server knows, without connections and clocks: ranks come,
// announce exchanges, leave or get lost; failures come out.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CONTROLLEDGER_H
#define ZPP_LIB_RUNTIME_CONTROLLEDGER_H

#include "Control.h"
#include "FirstFailure.h"
#include "Socket.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace zpp::rt {

class ControlLedger {
public:
  using TimePoint = Clock::time_point;

  ControlLedger(int64_t numRanks, std::chrono::microseconds timeLimit,
                std::string greeting)
      : timeLimit(timeLimit), greeting(std::move(greeting)), ranks(numRanks) {}

  /// `rank` is there, or why it may not be.
  Status join(int64_t rank, int64_t numRanks, std::string_view greeting,
              TimePoint now);
  /// Whether all ranks have joined, and all was well then.
  bool isComplete() const { return numJoined == numRanks(); }

  /// What a member of a group announces.
  struct Group;
  struct Exchange {
    Group *group;
    /// Of the rank in the group.
    size_t position;
    int64_t chunkBytes;
    std::string kind;
    std::string title;
  };
  /// Null if `rank` cannot take part in it.
  std::shared_ptr<const Exchange>
  define(int64_t rank, const std::vector<int64_t> &members, int64_t chunkBytes,
         std::string_view kind, std::string_view title);

  void announce(int64_t rank, std::shared_ptr<const Exchange> exchange,
                TimePoint now);
  /// Announcements of `rank` before the first that is not matched.
  uint64_t getMatched(int64_t rank) const { return ranks[rank].matched; }
  uint64_t getAnnounced(int64_t rank) const {
    return ranks[rank].matched + ranks[rank].pending.size();
  }

  /// `rank` takes part in nothing any more.
  void leave(int64_t rank);
  /// Connections ended without goodbye.
  void lose(const std::vector<int64_t> &lost);
  /// `rank` has failed by itself.
  void fail(int64_t rank, std::string_view message);
  /// The server ends before the ranks have left.
  void close();

  /// Gives up what waits for longer than the time limit.
  void expire(TimePoint now);
  /// When expire() has something to do.
  std::optional<TimePoint> getDeadline() const;

  /// Whether the world has failed.
  bool hasFailed() const { return failure.has(); }
  struct Notice {
    int64_t rank;
    Failure failure;
  };
  /// Failures since the last call; at most one for each rank, ever.
  std::vector<Notice> takeNotices() { return std::exchange(notices, {}); }

private:
  enum class Member { Absent, Present, Left, Lost };
  /// An announcement that not all members have made.
  struct Pending {
    std::shared_ptr<const Exchange> exchange;
    bool isMatched = false;
  };
  struct Rank {
    Member state = Member::Absent;
    /// In the order of the announcements; the first is not matched.
    std::deque<Pending> pending;
    uint64_t matched = 0;
    /// Needs no notice any more.
    bool knowsFailure = false;
  };

  int64_t numRanks() const { return ranks.size(); }
  void startClock(Group &group, TimePoint now);
  void match(Group &group, TimePoint now);
  void advance(int64_t rank, TimePoint now);
  /// Fails the round that `group` waits for if a member has left.
  void inspect(Group &group);
  /// Positions of members that wait in the round.
  std::vector<size_t> getWaiting(const Group &group) const;
  /// Members, in `state`, whose announcement is missing.
  std::vector<int64_t> getMissing(const Group &group, Member state) const;
  std::vector<int64_t> getMissing(const Group &group) const;
  /// Members that wait in a round get `cause`, all others hear of it.
  void failRound(const Group &group, const Status &cause);
  void failWorld(const Status &cause);
  void notify(int64_t rank, Failure failure);
  /// What `rank` waits in.
  std::string getTitle(int64_t rank) const;

  const std::chrono::microseconds timeLimit;
  const std::string greeting;
  std::vector<Rank> ranks;
  int64_t numJoined = 0;
  int64_t numLeft = 0;
  std::optional<TimePoint> firstJoin;
  /// Why the last one was turned away.
  std::string rejection;
  std::map<std::vector<int64_t>, Group> groups;
  FirstFailure<> failure;
  std::vector<Notice> notices;
};

/// Ranks that exchange. Their n-th announcements belong together.
struct ControlLedger::Group {
  std::vector<int64_t> members;
  /// Of each member, what it has announced and not all others have.
  std::vector<std::deque<Pending *>> queues;
  /// Members whose queue is not empty.
  size_t arrived = 0;
  /// Since when a member waits: has nothing before this that it waits for.
  std::optional<TimePoint> waitingSince;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROLLEDGER_H
