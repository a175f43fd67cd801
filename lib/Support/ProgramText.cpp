//===- ProgramText.cpp - What the parser is not asked to read -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/ProgramText.h"

#include <algorithm>

using namespace zpp;

static bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// Names the format of `text` if it is not MLIR's, or null.
static const char *getOtherForm(std::string_view text) {
  if (text.substr(0, 4) == "ML\xef"
                           "R")
    return "bytecode";
  if (text.substr(0, 10) == "HloModule ")
    return "HLO";
  if (text.find('\0') != std::string_view::npos)
    return "binary data";
  return nullptr;
}

std::string zpp::verifyProgramText(std::string_view text,
                                   std::string_view file) {
  if (const char *form = getOtherForm(text))
    return "1: error: expected the text of a program, but got " +
           std::string(form) + "; convert it first: zpp convert " +
           std::string(file) + " -o generic.mlir";
  int depth = 0;
  size_t line = 1;
  auto fail = [&](const char *what, int most) {
    return std::to_string(line) + ": error: expected at most " +
           std::to_string(most) + " " + what + ", but got more";
  };
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    switch (c) {
    case '\n':
      ++line;
      break;
    case '"':
      // A string ends with its line at the latest.
      for (++i; i < text.size() && text[i] != '"' && text[i] != '\n'; ++i)
        if (text[i] == '\\')
          ++i;
      if (i < text.size() && text[i] == '\n')
        ++line;
      break;
    case '/':
      if (i + 1 < text.size() && text[i + 1] == '/') {
        i = std::min(text.find('\n', i), text.size());
        ++line;
      }
      break;
    case '<':
      if (i + 1 < text.size() && text[i + 1] == '=')
        break;
      [[fallthrough]];
    case '(':
    case '[':
    case '{':
      if (++depth > kMaxNesting)
        return fail("brackets in one another", kMaxNesting);
      break;
    case '>':
      // Not that of an arrow or a comparison.
      if (i > 0 && text[i - 1] == '-')
        break;
      [[fallthrough]];
    case ')':
    case ']':
    case '}':
      depth = std::max(depth - 1, 0);
      break;
    default:
      if (!isDigit(c))
        break;
      size_t begin = i;
      while (i + 1 < text.size() && isDigit(text[i + 1]))
        ++i;
      if (i - begin >= static_cast<size_t>(kMaxDigits))
        return fail("digits of a number", kMaxDigits);
      break;
    }
  }
  return "";
}
