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
            "1: error: expected the text of a program, but got bytecode, which "
            "`zpp opt FILE` reads");
  EXPECT_EQ(verifyProgramText("HloModule jit_step, entry", "step.hlo"),
            "1: error: expected the text of a program, but got HLO, which `zpp "
            "opt step.hlo` reads");
  EXPECT_EQ(verifyProgramText(std::string("\x0a\0", 2), "step.pb"),
            "1: error: expected the text of a program, but got binary data, "
            "which `zpp opt step.pb` reads");
}

TEST(ProgramTextTest, Jaxprs) {
  const char *error = "1: error: expected the text of a program, but got a "
                      "jaxpr, which says nothing of devices; write what "
                      "jax.jit(step).lower(...).as_text() returns";
  EXPECT_EQ(verifyProgramText("{ lambda ; a:f32[]. let"), error);
  EXPECT_EQ(verifyProgramText("\nlet f = { lambda ; a:f32[]. let\n"), error);
  EXPECT_EQ(verifyProgramText("let f = 1\n{ lambda"), "");
}

TEST(ProgramTextTest, ElidedConstants) {
  EXPECT_EQ(verifyProgramText("module {\n  dense_resource<__elided__> : x"),
            "2: error: expected the values of a constant, but got "
            "dense_resource<__elided__>; print the module with all of them");
  EXPECT_EQ(verifyProgramText("dense_resource<w>"), "");
}
