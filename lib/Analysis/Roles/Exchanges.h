//===- Exchanges.h - Rows that travel to experts and back -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_ANALYSIS_ROLES_EXCHANGES_H
#define ZPP_LIB_ANALYSIS_ROLES_EXCHANGES_H

#include "RoleFinder.h"
#include "zpp/Analysis/Roles/ValueGraph.h"

namespace zpp {

/// Proves that all-to-alls move rows of activations, or of their cotangents, to
/// experts or from them (docs/rules.md, R20). Valid while the module does not
/// change.
class Exchanges {
public:
  /// `weights` are the inputs of the step that gradients update, with the axes
  /// along which devices have parts of them.
  Exchanges(const ValueGraph &graph, const StepFlow &flow,
            const llvm::MapVector<mlir::Value, std::vector<AxisRef>> &weights,
            llvm::ArrayRef<StepCollective> collectives);

  /// Returns what speaks against `exchange` being one, of rows along dim `dim`;
  /// no reason if nothing does.
  Objection check(const StepCollective &exchange, int64_t dim);

private:
  using Node = ValueGraph::Node;
  using Edge = ValueGraph::Edge;
  /// A value, and the dim of it along which rows have their elements.
  using Rows = std::pair<Node, int64_t>;

  bool isOwn(Node node, llvm::ArrayRef<AxisRef> axes);
  bool isOfWeights(Node node) const;
  bool areMade(Rows rows, llvm::ArrayRef<AxisRef> axes, int64_t depth);
  bool areMadeByAll(Node node, int64_t dim, llvm::ArrayRef<AxisRef> axes,
                    int64_t depth);
  bool areTaken(Rows rows, llvm::ArrayRef<AxisRef> axes, bool &isCut);
  bool areJoined(Rows rows) const;
  bool isActivation(Node node) const;
  mlir::Operation *findOtherReader(Node node) const;
  bool isPattern(Node node) const;
  bool addsOthers(Node node) const;

  const ValueGraph &graph;
  const StepFlow &flow;
  const llvm::MapVector<mlir::Value, std::vector<AxisRef>> &weights;
  /// The axes of gathers, by their ops.
  llvm::DenseMap<mlir::Operation *, const StepCollective *> gathers;
  /// For the axes of an exchange, whether each node is made of weights of which
  /// each device along them has parts of its own.
  std::vector<std::pair<std::vector<AxisRef>, std::vector<char>>> own;
  /// Rows of which it is known, or asked, whether experts make them, and
  /// whether a product has been found.
  llvm::DenseMap<Rows, bool> made;
  bool hasProduct = false;
};

} // namespace zpp

#endif // ZPP_LIB_ANALYSIS_ROLES_EXCHANGES_H
