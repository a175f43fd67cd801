//===- CudaBackend.cpp - A GPU for each rank ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaRank.h"

#include <mutex>

using namespace zpp;
using namespace zpp::rt;

namespace {
class CudaWorld : public WorldBackend {
public:
  explicit CudaWorld(World &world) : world(world) {}

  Status listen(std::string &endpoint) override {
    std::lock_guard<std::mutex> lock(mutex);
    ZPP_RT_TRY(startServer());
    endpoint = server->getEndpoint();
    return {};
  }

  Status createRank(int64_t rank, int64_t device,
                    std::unique_ptr<RankBackend> &backend) override {
    std::string endpoint;
    ZPP_RT_TRY(findServer(rank, endpoint));
    return CudaRank::create(world, endpoint, rank, device, backend);
  }

private:
  Status startServer() {
    if (server)
      return {};
    // All ranks of a world of one process meet at a port of this host.
    return ControlServer::create(world.rendezvous.empty() ? "127.0.0.1:0"
                                                          : world.rendezvous,
                                 world.mesh.numDevices(), world.timeLimit,
                                 getGreeting(world.mesh), server);
  }
  Status findServer(int64_t rank, std::string &endpoint) {
    std::lock_guard<std::mutex> lock(mutex);
    if (rank == 0 || world.rendezvous.empty())
      ZPP_RT_TRY(startServer());
    endpoint = server ? server->getEndpoint() : world.rendezvous;
    return {};
  }

  World &world;
  std::mutex mutex;
  std::unique_ptr<ControlServer> server;
};
} // namespace

Status rt::createCudaBackend(World &world,
                             std::unique_ptr<WorldBackend> &backend) {
  backend = std::make_unique<CudaWorld>(world);
  return {};
}
