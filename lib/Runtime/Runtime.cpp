//===- Runtime.cpp - Worlds, ranks and memory of the C interface ----------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Descriptor.h"
#include "Handles.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

using namespace zpp;
using namespace zpp::rt;

int32_t zpp_rt_version(void) { return ZPP_RT_VERSION; }

const char *zpp_rt_status_name(zpp_rt_status status) {
  switch (status) {
  case ZPP_RT_OK:
    return "ZPP_RT_OK";
  case ZPP_RT_INVALID_ARGUMENT:
    return "ZPP_RT_INVALID_ARGUMENT";
  case ZPP_RT_UNSUPPORTED:
    return "ZPP_RT_UNSUPPORTED";
  case ZPP_RT_OUT_OF_MEMORY:
    return "ZPP_RT_OUT_OF_MEMORY";
  case ZPP_RT_TIMEOUT:
    return "ZPP_RT_TIMEOUT";
  case ZPP_RT_RANK_LOST:
    return "ZPP_RT_RANK_LOST";
  case ZPP_RT_MISMATCH:
    return "ZPP_RT_MISMATCH";
  case ZPP_RT_ABORTED:
    return "ZPP_RT_ABORTED";
  case ZPP_RT_SYSTEM_ERROR:
    return "ZPP_RT_SYSTEM_ERROR";
  }
  return "unknown status";
}

//===----------------------------------------------------------------------===//
// World
//===----------------------------------------------------------------------===//

static constexpr int64_t kDefaultTimeLimitUsec = 300'000'000;
/// Thirty years. Longer times could overflow the clock.
static constexpr int64_t kMaxTimeLimitUsec = 1'000'000'000'000'000;
/// The limit that zpp_rt.h states.
static constexpr int64_t kMaxRanks = 1 << 20;

/// Reads the exchange functions of the caller, if there are any.
static Status readExchanges(const zpp_rt_world_desc &desc,
                            std::optional<zpp_rt_exchanges> &exchanges) {
  if (!desc.exchanges)
    return {};
  Status status = readDescriptor(desc.exchanges, exchanges.emplace());
  if (!status.ok()) {
    status.message = "exchanges: " + status.message;
    return status;
  }
  if (!exchanges->all_to_all || !exchanges->all_gather)
    return invalid("exchanges: " + expected(exchanges->all_to_all
                                                ? "a function all_gather"
                                                : "a function all_to_all",
                                            "NULL"));
  if (desc.rendezvous)
    return invalid("exchanges: " + expected("no rendezvous beside them",
                                            quote(desc.rendezvous)));
  return {};
}

static Status createWorld(const zpp_rt_world_desc *given,
                          zpp_rt_world **result) {
  if (!result)
    return invalid(expected("where to write the world", "NULL"));
  *result = nullptr;
  zpp_rt_world_desc desc{};
  ZPP_RT_TRY(readDescriptor(given, desc));
  if (!desc.backend || !desc.mesh)
    return invalid(
        expected(desc.backend ? "a mesh" : "the name of a back end", "NULL"));

  const BackendEntry *backend = nullptr;
  ZPP_RT_TRY(findBackend(desc.backend, backend));
  std::string error;
  std::optional<Mesh> mesh = Mesh::parse(desc.mesh, error);
  if (!mesh)
    return invalid("mesh: " + error);
  if (mesh->numDevices() > kMaxRanks)
    return invalid("mesh: " +
                   expected("at most " + std::to_string(kMaxRanks) + " ranks",
                            mesh->numDevices()));
  if (desc.time_limit_usec < 0)
    return invalid(
        expected("a time limit that is not negative", desc.time_limit_usec));
  int64_t timeLimit = desc.time_limit_usec == 0
                          ? kDefaultTimeLimitUsec
                          : std::min(desc.time_limit_usec, kMaxTimeLimitUsec);

  std::optional<zpp_rt_exchanges> exchanges;
  ZPP_RT_TRY(readExchanges(desc, exchanges));
  if (desc.rendezvous && !desc.token)
    return invalid(expected(
        "a token for the rendezvous " + quote(desc.rendezvous), "NULL"));

  std::function<void(const std::string &)> onFailure;
  if (desc.on_failure)
    onFailure = [call = desc.on_failure, context = desc.on_failure_context](
                    const std::string &message) {
      call(context, message.c_str());
    };
  auto state = std::make_shared<WorldState>(WorldFacts{
      std::move(*mesh), std::chrono::microseconds(timeLimit), desc.trace != 0,
      desc.rendezvous ? desc.rendezvous : "", desc.token ? desc.token : "",
      std::move(onFailure), exchanges});
  auto create = exchanges ? backend->createExternal : backend->create;
  ZPP_RT_TRY(create(state->world, state->backend));
  *result = new zpp_rt_world{std::move(state)};
  return {};
}

