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
  /// Returns the sums of gradients that `node` depends on, other than by way
  /// of gathers.
  NumberSets::Set getSums(ValueGraph::Node node) const { return sums[node]; }
  /// Returns the gathers of either of two numbers if they are taken at two
  /// points of one weight. One that is made of gradients may follow from both
  /// points. `inputs` has the inputs of whose elements each node holds some.
  std::optional<std::pair<NumberSets::Set, NumberSets::Set>>
  findApart(ValueGraph::Node one, ValueGraph::Node other,
            llvm::ArrayRef<NumberSets::Set> inputs) const;
  /// Returns the results of these gathers.
  llvm::SmallVector<mlir::Value> getValues(NumberSets::Set gathers) const;

private:
  /// Returns the gathers that `node` depends on, also by way of sums.
  NumberSets::Set getAllGathers(ValueGraph::Node node) const;

  const ValueGraph &graph;
  NumberSets &sets;
  std::vector<NumberSets::Set> points, sums;
};

/// Returns the rows of a tensor of which `left` and `right` have different
/// ones, as where vmap computes both alike; 0 if they have no such tensor in
/// common.
int64_t getStackedRows(const ValueGraph &graph, ValueGraph::Node left,
                       ValueGraph::Node right);

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_GRADIENTPOINTS_H
