//===- NumberSetsTest.cpp - Many sets that have much in common ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Analysis/Roles/NumberSets.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <set>

using namespace zpp;

namespace {

using Numbers = std::set<size_t>;

NumberSets::Set make(NumberSets &sets, const Numbers &numbers) {
  NumberSets::Set set = NumberSets::kEmpty;
  for (size_t number : numbers)
    set = sets.unite(set, sets.getSingle(number));
  return set;
}

Numbers read(const NumberSets &sets, NumberSets::Set set) {
  llvm::SmallVector<size_t> numbers = sets.getNumbers(set);
  EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  return {numbers.begin(), numbers.end()};
}

/// Compares all that `sets` says about two sets with what std::set says.
void compare(NumberSets &sets, const Numbers &a, const Numbers &b) {
  NumberSets::Set left = make(sets, a), right = make(sets, b);
  EXPECT_EQ(read(sets, left), a);
  EXPECT_EQ(left == right, a == b);
  Numbers united, common, rest;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(),
                 std::inserter(united, united.end()));
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::inserter(common, common.end()));
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(),
                      std::inserter(rest, rest.end()));
  EXPECT_EQ(sets.unite(left, right), make(sets, united));
  EXPECT_EQ(sets.intersect(left, right), make(sets, common));
  EXPECT_EQ(sets.subtract(left, right), make(sets, rest));
  EXPECT_EQ(sets.isSubset(left, right), rest.empty());
  EXPECT_EQ(sets.haveCommon(left, right), !common.empty());
}

TEST(NumberSetsTest, AreThoseOfAnyOtherSet) {
  std::mt19937 random(7);
  for (size_t limit : {1, 2, 32, 33, 64, 65, 1000, 100000}) {
    NumberSets sets(limit);
    for (int round = 0; round < 50; ++round) {
      Numbers a, b;
      for (unsigned count = random() % 20; count-- > 0;)
        a.insert(random() % limit);
      for (unsigned count = random() % 20; count-- > 0;)
        b.insert(random() % limit);
      compare(sets, a, b);
      b.insert(a.begin(), a.end());
      compare(sets, a, b);
      compare(sets, b, a);
    }
  }
}

TEST(NumberSetsTest, WordsMayBeFull) {
  NumberSets sets(100);
  Numbers all;
  for (size_t number = 0; number < 100; ++number)
    all.insert(number);
  compare(sets, all, all);
  compare(sets, all, {});
  compare(sets, {}, all);
  compare(sets, all, {31, 32, 99});
}

TEST(NumberSetsTest, HaveNumbers) {
  NumberSets sets(1000);
  NumberSets::Set set = make(sets, {0, 31, 32, 700, 999});
  for (size_t number = 0; number < 1000; ++number)
    EXPECT_EQ(sets.contains(set, number), read(sets, set).count(number) == 1)
        << number;
  EXPECT_FALSE(sets.contains(NumberSets::kEmpty, 0));
}

/// Returns the steps per layer of a network and its backward pass: each layer
/// depends on the one before it and a weight, and each gradient on the next one
/// and on the layer.
double getStepsPerLayer(size_t layers) {
  NumberSets sets(layers);
  std::vector<NumberSets::Set> forward{sets.getSingle(0)};
  for (size_t layer = 1; layer < layers; ++layer)
    forward.push_back(sets.unite(forward.back(), sets.getSingle(layer)));
  NumberSets::Set backward = forward.back();
  for (size_t layer = layers; layer-- > 0;)
    backward = sets.unite(backward, forward[layer]);
  EXPECT_EQ(backward, forward.back());
  return double(sets.getNumSteps()) / layers;
}

TEST(NumberSetsTest, LayersTakeFewSteps) {
  // With bits for each value, a layer would take as many as there are words.
  for (unsigned exponent : {6, 10, 16})
    EXPECT_LT(getStepsPerLayer(size_t(1) << exponent), 2.0 * exponent);
}

} // namespace
