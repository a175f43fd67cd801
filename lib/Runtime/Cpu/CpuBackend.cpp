//===- CpuBackend.cpp - Ranks as threads of one process -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference: all ranks can read the memory of all.
//
//===----------------------------------------------------------------------===//

#include "CpuRank.h"
#include "CpuRendezvous.h"

#include <cstring>

using namespace zpp;
using namespace zpp::rt;

namespace {
class ThreadRank : public CpuRank {
public:
  ThreadRank(World &world, CpuRendezvous &rendezvous, int64_t rank)
      : CpuRank(world, rank), rendezvous(rendezvous) {}

  Status exchange(const ExchangeOperation &operation, const void *input,
                  void *output) override {
    // Chunk i of the output is what member i holds at `self * stride`.
    int64_t stride = operation.isGather ? 0 : operation.chunkBytes;
    auto copy = [&](const std::vector<const void *> &inputs, int64_t self) {
      if (operation.chunkBytes == 0)
        return;
      auto *dest = static_cast<uint8_t *>(output);
      for (const void *source : inputs) {
        std::memcpy(dest, bytesAt(source, self * stride), operation.chunkBytes);
        dest += operation.chunkBytes;
      }
    };
    return timed(operation,
                 [&] { return rendezvous.meet(rank, operation, input, copy); });
  }

  /// Nothing to do: all ranks are in this process, and the world tells them.
  void fail(const Status &) override {}

private:
  CpuRendezvous &rendezvous;
};

class CpuWorld : public WorldBackend {
public:
  explicit CpuWorld(World &world) : world(world), rendezvous(world) {}

  Status createRank(int64_t rank, int64_t device,
                    std::unique_ptr<RankBackend> &backend) override {
    backend = std::make_unique<ThreadRank>(world, rendezvous, rank);
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
