//===- OriginTest.cpp - Tests of what collectives come from ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Origin.h"

#include "ParsedModule.h"

using namespace mlir;
using namespace zpp;

namespace {

/// A module with the attribute `zpp.origin`.
std::string withOrigin(const std::string &origin) {
  return "module attributes {zpp.origin = " + origin + "} {}";
}

TEST(OriginTest, WhatIsWrittenIsRead) {
  ParsedModule module("module {}");
  for (CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
        CollectiveKind::AllReduce, CollectiveKind::AllToAll,
        CollectiveKind::CollectivePermute, CollectiveKind::CollectiveBroadcast})
    for (Role role : {Role::Weight, Role::Gradient, Role::Moment,
                      Role::Exchange, Role::Update, Role::Other})
      for (Phase phase : {Phase::Forward, Phase::Backward}) {
        Origin origin;
        origin.id = 3;
        origin.kind = kind;
        origin.role = role;
        origin.phase = phase;
        origin.group = "node,gpu:(2)2";
        origin.weight = 1;
        origin.modelBytes = 4096;
        origin.trips = 5;
        origin.before = {7, 11};
        origin.share = 13;
        origin.reason = "it is not to be rewritten";
        module.get()->setAttr(kOriginAttr,
                              getOriginAttr(module.get().getContext(), origin));
        std::optional<Origin> read = getOrigin(module.get());
        ASSERT_TRUE(read.has_value());
        EXPECT_EQ(read->kind, kind);
        EXPECT_EQ(read->role, role);
        EXPECT_EQ(read->phase, phase);
        EXPECT_EQ(read->group, origin.group);
        EXPECT_EQ(read->before, origin.before);
        EXPECT_EQ(read->share, 13);
        EXPECT_EQ(read->reason, origin.reason);
      }
}

TEST(OriginTest, WhatIsNotSaidIsNotGuessed) {
  ParsedModule module(withOrigin("{id = 2}"));
  std::optional<Origin> origin = getOrigin(module.get());
  ASSERT_TRUE(origin.has_value());
  EXPECT_EQ(origin->id, 2);
  EXPECT_FALSE(origin->kind.has_value());
  EXPECT_FALSE(origin->role.has_value());
  EXPECT_FALSE(origin->phase.has_value());
  EXPECT_EQ(getKindName(origin->kind), "");
  EXPECT_EQ(getRoleName(origin->role), "");
  EXPECT_EQ(getPhaseName(origin->phase), "");
}

TEST(OriginTest, WordsThatNobodyWritesAreNoRole) {
  ParsedModule module(
      withOrigin("{kind = \"gather\", role = \"Weight\", phase = 1}"));
  std::optional<Origin> origin = getOrigin(module.get());
  ASSERT_TRUE(origin.has_value());
  EXPECT_FALSE(origin->kind.has_value());
  EXPECT_FALSE(origin->role.has_value());
  EXPECT_FALSE(origin->phase.has_value());
}

TEST(OriginTest, ReasonsAddUp) {
  ParsedModule module(withOrigin("{id = 0}"));
  leaveAlone(module.get(), "one", LeftAlone("it is in a loop"));
  leaveAlone(module.get(), "two", LeftAlone("it is small"));
  leaveAlone(module.get(), "two", LeftAlone("it is small"));
  EXPECT_EQ(getOrigins(module.get().getOperation()).front().reason,
            "it is in a loop; it is small");
}

} // namespace
