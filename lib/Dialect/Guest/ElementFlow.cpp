//===- ElementFlow.cpp - What ops do with elements ------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/ElementFlow.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

static bool isPredicate(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && shaped.getElementType().isInteger(1);
}

/// True for ops that mix elements of their operands even if the shapes agree.
static bool mixesElements(Operation *op) {
  static const llvm::StringSet<> names = {"batch_norm_grad",
                                          "batch_norm_inference",
                                          "batch_norm_training",
                                          "cholesky",
                                          "convolution",
                                          "dot",
                                          "dot_general",
                                          "dynamic_conv",
                                          "dynamic_gather",
                                          "einsum",
                                          "fft",
                                          "gather",
                                          "reduce_window",
                                          "rng",
                                          "rng_bit_generator",
                                          "select_and_scatter",
                                          "sort",
                                          "torch_index_select",
                                          "triangular_solve",
                                          "unary_einsum"};
  return names.contains(op->getName().stripDialect()) ||
         op->getName().getDialectNamespace() == "linalg";
}

/// True if a `stablehlo.scatter` stores its updates unchanged.
static bool isAssignment(Operation *scatter) {
  if (scatter->getNumRegions() != 1 || !scatter->getRegion(0).hasOneBlock() ||
      scatter->getRegion(0).front().empty())
    return true;
  Block &body = scatter->getRegion(0).front();
  unsigned count = scatter->getNumResults();
  return llvm::all_of(body.back().getOperands(), [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == &body &&
           argument.getArgNumber() >= count;
  });
}

/// True if `a` and `b` have the same number of elements.
static bool haveSameSize(Type a, Type b) {
  auto from = dyn_cast<ShapedType>(a), to = dyn_cast<ShapedType>(b);
  return from && to && from.hasStaticShape() && to.hasStaticShape() &&
         from.getNumElements() == to.getNumElements();
}

bool zpp::movesElements(OpOperand &operand, OpResult result) {
  Operation *op = operand.getOwner();
  StringRef name = op->getName().stripDialect();
  unsigned index = operand.getOperandNumber();
  if (isBarrier(op))
    return index == result.getResultNumber();
  if (getGuestCollective(op))
    return index == result.getResultNumber() || op->getNumResults() == 1;
  if (name == "dynamic_update_slice")
    return index < 2;
  if (name == "scatter") {
    // The operands are inputs, indices and updates. Updates that are added up
    // are mixed.
    unsigned count = op->getNumResults();
    if (index < count)
      return index == result.getResultNumber();
    return index == count + 1 + result.getResultNumber() && isAssignment(op);
  }
  if (movesData(op))
    return index == 0 || name == "concatenate";
  if (isPredicate(operand.get().getType()) || mixesElements(op))
    return false;
  // Assume that all other ops that keep the shape are elementwise, since
  // unknown ops must not hide that state is rounded.
  return haveSameSize(operand.get().getType(), result.getType());
}

bool zpp::isDivisor(OpOperand &operand) {
  Operation *op = operand.getOwner();
  unsigned index = operand.getOperandNumber();
  return (isNamed(op, guest::kDivide) && index == 1) ||
         (isNamed(op, "stablehlo.power") && index == 0) ||
         isNamed(op, "stablehlo.rsqrt") || isNamed(op, "stablehlo.log");
}

/// True for a constant whose elements are all the same and not below zero, also
/// where it is broadcast or cast.
static bool isSplatOfNoNegative(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isNamed(op, guest::kBroadcastInDim) || isNamed(op, guest::kConvert) ||
        isNamed(op, guest::kReshape)) {
      value = op->getOperand(0);
      continue;
    }
    auto data = op->getAttrOfType<DenseElementsAttr>("value");
    if (!isNamed(op, guest::kConstant) || !data || !data.isSplat())
      return false;
    if (data.getElementType().isInteger())
      return !data.getSplatValue<APInt>().isNegative();
    if (!isa<FloatType>(data.getElementType()))
      return false;
    auto number = data.getSplatValue<APFloat>();
    return !number.isNaN() && (number.isZero() || !number.isNegative());
  }
  return false;
}

bool zpp::isKnownNotNegative(Value value) {
  return isPredicate(value.getType()) || isSplatOfNoNegative(value);
}

std::optional<SmallVector<unsigned>> zpp::getSignOperands(Operation *op) {
  using Numbers = SmallVector<unsigned>;
  static const llvm::StringSet<> always = {"abs",      "exponential", "iota",
                                           "logistic", "rsqrt",       "sqrt"};
  static const llvm::StringSet<> ofBoth = {
      "add", "divide", "dot", "dot_general", "minimum", "multiply"};
  StringRef name = op->getName().stripDialect();
  unsigned count = op->getNumOperands();
  if (op->getNumResults() != 1)
    return std::nullopt;
  if (always.contains(name))
    return Numbers{};
  // A square, and what is never below a number.
  if (count == 2 && name == "multiply" &&
      op->getOperand(0) == op->getOperand(1))
    return Numbers{};
  if (count == 2 && name == "maximum" &&
      llvm::any_of(op->getOperands(), isSplatOfNoNegative))
    return Numbers{};
  if (count == 2 && ofBoth.contains(name))
    return Numbers{0, 1};
  if (count == 3 && isNamed(op, guest::kSelect))
    return Numbers{1, 2};
  if (name == "concatenate")
    return llvm::to_vector(llvm::seq(count));
  if (isNamed(op, guest::kDynamicSlice) || (count == 2 && name == "power") ||
      (count == 1 && (movesData(op) || isNamed(op, guest::kBroadcastInDim))))
    return Numbers{0};
  // A sum over devices, a reduction that adds, or an addition to rows.
  std::optional<CollectiveKind> kind = getGuestCollective(op);
  if (count == 1 && (kind == CollectiveKind::AllGather || (kind && isSum(op))))
    return Numbers{0};
  bool isScatter = name == "scatter";
  if ((isScatter || isNamed(op, guest::kReduce)) && isSum(op) &&
      count == (isScatter ? 3 : 2))
    return Numbers{0, count - 1};
  return std::nullopt;
}

bool zpp::isPosition(OpOperand &operand) {
  StringRef name = operand.getOwner()->getName().stripDialect();
  unsigned index = operand.getOperandNumber();
  return (name == "dynamic_slice" && index >= 1) ||
         (name == "dynamic_update_slice" && index >= 2);
}

bool zpp::isKnownSource(Operation *op) {
  static const llvm::StringSet<> names = {
      "constant",   "create_token",        "empty", "iota", "partition_id",
      "replica_id", "process_linear_index"};
  return names.contains(op->getName().stripDialect());
}