zpp_rt_status zpp_rt_world_create(const zpp_rt_world_desc *desc,
                                  zpp_rt_world **world, char *message,
                                  size_t messageBytes) {
  return guarded(message, messageBytes,
                 [&] { return createWorld(desc, world); });
}

void zpp_rt_world_destroy(zpp_rt_world *world) { delete world; }

zpp_rt_status zpp_rt_world_size(const zpp_rt_world *world, int64_t *size) {
  if (size)
    *size = 0;
  if (!world || !size)
    return ZPP_RT_INVALID_ARGUMENT;
  *size = world->state->world.members.size();
  return ZPP_RT_OK;
}

zpp_rt_status zpp_rt_world_listen(zpp_rt_world *world, char *endpoint,
                                  size_t endpointBytes, char *message,
                                  size_t messageBytes) {
  auto listen = [&]() -> Status {
    if (!world || !endpoint)
      return invalid(
          expected(world ? "where to write the endpoint" : "a world", "NULL"));
    if (world->state->world.rendezvous.empty())
      return invalid("expected a world with a rendezvous, but got one without");
    std::string found;
    ZPP_RT_TRY(world->state->backend.listen(found));
    if (found.size() >= endpointBytes)
      return invalid(expected("room for the " +
                                  std::to_string(found.size() + 1) +
                                  " bytes of an endpoint",
                              static_cast<int64_t>(endpointBytes)));
    std::memcpy(endpoint, found.c_str(), found.size() + 1);
    return {};
  };
  return guarded(message, messageBytes, listen);
}

zpp_rt_status zpp_rt_world_record(zpp_rt_world *world, int64_t on,
                                  char *message, size_t messageBytes) {
  auto record = [&]() -> Status {
    if (!world)
      return invalid(expected("a world", "NULL"));
    World &state = world->state->world;
    if (!state.trace)
      return invalid("expected a world with a trace, but got one without");
    state.trace->record(on != 0);
    return {};
  };
  return guarded(message, messageBytes, record);
}

zpp_rt_status zpp_rt_world_write_trace(zpp_rt_world *world, const char *path,
                                       char *message, size_t messageBytes) {
  auto write = [&]() -> Status {
    if (!world || !path)
      return invalid(expected(world ? "a path" : "a world", "NULL"));
    World &state = world->state->world;
    if (!state.trace)
      return invalid("expected a world with a trace, but got one without");
    return state.trace->write(state.mesh, path);
  };
  return guarded(message, messageBytes, write);
}

zpp_rt_status zpp_rt_world_measure(zpp_rt_world *world, int64_t on,
                                   char *message, size_t messageBytes) {
  auto measure = [&]() -> Status {
    if (!world)
      return invalid(expected("a world", "NULL"));
    world->state->world.measures.measure(on != 0);
    return {};
  };
  return guarded(message, messageBytes, measure);
}

zpp_rt_status zpp_rt_world_visit_measures(zpp_rt_world *world,
                                          zpp_rt_measure_function visit,
                                          void *context, char *message,
                                          size_t messageBytes) {
  auto visitAll = [&]() -> Status {
    if (!world || !visit)
      return invalid(expected(world ? "a function" : "a world", "NULL"));
    for (const auto &[key, measure] : world->state->world.measures.get()) {
      zpp_rt_measure found{};
      found.struct_size = sizeof(found);
      found.name = key.first.c_str();
      found.format = static_cast<int64_t>(key.second);
      found.samples = measure.samples;
      found.elements = measure.elements;
      found.squared_error = measure.squaredError;
      found.squared = measure.squared;
      found.not_finite = measure.notFinite;
      found.left_out = measure.leftOut;
      visit(context, &found);
    }
    return {};
  };
  return guarded(message, messageBytes, visitAll);
}

