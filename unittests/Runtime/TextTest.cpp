//===- TextTest.cpp - Text of unknown origin ------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Text.h"
#include "gtest/gtest.h"

using namespace zpp::rt;

namespace {

TEST(Text, PrintableTextStays) {
  for (const char *text :
       {"", "all_to_all 'x' along node, gpu", "\u00fc\u20ac\U0001f600 \u00a0~"})
    EXPECT_EQ(escapeControls(text), text);
}

TEST(Text, ControlCharactersAreEscaped) {
  EXPECT_EQ(escapeControls("\x1b[2Jx\r\n\t\x7f"),
            "\\x1b[2Jx\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(escapeControls(std::string("a\0b", 3)), "a\\x00b");
  // CSI is a command as the character U+009B, and as the byte 9b.
  EXPECT_EQ(escapeControls("\u009b2J"), "\\xc2\\x9b2J");
  EXPECT_EQ(escapeControls("\x9b"
                           "2J"),
            "\\x9b2J");
}

TEST(Text, WhatIsNotUtf8IsEscaped) {
  EXPECT_EQ(escapeControls("\xff\xc0\xaf\xe2\x82"),
            "\\xff\\xc0\\xaf\\xe2\\x82");
}

} // namespace
