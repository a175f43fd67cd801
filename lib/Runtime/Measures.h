//===- Measures.h - What quantization costs in accuracy ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_MEASURES_H
#define ZPP_LIB_RUNTIME_MEASURES_H

#include "zpp/Support/BlockQuant.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace zpp::rt {

/// The samples of operations of one name, added up.
struct Measure {
  int64_t samples = 0;
  int64_t elements = 0;
  /// The sums of the squares of the rounding errors, and of the values.
  double squaredError = 0;
  double squared = 0;
  /// Values that were finite before the format.
  int64_t notFinite = 0;
  /// Samples for which there was no room.
  int64_t leftOut = 0;

  void add(const Measure &other) {
    samples += other.samples;
    elements += other.elements;
    squaredError += other.squaredError;
    squared += other.squared;
    notFinite += other.notFinite;
    leftOut += other.leftOut;
  }
};

/// The measures of all ranks of this process.
class Measures {
public:
  /// The label of the operation and the format to which it quantizes.
  using Key = std::pair<std::string, WireFormat>;

  /// Whether operations that are called now should be sampled.
  bool isOn() const { return on; }
  /// Stops, or starts and forgets what was measured before.
  void measure(bool start) {
    std::lock_guard<std::mutex> lock(mutex);
    on = start;
    if (!start)
      return;
    found.clear();
    ++numStarts;
  }
  /// How many times measuring has started.
  int64_t getNumStarts() const { return numStarts; }

  /// Adds what was sampled after the start of this number, if it is the last.
  void add(int64_t start, const Key &key, const Measure &measure) {
    std::lock_guard<std::mutex> lock(mutex);
    if (start == numStarts)
      found[key].add(measure);
  }
  std::map<Key, Measure> get() {
    std::lock_guard<std::mutex> lock(mutex);
    return found;
  }

private:
  std::atomic<bool> on{false};
  std::atomic<int64_t> numStarts{0};
  std::mutex mutex;
  std::map<Key, Measure> found;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_MEASURES_H
