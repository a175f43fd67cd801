//===- ProgramTextTest.cpp - Tests of ProgramText.h -----------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/ProgramText.h"

#include "gtest/gtest.h"

using namespace zpp;

static std::string repeat(const char *text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i)
    result += text;
  return result;
}

TEST(ProgramTextTest, Nesting) {
  EXPECT_EQ(verifyProgramText(""), "");
  EXPECT_EQ(verifyProgramText(repeat("[{(<", 64) + repeat(">)}]", 64)), "");
  EXPECT_EQ(verifyProgramText("\n" + repeat("[{(<", 65)),
            "2: error: expected at most 256 brackets in one another, but got "
            "more");
  // One after the other, in strings and in comments.
  EXPECT_EQ(verifyProgramText(repeat("(f32) -> (f32) 2 <= 1 >= 0\n ", 1000)),
            "");
  EXPECT_EQ(verifyProgramText("\"" + repeat("[\\\"", 300) + "\" // " +
                              repeat("(", 300) + "\n"),
            "");
  // A string without an end, and a quote at the end.
  EXPECT_NE(verifyProgramText("\"x\n" + repeat("(", 300)), "");
  EXPECT_EQ(verifyProgramText("\"\\"), "");
}

TEST(ProgramTextTest, Numbers) {
  EXPECT_EQ(verifyProgramText(repeat("9", 1000)), "");
  EXPECT_EQ(verifyProgramText(repeat("9", 1001)),
            "1: error: expected at most 1000 digits of a number, but got more");
  EXPECT_EQ(verifyProgramText("\"0x" + repeat("9", 5000) + "\""), "");
}

TEST(ProgramTextTest, OtherForms) {
  EXPECT_EQ(verifyProgramText("ML\xefR\x06"),
            "1: error: expected the text of a program, but got bytecode; "
            "convert it first: zpp convert FILE -o generic.mlir");
  EXPECT_EQ(verifyProgramText("HloModule jit_step, entry", "step.hlo"),
            "1: error: expected the text of a program, but got HLO; convert it "
            "first: zpp convert step.hlo -o generic.mlir");
  EXPECT_EQ(verifyProgramText(std::string("\x0a\0", 2), "step.pb"),
            "1: error: expected the text of a program, but got binary data; "
            "convert it first: zpp convert step.pb -o generic.mlir");
}
