//===- CollectiveCost.cpp - Bytes a collective sends per tier -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/CollectiveCost.h"

#include "zpp/Support/Limits.h"

using namespace zpp;

std::vector<int64_t> zpp::getSentBytes(const Mesh &mesh, CollectiveKind kind,
                                       const std::vector<AxisRef> &refs,
                                       int64_t bytes) {
  // What crosses a tier does not depend on the order in which the refs number
  // the group.
  std::vector<int64_t> sizes = mesh.getSizes(refs);
  int64_t groupSize = zpp::numDevices(refs);
  // The number of devices of the group that differ in slower axes only, and in
  // faster axes only.
  int64_t slower = 1, faster = groupSize;
  std::vector<int64_t> sent(sizes.size(), 0);
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    int64_t peers = sizes[axis] - 1;
    faster /= sizes[axis];
    switch (kind) {
    case CollectiveKind::AllGather:
    case CollectiveKind::ReduceScatter:
      sent[axis] = multiplySaturating(peers * slower, bytes);
      break;
    case CollectiveKind::AllReduce: {
      int64_t shard = bytes / groupSize + (bytes % groupSize != 0);
      sent[axis] = multiplySaturating(2 * peers * slower, shard);
      break;
    }
    case CollectiveKind::AllToAll:
      sent[axis] = multiplySaturating(peers * faster, bytes);
      break;
    case CollectiveKind::CollectivePermute:
      // Charge only the slowest axis in which the group differs.
      sent[axis] = peers > 0 && slower == 1 ? bytes : 0;
      break;
    case CollectiveKind::CollectiveBroadcast:
      sent[axis] = peers > 0 ? bytes : 0;
      break;
    }
    slower *= sizes[axis];
  }
  return sent;
}
