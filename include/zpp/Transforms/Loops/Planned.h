//===- Planned.h - The attribute of loops with a plan -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_LOOPS_PLANNED_H
#define ZPP_TRANSFORMS_LOOPS_PLANNED_H

#include "llvm/ADT/StringRef.h"

namespace zpp {

/// On a loop: what becomes of it, if it does not stay (zero-plan-loops).
inline constexpr llvm::StringLiteral kLoopAttr = "zpp.loop";

} // namespace zpp

#endif // ZPP_TRANSFORMS_LOOPS_PLANNED_H
