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
  CpuRank(CpuRendezvous &rendezvous, int64_t rank)
      : rendezvous(rendezvous), rank(rank) {}

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
  void free(void *data) override { allocations.erase(data); }
  Status copy(void *dest, const void *source, int64_t bytes) override {
    std::memcpy(dest, source, bytes);
    return {};
  }

  Status packSlices(const PackOperation &operation, const void *input,
                    void *output) override {
    packSlicesOnCpu(operation, input, output);
    return {};
  }
  Status unpackSlices(const PackOperation &operation, const void *input,
                      void *output) override {
    unpackSlicesOnCpu(operation, input, output);
    return {};
  }
  Status quantize(const QuantizeOperation &operation, const void *input,
                  void *output) override {
    quantizeOnCpu(operation, input, output);
    return {};
  }
  Status dequantize(const QuantizeOperation &operation, const void *input,
                    void *output) override {
    dequantizeOnCpu(operation, input, output);
    return {};
  }
  Status reduce(const ReduceOperation &operation, const void *input,
                void *output) override {
    reduceOnCpu(operation, input, output);
    return {};
  }
  Status reduceQuantize(const ReduceQuantizeOperation &operation,
                        const void *input, void *output) override {
    reduceQuantizeOnCpu(operation, input, output);
    return {};
  }

  Status allToAll(const ExchangeOperation &operation, const void *input,
                  void *output) override {
    return exchange(operation, input, output, operation.chunkBytes);
  }
  Status allGatherChunks(const ExchangeOperation &operation, const void *input,
                         void *output) override {
    return exchange(operation, input, output, 0);
  }

  Status synchronize() override { return {}; }

private:
  /// Chunk i of the output is what member i holds at `self * stride`.
  Status exchange(const ExchangeOperation &operation, const void *input,
                  void *output, int64_t stride) {
    return rendezvous.meet(
        rank, operation, input,
        [&](const std::vector<const void *> &inputs, int64_t self) {
          if (operation.chunkBytes == 0)
            return;
          auto *dest = static_cast<uint8_t *>(output);
          for (const void *source : inputs) {
            std::memcpy(dest,
                        static_cast<const uint8_t *>(source) + self * stride,
                        operation.chunkBytes);
            dest += operation.chunkBytes;
          }
        });
  }

  static constexpr std::align_val_t kAlignment{64};
  struct Deleter {
    void operator()(uint8_t *data) const {
      ::operator delete(data, kAlignment);
    }
  };
  using Memory = std::unique_ptr<uint8_t, Deleter>;

  CpuRendezvous &rendezvous;
  const int64_t rank;
  std::map<void *, Memory> allocations;
};

class CpuWorld : public WorldBackend {
public:
  explicit CpuWorld(World &world) : rendezvous(world) {}

  Status createRank(int64_t rank,
                    std::unique_ptr<RankBackend> &backend) override {
    backend = std::make_unique<CpuRank>(rendezvous, rank);
    return {};
  }

private:
  CpuRendezvous rendezvous;
};
} // namespace

std::unique_ptr<WorldBackend> rt::createCpuBackend(World &world) {
  return std::make_unique<CpuWorld>(world);
}
