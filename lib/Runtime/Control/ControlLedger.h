//===- ControlLedger.h - Who waits for whom ---------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state of the control server, without connections and clocks. Ranks come,
// announce exchanges, leave or get lost; the ledger finds out who has failed.
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
#include <set>
#include <vector>

namespace zpp::rt {

class ControlLedger {
public:
  using TimePoint = Clock::time_point;

  ControlLedger(int64_t numRanks, std::chrono::microseconds timeLimit,
                std::string greeting)
      : timeLimit(timeLimit), greeting(std::move(greeting)), ranks(numRanks) {}

  /// Adds `rank`, or returns why it may not join.
  Status join(int64_t rank, int64_t numRanks, std::string_view greeting,
              TimePoint now);
  /// Whether all ranks have joined without a failure.
  bool isComplete() const { return numJoined == numRanks(); }
  /// Records why somebody was not allowed to join. Reported if a rank is
  /// missing in the end.
  void turnAway(std::string reason) { rejection = std::move(reason); }
  /// A further text to report if a rank is missing in the end.
  void setNote(std::string text) { note = std::move(text); }

  /// An exchange that a member of a group announces.
  struct Group;
  struct Exchange {
    Group *group;
    /// The position of the rank in the group.
    size_t position;
    int64_t chunkBytes;
    std::string kind;
    std::string title;
  };
  /// Null if `rank` cannot take part in it, or has defined too many groups or
  /// too long texts.
  std::shared_ptr<const Exchange>
  define(int64_t rank, const std::vector<int64_t> &members, int64_t chunkBytes,
         std::string_view kind, std::string_view title);

  /// Returns false, and records nothing, if `rank` may not announce more.
  bool announce(int64_t rank, std::shared_ptr<const Exchange> exchange,
                TimePoint now);
  /// Announcements of `rank` before the first that is not matched.
  uint64_t getMatched(int64_t rank) const { return ranks[rank].matched; }
  uint64_t getAnnounced(int64_t rank) const {
    return ranks[rank].matched + ranks[rank].pending.size();
  }

  /// Records that `rank` takes part in nothing from now on.
  void leave(int64_t rank);
  /// The connections of these ranks have ended without a goodbye.
  void lose(const std::vector<int64_t> &lost);
  /// `rank` has failed by itself.
  void fail(int64_t rank, std::string_view message);
  /// The server stops before the ranks have left.
  void close();

  /// Fails exchanges that have waited for longer than the time limit.
  void expire(TimePoint now);
  /// When expire() has to be called.
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
    /// The next one of the same rank in the same group.
    Pending *next = nullptr;
  };
  struct Rank {
    Member state = Member::Absent;
    /// In the order of the announcements; the first is not matched.
    std::deque<Pending> pending;
    uint64_t matched = 0;
    /// Whether it needs no notice any more.
    bool knowsFailure = false;
    /// The groups that it has defined.
    std::set<const Group *> groups;
    /// Bytes of the texts of exchanges that it has defined and that are still
    /// known. Exchanges take theirs off when they end.
    std::shared_ptr<size_t> definedBytes = std::make_shared<size_t>(0);
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
  /// Members that wait in a round get `cause`. All others are told about it.
  void failRound(const Group &group, const Status &cause);
  void failWorld(const Status &cause);
  /// Tells a rank why it must give up in the exchange of this title.
  void notify(int64_t rank, const std::string &title, const Status &cause);
  /// Returns the exchange that `rank` waits in.
  std::string getTitle(int64_t rank) const;

  const std::chrono::microseconds timeLimit;
  const std::string greeting;
  std::vector<Rank> ranks;
  int64_t numJoined = 0;
  int64_t numLeft = 0;
  std::optional<TimePoint> firstJoin;
  /// The reason why the last one was turned away.
  std::string rejection;
  std::string note;
  std::map<std::vector<int64_t>, Group> groups;
  FirstFailure<> failure;
  std::vector<Notice> notices;
};

/// Ranks that exchange. The n-th announcements of all members belong together.
struct ControlLedger::Group {
  /// The announcements of a member that not all others have made, in order. The
  /// ranks own these.
  struct Queue {
    Pending *first = nullptr;
    Pending *last = nullptr;

    bool empty() const { return !first; }
    void push(Pending &pending) {
      (first ? last->next : first) = &pending;
      last = &pending;
    }
    void pop() { first = first->next; }
  };

  std::vector<int64_t> members;
  /// One for each member.
  std::vector<Queue> queues;
  /// The number of members whose queue is not empty.
  size_t arrived = 0;
  /// Since when a member has waited for this group and for nothing before it.
  std::optional<TimePoint> waitingSince;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CONTROLLEDGER_H
