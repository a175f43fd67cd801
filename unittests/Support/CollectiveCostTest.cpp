//===- CollectiveCostTest.cpp ---------------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/CollectiveCost.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <numeric>

using namespace zpp;

namespace {

using Refs = std::vector<AxisRef>;
using Bytes = std::vector<int64_t>;

Mesh parseMesh(const std::string &text) {
  std::string error;
  std::optional<Mesh> mesh = Mesh::parse(text, error);
  EXPECT_TRUE(mesh) << error;
  return mesh.value_or(Mesh());
}

const char *const kTiers[] = {"gpu:8",       "node:2,gpu:4", "node:4,gpu:8",
                              "a:2,b:3,c:4", "a:2,b:2,c:2",  "a:1,b:4,c:1",
                              "a:2,t:3,b:4", "node:3,gpu:1"};

/// All subsets of the axes; each axis is whole, or in halves if it is even.
std::vector<Refs> getRefLists(const Mesh &mesh) {
  std::vector<Refs> lists = {{}};
  for (const MeshAxis &axis : mesh.getAxes()) {
    size_t count = lists.size();
    for (size_t i = 0; i < count; ++i) {
      std::vector<Refs> choices = {{{axis.name, 1, axis.size}}};
      if (axis.size % 2 == 0) {
        AxisRef major = {axis.name, 1, 2};
        AxisRef minor = {axis.name, 2, axis.size / 2};
        choices.insert(choices.end(), {{major}, {minor}, {minor, major}});
      }
      for (const Refs &choice : choices) {
        Refs list = lists[i];
        list.insert(list.end(), choice.begin(), choice.end());
        lists.push_back(list);
      }
    }
  }
  return lists;
}

/// Returns the slowest axis in which two devices differ.
size_t getTier(const Mesh &mesh, int64_t a, int64_t b) {
  for (size_t axis = 0;; ++axis)
    if (mesh.getCoordinate(a, mesh.getAxis(axis)) !=
        mesh.getCoordinate(b, mesh.getAxis(axis)))
      return axis;
}

TEST(CollectiveCost, AllToAllCountsEveryPair) {
  for (const char *text : kTiers) {
    Mesh mesh = parseMesh(text);
    for (const Refs &refs : getRefLists(mesh)) {
      Bytes got = getSentBytes(mesh, CollectiveKind::AllToAll, refs, 24);
      for (const std::vector<int64_t> &group : mesh.getGroups(refs))
        for (int64_t sender : group) {
          Bytes sent(mesh.getAxes().size(), 0);
          for (int64_t receiver : group)
            if (receiver != sender)
              sent[getTier(mesh, sender, receiver)] += 24;
          ASSERT_EQ(got, sent) << text;
        }
    }
  }
}

/// The minimal algorithm: the devices behind one link of tier i, or of a slower
/// tier, begin with their own shards and end with all shards. Each shard of
/// others comes in through their links once.
TEST(CollectiveCost, GathersBringEachShardInOnce) {
  for (const char *text : kTiers) {
    Mesh mesh = parseMesh(text);
    for (const Refs &refs : getRefLists(mesh)) {
      Bytes sent = getSentBytes(mesh, CollectiveKind::AllGather, refs, 40);
      const std::vector<int64_t> group = mesh.getGroups(refs).front();
      int64_t total = group.size() * 40;
      int64_t slowerBytes = 0;
      for (size_t tier = 0; tier < sent.size(); ++tier) {
        slowerBytes += sent[tier];
        // The members that share device 0's coordinates down to this tier.
        int64_t behind =
            std::count_if(group.begin(), group.end(), [&](int64_t device) {
              return device == group[0] ||
                     getTier(mesh, group[0], device) > tier;
            });
        ASSERT_EQ(behind * (40 + slowerBytes), total) << text;
      }
    }
  }
}

TEST(CollectiveCost, ScatterMirrorsGatherAndReduceIsBoth) {
  for (const char *text : kTiers) {
    Mesh mesh = parseMesh(text);
    for (const Refs &refs : getRefLists(mesh)) {
      Bytes gather = getSentBytes(mesh, CollectiveKind::AllGather, refs, 40);
      EXPECT_EQ(getSentBytes(mesh, CollectiveKind::ReduceScatter, refs, 40),
                gather);
      Bytes twice = gather;
      for (int64_t &bytes : twice)
        bytes *= 2;
      int64_t devices = numDevices(refs);
      EXPECT_EQ(
          getSentBytes(mesh, CollectiveKind::AllReduce, refs, 40 * devices),
          twice);
      // A remainder is padded to one more byte per shard.
      EXPECT_EQ(
          getSentBytes(mesh, CollectiveKind::AllReduce, refs, 39 * devices + 1),
          twice);
    }
  }
}

TEST(CollectiveCost, OrderOfRefsDoesNotMatter) {
  Mesh mesh = parseMesh("a:2,b:3,c:4");
  Refs forward = {{"a", 1, 2}, {"b", 1, 3}, {"c", 1, 2}, {"c", 2, 2}};
  Refs backward(forward.rbegin(), forward.rend());
  for (CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
        CollectiveKind::AllReduce, CollectiveKind::AllToAll,
        CollectiveKind::CollectivePermute, CollectiveKind::CollectiveBroadcast})
    EXPECT_EQ(getSentBytes(mesh, kind, forward, 48),
              getSentBytes(mesh, kind, backward, 48));
}

