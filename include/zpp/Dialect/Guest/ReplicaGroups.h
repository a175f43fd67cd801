//===- ReplicaGroups.h - The groups of guest collectives --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The only place that parses the printed meshes and replica groups of
// StableHLO, Shardy and the shard dialect.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_REPLICAGROUPS_H
#define ZPP_DIALECT_GUEST_REPLICAGROUPS_H

#include "mlir/IR/BuiltinOps.h"
#include "zpp/Support/Mesh.h"
#include "llvm/ADT/StringMap.h"

#include <optional>
#include <string>
#include <vector>

namespace zpp {

/// The mesh of an `sdy.mesh` or a `shard.grid`. devices[i] is the device at
/// position i; empty for the identity.
struct ModuleMesh {
  Mesh mesh;
  std::vector<int64_t> devices;
};

/// Reads `#sdy.mesh<["node"=2, "gpu"=4], device_ids=[...]>` or the sizes of a
/// `shard.grid`, whose axes have no names of their own; nullopt for other ops.
std::optional<ModuleMesh> getModuleMesh(mlir::Operation *op);

/// Returns the mesh of this name that `from` can see.
std::optional<ModuleMesh> lookupMesh(mlir::Operation *from,
                                     llvm::StringRef name);

/// The devices of each group of a collective.
using ReplicaGroups = std::vector<std::vector<int64_t>>;

/// Reads the groups of `op`, a collective of StableHLO or of the shard dialect,
/// as devices of the module. Understands all spellings: a dense list, mesh
/// axes, and axes of a grid. If the groups cannot be read, returns nullopt and
/// sets `error`.
std::optional<ReplicaGroups> readReplicaGroups(mlir::Operation *op,
                                               std::string &error);

/// Returns the mesh by whose axes `op` names its groups, or nullopt.
std::optional<std::string> getGroupMeshName(mlir::Operation *op);

/// A key of everything that the groups of `op` depend on: collectives with
/// equal keys have equal groups.
llvm::SmallVector<const void *> getReplicaGroupsKey(mlir::Operation *op);

/// The devices of a module: `replicas` copies of a program, each partitioned
/// over `partitions` devices. Device d is partition d % partitions of replica d
/// / partitions. Numbers that the module does not state are 1.
struct ModuleCopies {
  int64_t replicas = 1;
  int64_t partitions = 1;
};
ModuleCopies getModuleCopies(mlir::ModuleOp module);

/// Returns the number of devices that the module states, or nullopt.
std::optional<int64_t> getNumDevices(mlir::ModuleOp module);

/// True if ops or arguments of `module` have shardings, `{devices=[8,1]<=[8]}`
/// or `#sdy.sharding<@mesh, [{"x"}, {}]>`, and no part of it is a program for
/// one device: XLA has yet to make its collectives.
bool hasUnappliedShardings(mlir::ModuleOp module);

/// Finds axes that a manual computation leaves to the partitioner. Each manual
/// computation is read once.
class AutomaticAxes {
public:
  /// Returns the axes of the module's mesh that the `sdy.manual_computation`
  /// around `op` leaves to the partitioner, such as "tensor, expert", or empty.
  /// Along those axes, shapes in it are still global.
  const std::string &get(mlir::Operation *op);

private:
  static std::string read(mlir::Operation *manual);

  llvm::DenseMap<mlir::Operation *, std::string> known;
};

/// Reads how an `sdy.manual_computation` splits its operands. Equal shardings
/// are read once.
class OperandShardings {
public:
  explicit OperandShardings(mlir::Operation *manual);

  /// Returns the groups of devices that hold different parts of operand
  /// `index`; null if its sharding does not split it or cannot be read.
  const ReplicaGroups *getGroups(unsigned index);

private:
  std::optional<ReplicaGroups> readGroups(llvm::StringRef entry);

  mlir::Operation *manual;
  /// The text of the sharding of each operand.
  llvm::SmallVector<std::string> entries;
  llvm::StringMap<std::optional<ReplicaGroups>> known;
};

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_REPLICAGROUPS_H
