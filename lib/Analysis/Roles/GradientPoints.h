//===- GradientPoints.h - The weights at which gradients are ----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_GRADIENTPOINTS_H
#define ZPP_LIB_ANALYSIS_ROLES_GRADIENTPOINTS_H

#include "zpp/Analysis/Roles/NumberSets.h"
#include "zpp/Analysis/Roles/ValueGraph.h"

namespace zpp {

/// Points at which gradients are taken: the gathers that each value of a step
/// depends on, other than through sums of gradients.
class GradientPoints {
public:
  GradientPoints(const ValueGraph &graph, NumberSets &sets,
                 llvm::function_ref<bool(ValueGraph::Node)> isSum);

  NumberSets::Set getGathers(ValueGraph::Node node) const {
    return points[node];
  }
  /// The results of these gathers.
  llvm::SmallVector<mlir::Value> getValues(NumberSets::Set gathers) const;

private:
  const ValueGraph &graph;
  const NumberSets &sets;
  std::vector<NumberSets::Set> points;
};

/// The rows of a tensor of which `left` and `right` have different ones, as
/// where vmap computes both alike; 0 if they have no such tensor in common.
int64_t getStackedRows(const ValueGraph &graph, ValueGraph::Node left,
                       ValueGraph::Node right);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_GRADIENTPOINTS_H
