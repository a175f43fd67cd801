//===- Products.cpp - Products and convolutions ---------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/BuiltinTypes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"

using namespace mlir;
using namespace zpp;

/// The numbers in the brackets after `name` in the text of an attribute:
/// "name = [0, 1]".
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

/// The dims of a kernel that are summed over: all but its output features, in
/// "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]".
static SmallVector<int64_t> getSummedKernelDims(StringRef text) {
  SmallVector<StringRef> kernel;
  text.split("x[").second.split(']').first.split(kernel, ',');
  SmallVector<int64_t> summed;
  for (auto [dim, name] : llvm::enumerate(kernel))
    if (name.trim() != "o")
      summed.push_back(dim);
  return summed;
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
  std::string text = printAttribute(numbers);
  if (isConvolution) {
    if (operand == 0)
      return std::nullopt;
    dims.summed = getSummedKernelDims(text);
    return dims;
  }
  std::string side = operand == 0 ? "lhs" : "rhs";
  dims.summed = getNumbersIn(text, side + "_contracting_dimensions");
  dims.batching = getNumbersIn(text, side + "_batching_dimensions");
  return dims;
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
