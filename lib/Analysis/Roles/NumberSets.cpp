//===- NumberSets.cpp - Many sets that have much in common ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles/NumberSets.h"

#include "llvm/ADT/bit.h"

using namespace zpp;

NumberSets::NumberSets(size_t limit) : parts(1) {
  while (kBits << height < limit)
    ++height;
}

NumberSets::Set NumberSets::add(Part part,
                                llvm::DenseMap<uint64_t, Set> &known) {
  auto [it, isNew] = known.try_emplace(uint64_t(part.left) << 32 | part.right,
                                       static_cast<Set>(parts.size()));
  if (isNew)
    parts.push_back(part);
  return it->second;
}

NumberSets::Set NumberSets::getSingle(size_t number) {
  Set set = addWord(uint32_t(1) << number % kBits);
  for (unsigned level = 0; level < height; ++level)
    set = number / kBits >> level & 1 ? addHalves(kEmpty, set)
                                      : addHalves(set, kEmpty);
  return set;
}

NumberSets::Set NumberSets::combine(Kind kind, Set a, Set b, unsigned level) {
  if (kind != Kind::Subtract && a > b)
    std::swap(a, b);
  switch (kind) {
  case Kind::Unite:
    if (a == b || a == kEmpty)
      return b;
    break;
  case Kind::Intersect:
    if (a == b || a == kEmpty)
      return a;
    break;
  case Kind::Subtract:
    if (a == b)
      return kEmpty;
    if (a == kEmpty || b == kEmpty)
      return a;
    break;
  }
  ++numSteps;
  if (level == 0) {
    uint32_t left = parts[a].left, right = parts[b].left;
    return addWord(kind == Kind::Unite       ? left | right
                   : kind == Kind::Intersect ? left & right
                                             : left & ~right);
  }
  Known &known =
      lastResults[(a * 0x9e3779b9u ^ b * 0x85ebca6bu ^ unsigned(kind)) %
                  lastResults.size()];
  if (known.a == a && known.b == b && known.kind == kind)
    return known.result;
  Part left = parts[a], right = parts[b];
  Set first = combine(kind, left.left, right.left, level - 1);
  Set second = combine(kind, left.right, right.right, level - 1);
  Set result = addHalves(first, second);
  known = {a, b, result, kind};
  return result;
}

NumberSets::Set NumberSets::unite(Set a, Set b) {
  return combine(Kind::Unite, a, b, height);
}

NumberSets::Set NumberSets::intersect(Set a, Set b) {
  return combine(Kind::Intersect, a, b, height);
}

NumberSets::Set NumberSets::subtract(Set a, Set b) {
  return combine(Kind::Subtract, a, b, height);
}

bool NumberSets::contains(Set set, size_t number) const {
  for (unsigned level = height; level-- > 0;)
    set = number / kBits >> level & 1 ? parts[set].right : parts[set].left;
  return parts[set].left >> number % kBits & 1;
}

bool NumberSets::isNone(Kind kind, Set a, Set b, unsigned level) const {
  bool subtracts = kind == Kind::Subtract;
  if (a == kEmpty || (subtracts && a == b))
    return true;
  if (b == kEmpty || a == b)
    return !subtracts && b == kEmpty;
  const Part &left = parts[a], &right = parts[b];
  if (level == 0)
    return (left.left & (subtracts ? ~right.left : right.left)) == 0;
  return isNone(kind, left.left, right.left, level - 1) &&
         isNone(kind, left.right, right.right, level - 1);
}

llvm::SmallVector<size_t> NumberSets::getNumbers(Set set) const {
  llvm::SmallVector<size_t> numbers;
  append(set, height, 0, numbers);
  return numbers;
}

void NumberSets::append(Set set, unsigned level, size_t first,
                        llvm::SmallVectorImpl<size_t> &numbers) const {
  if (set == kEmpty)
    return;
  auto [left, right] = parts[set];
  if (level == 0) {
    for (uint32_t word = left; word; word &= word - 1)
      numbers.push_back(first + llvm::countr_zero(word));
    return;
  }
  append(left, level - 1, first, numbers);
  append(right, level - 1, first + (kBits << (level - 1)), numbers);
}
