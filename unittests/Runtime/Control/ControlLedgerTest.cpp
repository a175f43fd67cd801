//===- ControlLedgerTest.cpp - Who waits for whom -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Control/ControlLedger.h"
#include "Control/ControlWire.h"
#include "gtest/gtest.h"

#include <map>

using namespace zpp::rt;
using namespace std::chrono_literals;

namespace {

using Members = std::vector<int64_t>;

/// Four ranks, a time limit of one second, and a clock that the test sets.
class ControlLedgerTest : public testing::Test {
protected:
  void joinAll() {
    for (int64_t rank = 0; rank < 4; ++rank)
      join(rank);
  }
  void join(int64_t rank) {
    Status status = ledger.join(rank, 4, "gpu:4", now);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  void announce(int64_t rank, const Members &members, const char *title,
                int64_t bytes = 1024, const char *kind = "all_to_all") {
    ledger.announce(rank, ledger.define(rank, members, bytes, kind, title),
                    now);
  }
  void pass(std::chrono::microseconds time) {
    now += time;
    ledger.expire(now);
  }
  /// The code and message of each rank that was notified.
  using Notices = std::map<int64_t, std::pair<zpp_rt_status, std::string>>;
  Notices getNotices() {
    Notices notices;
    for (const ControlLedger::Notice &notice : ledger.takeNotices()) {
      EXPECT_EQ(notices.count(notice.rank), 0u);
      Status status = notice.failure.getStatus();
      notices[notice.rank] = {status.code, status.message};
    }
    return notices;
  }
  void expectNotices(const Notices &wanted) {
    EXPECT_EQ(getNotices(), wanted);
    EXPECT_EQ(ledger.hasFailed(), !wanted.empty());
  }

  const Members all = {0, 1, 2, 3};
  Clock::time_point now;
  ControlLedger ledger{4, 1s, "gpu:4"};
};

TEST_F(ControlLedgerTest, Join) {
  EXPECT_FALSE(ledger.getDeadline());
  join(1);
  EXPECT_EQ(ledger.getDeadline(), now + 1s);
  auto expectRefused = [&](int64_t rank, int64_t numRanks, const char *greeting,
                           zpp_rt_status code, const char *message) {
    Status status = ledger.join(rank, numRanks, greeting, now);
    EXPECT_EQ(status.code, code);
    EXPECT_EQ(status.message, message);
  };
  expectRefused(1, 4, "gpu:4", ZPP_RT_INVALID_ARGUMENT,
                "expected a rank that has not joined yet, but got 1");
  expectRefused(4, 4, "gpu:4", ZPP_RT_INVALID_ARGUMENT,
                "expected a rank in [0, 4), but got 4");
  expectRefused(-1, 4, "gpu:4", ZPP_RT_INVALID_ARGUMENT,
                "expected a rank in [0, 4), but got -1");
  expectRefused(2, 8, "gpu:4", ZPP_RT_MISMATCH,
                "expected 4 ranks on all ranks, as in the process of rank 0, "
                "but got 8 on rank 2");
  expectRefused(2, 4, "gpu:2,x:2", ZPP_RT_MISMATCH,
                "expected 'gpu:4' on all ranks, as in the process of rank 0, "
                "but got 'gpu:2,x:2' on rank 2");
  for (int64_t rank : {0, 2, 3})
    join(rank);
  EXPECT_TRUE(ledger.isComplete());
  EXPECT_FALSE(ledger.getDeadline());
  pass(1h);
  expectNotices({});
}

TEST_F(ControlLedgerTest, RanksDoNotJoin) {
  pass(1h);
  expectNotices({});
  join(1);
  join(3);
  pass(999ms);
  expectNotices({});
  pass(1ms);
  std::string text = "expected 4 ranks within 1000000 usec, but ranks 0, 2 did "
                     "not arrive";
  expectNotices({{1, {ZPP_RT_TIMEOUT, text}}, {3, {ZPP_RT_TIMEOUT, text}}});
  EXPECT_EQ(ledger.join(2, 4, "gpu:4", now).code, ZPP_RT_TIMEOUT);
}

TEST_F(ControlLedgerTest, TimeoutTellsWhoWasTurnedAway) {
  join(0);
  EXPECT_FALSE(ledger.join(2, 4, "gpu:8", now).ok());
  join(1);
  join(3);
  pass(1s);
  EXPECT_EQ(getNotices()[1].second,
            "expected 4 ranks within 1000000 usec, but rank 2 "
            "did not arrive; one that came was turned away: expected 'gpu:4' "
            "on all ranks, as in the process of rank 0, but got 'gpu:8' on "
            "rank 2");
}

TEST_F(ControlLedgerTest, RankIsLostBeforeAllHaveJoined) {
  join(0);
  join(2);
  ledger.lose({2});
  expectNotices(
      {{0, {ZPP_RT_RANK_LOST, "expected 4 ranks, but rank 2 was lost"}}});
}

TEST_F(ControlLedgerTest, Define) {
  joinAll();
  EXPECT_EQ(ledger.define(1, {0, 2}, 1, "k", "t"), nullptr);
  EXPECT_EQ(ledger.define(1, {}, 1, "k", "t"), nullptr);
  EXPECT_EQ(ledger.define(1, {1, 1}, 1, "k", "t"), nullptr);
  EXPECT_EQ(ledger.define(1, {1, 4}, 1, "k", "t"), nullptr);
  EXPECT_EQ(ledger.define(1, {-1, 1}, 1, "k", "t"), nullptr);
  EXPECT_NE(ledger.define(1, {3, 1}, 1, "k", "t"), nullptr);
}

/// Each group takes memory for all its members.
TEST_F(ControlLedgerTest, GroupsOfARankAreBounded) {
  constexpr int64_t kRanks = kMaxGroups + 2;
  ControlLedger wide(kRanks, 1s, "");
  auto define = [&](int64_t rank, const Members &members) {
    return wide.define(rank, members, 16, "all_to_all", "x") != nullptr;
  };
  for (int64_t other = 1; other <= static_cast<int64_t>(kMaxGroups); ++other)
    EXPECT_TRUE(define(0, {0, other}));
  EXPECT_FALSE(define(0, {0, kRanks - 1}));
  // Known groups may still be used, and other ranks may define theirs.
  EXPECT_TRUE(define(0, {0, 1}));
  EXPECT_TRUE(define(kRanks - 1, {0, kRanks - 1}));
  EXPECT_FALSE(define(0, {0, kRanks - 1}));
}

TEST_F(ControlLedgerTest, Match) {
  joinAll();
  // Ranks 0 and 1 run ahead.
  for (int64_t rank : {0, 1})
    for (int64_t i = 0; i < 3; ++i)
      announce(rank, all, "x", 1024 * i);
  announce(2, all, "x", 0);
  EXPECT_EQ(ledger.getMatched(0), 0u);
  announce(3, all, "y", 0);
  EXPECT_EQ(ledger.getMatched(0), 1u);
  EXPECT_EQ(ledger.getAnnounced(0), 3u);
  EXPECT_EQ(ledger.getMatched(3), 1u);
  EXPECT_EQ(ledger.getAnnounced(3), 1u);
  // A group of one never waits.
  announce(3, {3}, "alone");
  EXPECT_EQ(ledger.getMatched(3), 2u);
  for (int64_t rank : {2, 3})
    for (int64_t i : {1, 2})
      announce(rank, all, "x", 1024 * i);
  EXPECT_EQ(ledger.getMatched(0), 3u);
  EXPECT_EQ(ledger.getMatched(3), 4u);
  EXPECT_FALSE(ledger.getDeadline());
  expectNotices({});
}

TEST_F(ControlLedgerTest, MatchedIsWhatHasNoGapBefore) {
  joinAll();
  announce(0, {0, 1}, "first");
  announce(0, {0, 2}, "second");
  announce(2, {0, 2}, "second");
  EXPECT_EQ(ledger.getMatched(0), 0u);
  EXPECT_EQ(ledger.getMatched(2), 1u);
  announce(1, {0, 1}, "first");
  EXPECT_EQ(ledger.getMatched(0), 2u);
  EXPECT_FALSE(ledger.getDeadline());
}

TEST_F(ControlLedgerTest, SizesDiffer) {
  joinAll();
  for (int64_t rank : {0, 1, 3})
    announce(rank, all, "all_to_all 'x' along gpu");
  announce(2, all, "all_to_all 'y' along gpu", 512);
  std::string text =
      " along gpu: expected chunks of 1024 bytes on all ranks, as on rank 0 in "
      "all_to_all 'x' along gpu, but got 512 on rank 2 in all_to_all 'y' along "
      "gpu";
  std::pair<zpp_rt_status, std::string> x = {ZPP_RT_MISMATCH,
                                             "all_to_all 'x'" + text};
  expectNotices({{0, x},
                 {1, x},
                 {2, {ZPP_RT_MISMATCH, "all_to_all 'y'" + text}},
                 {3, x}});
}

TEST_F(ControlLedgerTest, KindsDiffer) {
  joinAll();
  announce(1, {1, 2}, "all_to_all 'x'");
  announce(2, {1, 2}, "all_gather 'y'", 1024, "all_gather");
  std::string text = "expected all_to_all on all ranks, as on rank 1 in "
                     "all_to_all 'x', but got all_gather on rank 2 in "
                     "all_gather 'y'";
  std::string others = "rank 1 failed: all_to_all 'x': " + text;
  expectNotices({{0, {ZPP_RT_ABORTED, others}},
                 {1, {ZPP_RT_MISMATCH, "all_to_all 'x': " + text}},
                 {2, {ZPP_RT_MISMATCH, "all_gather 'y': " + text}},
                 {3, {ZPP_RT_ABORTED, others}}});
}

TEST_F(ControlLedgerTest, RankDoesNotAnnounce) {
  joinAll();
  announce(1, {0, 1}, "w");
  announce(0, {0, 2, 3}, "x");
  pass(900ms);
  announce(1, {1, 2}, "y");
  announce(3, {0, 2, 3}, "x");
  expectNotices({});
  announce(0, {0, 1}, "w");
  pass(100ms);
  std::string text = "expected 3 ranks within 1000000 usec, but rank 2 did not "
                     "arrive";
  std::string others = "rank 0 failed: x: " + text;
  expectNotices({{0, {ZPP_RT_TIMEOUT, "x: " + text}},
                 {1, {ZPP_RT_ABORTED, "y: " + others}},
                 {2, {ZPP_RT_ABORTED, others}},
                 {3, {ZPP_RT_TIMEOUT, "x: " + text}}});
}

TEST_F(ControlLedgerTest, ClockStartsWhereARankWaits) {
  joinAll();
  // Rank 0 runs ahead: it waits in "b" as soon as rank 1 has announced "a".
  announce(0, {0, 1}, "a");
  announce(0, {0, 2}, "b");
  announce(0, {0, 1}, "c");
  pass(900ms);
  announce(1, {0, 1}, "a");
  EXPECT_EQ(ledger.getDeadline(), now + 1s);
  pass(900ms);
  announce(2, {0, 2}, "b");
  EXPECT_EQ(ledger.getDeadline(), now + 1s);
  pass(900ms);
  announce(1, {0, 1}, "c");
  EXPECT_FALSE(ledger.getDeadline());
  expectNotices({});
}

TEST_F(ControlLedgerTest, RankLeaves) {
  joinAll();
  for (int64_t rank : all)
    announce(rank, all, "x");
  ledger.leave(3);
  expectNotices({});
  announce(1, {0, 1, 2}, "y");
  announce(2, all, "z");
  std::string text = "expected 4 ranks, but rank 3 left";
  expectNotices({{0, {ZPP_RT_ABORTED, "rank 2 failed: z: " + text}},
                 {1, {ZPP_RT_ABORTED, "y: rank 2 failed: z: " + text}},
                 {2, {ZPP_RT_RANK_LOST, "z: " + text}}});
}

TEST_F(ControlLedgerTest, RankLeavesThoseThatWait) {
  joinAll();
  announce(0, all, "x");
  announce(2, all, "x");
  ledger.leave(3);
  std::string text = "x: expected 4 ranks, but rank 3 left";
  expectNotices({{0, {ZPP_RT_RANK_LOST, text}},
                 {1, {ZPP_RT_ABORTED, "rank 0 failed: " + text}},
                 {2, {ZPP_RT_RANK_LOST, text}}});
}

TEST_F(ControlLedgerTest, RankLeavesWithWhatItAnnounced) {
  joinAll();
  announce(3, {2, 3}, "x");
  ledger.leave(3);
  // Nobody waits.
  EXPECT_FALSE(ledger.getDeadline());
  pass(1h);
  announce(2, {2, 3}, "x");
  EXPECT_EQ(ledger.getMatched(2), 1u);
  expectNotices({});
  announce(2, {2, 3}, "x");
  EXPECT_EQ(getNotices()[2].second, "x: expected 2 ranks, but rank 3 left");
}

TEST_F(ControlLedgerTest, RanksAreLost) {
  joinAll();
  announce(0, {0, 1, 2}, "x");
  ledger.lose({2, 3});
  expectNotices(
      {{0, {ZPP_RT_RANK_LOST, "x: expected 3 ranks, but rank 2 was lost"}},
       {1, {ZPP_RT_RANK_LOST, "expected 4 ranks, but ranks 2, 3 were lost"}}});
  ledger.lose({1});
  announce(0, all, "y");
  pass(1h);
  EXPECT_TRUE(ledger.takeNotices().empty());
}

TEST_F(ControlLedgerTest, RankFails) {
  joinAll();
  announce(0, all, "x");
  ledger.fail(1, "lost its GPU");
  std::string text = "rank 1 failed: lost its GPU";
  expectNotices({{0, {ZPP_RT_ABORTED, "x: " + text}},
                 {2, {ZPP_RT_ABORTED, text}},
                 {3, {ZPP_RT_ABORTED, text}}});
  // The first cause stays.
  ledger.fail(2, "too");
  ledger.leave(2);
  ledger.lose({1});
  EXPECT_TRUE(ledger.takeNotices().empty());
}

TEST_F(ControlLedgerTest, ServerEnds) {
  joinAll();
  ledger.leave(0);
  announce(1, {1, 2}, "x");
  ledger.close();
  std::string text = "expected 4 ranks, but rank 0 left";
  expectNotices({{1, {ZPP_RT_RANK_LOST, "x: " + text}},
                 {2, {ZPP_RT_RANK_LOST, text}},
                 {3, {ZPP_RT_RANK_LOST, text}}});
}

} // namespace
