//===- WrittenGroups.h - Groups of collectives that are built ---*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A list of groups names each device. Where a step names its groups by axes of
// a mesh, the collectives that take the place of its own do so too.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_WRITTENGROUPS_H
#define ZPP_DIALECT_GUEST_WRITTENGROUPS_H

#include "zpp/Dialect/Guest/ReplicaGroups.h"

namespace zpp {

/// On a module that is being rewritten: the mesh by whose axes its collectives
/// named their groups.
inline constexpr llvm::StringLiteral kGroupMeshAttr = "zpp.group_mesh";

/// Sets `kGroupMeshAttr` if a collective of `module` names its groups by axes.
void noteGroupMesh(mlir::ModuleOp module);

/// The value of `replica_groups`, and the devices of each group.
struct WrittenGroups {
  mlir::Attribute attr;
  int64_t size;
};

/// `groups`, of equal sizes, for a collective in `module`: as axes if
/// `kGroupMeshAttr` names a mesh that has them, otherwise as a list.
WrittenGroups writeGroups(mlir::ModuleOp module, const ReplicaGroups &groups);

/// The same of the groups of `refs` on `mesh`.
WrittenGroups writeGroups(mlir::ModuleOp module, const Mesh &mesh,
                          const std::vector<AxisRef> &refs);

/// If `op` names its groups by axes of a mesh other than `mesh`, writes them as
/// a list.
void listReplicaGroups(mlir::Operation *op, const ModuleMesh &mesh);

/// Erases every `sdy.mesh` that nothing names, as those become whose axes the
/// groups of collectives were. Compilers without Shardy do not know the op. One
/// that is called `mesh` goes with the last of them.
void dropUnusedMeshes(mlir::ModuleOp module);

/// On a module: the long lists of groups of its collectives. MLIR gives names
/// only to attributes that it meets outside of properties of guests' ops; with
/// a name, a list is printed once.
inline constexpr llvm::StringLiteral kGroupListsAttr = "zpp.group_lists";

/// True if `attr` is a list of groups that is long enough for a name.
bool isLongGroupList(mlir::Attribute attr);

/// Sets `kGroupListsAttr`, or removes it if no list is long.
void noteGroupLists(mlir::ModuleOp module);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_WRITTENGROUPS_H
