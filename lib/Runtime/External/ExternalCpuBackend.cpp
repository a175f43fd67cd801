//===- ExternalCpuBackend.cpp - Host memory, exchanges of the caller ------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cpu/CpuRank.h"
#include "ExternalExchanges.h"

#include <cstring>

using namespace zpp;
using namespace zpp::rt;

namespace {
class ExternalCpuRank : public CpuRank {
public:
  ExternalCpuRank(World &world, int64_t rank)
      : CpuRank(world, rank), exchanges(world, rank) {}

  Status exchange(const ExchangeOperation &operation, const void *input,
                  void *output) override {
    return timed(operation, [&]() -> Status {
      if (!exchanges.isCopy(operation))
        return exchanges.run(operation, /*stream=*/nullptr, input, output);
      if (operation.chunkBytes > 0)
        std::memcpy(output, input, operation.chunkBytes);
      return {};
    });
  }

  /// Other processes learn it from the caller's functions.
  void fail(const Status &) override {}

private:
  ExternalExchanges exchanges;
};

class ExternalCpuWorld : public WorldBackend {
public:
  explicit ExternalCpuWorld(World &world) : world(world) {}

  Status createRank(int64_t rank, int64_t device,
                    std::unique_ptr<RankBackend> &backend) override {
    backend = std::make_unique<ExternalCpuRank>(world, rank);
    return {};
  }

private:
  World &world;
};
} // namespace

Status rt::createExternalCpuBackend(World &world,
                                    std::unique_ptr<WorldBackend> &backend) {
  backend = std::make_unique<ExternalCpuWorld>(world);
  return {};
}
