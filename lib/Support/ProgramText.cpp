//===- ProgramText.cpp - What the parser is not asked to read -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/ProgramText.h"

#include <algorithm>
#include <array>

using namespace zpp;

/// True for a text with a number of more digits than the parser is given.
static bool hasLongNumber(std::string_view text) {
  int digits = 0;
  return std::any_of(text.begin(), text.end(), [&](char c) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    return digits > kMaxDigits;
  });
}

namespace {
/// A set of characters, asked for each one of a long text.
struct Marks {
  explicit constexpr Marks(std::string_view marks) {
    for (char mark : marks)
      isMark[static_cast<unsigned char>(mark)] = true;
  }

  /// Returns the first place of one in `text`, from `i` on; the end if there is
  /// none.
  size_t find(std::string_view text, size_t i) const {
    while (i < text.size() && !isMark[static_cast<unsigned char>(text[i])])
      ++i;
    return i;
  }

  std::array<bool, 256> isMark{};
};
} // namespace

/// The characters that count outside of strings, and in them.
static constexpr Marks kMarks("\n\"/<([{>)]}"), kInString("\n\"\\");

/// The mark in place of values that were not printed.
static constexpr std::string_view kElided = "dense_resource<__elided__>";

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

/// True for a printed jaxpr: "{ lambda ; a:f32[]. let", after functions that it
/// calls: "let f = { lambda".
static bool isJaxpr(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\n"), text.size()));
  std::string_view line = text.substr(0, text.find('\n'));
  return line.substr(0, 8) == "{ lambda" ||
         (line.substr(0, 4) == "let " &&
          line.find("= { lambda") != std::string_view::npos);
}

std::string zpp::verifyProgramText(std::string_view text,
                                   std::string_view file) {
  if (const char *form = getOtherForm(text))
    return "1: error: expected the text of a program, but got " +
           std::string(form) + ", which `zpp opt " + std::string(file) +
           "` reads";
  if (isJaxpr(text))
    return "1: error: expected the text of a program, but got a jaxpr, which "
           "says nothing of devices; write what "
           "jax.jit(step).lower(...).as_text() returns";
  if (size_t place = text.find(kElided); place != std::string_view::npos)
    return std::to_string(
               1 + std::count(text.begin(), text.begin() + place, '\n')) +
           ": error: expected the values of a constant, but got " +
           std::string(kElided) + "; print the module with all of them";
  int depth = 0;
  size_t line = 1;
  auto fail = [&](const char *what, int most) {
    return std::to_string(line) + ": error: expected at most " +
           std::to_string(most) + " " + what + ", but got more";
  };
  for (size_t i = 0;; ++i) {
    size_t begin = i;
    i = kMarks.find(text, begin);
    // Hardly ever is so much text between two of them.
    if (i - begin > kMaxDigits && hasLongNumber(text.substr(begin, i - begin)))
      return fail("digits of a number", kMaxDigits);
    if (i >= text.size())
      return "";
    switch (text[i]) {
    case '\n':
      ++line;
      break;
    case '"':
      // A string ends with its line at the latest.
      i = kInString.find(text, i + 1);
      while (i < text.size() && text[i] == '\\')
        i = kInString.find(text, i + 2);
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
    }
  }
}
