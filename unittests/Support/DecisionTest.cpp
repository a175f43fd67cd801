//===- DecisionTest.cpp - Tests of values or reasons ----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/Decision.h"

#include "gtest/gtest.h"

#include <memory>

using namespace zpp;

namespace {

TEST(DecisionTest, AValueIsAYes) {
  Decision<int> decision = 7;
  ASSERT_TRUE(static_cast<bool>(decision));
  EXPECT_EQ(*decision, 7);
  *decision = 8;
  EXPECT_EQ(*decision, 8);
}

TEST(DecisionTest, AValueThatIsFalseIsAYes) {
  EXPECT_TRUE(static_cast<bool>(Decision<int>(0)));
  EXPECT_TRUE(static_cast<bool>(Decision<bool>(false)));
  EXPECT_TRUE(static_cast<bool>(Decision<std::string>("")));
  EXPECT_TRUE(static_cast<bool>(Decision<void *>(nullptr)));
}

TEST(DecisionTest, AReasonIsANo) {
  Decision<int> decision = LeftAlone("its groups have one device each");
  EXPECT_FALSE(static_cast<bool>(decision));
  EXPECT_EQ(decision.getReason(), "its groups have one device each");
  EXPECT_EQ(decision.getLeftAlone().getReason(), decision.getReason());
}

TEST(DecisionTest, AReasonGoesOnToADecisionOfAnotherType) {
  Decision<int> inner = LeftAlone("it is in a loop");
  Decision<std::string> outer = inner.getLeftAlone();
  EXPECT_FALSE(static_cast<bool>(outer));
  EXPECT_EQ(outer.getReason(), "it is in a loop");
}

TEST(DecisionTest, TextIsAValueAndNoReason) {
  Decision<std::string> decision = std::string("node");
  ASSERT_TRUE(static_cast<bool>(decision));
  EXPECT_EQ(*decision, "node");
  EXPECT_EQ(decision->size(), 4u);
}

TEST(DecisionTest, WithoutAValueThereIsAYes) {
  auto decide = [](bool isYes) -> Decision<> {
    if (isYes)
      return Yes();
    return LeftAlone("no");
  };
  EXPECT_TRUE(static_cast<bool>(decide(true)));
  EXPECT_EQ(decide(false).getReason(), "no");
}

TEST(DecisionTest, AValueMayBeMovedOut) {
  Decision<std::unique_ptr<int>> decision = std::make_unique<int>(3);
  std::unique_ptr<int> value = std::move(*decision);
  EXPECT_EQ(*value, 3);
}

} // namespace
