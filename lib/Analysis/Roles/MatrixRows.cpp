//===- MatrixRows.cpp - Rows of matrices that devices exchange ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A device sends parts of several matrices to their owners, and gets parts of
// several updates. A block of elements that share a scale must not have parts
// of two. It does not if it is of one row and ends where a matrix may end:
// where a row is joined of parts before it is sent, or cut when it has arrived.
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/ElementFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

#include <numeric>

using namespace mlir;
using namespace zpp;

bool zpp::isPattern(const ValueGraph &graph, ValueGraph::Node node) {
  if (node < 0 || getSplat(graph.getValue(node)) || graph.getCount(node) == 1 ||
      (graph.is(node, guest::kBroadcastInDim) &&
       graph.getCount(graph.getSources(node).front().source) == 1))
    return false;
  return !graph.walk(
      node, ValueGraph::Direction::ToSources,
      [](const ValueGraph::Edge &) { return true; },
      [&](ValueGraph::Node next) {
        Operation *op = graph.getOp(next);
        return graph.getSources(next).empty() && !(op && isKnownSource(op));
      });
}

bool zpp::isMatrix(Operation *product, unsigned operand) {
  auto type =
      dyn_cast<RankedTensorType>(product->getOperand(operand).getType());
  std::optional<ProductDims> dims = getProductDims(product, operand);
  if (!type || !type.hasStaticShape() || !dims)
    return false;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.getDimSize(dim) > 1 && !llvm::is_contained(dims->summed, dim) &&
        !llvm::is_contained(dims->batching, dim))
      return true;
  return false;
}

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

  MatrixRow getRow() const { return {size, isCut}; }

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
        if (!isOfMatrix(node, dim))
          for (const Edge &edge : graph.getReaders(node))
            visit(edge, edge.target, dim);
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
    // Matrices may be chosen of a row, too.
    if ((isNamed(op, guest::kSelect) || isNamed(op, guest::kMultiply)) &&
        llvm::any_of(graph.getOperands(edge.target),
                     [&](Node other) { return isPattern(graph, other); })) {
      isCut = true;
      return std::nullopt;
    }
    if (std::optional<int64_t> moved =
            isForward ? getMovedDim(op, edge.operand, dim)
                      : getSourceDim(op, edge.operand, dim))
      return moved;
    auto from = dyn_cast<RankedTensorType>(graph.getType(edge.source));
    auto to = dyn_cast<RankedTensorType>(graph.getType(edge.target));
    if (!from || !to)
      return std::nullopt;
    StringRef name = op->getName().stripDialect();
    // Matrices begin and end where a row is cut, or joined of parts.
    if (isNamed(op, guest::kSlice) || isNamed(op, guest::kDynamicSlice))
      return cut(op, from.getDimSize(dim), to.getDimSize(dim), dim, isForward);
    if (name == "concatenate") {
      for (Value part : op->getOperands())
        divide(getTensorType(part).getDimSize(dim));
      return dim;
    }
    if (!isForward)
      std::swap(from, to);
    if (isNamed(op, guest::kReshape) && dim == getRowDim(from))
      dim = getRowDim(to);
    else if (!getGuestCollective(op))
      return std::nullopt;
    divide(to.getDimSize(dim));
    return dim;
  }

  void divide(int64_t by) { size = std::gcd(size, by); }

  /// `slice` takes `part` elements of a row of `whole`.
  std::optional<int64_t> cut(Operation *slice, int64_t whole, int64_t part,
                             int64_t dim, bool isForward) {
    auto starts = slice->getAttrOfType<DenseI64ArrayAttr>("start_indices");
    // A device takes its own part at an index.
    isCut |= starts && part != whole;
    if (starts)
      divide(starts[dim]);
    else if (isForward && (part == 0 || whole % part != 0))
      return std::nullopt;
    // What is sent of a longer row has one begin.
    if (isForward)
      divide(part);
    return dim;
  }

  /// True if a product takes rows as those of matrices, and nothing else than
  /// norms may take parts of them. Matrices of a stack share no row.
  bool isOfMatrix(Node node, int64_t dim) {
    bool isAny = false;
    for (const Edge &edge : graph.getReaders(node)) {
      Operation *op = graph.getOp(edge.target);
      if (!graph.is(edge.target, guest::kDotGeneral) || edge.operand < 0 ||
          !isMatrix(op, edge.operand))
        continue;
      std::optional<ProductDims> dims = getProductDims(op, edge.operand);
      if (!dims || llvm::is_contained(dims->batching, dim))
        size = 0;
      isAny = true;
    }
    return isAny;
  }

  /// Nor do those that `op` makes, of which the dims of batching are first.
  void checkMade(Operation *op, int64_t dim) {
    std::optional<ProductDims> dims = getProductDims(op, 0);
    if (!dims || dim < static_cast<int64_t>(dims->batching.size()))
      size = 0;
  }

  const ValueGraph &graph;
  int64_t size;
  bool isCut = false;
};

} // namespace

MatrixRow zpp::getMatrixRow(const ValueGraph &graph,
                            const StepCollective &moved) {
  Value operand = moved.op->getOperand(0);
  RankedTensorType type = getTensorType(operand);
  std::optional<ValueGraph::Node> from = graph.find(operand);
  std::optional<ValueGraph::Node> to = graph.find(moved.op->getResult(0));
  if (!from || !to || moved.dim < 0 || moved.dim >= type.getRank())
    return {};
  SmallVector<int64_t> chunk(type.getShape());
  if (moved.kind == CollectiveKind::AllToAll)
    chunk[moved.dim] /= std::max<int64_t>(zpp::numDevices(moved.axes), 1);
  int64_t dim = getRowDim(type.clone(chunk));
  MatrixRows rows(graph, chunk[dim]);
  rows.follow({*from, dim}, ValueGraph::Direction::ToSources);
  rows.follow({*to, dim}, ValueGraph::Direction::ToReaders);
  return rows.getRow();
}
