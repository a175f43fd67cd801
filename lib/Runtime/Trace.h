//===- Trace.h - When operations ran ----------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_TRACE_H
#define ZPP_LIB_RUNTIME_TRACE_H

#include "Status.h"
#include "zpp/Support/Mesh.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace zpp::rt {

/// The operations of all ranks, for chrome://tracing and Perfetto.
class Trace {
public:
  using Clock = std::chrono::steady_clock;

  struct Slice {
    int64_t rank;
    /// The stream of the rank; "" if there is only one.
    std::string stream;
    /// The label of the operation, and the name of its entry point.
    std::string name;
    const char *entrypoint;
    /// The axes of an exchange.
    std::string along;
    int64_t inputBytes;
    int64_t outputBytes;
    Clock::time_point begin = {};
    Clock::time_point end = {};
  };

  /// Whether operations that begin now should be added.
  bool isRecording() const { return recording; }
  /// Stops recording, or starts it and forgets what was recorded before.
  void record(bool on);
  /// How many times recording has started.
  int64_t getRecording() const { return numRecordings; }

  void add(Slice slice);
  Status write(const Mesh &mesh, const std::string &path);

private:
  std::atomic<bool> recording{true};
  std::atomic<int64_t> numRecordings{1};
  std::mutex mutex;
  std::vector<Slice> slices;
  /// When recording started. Times count from here; earlier operations are left
  /// out.
  Clock::time_point since = Clock::now();
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_TRACE_H
