//===- Hazards.h - Order of operations on several streams -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program calls its operations one after the other; a device executes them on
// several streams. What must stay in order follows from the bytes that they
// read and write: a write comes after the reads and writes before it, a read
// after the writes. All else may overlap, so that stages of a collective
// pipeline themselves.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_HAZARDS_H
#define ZPP_LIB_RUNTIME_HAZARDS_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace zpp::rt {

/// Bytes [data, data + bytes) that an operation reads or writes.
struct Access {
  const void *data;
  int64_t bytes;
  bool isWrite;
};

using Accesses = std::vector<Access>;

/// Finds which operations an operation must come after. The operations of a
/// stream are numbered from 1 and executed in this order.
class Hazards {
public:
  static constexpr size_t kMaxStreams = 8;
  explicit Hazards(size_t numStreams);

  /// The number of an operation for each stream; 0 for none, or if there is no
  /// such stream.
  using Numbers = std::array<int64_t, kMaxStreams>;

  /// The operations that accesses conflict with.
  struct Conflicts {
    /// The last operations of all streams that touch the same memory.
    Numbers operations{};
    /// The last operations that have written what is read.
    Numbers producers{};
  };
  Conflicts find(const Accesses &accesses) const;

  /// Adds an operation at the end of `stream`, whose conflicts find() has
  /// returned, and returns the operations of the other streams that it must
  /// wait for. Operations that the stream comes after anyway are left out, and
  /// so are those that one of the returned operations has waited for.
  Numbers add(size_t stream, const Accesses &accesses,
              const Conflicts &conflicts);
  /// Adds accesses to the last operation of `stream`, and returns what add()
  /// would return for them.
  Numbers extend(size_t stream, const Accesses &accesses,
                 const Conflicts &conflicts);

  /// `numbers` without those that others of them come after.
  Numbers reduce(Numbers numbers) const;

  /// Returns the number of the last operation of `stream`.
  int64_t getLast(size_t stream) const { return last[stream]; }

  /// Forgets all operations so far, which are done. Numbering continues.
  void clear();

  /// Forgets operations that are known to be done: `done[s]` of each stream s,
  /// and all before it.
  void prune(const Numbers &done);

  /// The number of memory segments that operations have accessed.
  size_t size() const { return begins.size(); }

private:
  /// Operations on the bytes up to `end`: the last write, and the reads after
  /// it.
  struct Segment {
    uintptr_t end;
    size_t writeStream;
    /// 0 for none.
    int64_t write;
    Numbers reads;
  };

  // Segments in the order of their addresses. Every operation searches them,
  // when other work has emptied the caches. So the search touches few bytes.
  const Segment &get(size_t index) const { return segments[slots[index]]; }
  Segment &get(size_t index) { return segments[slots[index]]; }
  void insert(size_t index, uintptr_t begin, const Segment &segment);
  void erase(size_t first, size_t last);
  /// Returns the first segment that ends after `address`.
  size_t findFrom(uintptr_t address) const;
  /// Cuts a segment in two at `address`, which lies in it.
  void split(size_t index, uintptr_t address);

  void record(const Access &access, size_t stream, int64_t number);
  /// Returns the operations that operation `number` of `stream` comes after;
  /// null if it is too old to be remembered.
  const Numbers *findPast(size_t stream, int64_t number) const;

  /// How many operations of each stream are remembered with what they come
  /// after.
  static constexpr int64_t kHistory = 64;

  const size_t numStreams;
  Numbers last{};
  /// known[s][t]: stream s comes after this operation of stream t.
  std::vector<Numbers> known;
  /// history[s][n % kHistory]: `known` of stream s at its operation n.
  std::vector<std::array<Numbers, kHistory>> history;
  std::vector<uintptr_t> begins;
  std::vector<uint32_t> slots;
  std::vector<Segment> segments;
  /// Unused places in `segments`.
  std::vector<uint32_t> freeSlots;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_HAZARDS_H
