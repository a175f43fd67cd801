//===- ExchangePlan.h - Who sends what when ---------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An exchange as a list of steps, computed from the sizes of the groups alone.
// Every rank computes its own list; the lists of all members fit together.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CUDA_EXCHANGEPLAN_H
#define ZPP_LIB_RUNTIME_CUDA_EXCHANGEPLAN_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zpp::rt {

/// A group of ranks as one of its members sees it.
struct GroupShape {
  int64_t size;
  /// The position of this rank, in [0, size).
  int64_t self;
};

/// Bytes of the input or of the output of an exchange.
struct Span {
  enum Side { Input, Output } side;
  int64_t offset;
  int64_t bytes;
};

/// A message between this rank and a member of the group of the step.
struct Transfer {
  int64_t member;
  bool isSend;
  Span span;
};

/// Messages that travel at the same time.
struct ExchangeStep {
  /// The group in which the messages stay.
  size_t tier = 0;
  /// The rank's own chunk: `bytes` from the input to the output, before any
  /// message. A step without messages is only this copy.
  int64_t copyFrom = 0, copyTo = 0, copyBytes = 0;
  /// Each member lists its messages with another one in the same order.
  std::vector<Transfer> transfers;
};

/// The steps in their order. A step reads what earlier ones have written.
using ExchangePlan = std::vector<ExchangeStep>;

/// Chunk i of the input goes to member i, whose chunk arrives in place i of the
/// output. `copiesOwn`: a step of its own copies the rank's chunk to itself;
/// otherwise it is a message like the others.
ExchangePlan planAllToAll(int64_t chunkBytes, GroupShape group, bool copiesOwn);

/// The input, one chunk, arrives on all ranks that differ along `tiers`, the
/// slowest first: in the place that the positions in the tiers number, the
/// first tier being most significant. A chunk crosses each slow tier once and
/// spreads on the faster ones. Long chunks are cut into parts, so that one tier
/// works for a part while another does for the next.
ExchangePlan planGather(int64_t chunkBytes,
                        const std::vector<GroupShape> &tiers);

/// The bytes that a step reads or writes, without repetition, in order.
struct SpanAccess {
  Span span;
  bool isWrite;
};
std::vector<SpanAccess> getAccesses(const ExchangeStep &step);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CUDA_EXCHANGEPLAN_H
