//===- SliceMap.cpp - Where the slices of a tensor lie --------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Support/SliceMap.h"

#include <algorithm>
#include <cassert>

using namespace zpp;

static bool contains(const std::vector<int64_t> &values, int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

/// The rows of a unit that a stage covers; the last stages may cover fewer.
static int64_t rowsPerStage(const SliceMap &map) {
  return map.unit / map.stages + (map.unit % map.stages != 0);
}

int64_t SliceMap::numSlices() const {
  int64_t product = 1;
  for (int64_t factor : factors)
    product *= factor;
  return product;
}

int64_t SliceMap::numChunks() const {
  int64_t product = 1;
  for (int64_t index : chunkFactors)
    product *= factors[index];
  return product;
}

int64_t SliceMap::partBegin() const {
  // Compared before multiplying, so that a huge stage does not overflow.
  int64_t rows = rowsPerStage(*this);
  return rows == 0 || stage > unit / rows ? unit : stage * rows;
}

int64_t SliceMap::partSize() const {
  return std::min(unit - partBegin(), rowsPerStage(*this));
}

int64_t SliceMap::elementsPerChunk() const {
  return outer * (numSlices() / numChunks()) * partSize() * inner;
}

int64_t SliceMap::paddedExtent() const { return numSlices() * unit; }

int64_t SliceMap::tensorIndex(int64_t chunk, int64_t element) const {
  assert(chunk >= 0 && chunk < numChunks() && "no such chunk");
  assert(element >= 0 && element < elementsPerChunk() && "no such element");

  // Split `element` into digits, the fastest first: inner, part, and the
  // factors that are not in the chunk number. The rest is the outer index.
  int64_t innerIndex = element % inner;
  int64_t rest = element / inner;
  int64_t part = partSize();
  int64_t unitRow = partBegin() + rest % part;
  rest /= part;

  int64_t slice = 0;
  int64_t stride = 1;
  for (int64_t index = factors.size(); index-- > 0;) {
    int64_t factor = factors[index];
    if (!contains(chunkFactors, index)) {
      slice += rest % factor * stride;
      rest /= factor;
    }
    stride *= factor;
  }
  int64_t outerIndex = rest;

  int64_t chunkRest = chunk;
  for (auto it = chunkFactors.rbegin(); it != chunkFactors.rend(); ++it) {
    stride = 1;
    for (int64_t index = factors.size(); --index > *it;)
      stride *= factors[index];
    slice += chunkRest % factors[*it] * stride;
    chunkRest /= factors[*it];
  }

  int64_t row = slice * unit + unitRow;
  if (row >= extent)
    return -1;
  return (outerIndex * extent + row) * inner + innerIndex;
}

bool SliceMap::movesWhole(int64_t size) const {
  return paddedExtent() == extent && unit * inner % size == 0 &&
         partBegin() * inner % size == 0 && partSize() * inner % size == 0;
}

std::string SliceMap::verify() const {
  auto expected = [](const std::string &what, int64_t got) {
    return "expected " + what + ", but got " + std::to_string(got);
  };

  if (outer < 0)
    return expected("a non-negative outer size", outer);
  if (unit < 0)
    return expected("a non-negative unit", unit);
  if (inner < 0)
    return expected("a non-negative inner size", inner);
  int64_t slices = 1;
  for (int64_t factor : factors) {
    if (factor < 1)
      return expected("positive factors", factor);
    if (__builtin_mul_overflow(slices, factor, &slices))
      return expected("fewer than 2^63 slices, with factor", factor);
  }

  std::vector<int64_t> seen;
  for (int64_t index : chunkFactors) {
    if (index < 0 || index >= static_cast<int64_t>(factors.size()))
      return expected("chunk factors in [0, " + std::to_string(factors.size()) +
                          ")",
                      index);
    if (contains(seen, index))
      return expected("different chunk factors", index) + " twice";
    seen.push_back(index);
  }

  if (stages < 1)
    return expected("at least one stage", stages);
  if (stage < 0 || stage >= stages)
    return expected("a stage in [0, " + std::to_string(stages) + ")", stage);

  int64_t elements;
  if (__builtin_mul_overflow(slices, unit, &elements))
    return expected("a padded extent below 2^63, with unit", unit);
  if (extent < 0 || extent > elements)
    return expected("an extent in [0, " + std::to_string(elements) + "]",
                    extent);
  // A size of zero would hide an overflow of the others.
  if (__builtin_mul_overflow(elements, std::max<int64_t>(outer, 1),
                             &elements) ||
      __builtin_mul_overflow(elements, std::max<int64_t>(inner, 1), &elements))
    return "expected fewer than 2^63 elements, but got " +
           std::to_string(outer) + " x " + std::to_string(slices) + " x " +
           std::to_string(unit) + " x " + std::to_string(inner);
  return "";
}
