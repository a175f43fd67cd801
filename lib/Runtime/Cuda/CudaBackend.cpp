//===- CudaBackend.cpp - A GPU for each rank ----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Control/Handshake.h"
#include "CudaRank.h"

#include <mutex>

using namespace zpp;
using namespace zpp::rt;

namespace {
/// The place where the ranks of a world meet.
class CudaWorld {
public:
  explicit CudaWorld(World &world) : world(world) {}

  Status listen(std::string &endpoint) {
    std::lock_guard<std::mutex> lock(mutex);
    ZPP_RT_TRY(startServer());
    endpoint = server->getEndpoint();
    return {};
  }

  Status createRank(int64_t rank, int64_t device,
                    std::unique_ptr<RankBackend> &backend) {
    CudaRank::Place place;
    ZPP_RT_TRY(getPlace(rank, place));
    return CudaRank::create(world, place, rank, device, backend);
  }

private:
  Status startServer() {
    if (server)
      return {};
    ControlServer::Options options;
    options.numRanks = world.mesh.numDevices();
    options.timeLimit = world.timeLimit;
    options.greeting = getGreeting(world.mesh);
    options.endpoint = world.rendezvous;
    token = world.token;
    if (world.rendezvous.empty()) {
      // All ranks are in this process: they meet at a port of this host.
      options.endpoint = "127.0.0.1:0";
      ZPP_RT_TRY(makeNonce(token));
    }
    options.token = token;
    return ControlServer::create(std::move(options), server);
  }
  Status getPlace(int64_t rank, CudaRank::Place &place) {
    std::lock_guard<std::mutex> lock(mutex);
    if (rank == 0 || world.rendezvous.empty())
      ZPP_RT_TRY(startServer());
    if (server)
      place = {server->getEndpoint(), token};
    else
      place = {world.rendezvous, world.token};
    return {};
  }

  World &world;
  std::mutex mutex;
  std::string token;
  std::unique_ptr<ControlServer> server;
};
} // namespace

Status rt::createCudaBackend(World &world, WorldBackend &backend) {
  auto shared = std::make_shared<CudaWorld>(world);
  backend.createRank = [shared](int64_t rank, int64_t device, auto &result) {
    return shared->createRank(rank, device, result);
  };
  backend.listen = [shared](std::string &endpoint) {
    return shared->listen(endpoint);
  };
  return {};
}
