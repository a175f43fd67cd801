//===- ElementFlow.cpp - What ops do with elements ------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Dialect/Guest/ElementFlow.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zpp;

static bool isPredicate(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  return shaped && shaped.getElementType().isInteger(1);
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
  // Nearly all types of a step are these, and asking an interface takes long.
  if (auto from = dyn_cast<RankedTensorType>(a),
      to = dyn_cast<RankedTensorType>(b);
      from && to && from.getShape() == to.getShape())
    return from.hasStaticShape();
  auto from = dyn_cast<ShapedType>(a), to = dyn_cast<ShapedType>(b);
  return from && to && from.hasStaticShape() && to.hasStaticShape() &&
         from.getNumElements() == to.getNumElements();
}

ElementFlow::Form ElementFlow::recognize() {
  // Ops that mix elements of their operands even if the shapes agree, and those
  // with a rule of their own.
  static const llvm::StringMap<Form> forms = {
      {"all_gather", Form::Collective},
      {"all_reduce", Form::Collective},
      {"all_to_all", Form::Collective},
      {"batch_norm_grad", Form::Mix},
      {"batch_norm_inference", Form::Mix},
      {"batch_norm_training", Form::Mix},
      {"cholesky", Form::Mix},
      {"collective_broadcast", Form::Collective},
      {"collective_permute", Form::Collective},
      {"convolution", Form::Mix},
      {"dot", Form::Mix},
      {"dot_general", Form::Mix},
      {"dynamic_conv", Form::Mix},
      {"dynamic_gather", Form::Mix},
      {"dynamic_update_slice", Form::UpdateSlice},
      {"einsum", Form::Mix},
      {"fft", Form::Mix},
      {"gather", Form::Mix},
      {"optimization_barrier", Form::Barrier},
      {"reduce_scatter", Form::Collective},
      {"reduce_window", Form::Mix},
      {"rng", Form::Mix},
      {"rng_bit_generator", Form::Mix},
      {"scatter", Form::Scatter},
      {"select_and_scatter", Form::Mix},
      {"sort", Form::Mix},
      {"torch_index_select", Form::Mix},
      {"triangular_solve", Form::Mix},
      {"unary_einsum", Form::Mix},
  };
  auto [dialect, name] = op->getName().getStringRef().split('.');
  auto known = forms.find(name);
  Form found = known == forms.end() ? Form::Other : known->second;
  // Names in other dialects may mean something else.
  if ((found == Form::Barrier && !zpp::isBarrier(op)) ||
      (found == Form::Collective && !getGuestCollective(op)))
    found = Form::Other;
  if (found == Form::Other && movesData(op))
    found = name == "concatenate" ? Form::Join : Form::Move;
  if (found == Form::Other && dialect == "linalg")
    found = Form::Mix;
  firstPosition = found == Form::UpdateSlice ? 2
                  : name == "dynamic_slice"  ? 1
                                             : op->getNumOperands();
  return found;
}

ElementFlow::ElementFlow(Operation *op) : op(op), form(recognize()) {}

bool ElementFlow::movesElements(unsigned operand, unsigned result) const {
  switch (form) {
  case Form::Barrier:
    return operand == result;
  case Form::Collective:
    return operand == result || op->getNumResults() == 1;
  case Form::UpdateSlice:
    return operand < 2;
  case Form::Scatter: {
    // The operands are inputs, indices and updates. Updates that are added up
    // are mixed.
    unsigned count = op->getNumResults();
    if (operand < count)
      return operand == result;
    return operand == count + 1 + result && isAssignment(op);
  }
  case Form::Move:
    return operand == 0;
  case Form::Join:
    return true;
  case Form::Mix:
    return false;
  case Form::Other:
    // Assume that all other ops that keep the shape are elementwise, since
    // unknown ops must not hide that state is rounded.
    Type from = op->getOperand(operand).getType();
    return haveSameSize(from, op->getResult(result).getType()) &&
           !isPredicate(from);
  }
  llvm_unreachable("unknown form");
}

bool ElementFlow::isDivisor(unsigned operand) const {
  if (form != Form::Other)
    return false;
  return (operand == 1 && isNamed(op, guest::kDivide)) ||
         (operand == 0 && isNamed(op, "stablehlo.power")) ||
         isNamed(op, "stablehlo.rsqrt") || isNamed(op, "stablehlo.log");
}

/// True for a constant whose elements are all the same and not below zero, also
/// where it is broadcast or cast.
static bool isSplatOfNoNegative(Value value) {
  DenseElementsAttr data = getSplatSource(value);
  if (!data)
    return false;
  if (data.getElementType().isInteger())
    return !data.getSplatValue<APInt>().isNegative();
  if (!isa<FloatType>(data.getElementType()))
    return false;
  auto number = data.getSplatValue<APFloat>();
  return !number.isNaN() && (number.isZero() || !number.isNegative());
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

bool zpp::isKnownSource(Operation *op) {
  static const llvm::StringSet<> names = {
      "constant",   "create_token",        "empty", "iota", "partition_id",
      "replica_id", "process_linear_index"};
  return names.contains(op->getName().stripDialect());
}
