//===- Xla.cpp - The C interface for the Python package -------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Runtime/Descriptor.h"
#include "World.h"
#include "zpp/Xla/zpp_xla.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>

using namespace zpp;
using namespace zpp::xla;

struct zpp_xla_world {
  std::shared_ptr<World> world;
};

/// Joins as all ranks of this process at once, because each may wait for the
/// others.
static Status createRanks(const zpp_xla_world_desc &desc, World &world) {
  bool hasStreams = std::strcmp(desc.backend, "cpu") != 0;
  std::vector<std::future<Status>> joinings;
  for (int64_t i = 0; i < desc.num_ranks; ++i) {
    auto [it, isNew] = world.ranks.try_emplace(desc.device_ordinals[i]);
    if (!isNew)
      return rt::invalid(rt::expected(
          "a device for each rank",
          "device " + std::to_string(desc.device_ordinals[i]) + " twice"));
    it->second = hasStreams ? createStreamRank() : createHostRank();
  }
  for (int64_t i = 0; i < desc.num_ranks; ++i)
    joinings.push_back(
        world.ranks.at(desc.device_ordinals[i])
            ->join(world.handle, desc.ranks[i], desc.device_ordinals[i]));
  Status result;
  for (int64_t i = 0; i < desc.num_ranks; ++i)
    if (Status status = joinings[i].get(); !status.ok() && result.ok())
      result = {status.code, "rank " + std::to_string(desc.ranks[i]) + ": " +
                                 status.message};
  return result;
}

/// Starts to listen if rank 0 is in this process, and tells the caller where.
static Status listen(const zpp_xla_world_desc &desc, zpp_rt_world *world) {
  const int64_t *end = desc.ranks + desc.num_ranks;
  if (!desc.on_listening || !desc.rendezvous ||
      std::find(desc.ranks, end, 0) == end)
    return {};
  char endpoint[1024], text[1024] = "";
  if (zpp_rt_status code = zpp_rt_world_listen(
          world, endpoint, sizeof(endpoint), text, sizeof(text));
      code != ZPP_RT_OK)
    return {code, text};
  desc.on_listening(desc.on_listening_context, endpoint);
  return {};
}

static Status createWorld(const zpp_xla_world_desc *given,
                          zpp_xla_world **result) {
  if (!result)
    return rt::invalid(rt::expected("where to write the world", "NULL"));
  *result = nullptr;
  zpp_xla_world_desc desc{};
  ZPP_RT_TRY(rt::readDescriptor(given, desc));
  if (desc.num_ranks > 0 && (!desc.ranks || !desc.device_ordinals))
    return rt::invalid(rt::expected("ranks and device ordinals", "NULL"));

  zpp_rt_world_desc runtime{};
  runtime.struct_size = sizeof(runtime);
  runtime.backend = desc.backend;
  runtime.mesh = desc.mesh;
  runtime.rendezvous = desc.rendezvous;
  runtime.token = desc.token;
  runtime.time_limit_usec = desc.time_limit_usec;
  runtime.trace = desc.trace;
  // A step that waits for one of XLA's own collectives does not reach the next
  // start or wait, which would return the error.
  runtime.on_failure = [](void *, const char *message) {
    std::fprintf(stderr, "zpp: %s\n", message);
  };
  zpp_rt_world *handle = nullptr;
  char text[1024] = "";
  if (zpp_rt_status code =
          zpp_rt_world_create(&runtime, &handle, text, sizeof(text));
      code != ZPP_RT_OK)
    return {code, text};
  auto world = std::make_shared<World>(handle);
  ZPP_RT_TRY(listen(desc, handle));
  ZPP_RT_TRY(createRanks(desc, *world));
  *result = new zpp_xla_world{std::move(world)};
  return {};
}

zpp_rt_status zpp_xla_world_create(const zpp_xla_world_desc *desc,
                                   zpp_xla_world **world, char *message,
                                   size_t messageBytes) {
  return rt::guarded(message, messageBytes,
                     [&] { return createWorld(desc, world); });
}

void zpp_xla_world_destroy(zpp_xla_world *world) {
  if (!world)
    return;
  Registry::get().remove(*world->world);
  delete world;
}

zpp_rt_status zpp_xla_bundle_load(zpp_xla_world *world, const char *id,
                                  const char *libraryPath, char *message,
                                  size_t messageBytes) {
  return rt::guarded(message, messageBytes, [&]() -> Status {
    if (!world || !id || !libraryPath)
      return rt::invalid(rt::expected("a world, an id and a library", "NULL"));
    return Registry::get().load(world->world, id, libraryPath);
  });
}

zpp_rt_status zpp_xla_world_synchronize(zpp_xla_world *world, char *message,
                                        size_t messageBytes) {
  return rt::guarded(message, messageBytes, [&]() -> Status {
    if (!world)
      return rt::invalid(rt::expected("a world", "NULL"));
    Status result;
    for (auto &[ordinal, rank] : world->world->ranks)
      if (Status status = rank->synchronize(); result.ok())
        result = std::move(status);
    return result;
  });
}

zpp_rt_world *zpp_xla_world_get_runtime(zpp_xla_world *world) {
  return world ? world->world->handle : nullptr;
}

double zpp_xla_world_take_stalled(zpp_xla_world *world) {
  std::chrono::steady_clock::duration stalled{};
  if (world)
    for (auto &[ordinal, rank] : world->world->ranks)
      stalled = std::max(stalled, rank->takeStalled());
  return std::chrono::duration<double, std::micro>(stalled).count();
}
