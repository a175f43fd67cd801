//===- Bits.cpp - Values that are read as something else ------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RoleFinder.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

using Node = ValueGraph::Node;
using Edge = ValueGraph::Edge;
using Direction = ValueGraph::Direction;

/// True if `op` views elements as another kind of number, bit by bit.
static bool isBitcast(Operation *op) {
  static const llvm::StringSet<> names = {"bitcast", "bitcast_convert"};
  return op && op->getNumOperands() == 1 && op->getNumResults() == 1 &&
         names.contains(op->getName().stripDialect()) &&
         getElementTypeOrSelf(op->getOperand(0)) !=
             getElementTypeOrSelf(op->getResult(0));
}

/// True if `op` takes floating-point numbers for whole ones, such as codes.
static bool readsIntegers(Operation *op) {
  return op && isNamed(op, guest::kConvert) &&
         isa<FloatType>(getElementTypeOrSelf(op->getOperand(0))) &&
         getElementTypeOrSelf(op->getResult(0)).isInteger();
}

/// True for constants of zeros and ones.
static bool isConstantMask(Operation *op) {
  constexpr int64_t kMost = 1 << 16;
  auto data = isNamed(op, guest::kConstant)
                  ? op->getAttrOfType<DenseFPElementsAttr>("value")
                  : DenseFPElementsAttr();
  auto isZeroOrOne = [](const APFloat &number) {
    return number.isZero() || number.isExactlyValue(1);
  };
  if (!data || data.isSplat())
    return data && isZeroOrOne(data.getSplatValue<APFloat>());
  return data.getNumElements() <= kMost &&
         llvm::all_of(data.getValues<APFloat>(), isZeroOrOne);
}

/// True for a mask of numbers, 1 where a condition holds.
static bool isMask(const ValueGraph &graph, Node node) {
  while (node >= 0) {
    node = graph.getPassed(node);
    Operation *op = graph.getOp(node);
    if (!op)
      return false;
    if (isConstantMask(op) ||
        (isNamed(op, guest::kConvert) &&
         getElementTypeOrSelf(op->getOperand(0)).isInteger(1)))
      return true;
    if (!isNamed(op, guest::kBroadcastInDim) && !movesData(op))
      return false;
    node = graph.getOperand(node, 0);
  }
  return false;
}

/// True for values of which some are set to zero: what is added up then is what
/// is left of them.
static bool isMasked(const ValueGraph &graph, Node node) {
  Operation *op = graph.getOp(node);
  while (op && movesData(op) && graph.getOperand(node, 0) >= 0) {
    node = graph.getOperand(node, 0);
    op = graph.getOp(node);
  }
  return op && (isNamed(op, guest::kSelect) ||
                (isNamed(op, guest::kMultiply) &&
                 llvm::any_of(graph.getOperands(node), [&](Node operand) {
                   return isMask(graph, operand);
                 })));
}

/// True for elementwise ops that change no element of those that codes have, or
/// their signs alone.
static bool keepsElements(const ValueGraph &graph, const Edge &edge) {
  static const llvm::StringSet<> names = {"abs",
                                          "ceil",
                                          "clamp",
                                          "copy",
                                          "floor",
                                          "maximum",
                                          "minimum",
                                          "negate",
                                          "round_nearest_afz",
                                          "round_nearest_even"};
  Operation *op = graph.getOp(edge.target);
  if (isNamed(op, guest::kMultiply))
    return isMask(graph, graph.getOperand(edge.target, 1 - edge.operand));
  return isNamed(op, guest::kSelect) || movesData(op) ||
         names.contains(op->getName().stripDialect());
}

/// True if the elements of the target are those of the source: moved, chosen,
/// or sent to other devices. Sums over devices move what the others have set to
/// zero.
static bool movesBits(const ValueGraph &graph, const Edge &edge) {
  Operation *op = graph.getOp(edge.target);
  if (!op || edge.operand < 0)
    return true;
  if (isBitcast(op) || readsIntegers(op))
    return false;
  if (isElementwise(op))
    return keepsElements(graph, edge);
  if (edge.isMoved || isNamed(op, guest::kBroadcastInDim) ||
      isNamed(op, guest::kSort))
    return true;
  if (isNamed(op, guest::kReduce))
    return isMasked(graph, edge.source);
  // A row of a mask that has one 1 chooses.
  if (isProduct(op) && edge.operand < 2)
    return isMask(graph, graph.getOperand(edge.target, 1 - edge.operand));
  return (isLookup(op) && edge.operand == 0) ||
         (isNamed(op, guest::kScatter) && edge.operand != 1);
}

/// True for values that might be rounded.
static bool isFloat(const ValueGraph &graph, Node node) {
  return isa<FloatType>(getElementTypeOrSelf(graph.getValue(node)));
}

/// Finds the type as which each node is read, walking to sources, or that it is
/// made of, walking to readers; or null.
static std::vector<Type> findTypes(const ValueGraph &graph,
                                   Direction direction) {
  bool isRead = direction == Direction::ToSources;
  std::vector<Type> found(graph.size());
  graph.settle(direction, [&](Node node) {
    if (found[node] || !isFloat(graph, node))
      return false;
    auto ask = [&](const Edge &edge) {
      Node other = isRead ? edge.target : edge.source;
      Operation *op = graph.getOp(edge.target);
      if (isBitcast(op) || (isRead && readsIntegers(op)))
        found[node] = getElementTypeOrSelf(graph.getType(other));
      else if (found[other] && movesBits(graph, edge))
        found[node] = found[other];
    };
    if (isRead)
      llvm::for_each(graph.getReaders(node), ask);
    else
      llvm::for_each(graph.getSources(node), ask);
    return found[node] != nullptr;
  });
  return found;
}

Bits::Bits(const ValueGraph &graph) {
  auto collect = [&](const std::vector<Type> &found,
                     llvm::DenseMap<Value, Type> &types) {
    for (auto [node, type] : llvm::enumerate(found))
      if (type)
        types.try_emplace(graph.getValue(node), type);
  };
  collect(findTypes(graph, Direction::ToSources), readAs);
  collect(findTypes(graph, Direction::ToReaders), madeOf);
}

std::optional<std::string> Bits::explain(Value operand, Value result) const {
  Type read = readAs.lookup(result), made = madeOf.lookup(operand);
  if (!read && !made)
    return std::nullopt;
  return read ? "the step reads them as " + toText(read)
              : "the step has made them of " + toText(made);
}
