//===- ProgramText.h - What the parser is not asked to read -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_PROGRAMTEXT_H
#define ZPP_SUPPORT_PROGRAMTEXT_H

#include <string>
#include <string_view>

namespace zpp {

/// Brackets that may be open at once, and digits of a number. Both are far
/// above what programs have, and far below what MLIR's parser can take: it
/// calls itself for each bracket, and a long number takes it time in the square
/// of the length.
inline constexpr int kMaxNesting = 256;
inline constexpr int kMaxDigits = 1000;

/// Checks the text of a program before MLIR's parser reads it. Returns an empty
/// string, or "LINE: error: expected ..., but got ..." for what the parser does
/// not survive: deep nesting, long numbers, and bytecode, of which it believes
/// every size. So are other forms of programs, with the command that reads
/// `file`, and constants whose values were not printed.
std::string verifyProgramText(std::string_view text,
                              std::string_view file = "FILE");

} // namespace zpp

#endif // ZPP_SUPPORT_PROGRAMTEXT_H
