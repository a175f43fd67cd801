//===- NumberSets.h - Many sets that have much in common --------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What each value of a step depends on are sets that grow from value to value
// by one weight. As bits of their own they would take, for each value, a time
// that grows with the step. Here equal parts of sets are kept once: what two
// sets have in common costs nothing when they are joined, and equal sets are
// the same set.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_ANALYSIS_ROLES_NUMBERSETS_H
#define ZPP_ANALYSIS_ROLES_NUMBERSETS_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

#include <array>
#include <vector>

namespace zpp {

class NumberSets {
public:
  /// A set. Two sets are equal if and only if these are.
  using Set = uint32_t;
  static constexpr Set kEmpty = 0;

  /// Sets of numbers below `limit`.
  explicit NumberSets(size_t limit);

  Set getSingle(size_t number);
  Set unite(Set a, Set b);
  Set intersect(Set a, Set b);
  /// The numbers of `a` that `b` lacks.
  Set subtract(Set a, Set b);

  bool contains(Set set, size_t number) const;
  /// True if `of` has all numbers of `part`.
  bool isSubset(Set part, Set of) const {
    return isNone(Kind::Subtract, part, of, height);
  }
  bool haveCommon(Set a, Set b) const {
    return !isNone(Kind::Intersect, a, b, height);
  }
  /// Returns the numbers of `set`, in order.
  llvm::SmallVector<size_t> getNumbers(Set set) const;

  /// Returns the steps that unite(), intersect() and subtract() have taken
  /// together.
  size_t getNumSteps() const { return numSteps; }

private:
  enum class Kind : uint8_t { Unite, Intersect, Subtract };

  /// The numbers that one word has. A full word is no reserved key of a map.
  static constexpr size_t kBits = 32;
  /// A set is a binary tree of this height. Its leaves are words.
  unsigned height = 0;

  /// A part of a set: two halves, or a word.
  struct Part {
    Set left, right;
  };
  /// A result of the last operations.
  struct Known {
    Set a = 0, b = 0, result = 0;
    Kind kind = Kind::Unite;
  };

  Set add(Part part, llvm::DenseMap<uint64_t, Set> &known);
  Set addWord(uint32_t word) { return word ? add({word, 0}, words) : kEmpty; }
  Set addHalves(Set left, Set right) {
    return left || right ? add({left, right}, halves) : kEmpty;
  }
  Set combine(Kind kind, Set a, Set b, unsigned level);
  /// True if combine() returns the empty set.
  bool isNone(Kind kind, Set a, Set b, unsigned level) const;
  void append(Set set, unsigned level, size_t first,
              llvm::SmallVectorImpl<size_t> &numbers) const;

  std::vector<Part> parts;
  llvm::DenseMap<uint64_t, Set> words, halves;
  std::array<Known, 4096> lastResults;
  size_t numSteps = 0;
};

} // namespace zpp

#endif // ZPP_ANALYSIS_ROLES_NUMBERSETS_H
