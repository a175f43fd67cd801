//===- CudaBackend.cpp - A GPU for each rank ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaRank.h"

using namespace zpp;
using namespace zpp::rt;

namespace {
class CudaWorld : public WorldBackend {
public:
  explicit CudaWorld(World &world) : world(world) {}

  /// All ranks of a world of one process meet at a port of this host.
  Status createServer(const std::string &endpoint) {
    return ControlServer::create(endpoint, world.mesh.numDevices(),
                                 world.timeLimit, getGreeting(world.mesh),
                                 server);
  }

  Status createRank(int64_t rank, int64_t device,
                    std::unique_ptr<RankBackend> &backend) override {
    if (!world.rendezvous.empty() && rank == 0)
      ZPP_RT_TRY(createServer(world.rendezvous));
    return CudaRank::create(world,
                            world.rendezvous.empty() ? server->getEndpoint()
                                                     : world.rendezvous,
                            rank, device, backend);
  }

private:
  World &world;
  std::unique_ptr<ControlServer> server;
};
} // namespace

Status rt::createCudaBackend(World &world,
                             std::unique_ptr<WorldBackend> &backend) {
  auto self = std::make_unique<CudaWorld>(world);
  if (world.rendezvous.empty())
    ZPP_RT_TRY(self->createServer("127.0.0.1:0"));
  backend = std::move(self);
  return {};
}
