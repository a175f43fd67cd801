//===- ExchangePlan.cpp - Who sends what when -----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExchangePlan.h"

#include <algorithm>
#include <tuple>

using namespace zpp::rt;

/// A gather over several tiers is cut into parts of about this many bytes, so
/// that one tier works while the other does. Shorter messages fill a slow link
/// less than that saves.
static constexpr int64_t kPartBytes = int64_t(8) << 20;
static constexpr int64_t kMaxParts = 4;
/// Gathers of more chunks are not cut: the bookkeeping would cost more.
static constexpr int64_t kMaxCutChunks = 64;
/// Parts begin at multiples of this, which NCCL is fastest with.
static constexpr int64_t kPartAlignment = 512;

ExchangePlan zpp::rt::planAllToAll(int64_t chunkBytes, GroupShape group,
                                   bool copiesOwn) {
  ExchangePlan plan;
  if (chunkBytes == 0)
    return plan;
  int64_t own = group.self * chunkBytes;
  if (copiesOwn) {
    ExchangeStep &step = plan.emplace_back();
    step.copyFrom = step.copyTo = own;
    step.copyBytes = chunkBytes;
    if (group.size == 1)
      return plan;
  }
  ExchangeStep &step = plan.emplace_back();
  for (int64_t member = 0; member < group.size; ++member) {
    if (member == group.self && copiesOwn)
      continue;
    int64_t offset = member * chunkBytes;
    step.transfers.push_back(
        {member, /*isSend=*/true, {Span::Input, offset, chunkBytes}});
    step.transfers.push_back(
        {member, /*isSend=*/false, {Span::Output, offset, chunkBytes}});
  }
  return plan;
}

/// Bytes of each part of a chunk but the last.
static int64_t getPartBytes(int64_t chunkBytes, size_t numTiers,
                            int64_t numChunks) {
  int64_t parts = 1;
  if (numTiers > 1 && numChunks <= kMaxCutChunks)
    parts = std::clamp<int64_t>(chunkBytes / kPartBytes, 1, kMaxParts);
  return (chunkBytes / parts + kPartAlignment - 1) / kPartAlignment *
         kPartAlignment;
}

/// Appends the steps for bytes [begin, begin + size) of each chunk.
static void planGatherOfPart(int64_t chunkBytes, int64_t begin, int64_t size,
                             const std::vector<GroupShape> &tiers,
                             int64_t numChunks, ExchangePlan &plan) {
  int64_t own = 0;
  for (const GroupShape &tier : tiers)
    own = own * tier.size + tier.self;
  // The chunks that have arrived: those of the ranks that differ in the tiers
  // so far. Neighbors in a tier hold chunks that are `stride` places apart.
  std::vector<int64_t> held = {own};
  int64_t stride = numChunks;
  for (size_t t = 0; t < tiers.size(); ++t) {
    const GroupShape &tier = tiers[t];
    stride /= tier.size;
    ExchangeStep step;
    step.tier = t;
    bool isFirst = t == 0;
    if (isFirst) {
      step.copyFrom = begin;
      step.copyTo = own * chunkBytes + begin;
      step.copyBytes = size;
    }
    std::vector<int64_t> next;
    for (int64_t chunk : held)
      for (int64_t member = 0; member < tier.size; ++member) {
        int64_t theirs = chunk + (member - tier.self) * stride;
        next.push_back(theirs);
        if (member == tier.self)
          continue;
        // The own chunk is sent from the input: its copy may be under way.
        Span source = {Span::Output, chunk * chunkBytes + begin, size};
        if (isFirst)
          source = {Span::Input, begin, size};
        step.transfers.push_back({member, /*isSend=*/true, source});
        step.transfers.push_back(
            {member,
             /*isSend=*/false,
             {Span::Output, theirs * chunkBytes + begin, size}});
      }
    held = std::move(next);
    if (isFirst || !step.transfers.empty())
      plan.push_back(std::move(step));
  }
}

ExchangePlan zpp::rt::planGather(int64_t chunkBytes,
                                 const std::vector<GroupShape> &tiers) {
  ExchangePlan plan;
  int64_t numChunks = 1;
  for (const GroupShape &tier : tiers)
    numChunks *= tier.size;
  int64_t partBytes = getPartBytes(chunkBytes, tiers.size(), numChunks);
  for (int64_t begin = 0, size; begin < chunkBytes; begin += size) {
    int64_t left = chunkBytes - begin;
    // No part is shorter than the alignment.
    size = left - partBytes < kPartAlignment ? left : partBytes;
    planGatherOfPart(chunkBytes, begin, size, tiers, numChunks, plan);
  }
  return plan;
}

std::vector<SpanAccess> zpp::rt::getAccesses(const ExchangeStep &step) {
  std::vector<SpanAccess> accesses;
  if (step.copyBytes > 0) {
    accesses.push_back({{Span::Input, step.copyFrom, step.copyBytes}, false});
    accesses.push_back({{Span::Output, step.copyTo, step.copyBytes}, true});
  }
  for (const Transfer &transfer : step.transfers)
    accesses.push_back({transfer.span, !transfer.isSend});
  std::sort(accesses.begin(), accesses.end(),
            [](const SpanAccess &a, const SpanAccess &b) {
              return std::tie(a.span.side, a.isWrite, a.span.offset) <
                     std::tie(b.span.side, b.isWrite, b.span.offset);
            });
  // Joins what overlaps or touches.
  size_t last = 0;
  for (size_t i = 1; i < accesses.size(); ++i) {
    const SpanAccess &next = accesses[i];
    SpanAccess &current = accesses[last];
    int64_t end = current.span.offset + current.span.bytes;
    if (next.span.side == current.span.side &&
        next.isWrite == current.isWrite && next.span.offset <= end)
      current.span.bytes = std::max(end, next.span.offset + next.span.bytes) -
                           current.span.offset;
    else
      accesses[++last] = next;
  }
  accesses.resize(std::min(accesses.size(), last + 1));
  return accesses;
}
