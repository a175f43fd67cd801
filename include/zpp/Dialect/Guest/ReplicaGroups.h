//===- ReplicaGroups.h - The groups of guest collectives --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The only place that reads how StableHLO, Shardy and the shard dialect print
// meshes and replica groups.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_DIALECT_GUEST_REPLICAGROUPS_H
#define ZPP_DIALECT_GUEST_REPLICAGROUPS_H

#include "mlir/IR/BuiltinOps.h"
#include "zpp/Support/Mesh.h"

#include <optional>
#include <string>
#include <vector>

namespace zpp {

/// The mesh of an `sdy.mesh` or a `shard.grid`; devices[i] is the device at
/// position i, empty for the identity.
struct ModuleMesh {
  Mesh mesh;
  std::vector<int64_t> devices;
};

/// Reads `#sdy.mesh<["node"=2, "gpu"=4], device_ids=[...]>` or the sizes of a
/// `shard.grid`, whose axes have no names of their own; nullopt for other ops.
std::optional<ModuleMesh> getModuleMesh(mlir::Operation *op);

/// Devices of each group of a collective.
using ReplicaGroups = std::vector<std::vector<int64_t>>;

/// Reads the groups of `op`, a collective of StableHLO or of the shard dialect,
/// as devices of the module, in any of the spellings: a dense list, mesh axes
/// or axes of a grid. nullopt and `error` where there is nothing to read.
std::optional<ReplicaGroups> readReplicaGroups(mlir::Operation *op,
                                               std::string &error);

/// Spells the groups of `op` as a list where it names them as axes of a mesh
/// other than `mesh`.
void listReplicaGroups(mlir::Operation *op, const ModuleMesh &mesh);

/// All that the groups of `op` depend on: collectives with equal keys have
/// equal groups.
llvm::SmallVector<const void *> getReplicaGroupsKey(mlir::Operation *op);

/// How a module runs on several devices: `replicas` copies of a program that is
/// partitioned over `partitions` devices each. Device d is partition
/// d % partitions of replica d / partitions. What the module does not say is 1.
struct ModuleCopies {
  int64_t replicas = 1;
  int64_t partitions = 1;
};
ModuleCopies getModuleCopies(mlir::ModuleOp module);

/// Devices that the module says it runs on, or nullopt.
std::optional<int64_t> getNumDevices(mlir::ModuleOp module);

/// The axes of the module's mesh that the `sdy.manual_computation` around `op`
/// leaves to the partitioner, as "tensor, expert"; empty where there is none.
/// Shapes in it are still global along those axes.
std::string getAutomaticAxes(mlir::Operation *op);

/// The groups of devices that hold different parts of operand `index` of
/// `manual`, a `sdy.manual_computation`; nullopt where its sharding does not
/// split it or cannot be read.
std::optional<ReplicaGroups> getShardingGroups(mlir::Operation *manual,
                                               unsigned index);

} // namespace zpp

#endif // ZPP_DIALECT_GUEST_REPLICAGROUPS_H
