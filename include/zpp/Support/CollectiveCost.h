//===- CollectiveCost.h - Bytes a collective sends per tier -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Communication volume (ZeRO++ section 3.4): the bytes that one device sends
// over the links of each tier if each operation uses its minimal algorithm.
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

/// Returns the bytes that a device sends over each axis of `mesh`, indexed by
/// its axes, in one execution over the groups of `refs`. `bytes` is
///   AllGather            what a device contributes (its shard),
///   ReduceScatter        what a device keeps (its shard),
///   AllReduce            the whole operand,
///   AllToAll             what a device sends to one peer,
///   CollectivePermute    the whole operand,
///   CollectiveBroadcast  the whole operand.
/// Two devices communicate over the slowest axis in which they differ.
/// - A gather or scatter crosses a tier once: over refs r1 (slowest) to rk,
///   tier i carries (size_i - 1) * bytes * size_1 * .. * size_{i-1}.
/// - An all-reduce is a scatter and a gather of shards padded to equal size.
/// - A direct all-to-all sends each pair's part separately.
/// - A permute sends the operand to one peer. The refs do not say to which one,
///   so the slowest axis among them is charged.
/// - A broadcast is a chain: the busiest device passes the operand on once per
///   tier.
std::vector<int64_t> getSentBytes(const Mesh &mesh, CollectiveKind kind,
                                  const std::vector<AxisRef> &refs,
                                  int64_t bytes);

} // namespace zpp

#endif // ZPP_SUPPORT_COLLECTIVECOST_H