TEST(CollectiveCost, Examples) {
  Mesh mesh = parseMesh("node:2,tensor:2,gpu:4");
  Refs refs = {{"node", 1, 2}, {"gpu", 1, 4}};
  auto sent = [&](CollectiveKind kind) {
    return getSentBytes(mesh, kind, refs, 80);
  };
  EXPECT_EQ(sent(CollectiveKind::AllGather), (Bytes{80, 0, 3 * 2 * 80}));
  EXPECT_EQ(sent(CollectiveKind::ReduceScatter), (Bytes{80, 0, 3 * 2 * 80}));
  EXPECT_EQ(sent(CollectiveKind::AllReduce), (Bytes{20, 0, 120}));
  EXPECT_EQ(sent(CollectiveKind::AllToAll), (Bytes{4 * 80, 0, 3 * 80}));
  EXPECT_EQ(sent(CollectiveKind::CollectivePermute), (Bytes{80, 0, 0}));
  EXPECT_EQ(sent(CollectiveKind::CollectiveBroadcast), (Bytes{80, 0, 80}));
  refs = {{"gpu", 1, 4}};
  EXPECT_EQ(sent(CollectiveKind::CollectivePermute), (Bytes{0, 0, 80}));
  // Without a group there is no traffic.
  refs = {};
  EXPECT_EQ(sent(CollectiveKind::AllReduce), (Bytes{0, 0, 0}));
  EXPECT_EQ(sent(CollectiveKind::CollectivePermute), (Bytes{0, 0, 0}));
  EXPECT_EQ(sent(CollectiveKind::CollectiveBroadcast), (Bytes{0, 0, 0}));
}

TEST(CollectiveCost, BytesBeyond32Bits) {
  Mesh mesh = parseMesh("node:64,gpu:8");
  EXPECT_EQ(getSentBytes(mesh, CollectiveKind::AllGather,
                         {{"node", 1, 64}, {"gpu", 1, 8}}, int64_t(1) << 32),
            (Bytes{int64_t(63) << 32, int64_t(7 * 64) << 32}));
}

//===----------------------------------------------------------------------===//
// The paper
//===----------------------------------------------------------------------===//

class VolumeTest : public testing::TestWithParam<std::pair<int, int>> {
protected:
  int64_t nodes() const { return GetParam().first; }
  int64_t gpus() const { return GetParam().second; }
  Mesh mesh() const { return Mesh({{"node", nodes()}, {"gpu", gpus()}}); }
  Refs all() const { return {{"node", 1, nodes()}, {"gpu", 1, gpus()}}; }
  Refs within() const { return {{"gpu", 1, gpus()}}; }
  Refs between() const { return {{"node", 1, nodes()}}; }

  /// The bytes of an f16 model whose sizes also divide for i4.
  int64_t modelBytes() const { return nodes() * gpus() * 1024; }
  /// Traffic that leaves a node, in units of (nodes - 1) / nodes * M. The paper
  /// calls this unit M.
  double crossNodeVolume(CollectiveKind kind, const Refs &refs,
                         int64_t bytes) const {
    int64_t perNode = getSentBytes(mesh(), kind, refs, bytes)[0] * gpus();
    return static_cast<double>(perNode * nodes()) /
           ((nodes() - 1) * modelBytes());
  }
};

/// Table 1: ZeRO-3 sends 3 M, ZeRO++ 0.75 M.
TEST_P(VolumeTest, PapersTable) {
  int64_t shard = modelBytes() / (nodes() * gpus());
  double gather = crossNodeVolume(CollectiveKind::AllGather, all(), shard);
  double scatter = crossNodeVolume(CollectiveKind::ReduceScatter, all(), shard);
  EXPECT_EQ(gather, 1.0);
  EXPECT_EQ(scatter, 1.0);

  // qwZ: int8 instead of f16.
  double forward = crossNodeVolume(CollectiveKind::AllGather, all(), shard / 2);
  // hpZ: the secondary partition is within the node.
  double backward = crossNodeVolume(CollectiveKind::AllGather, within(),
                                    modelBytes() / gpus());
  // qgZ: int4 within the node, then what is left after the sum between nodes.
  double twoHops =
      crossNodeVolume(CollectiveKind::AllToAll, within(),
                      modelBytes() / gpus() / 4) +
      crossNodeVolume(CollectiveKind::AllToAll, between(), shard / 4);
  EXPECT_EQ(forward, 0.5);
  EXPECT_EQ(backward, 0.0);
  EXPECT_EQ(twoHops, 0.25);
  EXPECT_EQ(gather + gather + scatter, 3.0);
  EXPECT_EQ(forward + backward + twoHops, 0.75);
}

/// Section 3.3.2: a single hop sends N * M / Z per node instead of M / Z.
TEST_P(VolumeTest, OneHopBlowsUpByTheGpusPerNode) {
  int64_t shard = modelBytes() / (nodes() * gpus());
  double oneHop = crossNodeVolume(CollectiveKind::AllToAll, all(), shard / 4);
  double twoHops =
      crossNodeVolume(CollectiveKind::AllToAll, between(), shard / 4);
  EXPECT_EQ(oneHop, gpus() * twoHops);
  // With four or more GPUs per node, that is no less than f16 ring scatters
  // send.
  EXPECT_EQ(oneHop >= 1.0, gpus() >= 4);
}

INSTANTIATE_TEST_SUITE_P(Meshes, VolumeTest,
                         testing::Values(std::pair(2, 2), std::pair(2, 4),
                                         std::pair(2, 8), std::pair(3, 5),
                                         std::pair(4, 8), std::pair(24, 16),
                                         std::pair(16, 1)));

} // namespace
