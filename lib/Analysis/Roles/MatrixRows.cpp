//===- MatrixRows.cpp - Rows of matrices that devices exchange ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A device sends parts of several matrices to their owners, and gets parts of
// several updates. A block of elements that share a scale must not have parts
// of two. It does not if it is of one row, and no two matrices share a row,
// neither where it is made nor where it is read.
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

#include <numeric>

using namespace mlir;
using namespace zpp;

namespace {

/// Follows the dim of a row, from what is exchanged to what makes it and to
/// what reads it.
class MatrixRows {
  using Node = ValueGraph::Node;
  using Edge = ValueGraph::Edge;
  using Direction = ValueGraph::Direction;
  /// A value, and the dim of it along which rows have their elements.
  using Row = std::pair<Node, int64_t>;

public:
  MatrixRows(const ValueGraph &graph, int64_t size)
      : graph(graph), size(size) {}

  /// The elements that matrices have of a row, or 0.
  int64_t getSize() const { return size; }

  void follow(Row row, Direction direction) {
    llvm::DenseSet<Row> seen{row};
    SmallVector<Row> pending{row};
    auto visit = [&](const Edge &edge, Node next, int64_t dim) {
      if (!edge.isMoved || !graph.isDifferentiable(edge.source) ||
          graph.getCount(edge.source) == 1)
        return;
      std::optional<int64_t> moved = pass(edge, dim, direction);
      if (!moved)
        size = 0;
      else if (Row row{next, *moved}; seen.insert(row).second)
        pending.push_back(row);
    };
    while (!pending.empty() && size > 0) {
      auto [node, dim] = pending.pop_back_val();
      if (direction == Direction::ToReaders) {
        for (const Edge &edge : graph.getReaders(node)) {
          checkProduct(graph.getOp(edge.target), edge.operand, dim);
          visit(edge, edge.target, dim);
        }
      } else if (!graph.isSumOverDevices(node)) {
        if (graph.is(node, guest::kDotGeneral))
          checkMade(graph.getOp(node), dim);
        for (const Edge &edge : graph.getSources(node))
          visit(edge, edge.source, dim);
      }
    }
  }

private:
  /// The dim at the other end of `edge`.
  std::optional<int64_t> pass(const Edge &edge, int64_t dim,
                              Direction direction) {
    Operation *op = graph.getOp(edge.target);
    if (!op || edge.operand < 0)
      return dim;
    bool isForward = direction == Direction::ToReaders;
    if (std::optional<int64_t> moved =
            isForward ? getMovedDim(op, edge.operand, dim)
                      : getSourceDim(op, edge.operand, dim))
      return moved;
    // What is cut from a row is of one matrix, or of several that were joined.
    if (!isForward &&
        (isNamed(op, guest::kSlice) || isNamed(op, guest::kDynamicSlice)))
      return dim;
    auto from = dyn_cast<RankedTensorType>(graph.getType(edge.source));
    auto to = dyn_cast<RankedTensorType>(graph.getType(edge.target));
    if (!from || !to)
      return std::nullopt;
    if (!isForward)
      std::swap(from, to);
    if (isNamed(op, guest::kReshape) && dim == getRowDim(from))
      dim = getRowDim(to);
    else if (!getGuestCollective(op))
      return std::nullopt;
    size = std::gcd(size, to.getDimSize(dim));
    return dim;
  }

  /// Matrices of a stack that `op` contracts share no row.
  void checkProduct(Operation *op, int64_t operand, int64_t dim) {
    if (!op || !isNamed(op, guest::kDotGeneral) || operand < 0)
      return;
    std::optional<ProductDims> dims = getProductDims(op, operand);
    if (!dims || llvm::is_contained(dims->batching, dim))
      size = 0;
  }

  /// Nor do those that `op` makes, of which the dims of batching are first.
  void checkMade(Operation *op, int64_t dim) {
    std::optional<ProductDims> dims = getProductDims(op, 0);
    if (!dims || dim < static_cast<int64_t>(dims->batching.size()))
      size = 0;
  }

  const ValueGraph &graph;
  int64_t size;
};

} // namespace

int64_t zpp::getMatrixRow(const ValueGraph &graph,
                          const StepCollective &moved) {
  Value operand = moved.op->getOperand(0);
  auto type = cast<RankedTensorType>(operand.getType());
  std::optional<ValueGraph::Node> from = graph.find(operand);
  std::optional<ValueGraph::Node> to = graph.find(moved.op->getResult(0));
  if (!from || !to || moved.dim < 0 || moved.dim >= type.getRank())
    return 0;
  SmallVector<int64_t> chunk(type.getShape());
  if (moved.kind == CollectiveKind::AllToAll)
    chunk[moved.dim] /= std::max<int64_t>(zpp::numDevices(moved.axes), 1);
  int64_t dim = getRowDim(type.clone(chunk));
  MatrixRows rows(graph, chunk[dim]);
  rows.follow({*from, dim}, ValueGraph::Direction::ToSources);
  rows.follow({*to, dim}, ValueGraph::Direction::ToReaders);
  return rows.getSize();
}
