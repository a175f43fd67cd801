//===- Stacks.cpp - Tensors that have several parameters ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

#include <numeric>

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;
using Shape = ArrayRef<int64_t>;
using Dims = SmallVector<bool>;

/// Returns the elements after those of `numbering` dims in row-major order; of
/// a tensor of `shape`, all where there is none.
static int64_t getParameterSize(Shape shape, ArrayRef<bool> numbering) {
  int64_t size = 1;
  for (size_t dim = shape.size(); dim-- > 0 && !numbering[dim];)
    size *= shape[dim];
  return size;
}

/// Returns the dims that number parameters of `size` elements in a tensor of
/// `shape`. If one begins within a dim, so does each of its rows.
static Dims getDims(Shape shape, int64_t size) {
  Dims dims(shape.size());
  int64_t elements = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    elements *= shape[dim];
    dims[dim] = shape[dim] > 1 && elements > size;
  }
  return dims;
}

/// Returns the elements of a parameter in a part of a tensor of shape `whole`,
/// in which it has `size`: in row-major order, each begins at a multiple of it.
/// 0 if all are of one.
static int64_t getPartSize(Shape whole, Shape part, int64_t size) {
  Dims dims = getDims(whole, size);
  for (size_t dim = whole.size(); dim-- > 0;) {
    if (!dims[dim])
      continue;
    int64_t row = llvm::product_of(whole.drop_front(dim + 1));
    // Several rows may be of one parameter.
    int64_t rows = size % row == 0 ? size / row : 1;
    return llvm::product_of(part.drop_front(dim + 1)) *
           std::gcd(rows, part[dim]);
  }
  return 0;
}

/// The dims of a broadcast operand that come before one that it is broadcast
/// to, and that the parameter's own dims come after: `gain[:, None, :]` has the
/// gains of all layers.
static void addBatchingDims(Shape from, Shape to, Shape order, Dims &dims) {
  auto isOwn = [&](int64_t target) {
    return llvm::any_of(llvm::zip_equal(order, from), [&](auto pair) {
      auto [dim, size] = pair;
      return dim == target && size > 1;
    });
  };
  bool isAfterNew = false, hasOwn = false;
  for (int64_t target = to.size(); target-- > 0;) {
    if (!isOwn(target))
      isAfterNew |= hasOwn && to[target] > 1;
    else if (isAfterNew)
      for (auto [dim, at] : llvm::enumerate(order))
        dims[dim] = dims[dim] || at == target;
    hasOwn |= isOwn(target);
  }
}

/// True if all of `dims` are those of a tensor of `rank`; nothing has verified
/// the op that has them.
static bool areDims(Shape dims, int64_t rank) {
  return llvm::all_of(dims,
                      [&](int64_t dim) { return dim >= 0 && dim < rank; });
}

namespace {

/// Finds how each value is read, from the results of the step backward.
class Reads {
public:
  explicit Reads(const ValueGraph &graph)
      : graph(graph), sizes(graph.size()), isWhole(graph.size()),
        slices(graph.size()) {
    for (Node node = 0; node < graph.size(); ++node) {
      sizes[node] = std::max<int64_t>(graph.getCount(node), 0);
      if (graph.is(node, guest::kSlice))
        if (Node source = graph.getOperand(node, 0); source >= 0)
          ++slices[source];
    }
    graph.settle(ValueGraph::Direction::ToSources, [&](Node node) {
      bool isChanged = false;
      for (const Edge &edge : graph.getReaders(node))
        isChanged |= read(edge);
      return isChanged;
    });
  }

  /// Returns the elements of a parameter, or 0 if all are of one.
  int64_t getSize(Node node) const {
    return isWhole[node] || sizes[node] >= graph.getCount(node) ? 0
                                                                : sizes[node];
  }

private:
  Shape getShape(Node node) const {
    auto type = dyn_cast<RankedTensorType>(graph.getValue(node).getType());
    return type && type.hasStaticShape() ? type.getShape() : Shape();
  }

