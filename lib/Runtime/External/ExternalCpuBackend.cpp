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

private:
  ExternalExchanges exchanges;
};
} // namespace

Status rt::createExternalCpuBackend(World &world, WorldBackend &backend) {
  backend.createRank = [&world](int64_t rank, int64_t, auto &result) {
    result = std::make_unique<ExternalCpuRank>(world, rank);
    return Status();
  };
  return {};
}
