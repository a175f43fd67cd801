//===- MomentElements.h - What elements of momenta are made of --*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The error of an int8 block is a part of its largest element. That is little
// of a momentum and of its update as wholes, and may be all of an element: so
// it matters what is done with elements before and after they are sent.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_MOMENTELEMENTS_H
#define ZPP_LIB_ANALYSIS_ROLES_MOMENTELEMENTS_H

#include "zpp/Analysis/Roles/ValueGraph.h"

#include <functional>

namespace zpp {

/// True if `op`, or null for what passes values on, is known to take elements
/// along an edge that moves them.
bool isKnownMove(mlir::Operation *op, const ValueGraph::Edge &edge);

class MomentElements {
public:
  using Node = ValueGraph::Node;
  using Edge = ValueGraph::Edge;

  /// `ends` tells at which nodes walks end.
  MomentElements(const ValueGraph &graph, std::function<bool(Node)> ends)
      : graph(graph), ends(std::move(ends)) {}

  /// Calls `visit` for `whole` and what makes its elements, until it returns
  /// true. Returns whether it did.
  bool walk(Node whole, llvm::function_ref<bool(Node)> visit) const;

  /// True if the elements of `whole` have the signs of what they are made of,
  /// and nothing is added to them: no statistic, and no offset from which
  /// little is left when it is taken away again.
  bool isPlain(Node whole) const;

  /// True if `node`, a tensor, has one number beside the elements of others, or
  /// added to these.
  bool addsNumber(Node node) const;

  /// True if something among `all` is divided by more of them than one number
  /// for each matrix. `grams` are products that follow from all matrices.
  bool divides(llvm::ArrayRef<Node> grams, const NodeSet &all) const;

  /// Finds the products of two of `held` that are matrices, in `grams`: those
  /// with a vector, or of vectors, are norms. Returns whether any product reads
  /// one.
  bool findProducts(const NodeSet &held,
                    llvm::SmallVectorImpl<Node> &grams) const;

  /// Returns why a reader among `all`, the values that follow from a momentum,
  /// needs it as it is.
  std::optional<std::string> findOtherReader(const NodeSet &all) const;

private:
  bool isProduct(Node node) const;

  const ValueGraph &graph;
  std::function<bool(Node)> ends;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_MOMENTELEMENTS_H
