//===- Collectives.h - Collectives of all dialects --------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_COLLECTIVES_H
#define ZPP_ANALYSIS_COLLECTIVES_H

#include "mlir/IR/BuiltinOps.h"
#include "zpp/Support/CollectiveCost.h"
#include "zpp/Support/Mesh.h"

#include <map>

namespace zpp {

/// A collective, as far as its op describes it.
struct CollectiveView {
  mlir::Operation *op = nullptr;
  CollectiveKind kind = CollectiveKind::AllGather;
  /// The dim that is gathered, scattered or split; -1 if there is none.
  int64_t dim = -1;
  /// The axes of its groups, most significant first. If the groups are not a
  /// product of axes, empty; `groupError` then gives the reason.
  std::vector<AxisRef> axes;
  std::string groupError;

  /// Returns the bytes that a device sends over each axis of `mesh` in one
  /// execution.
  std::vector<int64_t> getSentBytes(const Mesh &mesh) const;
};

/// True if `op` is a collective of StableHLO, of upstream's shard dialect or of
/// the zero dialect.
bool isCollective(mlir::Operation *op);

/// Reads `op` if it is a collective of StableHLO, of upstream's shard dialect
/// or of the zero dialect.
std::optional<CollectiveView> getCollective(mlir::Operation *op,
                                            const Mesh &mesh);

/// Reads the collectives of one mesh. Groups that several collectives share are
/// read only once.
class CollectiveReader {
public:
  explicit CollectiveReader(const Mesh &mesh) : mesh(mesh) {}

  std::optional<CollectiveView> read(mlir::Operation *op);

private:
  /// The axes of groups, or the reason why there are none.
  struct GroupAxes {
    std::vector<AxisRef> axes;
    std::string error;
  };
  const GroupAxes &readGroups(mlir::Operation *op, CollectiveKind kind);

  const Mesh &mesh;
  std::map<llvm::SmallVector<const void *>, GroupAxes> known;
};

/// "all_gather" and so on.
llvm::StringRef getKindName(CollectiveKind kind);

/// Returns the mesh that the step runs on: `spec` (such as "node:2,gpu:4"), or
/// the module's own mesh if `spec` is empty. Emits an error if `spec` does not
/// parse or does not cover the devices of the module, or if there is no mesh at
/// all.
mlir::FailureOr<Mesh> getStepMesh(mlir::ModuleOp module, llvm::StringRef spec);

} // namespace zpp

#endif // ZPP_ANALYSIS_COLLECTIVES_H
