//===- MomentElements.cpp - What elements of momenta are made of ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MomentElements.h"
#include "RoleFinder.h"

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

bool zpp::isKnownMove(Operation *op, const ValueGraph::Edge &edge) {
  return edge.isMoved &&
         (edge.operand < 0 || isDataMovement(op) || isElementwise(op) ||
          isNamed(op, guest::kSelect) || isNamed(op, guest::kClamp) ||
          isNamed(op, guest::kDynamicUpdateSlice) ||
          getGuestCollective(op) == CollectiveKind::AllGather ||
          getGuestCollective(op) == CollectiveKind::AllToAll);
}

/// True for a function that large elements leave no larger.
static bool bounds(Operation *op) {
  StringRef name = op->getName().stripDialect();
  return name == "tanh" || name == "logistic" || isNamed(op, guest::kClamp);
}

/// True for a function of one element that has no sign.
static bool dropsSign(Operation *op) {
  StringRef name = op->getName().stripDialect();
  return name == "abs" || name == "sqrt" || name == "rsqrt" ||
         name == "power" || name == "exponential" || name == "logistic";
}

bool MomentElements::walk(Node whole,
                          llvm::function_ref<bool(Node)> visit) const {
  return graph.walk(
      whole, ValueGraph::Direction::ToSources,
      [&](const Edge &edge) {
        return isKnownMove(graph.getOp(edge.target), edge) && !edge.isDivisor &&
               graph.getCount(edge.source) != 1 && !ends(edge.target);
      },
      [&](Node node) { return graph.getOp(node) && visit(node); });
}

bool MomentElements::isPlain(Node whole) const {
  return !walk(whole, [&](Node node) {
    return graph.getCount(node) != 1 && (dropsSign(graph.getOp(node)) ||
                                         isProduct(node) || addsNumber(node));
  });
}

bool MomentElements::addsNumber(Node node) const {
  Operation *op = graph.getOp(node);
  if (!op || graph.getCount(node) == 1)
    return false;
  StringRef name = op->getName().stripDialect();
  SmallVector<Node> operands = graph.getOperands(node);
  // What it chooses by is no part.
  if (name == "select")
    operands.erase(operands.begin());
  else if (name != "add" && name != "subtract" && name != "concatenate" &&
           name != "dynamic_update_slice" && name != "pad")
    return false;
  auto isOne = [&](Node each) {
    return graph.isNumber(each) &&
           !isZeros(graph.getValue(graph.getPassed(each)));
  };
  return llvm::any_of(operands, isOne) && !llvm::all_of(operands, isOne);
}

bool MomentElements::divides(ArrayRef<Node> grams, const NodeSet &all) const {
  int64_t matrices = 1;
  for (Node gram : grams) {
    auto type = dyn_cast<RankedTensorType>(graph.getType(gram));
    if (!type || !type.hasStaticShape() || type.getRank() < 3)
      continue;
    int64_t batch = 1;
    for (int64_t size : type.getShape().drop_back(2))
      batch *= size;
    matrices = std::max(matrices, batch);
  }
  return llvm::any_of(graph.getEdges(), [&](const Edge &edge) {
    if (!all[edge.source] || !edge.isDivisor)
      return false;
    // There may be fewer before they are broadcast.
    Node divisor = edge.source;
    while (graph.getMoved(divisor) >= 0)
      divisor = graph.getMoved(divisor);
    return graph.getCount(divisor) > matrices;
  });
}

/// True for a product of elements with others, or with themselves: neither
/// operand is one number, or made of constants.
bool MomentElements::isProduct(Node node) const {
  return graph.getOp(node)->getName().stripDialect() == "multiply" &&
         llvm::none_of(graph.getOperands(node), [&](Node operand) {
           return operand < 0 || graph.isNumber(operand) ||
                  isPattern(graph, operand);
         });
}

bool MomentElements::findProducts(const NodeSet &held,
                                  SmallVectorImpl<Node> &grams) const {
  bool isContracted = false;
  for (Node node = 0; node < graph.size(); ++node) {
    Operation *op = graph.getOp(node);
    if (!op || !isMatrixProduct(op))
      continue;
    SmallVector<Node> operands = graph.getOperands(node);
    auto isHeld = [&](Node operand) { return operand >= 0 && held[operand]; };
    if (llvm::none_of(operands, isHeld))
      continue;
    isContracted = true;
    if (llvm::all_of(operands, isHeld) &&
        llvm::all_of(llvm::seq<unsigned>(0, op->getNumOperands()),
                     [&](unsigned operand) { return isMatrix(op, operand); }))
      grams.push_back(node);
  }
  return isContracted;
}

std::optional<std::string>
MomentElements::findOtherReader(const NodeSet &all) const {
  auto tellReader = [](Operation *op) {
    return op->getName().getStringRef().str() +
           " reads what follows from it, and only products, reductions and "
           "elementwise ops are known to bear it";
  };
  for (Node node = 0; node < graph.size(); ++node) {
    if (!all[node])
      continue;
    Value value = graph.getValue(node);
    if (Operation *reader = findSilentReader(value))
      return tellReader(reader);
    Operation *op = graph.getOp(node);
    for (const Edge &edge : graph.getSources(node)) {
      if (!all[edge.source] || !op || edge.operand < 0)
        continue;
      if (isStepFunction(op) || op->getName().stripDialect() == "remainder" ||
          (getElementTypeOrSelf(value).isIntOrIndex() &&
           !op->getName().stripDialect().starts_with("bitcast")))
        return "the step chooses by it, as it compares it or makes whole "
               "numbers of it";
      if (!isa<FloatType>(getElementTypeOrSelf(value)))
        return tellReader(op);
      if (bounds(op) && graph.getCount(edge.source) != 1)
        return "the step bounds its elements, so that small ones may count as "
               "much as large ones";
      if (isMatrixProduct(op)) {
        if (llvm::any_of(graph.getOperands(node), [&](Node operand) {
              return operand < 0 || !all[operand];
            }))
          return "a product contracts it with something else: a root, a "
                 "projection, or a device's part, where products are split, "
                 "which moments=i8 joins, or says in a remark why not";
      } else if (!getGuestCollective(op) && !isKnownMove(op, edge) &&
                 !isElementwise(op) && !isNamed(op, guest::kReduce) &&
                 !isNamed(op, guest::kBroadcastInDim)) {
        return tellReader(op);
      }
    }
  }
  return std::nullopt;
}
