//===- Broadcasts.h - Sums of what one device has ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_BROADCASTS_H
#define ZPP_LIB_ANALYSIS_ROLES_BROADCASTS_H

#include "zpp/Analysis/Roles/Roles.h"
#include "zpp/Analysis/Roles/ValueGraph.h"
#include "zpp/Dialect/Guest/PartitionSlice.h"

namespace zpp {

/// Finds sums over devices with which an owner sends the others what it has
/// computed: all but one add zeros, `psum(where(me == owner, x, 0))`.
class Broadcasts {
public:
  Broadcasts(const ValueGraph &graph, const Mesh &mesh)
      : graph(graph), mesh(mesh), tables(mesh.numDevices()) {}

  bool isBroadcast(const StepCollective &sum);

private:
  using Node = ValueGraph::Node;

  /// The node before it was moved or broadcast.
  Node strip(Node node) const;
  /// True if all elements of `node` are zero.
  bool isZero(Node node) const;
  /// Returns the condition under which `node` is not zero, and whether it has
  /// to be false; -1 if there is none.
  std::pair<Node, bool> getCondition(Node node) const;
  /// True if `node` compares a number that each device of `sum` has to itself
  /// with one that is the same on all.
  bool isOfOwner(Node node, bool isNegated, const StepCollective &sum);
  bool isDistinct(Node node, const StepCollective &sum);
  bool isShared(Node node) const;

  const ValueGraph &graph;
  const Mesh &mesh;
  PartitionTables tables;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_BROADCASTS_H
