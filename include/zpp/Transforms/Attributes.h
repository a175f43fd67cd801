//===- Attributes.h - What passes leave to each other -----------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_ATTRIBUTES_H
#define ZPP_TRANSFORMS_ATTRIBUTES_H

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

/// The attribute of a module that says how many bytes partial sums of gradients
/// take on a device beyond the gradients.
inline constexpr llvm::StringLiteral kAccumulatedAttr = "zpp.accumulated";
/// The attribute of a module that says of how many micro-batches gradients are
/// added up before they are sent.
inline constexpr llvm::StringLiteral kMicroBatchesAttr = "zpp.micro_batches";

/// On a loop: what becomes of it, if it does not stay (zero-plan-loops).
inline constexpr llvm::StringLiteral kLoopAttr = "zpp.loop";

/// On a gather that zero-join-products has made: the bytes that a device sends
/// over each axis with the collectives in whose place it stands.
inline constexpr llvm::StringLiteral kSentAttr = "zpp.sent";

} // namespace zpp

#endif // ZPP_TRANSFORMS_ATTRIBUTES_H
