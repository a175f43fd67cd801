//===- ExchangePlanTest.cpp - Who sends what when -------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the plans of all ranks of a small mesh on bytes: messages are delivered
// as NCCL would, in the order in which each pair of members lists them.
//
//===----------------------------------------------------------------------===//

#include "Cuda/ExchangePlan.h"
#include "gtest/gtest.h"

#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

using namespace zpp::rt;

namespace {

using Bytes = std::vector<uint8_t>;

/// Ranks of a grid of `sizes`, the first being most significant.
class Grid {
public:
  explicit Grid(std::vector<int64_t> sizes) : sizes(std::move(sizes)) {}

  int64_t numRanks() const {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t(1),
                           std::multiplies<>());
  }
  int64_t getStride(size_t tier) const {
    return std::accumulate(sizes.begin() + tier + 1, sizes.end(), int64_t(1),
                           std::multiplies<>());
  }
  std::vector<GroupShape> getTiers(int64_t rank) const {
    std::vector<GroupShape> tiers;
    for (size_t tier = 0; tier < sizes.size(); ++tier)
      tiers.push_back({sizes[tier], rank / getStride(tier) % sizes[tier]});
    return tiers;
  }
  int64_t getPeer(int64_t rank, size_t tier, int64_t member) const {
    int64_t self = getTiers(rank)[tier].self;
    return rank + (member - self) * getStride(tier);
  }

  const std::vector<int64_t> sizes;
};

/// Executes the plans, one step of all ranks after the other; returns their
/// outputs. Bytes that no step has written are 0xee.
std::vector<Bytes> execute(const Grid &grid,
                           const std::vector<ExchangePlan> &plans,
                           const std::vector<Bytes> &inputs,
                           int64_t outputBytes) {
  std::vector<Bytes> outputs(grid.numRanks(), Bytes(outputBytes, 0xee));
  auto at = [&](int64_t rank, const Span &span) {
    Bytes &side = span.side == Span::Input ? const_cast<Bytes &>(inputs[rank])
                                           : outputs[rank];
    EXPECT_GE(span.offset, 0);
    EXPECT_GT(span.bytes, 0);
    EXPECT_LE(span.offset + span.bytes, static_cast<int64_t>(side.size()));
    return side.begin() + span.offset;
  };
  for (size_t s = 0; s < plans[0].size(); ++s) {
    // By tier, sender and receiver.
    std::map<std::tuple<size_t, int64_t, int64_t>, std::deque<Bytes>> messages;
    for (int64_t rank = 0; rank < grid.numRanks(); ++rank) {
      EXPECT_EQ(plans[rank].size(), plans[0].size());
      const ExchangeStep &step = plans[rank][s];
      for (const Transfer &transfer : step.transfers) {
        if (!transfer.isSend)
          continue;
        auto begin = at(rank, transfer.span);
        messages[{step.tier, rank,
                  grid.getPeer(rank, step.tier, transfer.member)}]
            .emplace_back(begin, begin + transfer.span.bytes);
      }
    }
    for (int64_t rank = 0; rank < grid.numRanks(); ++rank) {
      const ExchangeStep &step = plans[rank][s];
      if (step.copyBytes > 0) {
        auto from = at(rank, {Span::Input, step.copyFrom, step.copyBytes});
        std::copy(from, from + step.copyBytes,
                  at(rank, {Span::Output, step.copyTo, step.copyBytes}));
      }
      for (const Transfer &transfer : step.transfers) {
        if (transfer.isSend)
          continue;
        std::deque<Bytes> &queue = messages[{
            step.tier, grid.getPeer(rank, step.tier, transfer.member), rank}];
        if (queue.empty()) {
          ADD_FAILURE() << "rank " << rank
                        << " waits for a message that nobody "
                        << "sends, in step " << s;
          continue;
        }
        EXPECT_EQ(transfer.span.side, Span::Output);
        EXPECT_EQ(static_cast<int64_t>(queue.front().size()),
                  transfer.span.bytes);
        std::copy(queue.front().begin(), queue.front().end(),
                  at(rank, transfer.span));
        queue.pop_front();
      }
    }
    for (const auto &[key, queue] : messages)
      EXPECT_TRUE(queue.empty()) << "a message that nobody receives";
  }
  return outputs;
}

Bytes makeChunk(int64_t bytes, int64_t seed) {
  Bytes chunk(bytes);
  for (int64_t i = 0; i < bytes; ++i)
    chunk[i] = static_cast<uint8_t>(seed * 37 + i * 11 + (i >> 8) * 5 + 1);
  return chunk;
}

void append(Bytes &all, const Bytes &more) {
  all.insert(all.end(), more.begin(), more.end());
}

//===----------------------------------------------------------------------===//
// All-to-all
//===----------------------------------------------------------------------===//

TEST(ExchangePlan, AllToAll) {
  for (int64_t size : {1, 2, 3, 8})
    for (int64_t bytes : {1, 16, 1000})
      for (bool copiesOwn : {false, true}) {
        Grid grid({size});
        std::vector<ExchangePlan> plans;
        std::vector<Bytes> inputs(size);
        for (int64_t rank = 0; rank < size; ++rank) {
          plans.push_back(planAllToAll(bytes, {size, rank}, copiesOwn));
          for (int64_t to = 0; to < size; ++to)
            append(inputs[rank], makeChunk(bytes, rank * size + to));
        }
        std::vector<Bytes> outputs = execute(grid, plans, inputs, size * bytes);
        for (int64_t rank = 0; rank < size; ++rank) {
          Bytes expected;
          for (int64_t from = 0; from < size; ++from)
            append(expected, makeChunk(bytes, from * size + rank));
          EXPECT_EQ(outputs[rank], expected) << size << " " << bytes;
        }
      }
}

