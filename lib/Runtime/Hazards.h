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

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace zpp::rt {

/// Bytes [data, data + bytes) that an operation reads or writes.
struct Access {
  const void *data;
  int64_t bytes;
  bool isWrite;
};

/// Which operations an operation must come after. Operations of a stream are
/// numbered from 1 and executed in this order.
class Hazards {
public:
  explicit Hazards(size_t numStreams)
      : last(numStreams, 0), known(numStreams, Numbers(numStreams, 0)),
        history(numStreams, std::vector<Numbers>(kHistory, known.front())) {}

  /// For each stream the number of an operation, 0 for none.
  using Numbers = std::vector<int64_t>;

  /// Adds an operation at the end of `stream`, and returns the operations of
  /// the other streams that it must wait for. What the stream comes after
  /// anyway is left out, be it that one of these has waited for it.
  Numbers add(size_t stream, const std::vector<Access> &accesses);
  /// Adds accesses to the last operation of `stream`; returns the same of them.
  Numbers extend(size_t stream, const std::vector<Access> &accesses);

  /// The last operations of all streams that touch `accesses`, in conflict
  /// with them.
  Numbers find(const std::vector<Access> &accesses) const;
  /// `numbers` without those that others of them come after.
  Numbers reduce(Numbers numbers) const;

  /// The number of the last operation of `stream`.
  int64_t getLast(size_t stream) const { return last[stream]; }

  /// Everything so far is done. Numbers go on.
  void clear();

  /// Drops what is known to be done, operation `done[s]` of each stream and
  /// all before it.
  void prune(const Numbers &done);

  /// Pieces of memory with operations on them.
  size_t size() const { return segments.size(); }

private:
  /// Operations on the bytes from its key to `end`: the last write, and the
  /// reads after it.
  struct Segment {
    uintptr_t end;
    size_t writeStream;
    /// 0 for none.
    int64_t write;
    Numbers reads;
  };
  using Segments = std::map<uintptr_t, Segment>;

  /// The first segment that ends behind `address`.
  Segments::const_iterator findFrom(uintptr_t address) const;
  /// Cuts the segment around `address`, if any, in two.
  void split(uintptr_t address);
  void record(const Access &access, size_t stream, int64_t number);
  /// What operation `number` of `stream` comes after, or null where that is too
  /// long ago.
  const Numbers *findPast(size_t stream, int64_t number) const;

  /// Operations of a stream whose past is remembered.
  static constexpr int64_t kHistory = 64;

  Numbers last;
  /// known[s][t]: stream s comes after this operation of stream t.
  std::vector<Numbers> known;
  /// history[s][n % kHistory]: `known` of stream s at its operation n.
  std::vector<std::vector<Numbers>> history;
  Segments segments;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_HAZARDS_H
