//===- CpuRank.h - A rank on the host ---------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The local operations of a rank on the host: each is done when its call
// returns, by the functions of Support. Derived classes implement exchanges.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_CPU_CPURANK_H
#define ZPP_LIB_RUNTIME_CPU_CPURANK_H

#include "Backend.h"

#include <cstring>
#include <map>
#include <new>
#include <type_traits>

namespace zpp::rt {

/// `held` may be null, and the output of a dequantization.
void computeOnCpu(LocalOperation operation, const void *input, const void *held,
                  void *output);

class CpuRank : public RankBackend {
public:
  CpuRank(World &world, int64_t rank) : world(world), rank(rank) {}

  Status allocate(int64_t bytes, void *&data) override {
    Memory memory(static_cast<uint8_t *>(
        ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow)));
    if (!memory)
      return {ZPP_RT_OUT_OF_MEMORY,
              "out of memory for " + std::to_string(bytes) + " bytes"};
    data = memory.get();
    allocations.emplace(data, std::move(memory));
    return {};
  }
  Status free(void *data) override {
    return allocations.erase(data) > 0 ? Status() : unknownMemory();
  }
  Status copy(const Operation &operation, const void *input,
              void *output) override {
    auto *dest = static_cast<uint8_t *>(output);
    auto *source = static_cast<const uint8_t *>(input);
    const Pieces &from = operation.footprint.input;
    const Pieces &to = operation.footprint.output;
    timed(operation, [&] {
      for (int64_t row = 0; row < from.count; ++row)
        std::memcpy(dest + row * to.stride, source + row * from.stride,
                    from.bytes);
    });
    return {};
  }

  Status markStream(void *, std::unique_ptr<Mark> &mark) override {
    mark = std::make_unique<Mark>();
    return {};
  }
  Status enter(const Mark &) override { return {}; }
  Status markOperations(const std::vector<zpp_rt_buffer> &,
                        std::unique_ptr<Mark> &mark) override {
    mark = std::make_unique<Mark>();
    return {};
  }
  Status leave(void *, const Mark &) override { return {}; }
  Status copyOnStream(void *, const void *input, void *output,
                      int64_t bytes) override {
    std::memcpy(output, input, bytes);
    return {};
  }

  Status compute(LocalOperation operation, const void *input, const void *held,
                 void *output) override {
    timed(getCommon(operation),
          [&] { computeOnCpu(operation, input, held, output); });
    return {};
  }

  Status synchronize() override { return {}; }

protected:
  /// Calls `function` and records the time that it took.
  template <typename Function>
  std::invoke_result_t<Function> timed(const Operation &operation,
                                       const Function &function) {
    struct Recorder {
      ~Recorder() {
        if (world.trace && world.trace->isRecording())
          world.trace->add(
              {rank, "", operation.name->label, operation.name->kind,
               operation.name->along, operation.footprint.bytesRead(),
               operation.footprint.output.span(), begin, Trace::Clock::now()});
      }
      World &world;
      int64_t rank;
      const Operation &operation;
      Trace::Clock::time_point begin = Trace::Clock::now();
    } recorder{world, rank, operation};
    return function();
  }
  World &world;
  const int64_t rank;

private:
  /// The alignment of a workspace. Other memory needs less.
  static constexpr std::align_val_t kAlignment{256};
  struct Deleter {
    void operator()(uint8_t *data) const {
      ::operator delete(data, kAlignment);
    }
  };
  using Memory = std::unique_ptr<uint8_t, Deleter>;

  std::map<void *, Memory> allocations;
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_CPU_CPURANK_H
