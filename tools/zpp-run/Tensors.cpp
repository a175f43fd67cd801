//===- Tensors.cpp - Tensors of all ranks ---------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tensors.h"
#include "Npy.h"

#include "zpp/Support/Float16.h"
#include "llvm/Support/Format.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace mlir;
using namespace zpp;

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

static bool isSigned(Type type) {
  return isa<IntegerType>(type) && !type.isUnsignedInteger() &&
         !type.isInteger(1);
}

/// An element of integer type, extended to 64 bits; signed types by their sign.
static uint64_t readInteger(Type type, const TensorData &data, int64_t index) {
  uint64_t bits = 0;
  int64_t bytes = getElementBytes(type);
  std::memcpy(&bits, data.data() + index * bytes, bytes);
  return isSigned(type) ? llvm::SignExtend64(bits, type.getIntOrFloatBitWidth())
                        : bits;
}

static double readNumber(Type type, const TensorData &data, int64_t index) {
  auto load = [&](auto value) {
    std::memcpy(&value, data.data() + index * sizeof(value), sizeof(value));
    return value;
  };
  if (type.isF32())
    return load(float());
  if (type.isF64())
    return load(double());
  if (type.isBF16())
    return floatOfBF16Bits(load(uint16_t()));
  if (type.isF16())
    return floatOfF16Bits(load(uint16_t()));
  uint64_t bits = readInteger(type, data, index);
  return isSigned(type) ? static_cast<double>(static_cast<int64_t>(bits))
                        : static_cast<double>(bits);
}

/// Returns the distance of two elements. Integers are subtracted before the
/// result is rounded to a double, which cannot tell all integers apart.
static double getDistance(Type type, const TensorData &a, const TensorData &b,
                          int64_t index) {
  if (!isa<IntegerType>(type))
    return readNumber(type, a, index) - readNumber(type, b, index);
  uint64_t x = readInteger(type, a, index), y = readInteger(type, b, index);
  bool isLess = isSigned(type)
                    ? static_cast<int64_t>(x) < static_cast<int64_t>(y)
                    : x < y;
  return static_cast<double>(isLess ? y - x : x - y);
}

TensorData zpp::makeRandom(RankedTensorType type, uint64_t seed) {
  // Not a distribution of <random>, whose numbers differ between libraries.
  std::mt19937_64 next(seed);
  TensorData data(getBytes(type));
  Type element = type.getElementType();
  size_t bytes = getElementBytes(element);
  for (int64_t i = 0, e = type.getNumElements(); i < e; ++i) {
    uint64_t bits = next();
    if (isa<FloatType>(element)) {
      // The sum of four numbers in [0, 1) has mean 2 and variance 1/3.
      double sum = 0;
      for (int part = 0; part < 4; ++part)
        sum += static_cast<double>(bits >> (16 * part) & 0xffff) * 0x1p-16;
      double value = (sum - 2) * std::sqrt(3.0);
      if (element.isF64())
        std::memcpy(&bits, &value, sizeof(bits));
      else if (element.isBF16())
        bits = bf16BitsOfFloat(static_cast<float>(value));
      else if (element.isF16())
        bits = f16BitsOfFloat(static_cast<float>(value));
      else
        bits = bitsOfFloat(static_cast<float>(value));
    } else if (element.isInteger(1)) {
      bits &= 1;
    }
    std::memcpy(data.data() + i * bytes, &bits, bytes);
  }
  return data;
}

//===----------------------------------------------------------------------===//
// Inputs and outputs
//===----------------------------------------------------------------------===//

static std::string str(ArrayRef<int64_t> shape) {
  return "[" +
         llvm::join(
             llvm::map_range(shape,
                             [](int64_t size) { return std::to_string(size); }),
             ", ") +
         "]";
}

llvm::Expected<RankData> zpp::readTensors(StringRef path, RankedTensorType type,
                                          int64_t ranks) {
  llvm::Expected<NpyArray> array = readNpy(path);
  if (!array)
    return array.takeError();
  std::string expected = getNpyType(type.getElementType());
  if (array->type != expected)
    return llvm::createStringError(path + ": expected elements of type '" +
                                   expected + "', but got '" + array->type +
                                   "'");
  // NumPy takes every byte but 0 as true; MLIR uses one bit.
  if (type.getElementType().isInteger(1))
    for (uint8_t &element : array->data)
      element = element != 0;
  if (ArrayRef<int64_t>(array->shape) == type.getShape())
    return RankData(ranks, array->data);
  SmallVector<int64_t> shape{ranks};
  llvm::append_range(shape, type.getShape());
  if (array->shape != shape)
    return llvm::createStringError(path + ": expected the shape " +
                                   str(type.getShape()) + " or " + str(shape) +
                                   ", but got " + str(array->shape));
  RankData data;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    auto begin = array->data.begin() + rank * getBytes(type);
    data.emplace_back(begin, begin + getBytes(type));
  }
  return data;
}

llvm::Error zpp::writeTensors(StringRef path, RankedTensorType type,
                              const RankData &data) {
  SmallVector<int64_t> shape{static_cast<int64_t>(data.size())};
  llvm::append_range(shape, type.getShape());
  return writeNpy(path, getNpyType(type.getElementType()), shape, data);
}

void zpp::printTensors(StringRef title, RankedTensorType type,
                       const RankData &data) {
  Type element = type.getElementType();
  auto print = [&](const TensorData &tensor, int64_t index) {
    llvm::outs() << ' ';
    if (isSigned(element))
      llvm::outs() << static_cast<int64_t>(readInteger(element, tensor, index));
    else if (isa<IntegerType>(element))
      llvm::outs() << readInteger(element, tensor, index);
    else
      llvm::outs() << llvm::format("%g", readNumber(element, tensor, index));
  };
  for (auto [rank, tensor] : llvm::enumerate(data)) {
    llvm::outs() << title << " on rank " << rank << ":";
    for (int64_t i = 0, e = type.getNumElements(); i < e; ++i)
      print(tensor, i);
    llvm::outs() << "\n";
  }
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

double zpp::getNorm(RankedTensorType type, const RankData &data,
                    const RankData *other) {
  Type element = type.getElementType();
  double sum = 0;
  for (size_t rank = 0; rank < data.size(); ++rank)
    for (int64_t i = 0, e = type.getNumElements(); i < e; ++i) {
      double value = other ? getDistance(element, data[rank], (*other)[rank], i)
                           : readNumber(element, data[rank], i);
      sum += value * value;
    }
  return std::sqrt(sum);
}

bool zpp::compare(StringRef title, RankedTensorType type, const RankData &data,
                  const RankData &expected, double bound) {
  double distance = getNorm(type, data, &expected);
  double norm = getNorm(type, expected);
  bool isWithin = distance <= bound;
  double unit = norm > 0 ? norm : 1;
  llvm::outs() << title
               << llvm::format(": relative L2 error %.3e, bound %.3e: ",
                               distance / unit, bound / unit)
               << (isWithin ? "ok" : "FAILED") << "\n";
  return isWithin;
}
