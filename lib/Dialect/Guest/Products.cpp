//===- Products.cpp - Products and convolutions ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/DimFlow.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "llvm/ADT/StringExtras.h"

#include <array>

using namespace mlir;
using namespace zpp;

/// Returns the numbers in the brackets after `name` in the text of an
/// attribute: "name = [0, 1]".
static SmallVector<int64_t> getNumbersIn(StringRef text, StringRef name) {
  SmallVector<int64_t> numbers;
  size_t begin = text.find(name);
  if (begin == StringRef::npos)
    return numbers;
  SmallVector<StringRef> parts;
  text.drop_front(begin).split('[').second.split(']').first.split(parts, ',');
  for (StringRef part : parts) {
    int64_t number;
    if (!part.trim().getAsInteger(10, number))
      numbers.push_back(number);
  }
  return numbers;
}

static constexpr std::array<StringLiteral, 4> kDotDims = {
    "lhs_batching_dimensions", "rhs_batching_dimensions",
    "lhs_contracting_dimensions", "rhs_contracting_dimensions"};

DotDims DotDims::read(StringRef text) {
  DotDims dims;
  for (auto [name, numbers] : llvm::zip(kDotDims, dims.numbers))
    numbers = getNumbersIn(text, name);
  return dims;
}

std::string DotDims::str() const {
  std::string text = "dot<";
  llvm::raw_string_ostream os(text);
  llvm::ListSeparator separator;
  for (auto [name, list] : llvm::zip(kDotDims, numbers)) {
    if (list.empty())
      continue;
    os << separator << name << " = [";
    llvm::interleaveComma(list, os);
    os << "]";
  }
  os << ">";
  return text;
}

/// Returns the dims of a kernel that are summed over: all but its output
/// features, in "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]".
static SmallVector<int64_t> getSummedKernelDims(StringRef text) {
  SmallVector<StringRef> kernel;
  text.split("x[").second.split(']').first.split(kernel, ',');
  SmallVector<int64_t> summed;
  for (auto [dim, name] : llvm::enumerate(kernel))
    if (name.trim() != "o")
      summed.push_back(dim);
  return summed;
}

bool zpp::isMatrixProduct(Operation *op) {
  return isNamed(op, guest::kDotGeneral) || isNamed(op, guest::kDot);
}

std::optional<ProductDims> zpp::getProductDims(Operation *op,
                                               unsigned operand) {
  if (operand > 1 || op->getNumOperands() < 2)
    return std::nullopt;
  auto type = dyn_cast<RankedTensorType>(op->getOperand(operand).getType());
  if (!type)
    return std::nullopt;
  ProductDims dims;
  if (isNamed(op, "stablehlo.dot")) {
    dims.summed.push_back(operand == 0 ? type.getRank() - 1 : 0);
    return dims;
  }
  bool isConvolution = isNamed(op, "stablehlo.convolution");
  if (!isConvolution && !isNamed(op, "stablehlo.dot_general"))
    return std::nullopt;
  Attribute numbers = op->getAttr(isConvolution ? "dimension_numbers"
                                                : "dot_dimension_numbers");
  if (!numbers)
    return std::nullopt;
  std::string text = toText(numbers);
  if (isConvolution) {
    if (operand == 0)
      return std::nullopt;
    dims.summed = getSummedKernelDims(text);
    return dims;
  }
  DotDims all = DotDims::read(text);
  dims.batching = all.numbers[operand];
  dims.summed = all.numbers[2 + operand];
  return dims;
}

LookupDims zpp::getLookupDims(Operation *op, StringRef name) {
  LookupDims dims;
  Attribute numbers = op->getAttr(name);
  if (!numbers)
    return dims;
  std::string text = toText(numbers);
  // The names of a gather, and those of a scatter.
  for (StringRef dropped : {"collapsed_slice_dims", "operand_batching_dims",
                            "inserted_window_dims", "input_batching_dims"})
    dims.dropped.append(getNumbersIn(text, dropped));
  for (StringRef window : {"offset_dims", "update_window_dims"})
    dims.window.append(getNumbersIn(text, window));
  return dims;
}

/// Returns the dims of both operands of a `dot_general`; nullopt for other ops,
/// and if the operands are not treated alike.
static std::optional<std::array<ProductDims, 2>> getBothDims(Operation *op) {
  // An algorithm names a type for each operand.
  if (!isNamed(op, "stablehlo.dot_general") || op->hasAttr("algorithm") ||
      op->getNumOperands() != 2 || op->getNumResults() != 1 ||
      !isa<RankedTensorType>(op->getResult(0).getType()))
    return std::nullopt;
  std::optional<ProductDims> left = getProductDims(op, 0);
  std::optional<ProductDims> right = getProductDims(op, 1);
  if (!left || !right)
    return std::nullopt;
  return std::array<ProductDims, 2>{*left, *right};
}

/// Returns the order of the dims of the result if the operands were exchanged;
/// nullopt if the result does not fit the operands, which nothing has verified.
static std::optional<SmallVector<int64_t>>
getExchanged(Operation *product, const ProductDims &left) {
  RankedTensorType type = getTensorType(product->getOperand(0));
  RankedTensorType result = getTensorType(product->getResult(0));
  // The dims of the result are those for both operands, those of the first and
  // those of the second.
  int64_t first = left.batching.size();
  int64_t second = type.getRank() - left.summed.size();
  if (first > second || second > result.getRank())
    return std::nullopt;
  auto order = llvm::to_vector(llvm::seq<int64_t>(0, first));
  llvm::append_range(order, llvm::seq<int64_t>(second, result.getRank()));
  llvm::append_range(order, llvm::seq<int64_t>(first, second));
  return order;
}

bool zpp::exchangeOperands(Operation *product, ArrayRef<int64_t> order) {
  auto dims = getBothDims(product);
  auto exchanged = dims ? getExchanged(product, dims->front()) : std::nullopt;
  if (!exchanged || ArrayRef(*exchanged) != order)
    return false;
  const auto &[left, right] = *dims;
  DotDims exchangedDims{
      {right.batching, left.batching, right.summed, left.summed}};
  product->setAttr("dot_dimension_numbers",
                   parseAttribute("#stablehlo." + exchangedDims.str(),
                                  product->getContext()));
  if (auto precision = product->getAttrOfType<ArrayAttr>("precision_config"))
    product->setAttr("precision_config",
                     ArrayAttr::get(product->getContext(),
                                    llvm::to_vector(llvm::reverse(precision))));
  product->setOperands({product->getOperand(1), product->getOperand(0)});
  Value result = product->getResult(0);
  RankedTensorType type = getTensorType(result);
  result.setType(type.clone(applyPermutation(type.getShape(), order)));
  return true;
}

double zpp::getProductFlops(Operation *op) {
  if (!getProductDims(op, 1) || op->getNumResults() != 1)
    return 0;
  bool isConvolution = isNamed(op, "stablehlo.convolution");
  auto left = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto right = dyn_cast<RankedTensorType>(op->getOperand(1).getType());
  auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  for (RankedTensorType type : {left, right, result})
    if (!type || !type.hasStaticShape())
      return 0;
  double flops = 2;
  for (int64_t size : result.getShape())
    flops *= size;
  // Each element of the result takes all of a kernel but its output features.
  RankedTensorType summed = isConvolution ? right : left;
  for (int64_t dim : getProductDims(op, isConvolution ? 1 : 0)->summed)
    if (dim >= 0 && dim < summed.getRank())
      flops *= summed.getDimSize(dim);
  return flops;
}
