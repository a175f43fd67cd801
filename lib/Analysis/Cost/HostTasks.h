//===- HostTasks.h - What starts do on a device -----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_COST_HOSTTASKS_H
#define ZPP_LIB_ANALYSIS_COST_HOSTTASKS_H

#include "mlir/Interfaces/FunctionInterfaces.h"
#include "zpp/Analysis/Collectives.h"
#include "zpp/Support/LinkModel.h"
#include "zpp/Support/Timeline.h"
#include "llvm/ADT/DenseMap.h"

namespace zpp {

/// An op of a host function, which each start of it runs.
struct HostTask {
  /// The streams that it occupies.
  std::vector<size_t> streams;
  double usec = 0;
  /// Tasks of the same function that come before it.
  llvm::SmallVector<unsigned> after;
  bool isKernel = false;
};

/// The streams of a device.
struct Streams {
  Streams(Timeline &timeline, const Mesh &mesh)
      : compute(timeline.addStream("compute")) {
    for (const MeshAxis &axis : mesh.getAxes())
      tiers.push_back(timeline.addStream(axis.name));
    kernels = timeline.addStream("kernels");
    for (const MeshAxis &axis : mesh.getAxes())
      after.push_back(timeline.addStream("kernels after " + axis.name));
  }

  size_t compute, kernels;
  /// Exchanges over each axis, and kernels that need what one brought.
  std::vector<size_t> tiers, after;
};

/// Reads the tasks of host functions.
class HostFunctions {
public:
  HostFunctions(const Mesh &mesh, const LinkModel &links,
                const Streams &streams)
      : mesh(mesh), links(links), streams(streams), reader(mesh) {}

  const std::vector<HostTask> &get(mlir::FunctionOpInterface function);

private:
  const Mesh &mesh;
  const LinkModel &links;
  const Streams &streams;
  CollectiveReader reader;
  llvm::DenseMap<mlir::Operation *, std::vector<HostTask>> known;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_COST_HOSTTASKS_H