  bool read(const Edge &edge) {
    Node source = edge.source, target = edge.target;
    if (sizes[source] <= 1 || isWhole[source] ||
        !graph.isDifferentiable(source))
      return false;
    Operation *op = graph.getOp(target);
    Dims dims(getShape(source).size());
    if (op && edge.operand >= 0 && isContraction(op)) {
      std::optional<ProductDims> product = getProductDims(op, edge.operand);
      if (product)
        for (int64_t dim : product->batching)
          if (dim >= 0 && dim < static_cast<int64_t>(dims.size()))
            dims[dim] = getShape(source)[dim] > 1;
      if (!llvm::is_contained(dims, true) && edge.operand < 2)
        return isWhole[source] = true;
    } else if (graph.is(target, guest::kBroadcastInDim)) {
      if (!readBroadcast(target, source, dims))
        return false;
    } else if (edge.isMoved) {
      return readMoved(edge);
    }
    return shrink(source, getParameterSize(getShape(source), dims));
  }

  bool readBroadcast(Node target, Node source, Dims &dims) const {
    auto order = graph.getOp(target)->getAttrOfType<DenseI64ArrayAttr>(
        "broadcast_dimensions");
    if (!order || order.size() != static_cast<int64_t>(dims.size()) ||
        !areDims(order, getShape(target).size()))
      return false;
    Dims ofTarget = getDims(getShape(target), sizes[target]);
    for (auto [dim, at] : llvm::enumerate(order.asArrayRef()))
      dims[dim] = ofTarget[at] && getShape(source)[dim] > 1;
    addBatchingDims(getShape(source), getShape(target), order, dims);
    return true;
  }

  bool readMoved(const Edge &edge) {
    Node source = edge.source, target = edge.target;
    Operation *op = graph.getOp(target);
    Shape from = getShape(source), to = getShape(target);
    bool isSameSize = graph.getCount(source) == graph.getCount(target);
    bool isSlice =
        op && (isNamed(op, guest::kSlice) || isNamed(op, guest::kDynamicSlice));
    if (isWhole[target] && (isSameSize || !isSlice))
      return isWhole[source] = true;
    auto order = op && isNamed(op, guest::kTranspose)
                     ? op->getAttrOfType<DenseI64ArrayAttr>("permutation")
                     : DenseI64ArrayAttr();
    if (isSameSize && !order)
      return shrink(source, std::gcd(sizes[source], sizes[target]));
    if (from.size() != to.size() ||
        (order && (order.size() != static_cast<int64_t>(from.size()) ||
                   !areDims(order, from.size()))))
      return false;
    if (!order && !isSlice && graph.getCount(source) < graph.getCount(target))
      return shrink(source, getPartSize(to, from, sizes[target]));
    Dims ofTarget =
        getDims(to, isWhole[target] ? graph.getCount(target) : sizes[target]);
    Dims dims(from.size());
    for (int64_t dim = 0, rank = from.size(); dim < rank; ++dim)
      dims[order ? order[dim] : dim] = ofTarget[dim];
    // One static slice of a tensor may be there to look at it.
    bool isRead =
        isSlice && (isNamed(op, guest::kDynamicSlice) || slices[source] > 1);
    for (int64_t dim = 0, rank = from.size(); dim < rank; ++dim)
      dims[dim] = from[dim] > 1 && (dims[dim] || (isRead && to[dim] == 1));
    return shrink(source, getParameterSize(from, dims));
  }

  bool shrink(Node node, int64_t size) {
    size = std::gcd(sizes[node], size);
    if (size >= sizes[node])
      return false;
    sizes[node] = size;
    return true;
  }

  const ValueGraph &graph;
  /// The elements of a parameter; whether a product takes all elements as one;
  /// and the number of static slices.
  std::vector<int64_t> sizes;
  std::vector<char> isWhole;
  std::vector<unsigned> slices;
};

} // namespace

Stacks::Stacks(const ValueGraph &graph) {
  Reads reads(graph);
  for (Node node = 0; node < graph.size(); ++node)
    if (int64_t size = reads.getSize(node)) {
      int64_t &known = parameters[graph.getValue(node)];
      known = std::gcd(known, size);
      if (graph.getSources(node).empty() ||
          graph.getCollective(node) == CollectiveKind::AllGather)
        values.push_back(graph.getValue(node));
    }
}

int64_t Stacks::getPartSize(Value value, RankedTensorType whole,
                            RankedTensorType part) const {
  auto known = parameters.find(value);
  auto own = dyn_cast<RankedTensorType>(value.getType());
  if (known == parameters.end() || !own)
    return 0;
  int64_t size = known->second;
  Shape shape = own.getShape();
  bool isWhole = own.getNumElements() == whole.getNumElements();
  if (isWhole)
    shape = whole.getShape();
  if (shape.size() != part.getShape().size())
    return 0;
  return ::getPartSize(shape, part.getShape(), size);
}
