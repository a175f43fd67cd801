//===- CpuBackend.cpp - Ranks as threads of one process -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference: every operation is done when its call returns, by the
// functions of Support, on memory that all ranks can read.
//
//===----------------------------------------------------------------------===//

#include "Backend.h"
#include "CpuKernels.h"
#include "CpuRendezvous.h"

#include <cstring>
#include <map>
#include <new>

using namespace zpp;
using namespace zpp::rt;

namespace {
class CpuRank : public RankBackend {
public:
  CpuRank(World &world, CpuRendezvous &rendezvous, int64_t rank)
      : world(world), rendezvous(rendezvous), rank(rank) {}

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
  Status getWorkspace(int64_t bytes, void *&data) override {
    if (bytes > workspaceBytes) {
      allocations.erase(workspace);
      workspace = nullptr;
      workspaceBytes = 0;
      if (Status status = allocate(bytes, workspace); !status.ok())
        return status;
      workspaceBytes = bytes;
    }
    data = workspace;
    return {};
  }
  Status copy(const Operation &operation, const void *input,
              void *output) override {
    auto *dest = static_cast<uint8_t *>(output);
    auto *source = static_cast<const uint8_t *>(input);
    auto [from, to] = operation.footprint;
    return run(operation, [&, from = from, to = to] {
      for (int64_t row = 0; row < from.count; ++row)
        std::memcpy(dest + row * to.stride, source + row * from.stride,
                    from.bytes);
    });
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

  Status packSlices(const PackOperation &operation, const void *input,
                    void *output) override {
    return run(operation, [&] { packSlicesOnCpu(operation, input, output); });
  }
  Status unpackSlices(const PackOperation &operation, const void *input,
                      void *output) override {
    return run(operation, [&] { unpackSlicesOnCpu(operation, input, output); });
  }
  Status quantize(const QuantizeOperation &operation, const void *input,
                  void *output) override {
    return run(operation, [&] { quantizeOnCpu(operation, input, output); });
  }
  Status dequantize(const QuantizeOperation &operation, const void *input,
                    void *output) override {
    return run(operation, [&] { dequantizeOnCpu(operation, input, output); });
  }
  Status reduce(const ReduceOperation &operation, const void *input,
                void *output) override {
    return run(operation, [&] { reduceOnCpu(operation, input, output); });
  }
  Status reduceQuantize(const ReduceQuantizeOperation &operation,
                        const void *input, void *output) override {
    return run(operation,
               [&] { reduceQuantizeOnCpu(operation, input, output); });
  }

  Status allToAll(const ExchangeOperation &operation, const void *input,
                  void *output) override {
    return exchange(operation, input, output, operation.chunkBytes);
  }
  Status allGatherChunks(const ExchangeOperation &operation, const void *input,
                         void *output) override {
    return exchange(operation, input, output, 0);
  }
  Status plainReduceScatter(const PlainOperation &operation, const void *input,
                            void *output) override {
    return meet(operation, input,
                [&](const std::vector<const void *> &inputs, int64_t self) {
                  int64_t bytes = operation.chunkBytes;
                  addOnCpu(operation.type, inputs, self * bytes,
                           bytes / elementBytes(operation.type), output);
                });
  }
  Status plainAllGather(const PlainOperation &operation, const void *input,
                        void *output) override {
    return exchange(operation, input, output, 0);
  }

  Status synchronize() override { return {}; }
  /// Nothing to do: all ranks are in this process, and the world tells them.
  void fail(const Status &) override {}

private:
  /// Calls `function` and records the time that it took.
  template <typename Function>
  auto timed(const Operation &operation, const Function &function) {
    struct Recorder {
      ~Recorder() {
        if (world.trace && world.trace->isRecording())
          world.trace->add(
              {rank, "", operation.name->label, operation.name->kind,
               operation.footprint.input.span(),
               operation.footprint.output.span(), begin, Trace::Clock::now()});
      }
      World &world;
      int64_t rank;
      const Operation &operation;
      Trace::Clock::time_point begin = Trace::Clock::now();
    } recorder{world, rank, operation};
    return function();
  }
  template <typename Function>
  Status run(const Operation &operation, const Function &function) {
    timed(operation, function);
    return {};
  }
  Status meet(const ExchangeOperation &operation, const void *input,
              const CpuRendezvous::Copy &copy) {
    return timed(operation,
                 [&] { return rendezvous.meet(rank, operation, input, copy); });
  }

  /// Chunk i of the output is what member i holds at `self * stride`.
  Status exchange(const ExchangeOperation &operation, const void *input,
                  void *output, int64_t stride) {
    return meet(operation, input,
                [&](const std::vector<const void *> &inputs, int64_t self) {
                  if (operation.chunkBytes == 0)
                    return;
                  auto *dest = static_cast<uint8_t *>(output);
                  for (const void *source : inputs) {
                    std::memcpy(dest,
                                static_cast<const uint8_t *>(source) +
                                    self * stride,
                                operation.chunkBytes);
                    dest += operation.chunkBytes;
                  }
                });
  }

  /// The alignment of a workspace. Other memory needs less.
  static constexpr std::align_val_t kAlignment{256};
  struct Deleter {
    void operator()(uint8_t *data) const {
      ::operator delete(data, kAlignment);
    }
  };
  using Memory = std::unique_ptr<uint8_t, Deleter>;

  World &world;
  CpuRendezvous &rendezvous;
  const int64_t rank;
  std::map<void *, Memory> allocations;
  void *workspace = nullptr;
  int64_t workspaceBytes = 0;
};

class CpuWorld : public WorldBackend {
public:
  explicit CpuWorld(World &world) : world(world), rendezvous(world) {}

  Status createRank(int64_t rank, int64_t device,
                    std::unique_ptr<RankBackend> &backend) override {
    backend = std::make_unique<CpuRank>(world, rendezvous, rank);
    return {};
  }

private:
  World &world;
  CpuRendezvous rendezvous;
};
} // namespace

Status rt::createCpuBackend(World &world,
                            std::unique_ptr<WorldBackend> &backend) {
  if (!world.rendezvous.empty())
    return {ZPP_RT_UNSUPPORTED,
            expected("all ranks in one process on 'cpu'",
                     "the rendezvous " + quote(world.rendezvous))};
  backend = std::make_unique<CpuWorld>(world);
  return {};
}