TEST(ExchangePlan, AllToAllCopiesItsOwnChunkApart) {
  ExchangePlan plan = planAllToAll(16, {3, 1}, /*copiesOwn=*/true);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_TRUE(plan[0].transfers.empty());
  EXPECT_EQ(plan[0].copyFrom, 16);
  EXPECT_EQ(plan[0].copyTo, 16);
  for (const Transfer &transfer : plan[1].transfers)
    EXPECT_NE(transfer.member, 1);
  EXPECT_EQ(planAllToAll(16, {3, 1}, /*copiesOwn=*/false).size(), 1u);
  EXPECT_EQ(planAllToAll(16, {1, 0}, /*copiesOwn=*/true).size(), 1u);
}

//===----------------------------------------------------------------------===//
// Gather
//===----------------------------------------------------------------------===//

void testGather(const std::vector<int64_t> &sizes, int64_t bytes) {
  SCOPED_TRACE(bytes);
  Grid grid(sizes);
  std::vector<ExchangePlan> plans;
  std::vector<Bytes> inputs;
  Bytes expected;
  for (int64_t rank = 0; rank < grid.numRanks(); ++rank) {
    plans.push_back(planGather(bytes, grid.getTiers(rank)));
    inputs.push_back(makeChunk(bytes, rank));
    append(expected, inputs.back());
  }
  std::vector<Bytes> outputs =
      execute(grid, plans, inputs, grid.numRanks() * bytes);
  for (const Bytes &output : outputs)
    EXPECT_TRUE(output == expected);
}

TEST(ExchangePlan, Gather) {
  for (const std::vector<int64_t> &sizes : std::vector<std::vector<int64_t>>{
           {1}, {4}, {2, 2}, {3, 2}, {1, 4}, {4, 1}, {2, 1, 3}, {2, 3, 2}})
    for (int64_t bytes : {1, 16, 511, 513, 4096})
      testGather(sizes, bytes);
}

/// Chunks of 8 MiB and more are cut into up to four parts, of which none is
/// shorter than 512 bytes.
TEST(ExchangePlan, LongGather) {
  constexpr int64_t kMiB = 1 << 20;
  for (int64_t bytes : {16 * kMiB, 16 * kMiB + 2, 40 * kMiB + 12345})
    testGather({2, 2}, bytes);

  auto getNumParts = [](int64_t bytes, const std::vector<GroupShape> &tiers) {
    return planGather(bytes, tiers).size() / tiers.size();
  };
  const std::vector<GroupShape> grid = {{2, 0}, {2, 1}};
  EXPECT_EQ(getNumParts(8 * kMiB, grid), 1u);
  EXPECT_EQ(getNumParts(16 * kMiB, grid), 2u);
  EXPECT_EQ(getNumParts(16 * kMiB + 2, grid), 2u);
  EXPECT_EQ(getNumParts(1024 * kMiB, grid), 4u);
  // With one tier there is nothing to overlap, with many chunks no time.
  EXPECT_EQ(getNumParts(1024 * kMiB, {{4, 0}}), 1u);
  EXPECT_EQ(getNumParts(1024 * kMiB, {{8, 0}, {16, 0}}), 1u);
}

/// A chunk crosses the slow tier once; every other message stays in the fast
/// one.
TEST(ExchangePlan, GatherCrossesTheSlowTierOnce) {
  ExchangePlan plan = planGather(64, {{3, 1}, {4, 2}});
  ASSERT_EQ(plan.size(), 2u);
  auto countSends = [](const ExchangeStep &step) {
    return std::count_if(step.transfers.begin(), step.transfers.end(),
                         [](const Transfer &t) { return t.isSend; });
  };
  EXPECT_EQ(plan[0].tier, 0u);
  EXPECT_EQ(countSends(plan[0]), 2);
  EXPECT_EQ(plan[1].tier, 1u);
  EXPECT_EQ(countSends(plan[1]), 3 * 3);
}

TEST(ExchangePlan, NoBytesNoSteps) {
  EXPECT_TRUE(planAllToAll(0, {4, 0}, true).empty());
  EXPECT_TRUE(planGather(0, {{2, 0}, {2, 0}}).empty());
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

std::string describe(const ExchangeStep &step) {
  std::string text;
  for (const auto &[span, isWrite] : getAccesses(step))
    text += std::string(text.empty() ? "" : ", ") +
            (isWrite ? "writes " : "reads ") +
            (span.side == Span::Input ? "input " : "output ") +
            std::to_string(span.offset) + "+" + std::to_string(span.bytes);
  return text;
}

TEST(ExchangePlan, Accesses) {
  EXPECT_EQ(describe(planAllToAll(16, {4, 1}, false)[0]),
            "reads input 0+64, writes output 0+64");
  ExchangePlan apart = planAllToAll(16, {4, 1}, true);
  EXPECT_EQ(describe(apart[0]), "reads input 16+16, writes output 16+16");
  EXPECT_EQ(describe(apart[1]), "reads input 0+16, reads input 32+32, "
                                "writes output 0+16, writes output 32+32");
  // Rank (0, 1) of 2 x 2: chunk 1 crosses to rank 3, then both spread.
  ExchangePlan gather = planGather(16, {{2, 0}, {2, 1}});
  EXPECT_EQ(describe(gather[0]),
            "reads input 0+16, writes output 16+16, writes output 48+16");
  EXPECT_EQ(describe(gather[1]),
            "reads output 16+16, reads output 48+16, writes output 0+16, "
            "writes output 32+16");
  EXPECT_EQ(describe({}), "");
}

} // namespace
