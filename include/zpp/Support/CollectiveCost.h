//===- CollectiveCost.h - Bytes a collective sends per tier -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Communication volume (ZeRO++ section 3.4): bytes that one device sends over
// the links of each tier, by the minimal algorithm of the operation.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_COLLECTIVECOST_H
#define ZPP_SUPPORT_COLLECTIVECOST_H

#include "zpp/Support/Mesh.h"

#include <cstdint>
#include <vector>

namespace zpp {

enum class CollectiveKind {
  AllGather,
  ReduceScatter,
  AllReduce,
  AllToAll,
  CollectivePermute,
  CollectiveBroadcast,
};

/// Bytes that a device sends over each axis of `mesh` (indexed as its axes) in
/// one execution over the groups of `refs`. `bytes` is
///   AllGather            what a device contributes (its shard),
///   ReduceScatter        what a device keeps (its shard),
///   AllReduce            the whole operand,
///   AllToAll             what a device sends to one peer,
///   CollectivePermute    the whole operand,
///   CollectiveBroadcast  the whole operand.
/// A pair of devices communicates over the slowest axis in which they differ.
/// Gathers and scatters cross a tier once: over refs r1 (slowest) .. rk,
/// tier i carries (size_i - 1) * bytes * size_1 * .. * size_{i-1}. An
/// all-reduce is a scatter and a gather, of shards padded to equal size. A
/// direct all-to-all sends each pair's part. A permute sends the operand to one
/// peer, which the refs do not tell, so the slowest axis among them is charged.
/// A broadcast is a chain: the busiest device passes the operand on once per
/// tier.
std::vector<int64_t> getSentBytes(const Mesh &mesh, CollectiveKind kind,
                                  const std::vector<AxisRef> &refs,
                                  int64_t bytes);

} // namespace zpp

#endif // ZPP_SUPPORT_COLLECTIVECOST_H
