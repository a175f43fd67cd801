//===- Rules.h - The rules by which roles are decided -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_RULES_H
#define ZPP_ANALYSIS_ROLES_RULES_H

#include "llvm/ADT/StringRef.h"

namespace zpp {

/// The rules of docs/rules.md, which says what each demands. None stands for a
/// collective of which no role has been decided.
enum class Rule {
  None,
  Form,
  Axes,
  State,
  Input,
  Computed,
  Use,
  Buffer,
  Sign,
  Partner,
  Name,
  Goal,
  Divisor,
  Activations,
  Difference,
  Declared,
  Layer,
  Bits,
  Stack,
  Moment,
  Exchange
};

/// "R1" to "R20"; empty for None.
inline llvm::StringRef getRuleName(Rule rule) {
  constexpr llvm::StringLiteral names[] = {
      "",    "R1",  "R2",  "R3",  "R4",  "R5",  "R6",
      "R7",  "R8",  "R9",  "R10", "R11", "R12", "R13",
      "R14", "R15", "R16", "R17", "R18", "R19", "R20"};
  return names[static_cast<unsigned>(rule)];
}

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_RULES_H
