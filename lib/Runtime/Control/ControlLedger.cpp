//===- ControlLedger.cpp - Who waits for whom -----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ControlLedger.h"

#include "ControlWire.h"

#include <algorithm>
#include <set>

using namespace zpp::rt;

//===----------------------------------------------------------------------===//
// Come and go
//===----------------------------------------------------------------------===//

Status ControlLedger::join(int64_t rank, int64_t givenRanks,
                           std::string_view givenGreeting, TimePoint now) {
  auto disagree = [&](const std::string &here, const std::string &there) {
    return Status(ZPP_RT_MISMATCH,
                  expected(here + " on all ranks, as in the process of rank 0",
                           there + " on rank " + std::to_string(rank)));
  };
  auto check = [&]() -> Status {
    if (givenRanks != numRanks())
      return disagree(std::to_string(numRanks()) + " ranks",
                      std::to_string(givenRanks));
    if (givenGreeting != greeting)
      return disagree(quote(greeting), quote(std::string(givenGreeting)));
    if (rank < 0 || rank >= numRanks())
      return invalid(
          expected("a rank in [0, " + std::to_string(numRanks()) + ")", rank));
    if (ranks[rank].state != Member::Absent)
      return invalid(expected("a rank that has not joined yet", rank));
    return {};
  };
  if (Status status = check(); !status.ok()) {
    // It may belong to another program, so this one continues.
    turnAway(status.message);
    return status;
  }
  if (hasFailed())
    return failure.get();
  ranks[rank].state = Member::Present;
  ++numJoined;
  if (!firstJoin)
    firstJoin = now;
  return {};
}

void ControlLedger::leave(int64_t rank) {
  ranks[rank].state = Member::Left;
  ++numLeft;
  if (hasFailed())
    return;
  if (!isComplete())
    return failWorld(getLoss(numRanks(), {rank}, Loss::Left));
  for (auto &[members, group] : groups) {
    if (std::find(members.begin(), members.end(), rank) == members.end())
      continue;
    inspect(group);
    // Nobody waits for announcements that a rank made before it left.
    if (getWaiting(group).empty())
      group.waitingSince.reset();
  }
}

void ControlLedger::lose(const std::vector<int64_t> &lost) {
  for (int64_t rank : lost)
    ranks[rank].state = Member::Lost;
  if (hasFailed() || lost.empty())
    return;
  // Ranks that wait for a lost rank are told about their group.
  for (int64_t rank = 0; rank < numRanks(); ++rank) {
    if (ranks[rank].state != Member::Present || ranks[rank].pending.empty())
      continue;
    const Group &group = *ranks[rank].pending.front().exchange->group;
    std::vector<int64_t> missing = getMissing(group, Member::Lost);
    if (!missing.empty())
      notify(rank, getTitle(rank),
             getLoss(group.members.size(), missing, Loss::Lost));
  }
  failWorld(getLoss(numRanks(), lost, Loss::Lost));
}

void ControlLedger::fail(int64_t rank, std::string_view message) {
  if (hasFailed())
    return;
  ranks[rank].knowsFailure = true;
  failWorld({ZPP_RT_ABORTED, "rank " + std::to_string(rank) +
                                 " failed: " + std::string(message)});
}

void ControlLedger::close() { failWorld(getLoss(numRanks(), {0}, Loss::Left)); }

//===----------------------------------------------------------------------===//
// Exchanges
//===----------------------------------------------------------------------===//

std::shared_ptr<const ControlLedger::Exchange>
ControlLedger::define(int64_t rank, const std::vector<int64_t> &members,
                      int64_t chunkBytes, std::string_view kind,
                      std::string_view title) {
  auto self = std::find(members.begin(), members.end(), rank);
  std::set<int64_t> distinct(members.begin(), members.end());
  if (self == members.end() || distinct.size() != members.size() ||
      *distinct.begin() < 0 || *distinct.rbegin() >= numRanks())
    return nullptr;
  if (ranks[rank].groups.size() == kMaxGroups) {
    auto known = groups.find(members);
    if (known == groups.end() || !ranks[rank].groups.count(&known->second))
      return nullptr;
  }
  size_t bytes = kind.size() + title.size();
  std::shared_ptr<size_t> defined = ranks[rank].definedBytes;
  if (*defined + bytes > kMaxDefinitionBytes)
    return nullptr;
  Group &group = groups[members];
  ranks[rank].groups.insert(&group);
  if (group.members.empty()) {
    group.members = members;
    group.queues.resize(members.size());
  }
  *defined += bytes;
  return {new Exchange{&group, static_cast<size_t>(self - members.begin()),
                       chunkBytes, std::string(kind), std::string(title)},
          [=](const Exchange *exchange) {
            *defined -= bytes;
            delete exchange;
          }};
}

bool ControlLedger::announce(int64_t rank,
                             std::shared_ptr<const Exchange> exchange,
                             TimePoint now) {
  if (hasFailed())
    return true;
  Group &group = *exchange->group;
  Group::Queue &queue = group.queues[exchange->position];
  std::deque<Pending> &pending = ranks[rank].pending;
  if (pending.size() == kMaxPending)
    return false;
  pending.push_back({std::move(exchange)});
  group.arrived += queue.empty();
  queue.push(pending.back());
  if (pending.size() == 1)
    startClock(group, now);
  if (group.arrived == group.members.size())
    match(group, now);
  inspect(group);
  return true;
}

