//===- GroupLists.h - Long lists of devices, printed once -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_GROUPLISTS_H
#define ZPP_DIALECT_GUEST_GROUPLISTS_H

#include "mlir/IR/BuiltinOps.h"

namespace zpp {

/// On a module: the long lists of groups of its collectives. MLIR gives names
/// only to attributes that it meets outside of properties of guests' ops; with
/// a name, a list is printed once.
inline constexpr llvm::StringLiteral kGroupListsAttr = "zpp.group_lists";

/// True if `attr` is a list of groups that is long enough for a name.
bool isLongGroupList(mlir::Attribute attr);

/// Sets `kGroupListsAttr`, or removes it if no list is long.
void noteGroupLists(mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_GROUPLISTS_H
