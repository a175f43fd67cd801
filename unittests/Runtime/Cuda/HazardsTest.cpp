//===- HazardsTest.cpp - Order of operations on several streams -----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cuda/Hazards.h"

#include "../../Support/Random.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace zpp;
using namespace zpp::rt;

namespace {

Access access(uintptr_t begin, int64_t bytes, bool isWrite) {
  return {reinterpret_cast<const void *>(begin), bytes, isWrite};
}
Access read(uintptr_t begin, int64_t bytes) {
  return access(begin, bytes, false);
}
Access write(uintptr_t begin, int64_t bytes) {
  return access(begin, bytes, true);
}

using Numbers = Hazards::Numbers;

/// Finds the conflicts of accesses, too.
class Order : public Hazards {
public:
  using Hazards::Hazards;
  Numbers add(size_t stream, const Accesses &accesses) {
    return Hazards::add(stream, accesses, find(accesses));
  }
  Numbers extend(size_t stream, const Accesses &accesses) {
    return Hazards::extend(stream, accesses, find(accesses));
  }
};

TEST(Hazards, ReadAfterWrite) {
  Order hazards(2);
  EXPECT_EQ(hazards.add(0, {write(100, 10)}), (Numbers{0, 0}));
  EXPECT_EQ(hazards.add(1, {read(105, 1)}), (Numbers{1, 0}));
  EXPECT_EQ(hazards.add(1, {read(99, 1), read(110, 5)}), (Numbers{0, 0}));
  EXPECT_EQ(hazards.getLast(0), 1);
  EXPECT_EQ(hazards.getLast(1), 2);
}

TEST(Hazards, WriteAfterReadsOfAllStreams) {
  Order hazards(3);
  hazards.add(0, {read(100, 10)});
  hazards.add(1, {read(105, 10)});
  EXPECT_EQ(hazards.add(2, {read(100, 20)}), (Numbers{0, 0, 0}));
  EXPECT_EQ(hazards.add(2, {write(0, 1000)}), (Numbers{1, 1, 0}));
  // Later operations now come after the write.
  EXPECT_EQ(hazards.add(0, {read(112, 1)}), (Numbers{0, 0, 2}));
}

TEST(Hazards, WhatWasWaitedForIsKnown) {
  Order hazards(2);
  hazards.add(0, {write(0, 10)});
  hazards.add(0, {write(10, 10)});
  EXPECT_EQ(hazards.add(1, {read(10, 10)}), (Numbers{2, 0}));
  EXPECT_EQ(hazards.add(1, {read(0, 10)}), (Numbers{0, 0}));
}

TEST(Hazards, Producers) {
  Order hazards(3);
  hazards.add(0, {write(0, 10)});
  hazards.add(1, {read(0, 10), write(10, 10)});
  Hazards::Conflicts conflicts = hazards.find({read(0, 5), write(10, 5)});
  EXPECT_EQ(conflicts.operations, (Numbers{1, 1, 0}));
  // Overwriting is not reading.
  EXPECT_EQ(conflicts.producers, (Numbers{1, 0, 0}));
  EXPECT_EQ(hazards.find({write(0, 10)}).producers, (Numbers{}));
}

/// Programs repeat themselves: segments do not become smaller and smaller.
TEST(Hazards, SegmentsStay) {
  Order hazards(2);
  auto step = [&] {
    hazards.add(0, {write(0, 100)});
    for (uintptr_t part : {0, 20, 40, 60, 80})
      hazards.add(1, {read(part, 20), write(100 + part, 20)});
    hazards.add(0, {read(100, 100), write(50, 100)});
  };
  step();
  size_t size = hazards.size();
  for (int i = 0; i < 100; ++i)
    step();
  EXPECT_EQ(hazards.size(), size);
}

TEST(Hazards, StagesOverlap) {
  // quantize, send, reduce of two stages in buffers of their own.
  Order hazards(2);
  for (uintptr_t base : {0, 1000}) {
    hazards.add(0, {read(base, 10), write(base + 100, 10)});
    hazards.add(1, {read(base + 100, 10), write(base + 200, 10)});
  }
  EXPECT_EQ(hazards.add(0, {read(200, 10), write(300, 10)}), (Numbers{0, 1}));
  EXPECT_EQ(hazards.add(0, {read(1200, 10), write(1300, 10)}), (Numbers{0, 2}));
}

TEST(Hazards, EmptyAccesses) {
  Order hazards(2);
  hazards.add(0, {write(10, 0), read(10, 0)});
  EXPECT_EQ(hazards.size(), 0u);
  hazards.add(0, {write(10, 5)});
  EXPECT_EQ(hazards.add(1, {read(12, 0)}), (Numbers{0, 0}));
}

TEST(Hazards, ClearAndPrune) {
  Order hazards(2);
  hazards.add(0, {write(0, 10)});
  hazards.add(0, {write(10, 10)});
  hazards.prune({1, 0});
  EXPECT_EQ(hazards.size(), 1u);
  EXPECT_EQ(hazards.find({write(0, 20)}).operations, (Numbers{2, 0}));
  hazards.clear();
  EXPECT_EQ(hazards.size(), 0u);
  EXPECT_EQ(hazards.add(1, {write(0, 20)}), (Numbers{0, 0}));
}

bool conflict(const Access &a, const Access &b) {
  auto begin = [](const Access &x) {
    return reinterpret_cast<uintptr_t>(x.data);
  };
  return (a.isWrite || b.isWrite) &&
         begin(a) < begin(b) + static_cast<uintptr_t>(b.bytes) &&
         begin(b) < begin(a) + static_cast<uintptr_t>(a.bytes);
}

TEST(Hazards, WhatOthersHaveWaitedFor) {
  Order hazards(3);
  hazards.add(0, {write(0, 10)});
  EXPECT_EQ(hazards.add(1, {read(0, 10), write(10, 10)}), (Numbers{1, 0, 0}));
  // The second comes after the first.
  EXPECT_EQ(hazards.find({write(0, 20)}).operations, (Numbers{1, 1, 0}));
  EXPECT_EQ(hazards.reduce({1, 1, 0}), (Numbers{0, 1, 0}));
  EXPECT_EQ(hazards.add(2, {read(0, 20)}), (Numbers{0, 1, 0}));
  EXPECT_EQ(hazards.add(2, {write(0, 5)}), (Numbers{0, 0, 0}));
  // A later operation of the first stream is another matter.
  hazards.add(0, {write(30, 1)});
  EXPECT_EQ(hazards.reduce({2, 1, 0}), (Numbers{2, 1, 0}));
  EXPECT_EQ(hazards.add(2, {read(30, 1), read(10, 10)}), (Numbers{2, 0, 0}));
}

TEST(Hazards, MoreAccesses) {
  Order hazards(2);
  hazards.add(0, {write(0, 10)});
  hazards.add(0, {write(10, 10)});
  EXPECT_EQ(hazards.add(1, {read(0, 10), write(20, 1)}), (Numbers{1, 0}));
  EXPECT_EQ(hazards.extend(1, {read(10, 10), write(21, 1)}), (Numbers{2, 0}));
  EXPECT_EQ(hazards.getLast(1), 1);
  // Both are of one operation, which comes after both.
  EXPECT_EQ(hazards.find({read(20, 2)}).operations, (Numbers{0, 1}));
  EXPECT_EQ(hazards.reduce({2, 1}), (Numbers{0, 1}));
}

/// Operations long ago are waited for again, which is only slower.
TEST(Hazards, LongPast) {
  Order hazards(2);
  hazards.add(0, {write(0, 10)});
  EXPECT_EQ(hazards.add(1, {read(0, 10)}), (Numbers{1, 0}));
  EXPECT_EQ(hazards.reduce({1, 1}), (Numbers{0, 1}));
  for (int i = 0; i < 1000; ++i)
    hazards.add(1, {write(100 + i, 1)});
  EXPECT_EQ(hazards.reduce({1, 1}), (Numbers{1, 1}));
  EXPECT_EQ(hazards.reduce({1, 1001}), (Numbers{0, 1001}));
}

/// Against all pairs of operations: those in conflict are ordered, directly or
/// through others, unless one is known to be done, and nothing waits for an
/// operation without a conflict.
TEST(Hazards, RandomPrograms) {
  constexpr size_t kStreams = 3;
  struct Operation {
    size_t stream;
    std::vector<Access> accesses;
    /// For each stream the last operation that comes before this one.
    Numbers before;
  };
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    Order hazards(kStreams);
    Numbers done{};
    // Operation n of a stream at n - 1.
    std::vector<std::vector<Operation>> operations(kStreams);
    for (int i = 0; i < 60; ++i) {
      Operation operation{random.bits() % kStreams, {}, {}};
      for (size_t n = 1 + random.bits() % 3; n-- > 0;)
        operation.accesses.push_back(access(random.bits() % 64,
                                            1 + random.bits() % 20,
                                            random.bits() % 2 == 0));
      std::vector<Operation> &own = operations[operation.stream];
      if (!own.empty())
        operation.before = own.back().before;
      operation.before[operation.stream] = own.size();

      Numbers waits = hazards.add(operation.stream, operation.accesses);
      auto conflicts = [&](const Operation &other) {
        for (const Access &a : operation.accesses)
          for (const Access &b : other.accesses)
            if (conflict(a, b))
              return true;
        return false;
      };
      for (size_t s = 0; s < kStreams; ++s) {
        if (waits[s] == 0)
          continue;
        const Operation &other = operations[s][waits[s] - 1];
        EXPECT_TRUE(conflicts(other));
        operation.before[s] = std::max(operation.before[s], waits[s]);
        for (size_t t = 0; t < kStreams; ++t)
          operation.before[t] = std::max(operation.before[t], other.before[t]);
      }
      for (size_t s = 0; s < kStreams; ++s)
        for (int64_t n = std::max(operation.before[s], done[s]);
             n < hazards.getLast(s); ++n)
          if (s != operation.stream) {
            EXPECT_FALSE(conflicts(operations[s][n])) << s << " " << n + 1;
          }
      own.push_back(std::move(operation));
      if (random.bits() % 8 == 0) {
        size_t s = random.bits() % kStreams;
        done[s] += random.bits() % (hazards.getLast(s) - done[s] + 1);
        // So is what it comes after.
        if (done[s] > 0)
          for (size_t t = 0; t < kStreams; ++t)
            done[t] = std::max(done[t], operations[s][done[s] - 1].before[t]);
        hazards.prune(done);
      }
    }
  }
}

} // namespace