void ControlLedger::startClock(Group &group, TimePoint now) {
  if (!group.waitingSince)
    group.waitingSince = now;
}

void ControlLedger::match(Group &group, TimePoint now) {
  auto getClaim = [&](size_t member) {
    const Exchange &exchange = *group.queues[member].first->exchange;
    return Claim{group.members[member], exchange.title, exchange.kind,
                 exchange.chunkBytes};
  };
  for (size_t i = 1; i < group.members.size(); ++i)
    if (Status status = compare(getClaim(0), getClaim(i)); !status.ok())
      return failRound(group, status);
  for (Group::Queue &queue : group.queues) {
    queue.first->isMatched = true;
    queue.pop();
    group.arrived -= queue.empty();
  }
  group.waitingSince.reset();
  for (int64_t member : group.members)
    advance(member, now);
}

void ControlLedger::advance(int64_t rank, TimePoint now) {
  std::deque<Pending> &pending = ranks[rank].pending;
  while (!pending.empty() && pending.front().isMatched) {
    pending.pop_front();
    ++ranks[rank].matched;
  }
  // Everything that this rank announced to that group before is matched, so
  // this is the round that the group waits for.
  if (!pending.empty())
    startClock(*pending.front().exchange->group, now);
}

std::vector<size_t> ControlLedger::getWaiting(const Group &group) const {
  std::vector<size_t> waiting;
  for (size_t i = 0; i < group.members.size(); ++i)
    if (!group.queues[i].empty() &&
        ranks[group.members[i]].state == Member::Present)
      waiting.push_back(i);
  return waiting;
}

std::vector<int64_t> ControlLedger::getMissing(const Group &group) const {
  std::vector<int64_t> missing;
  for (size_t i = 0; i < group.members.size(); ++i)
    if (group.queues[i].empty())
      missing.push_back(group.members[i]);
  return missing;
}

std::vector<int64_t> ControlLedger::getMissing(const Group &group,
                                               Member state) const {
  std::vector<int64_t> missing = getMissing(group);
  missing.erase(
      std::remove_if(missing.begin(), missing.end(),
                     [&](int64_t rank) { return ranks[rank].state != state; }),
      missing.end());
  return missing;
}

void ControlLedger::inspect(Group &group) {
  if (numLeft == 0 || group.arrived == 0 || hasFailed())
    return;
  std::vector<int64_t> missing = getMissing(group, Member::Left);
  if (!missing.empty() && !getWaiting(group).empty())
    failRound(group, getLoss(group.members.size(), missing, Loss::Left));
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

void ControlLedger::expire(TimePoint now) {
  if (hasFailed())
    return;
  auto isOver = [&](const std::optional<TimePoint> &since) {
    return since && now >= *since + timeLimit;
  };
  if (!isComplete() && isOver(firstJoin)) {
    std::vector<int64_t> missing;
    for (int64_t rank = 0; rank < numRanks(); ++rank)
      if (ranks[rank].state == Member::Absent)
        missing.push_back(rank);
    Status cause = getTimeout(numRanks(), timeLimit, missing);
    if (!rejection.empty())
      cause.message += "; one that came was turned away: " + rejection;
    if (!note.empty())
      cause.message += "; " + note;
    return failWorld(cause);
  }
  for (auto &[members, group] : groups)
    if (isOver(group.waitingSince))
      return failRound(group, getTimeout(group.members.size(), timeLimit,
                                         getMissing(group)));
}

std::optional<ControlLedger::TimePoint> ControlLedger::getDeadline() const {
  if (hasFailed())
    return std::nullopt;
  std::optional<TimePoint> since;
  if (!isComplete())
    since = firstJoin;
  for (const auto &[members, group] : groups)
    if (group.waitingSince && (!since || *group.waitingSince < *since))
      since = group.waitingSince;
  return since ? std::optional(*since + timeLimit) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

void ControlLedger::failRound(const Group &group, const Status &cause) {
  // The message of the first rank that waits.
  std::string story;
  for (size_t i : getWaiting(group)) {
    int64_t rank = group.members[i];
    const std::string &title = group.queues[i].first->exchange->title;
    if (story.empty())
      story = "rank " + std::to_string(rank) + " failed: " +
              Failure{cause.code, title, cause.message}.getStatus().message;
    notify(rank, title, cause);
  }
  failWorld({ZPP_RT_ABORTED, story});
}

void ControlLedger::failWorld(const Status &cause) {
  if (!failure.set(cause))
    return;
  for (int64_t rank = 0; rank < numRanks(); ++rank)
    notify(rank, getTitle(rank), cause);
}

void ControlLedger::notify(int64_t rank, const std::string &title,
                           const Status &cause) {
  if (ranks[rank].state != Member::Present || ranks[rank].knowsFailure)
    return;
  ranks[rank].knowsFailure = true;
  notices.push_back({rank, {cause.code, title, cause.message}});
}

std::string ControlLedger::getTitle(int64_t rank) const {
  const std::deque<Pending> &pending = ranks[rank].pending;
  return pending.empty() ? "" : pending.front().exchange->title;
}