//===----------------------------------------------------------------------===//
// Rank
//===----------------------------------------------------------------------===//

static Status createRank(zpp_rt_world *world, const zpp_rt_rank_desc *given,
                         zpp_rt_rank **result) {
  if (!result)
    return invalid(expected("where to write the rank", "NULL"));
  *result = nullptr;
  if (!world)
    return invalid(expected("a world", "NULL"));
  zpp_rt_rank_desc desc{};
  ZPP_RT_TRY(readDescriptor(given, desc));
  auto rank = std::make_unique<zpp_rt_rank>();
  rank->state = world->state;
  rank->index = desc.index;
  World &state = rank->state->world;
  ZPP_RT_TRY(state.join(desc.index));
  Status status = guarded([&] {
    return rank->state->backend.createRank(desc.index, desc.device,
                                           rank->backend);
  });
  if (!status.ok()) {
    state.fail(desc.index, status);
    state.leave(desc.index);
    return status;
  }
  *result = rank.release();
  return {};
}

zpp_rt_status zpp_rt_rank_create(zpp_rt_world *world,
                                 const zpp_rt_rank_desc *desc,
                                 zpp_rt_rank **rank, char *message,
                                 size_t messageBytes) {
  return guarded(message, messageBytes,
                 [&] { return createRank(world, desc, rank); });
}

void zpp_rt_rank_destroy(zpp_rt_rank *rank) {
  if (!rank)
    return;
  rank->backend.reset();
  rank->state->world.leave(rank->index);
  delete rank;
}

zpp_rt_status zpp_rt_rank_abort(zpp_rt_rank *rank, const char *reason) {
  if (!rank)
    return ZPP_RT_INVALID_ARGUMENT;
  return rank->settle(guarded([&]() -> Status {
    return {ZPP_RT_ABORTED,
            std::string("aborted: ") + (reason ? reason : "no reason given")};
  }));
}

zpp_rt_status zpp_rt_rank_synchronize(zpp_rt_rank *rank) {
  if (!rank)
    return ZPP_RT_INVALID_ARGUMENT;
  return rank->settle(guarded([&]() -> Status {
    ZPP_RT_TRY(rank->backend->synchronize());
    return rank->sampler.collect(rank->state->world.measures, *rank->backend);
  }));
}

const char *zpp_rt_rank_message(zpp_rt_rank *rank) {
  return rank ? rank->getMessage() : "expected a rank, but got NULL";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

zpp_rt_status zpp_rt_alloc(zpp_rt_rank *rank, int64_t bytes, void **data) {
  if (data)
    *data = nullptr;
  return call(rank, "alloc", [&]() -> Status {
    if (!data)
      return invalid(expected("where to write the memory", "NULL"));
    if (bytes < 0)
      return invalid(expected("a number of bytes", bytes));
    return rank->backend->allocate(bytes, *data);
  });
}

zpp_rt_status zpp_rt_free(zpp_rt_rank *rank, void *data) {
  if (!rank)
    return ZPP_RT_INVALID_ARGUMENT;
  return rank->settle(guarded([&]() -> Status {
    if (!data)
      return {};
    Status status = rank->backend->free(data);
    if (!status.ok())
      status.message = "free: " + status.message;
    return status;
  }));
}

zpp_rt_status zpp_rt_workspace(zpp_rt_rank *rank, int64_t bytes, void **data) {
  if (data)
    *data = nullptr;
  return call(rank, "workspace", [&]() -> Status {
    if (!data)
      return invalid(expected("where to write the memory", "NULL"));
    if (bytes < 0)
      return invalid(expected("a number of bytes", bytes));
    if (bytes > rank->workspaceBytes) {
      rank->workspaceBytes = 0;
      if (void *old = std::exchange(rank->workspace, nullptr))
        ZPP_RT_TRY(rank->backend->free(old));
      ZPP_RT_TRY(rank->backend->allocate(bytes, rank->workspace));
      rank->workspaceBytes = bytes;
    }
    *data = rank->workspace;
    return {};
  });
}
