//===- FakeXla.h - Calls of FFI handlers without XLA ------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_XLA_FAKEXLA_H
#define ZPP_UNITTESTS_XLA_FAKEXLA_H

#include "zpp/Xla/zpp_xla.h"

#include "xla/ffi/api/c_api.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace zpp {

/// The ranks of a mesh of 2 nodes of 4.
inline constexpr int kRanks = 8;

/// A world with all ranks in this process, rank r on device `ordinals`[r], and
/// the bundle "test" loaded, whose functions are those of
/// test/python/Inputs/collectives.c.
class TestWorld {
public:
  TestWorld(const char *backend, const std::vector<int64_t> &ordinals,
            bool isTraced = false);
  ~TestWorld() { destroy(); }
  TestWorld(const TestWorld &) = delete;
  TestWorld &operator=(const TestWorld &) = delete;
  void destroy();

  zpp_xla_world *world = nullptr;
};

/// Runs `program` on all ranks, a thread each, as XLA does.
void runAllRanks(const std::function<void(int rank)> &program);

/// Operands and results as XLA passes them: dense, of one dim.
struct FakeBuffer {
  void *data;
  int64_t elements;
  XLA_FFI_DataType type = XLA_FFI_DataType_F32;
};

/// One call of zpp.start or zpp.wait.
struct FakeCall {
  int32_t device;
  void *stream;
  std::string bundle;
  std::string function;
  int64_t inputs;
  int64_t outputs;
  int64_t workspace;
  std::vector<FakeBuffer> operands;
  std::vector<FakeBuffer> results;
  /// Whether a start is deferrable; only for starts.
  std::optional<bool> isDeferrable;
  /// Pairs of an input and an output that overwrites it; only for starts.
  std::vector<int64_t> inPlace = {};

  /// Calls `handler`, waits for its future if it returns one, and returns its
  /// error, empty if there is none.
  std::string run(XLA_FFI_Error *(*handler)(XLA_FFI_CallFrame *)) const;
};

} // namespace zpp

#endif // ZPP_UNITTESTS_XLA_FAKEXLA_H
