//===- State.h - What a step keeps between calls ----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_STATE_H
#define ZPP_TRANSFORMS_STATE_H

#include "llvm/ADT/StringRef.h"

namespace zpp {

/// On a module: a list of what its step keeps from call to call, one dictionary
/// with `kind` and `type` for each of its last results, and `source`, the
/// number of the argument that it is of, if that is one. They are its last
/// arguments too, unless the step begins what is kept. What a weight's elements
/// are of which a device keeps a part is in `shape`, `dim` and `factors`, where
/// it is known (zero-send-differences).
inline constexpr llvm::StringLiteral kStateAttr = "zpp.state";

/// On a module: the numbers of the arguments that are weights of which its step
/// returns nothing, and computes no gradient. They do not change as long as the
/// same arrays come.
inline constexpr llvm::StringLiteral kTakenAttr = "zpp.taken";

/// The `kind` of weights that do not change. `arguments` names those of the
/// step that they are made of, and `results` where it returns them, or -1.
inline constexpr llvm::StringLiteral kFrozenKind = "frozen";

} // namespace zpp

#endif // ZPP_TRANSFORMS_STATE_H
