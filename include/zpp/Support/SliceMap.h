//===- SliceMap.h - Where the slices of a tensor lie ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tensor slice reordering (ZeRO++ section 3.3.3, equations 1 and 2) as one
// function for any number of tiers and pipeline stages. The paper's algorithm
// 2, as printed, is not a permutation. This one is a reshape and a transpose of
// (tiers..., stages, part); with one stage it equals equations 1 and 2.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_SLICEMAP_H
#define ZPP_SUPPORT_SLICEMAP_H

#include <cstdint>
#include <string>
#include <vector>

namespace zpp {

/// How one dim of a tensor is cut into slices, and which slices form a chunk.
///
/// The tensor is viewed as [outer, factors[0], ..., factors[k-1], unit, inner]:
/// `outer` and `inner` are the products of the dims before and after the cut
/// dim, whose padded extent is product(factors) * unit. `chunkFactors` are the
/// indices of the factors that number the chunk, the most significant first. In
/// chunk form the tensor is
///
///   [factors[chunkFactors...], outer, the other factors in order, part, inner]
///
/// where `part` is this stage's share of a unit: stage s of S covers rows
/// [s * ceil(unit / S), min(unit, (s + 1) * ceil(unit / S))).
struct SliceMap {
  int64_t outer = 1;
  std::vector<int64_t> factors;
  int64_t unit = 1;
  int64_t inner = 1;
  /// Rows of the cut dim that exist; the rest of the padded extent is zero.
  int64_t extent = 0;
  std::vector<int64_t> chunkFactors;
  int64_t stage = 0;
  int64_t stages = 1;

  /// product(factors)
  int64_t numSlices() const;
  /// product of the factors in chunkFactors
  int64_t numChunks() const;
  /// The first row of a unit that this stage covers, and their number.
  int64_t partBegin() const;
  int64_t partSize() const;
  /// outer * (numSlices / numChunks) * partSize * inner
  int64_t elementsPerChunk() const;
  /// numSlices * unit
  int64_t paddedExtent() const;

  /// The index of element `element` of chunk `chunk` in the row-major tensor
  /// [outer, extent, inner]; -1 if it is padding.
  int64_t tensorIndex(int64_t chunk, int64_t element) const;

  /// True if groups of `size` elements, counted from the start of the tensor,
  /// are groups of a chunk too, and nothing is padding.
  bool movesWhole(int64_t size) const;

  /// Returns what is wrong with the fields, or an empty string.
  std::string verify() const;
};

} // namespace zpp

#endif // ZPP_SUPPORT_SLICEMAP_H
