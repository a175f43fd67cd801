//===- Runtime.cpp - The C interface --------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Backend.h"
#include "Descriptor.h"
#include "FirstFailure.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string_view>
#include <unordered_map>

using namespace zpp;
using namespace zpp::rt;

//===----------------------------------------------------------------------===//
// Handles
//===----------------------------------------------------------------------===//

namespace {
/// The state of a world, which ranks keep alive.
struct WorldState {
  WorldState(Mesh mesh, std::chrono::microseconds timeLimit, bool isTraced,
             std::string rendezvous, std::string token,
             World::OnFailure onFailure,
             std::optional<zpp_rt_exchanges> exchanges)
      : world(std::move(mesh), timeLimit, isTraced, std::move(rendezvous),
              std::move(token), std::move(onFailure), exchanges) {}
  World world;
  std::unique_ptr<WorldBackend> backend;
};
} // namespace

struct zpp_rt_world {
  std::shared_ptr<WorldState> state;
};

struct zpp_rt_rank {
  std::shared_ptr<WorldState> state;
  int64_t index;
  std::unique_ptr<RankBackend> backend;

  /// Records a failure, which fails the world, unless the rank had failed
  /// before. Returns the rank's status.
  zpp_rt_status settle(const Status &result) {
    if (!result.ok() && failure.set(result)) {
      state->world.fail(index, result);
      backend->fail(result);
    }
    return failure.get().code;
  }
  /// The message of the status. Valid as long as the rank.
  const char *getMessage() const { return failure.get().message.c_str(); }

  /// Reads a descriptor with `parse(desc, operation)`, or finds the operation
  /// of an equal descriptor: programs repeat theirs. The operation lives until
  /// the next call.
  template <typename OperationT, typename Desc, typename Parse>
  Status read(const char *entrypoint, const Desc &desc, const Parse &parse,
              const OperationT *&operation);

private:
  FirstFailure<> failure;

  /// Programs have fewer different operations, unless they generate
  /// descriptors.
  static constexpr size_t kMaxOperations = 4096;
  /// Operations by their keys, which include the entry point and so the type.
  std::unordered_map<std::string, std::shared_ptr<const Operation>> operations;
  std::string key;
  /// The last operation that was read, which may not be in `operations`.
  std::shared_ptr<const Operation> current;
};

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

/// Calls `function`, which returns a Status; no exception gets out.
template <typename Function>
static Status guarded(const Function &function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc &) {
    return {ZPP_RT_OUT_OF_MEMORY, "out of memory"};
  } catch (const std::exception &error) {
    return {ZPP_RT_SYSTEM_ERROR, error.what()};
  }
}

/// Copies the message to the caller, for functions without a rank that keeps
/// it.
static zpp_rt_status report(const Status &status, char *message,
                            size_t messageBytes) {
  if (message && messageBytes > 0)
    std::snprintf(message, messageBytes, "%s", status.message.c_str());
  return status.code;
}

template <>
constexpr size_t zpp::rt::kFirstSize<zpp_rt_world_desc> =
    offsetof(zpp_rt_world_desc, on_failure);
template <>
constexpr size_t zpp::rt::kFirstSize<zpp_rt_quantize_desc> =
    offsetof(zpp_rt_quantize_desc, rotate);
template <>
constexpr size_t zpp::rt::kFirstSize<zpp_rt_reduce_desc> =
    offsetof(zpp_rt_reduce_desc, rotate);
template <>
constexpr size_t zpp::rt::kFirstSize<zpp_rt_exchange_desc> =
    offsetof(zpp_rt_exchange_desc, mesh);

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

namespace {
struct BackendEntry {
  using Create = Status (*)(World &world,
                            std::unique_ptr<WorldBackend> &backend);
  const char *name;
  Create create;
  /// Creates the back end that uses the exchanges of the caller.
  Create createExternal;
};
} // namespace

static constexpr BackendEntry kBackends[] = {
    {"cpu", createCpuBackend, createExternalCpuBackend},
#ifdef ZPP_RT_HAS_CUDA
    {"cuda", createCudaBackend, createExternalCudaBackend},
#endif
};

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
  if (Status status = readDescriptor(given, desc); !status.ok())
    return status;
  if (!desc.backend || !desc.mesh)
    return invalid(
        expected(desc.backend ? "a mesh" : "the name of a back end", "NULL"));

  const BackendEntry *backend =
      std::find_if(std::begin(kBackends), std::end(kBackends),
                   [&](const BackendEntry &entry) {
                     return std::strcmp(entry.name, desc.backend) == 0;
                   });
  if (backend == std::end(kBackends)) {
    std::string names;
    for (const BackendEntry &entry : kBackends)
      names += (names.empty() ? "" : ", ") + quote(entry.name);
    return {ZPP_RT_UNSUPPORTED,
            expected("one of the back ends " + names, quote(desc.backend))};
  }
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
  if (Status status = readExchanges(desc, exchanges); !status.ok())
    return status;
  if (desc.rendezvous && !desc.token)
    return invalid(expected(
        "a token for the rendezvous " + quote(desc.rendezvous), "NULL"));

  World::OnFailure onFailure;
  if (desc.on_failure)
    onFailure = [call = desc.on_failure, context = desc.on_failure_context](
                    const std::string &message) {
      call(context, message.c_str());
    };
  auto state = std::make_shared<WorldState>(
      std::move(*mesh), std::chrono::microseconds(timeLimit), desc.trace != 0,
      desc.rendezvous ? desc.rendezvous : "", desc.token ? desc.token : "",
      std::move(onFailure), exchanges);
  auto create = exchanges ? backend->createExternal : backend->create;
  if (Status status = create(state->world, state->backend); !status.ok())
    return status;
  *result = new zpp_rt_world{std::move(state)};
  return {};
}

zpp_rt_status zpp_rt_world_create(const zpp_rt_world_desc *desc,
                                  zpp_rt_world **world, char *message,
                                  size_t messageBytes) {
  return report(guarded([&] { return createWorld(desc, world); }), message,
                messageBytes);
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
    if (Status status = world->state->backend->listen(found); !status.ok())
      return status;
    if (found.size() >= endpointBytes)
      return invalid(expected("room for the " +
                                  std::to_string(found.size() + 1) +
                                  " bytes of an endpoint",
                              static_cast<int64_t>(endpointBytes)));
    std::memcpy(endpoint, found.c_str(), found.size() + 1);
    return {};
  };
  return report(guarded(listen), message, messageBytes);
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
  return report(guarded(record), message, messageBytes);
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
  return report(guarded(write), message, messageBytes);
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
  if (Status status = readDescriptor(given, desc); !status.ok())
    return status;
  auto rank = std::make_unique<zpp_rt_rank>();
  rank->state = world->state;
  rank->index = desc.index;
  World &state = rank->state->world;
  if (Status status = state.join(desc.index); !status.ok())
    return status;
  Status status = guarded([&] {
    return rank->state->backend->createRank(desc.index, desc.device,
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
  return report(guarded([&] { return createRank(world, desc, rank); }), message,
                messageBytes);
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
  return rank->settle(guarded([&] { return rank->backend->synchronize(); }));
}

const char *zpp_rt_rank_message(zpp_rt_rank *rank) {
  return rank ? rank->getMessage() : "expected a rank, but got NULL";
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Whether the rank has not failed. `status` is its status.
static bool isWell(zpp_rt_rank *rank, zpp_rt_status &status) {
  if (!rank) {
    status = ZPP_RT_INVALID_ARGUMENT;
    return false;
  }
  status = rank->settle(rank->backend->getFailure());
  return status == ZPP_RT_OK;
}

/// Settles the result of the operation that errors call `title`.
static zpp_rt_status settleAs(zpp_rt_rank *rank, std::string_view title,
                              Status status) {
  if (!status.ok()) {
    // The error may be a consequence of an earlier failure.
    Status earlier = rank->backend->getFailure();
    status.message = std::string(title) + ": " + status.message;
    if (!earlier.ok())
      status = std::move(earlier);
  }
  return rank->settle(status);
}

/// Calls `function` unless the rank has failed.
template <typename Function>
static zpp_rt_status call(zpp_rt_rank *rank, const char *title,
                          const Function &function) {
  zpp_rt_status status;
  if (!isWell(rank, status))
    return status;
  return settleAs(rank, title, guarded(function));
}

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
    return rank->backend->getWorkspace(bytes, *data);
  });
}

//===----------------------------------------------------------------------===//
// Streams of the caller
//===----------------------------------------------------------------------===//

static Status markOperations(zpp_rt_rank *rank, const zpp_rt_buffer *buffers,
                             int64_t numBuffers, std::unique_ptr<Mark> &mark) {
  if (numBuffers < 0)
    return invalid(expected("a number of buffers", numBuffers));
  if (numBuffers > 0 && !buffers)
    return invalid(expected(std::to_string(numBuffers) + " buffers", "NULL"));
  for (int64_t i = 0; i < numBuffers; ++i)
    if (buffers[i].bytes < 0)
      return invalid(expected("a number of bytes", buffers[i].bytes));
  return rank->backend->markOperations({buffers, buffers + numBuffers}, mark);
}

zpp_rt_status zpp_rt_enter(zpp_rt_rank *rank, void *stream) {
  return call(rank, "enter", [&]() -> Status {
    std::unique_ptr<Mark> mark;
    Status status = rank->backend->markStream(stream, mark);
    return status.ok() ? rank->backend->enter(*mark) : status;
  });
}

zpp_rt_status zpp_rt_leave(zpp_rt_rank *rank, void *stream,
                           const zpp_rt_buffer *buffers, int64_t numBuffers) {
  return call(rank, "leave", [&]() -> Status {
    std::unique_ptr<Mark> mark;
    Status status = markOperations(rank, buffers, numBuffers, mark);
    return status.ok() ? rank->backend->leave(stream, *mark) : status;
  });
}

struct zpp_rt_mark {
  bool isOfStream;
  std::unique_ptr<Mark> mark;
};

/// Makes a mark with `function(mark)`.
template <typename Function>
static zpp_rt_status createMark(zpp_rt_rank *rank, const char *title,
                                bool isOfStream, zpp_rt_mark **result,
                                const Function &function) {
  if (result)
    *result = nullptr;
  return call(rank, title, [&]() -> Status {
    if (!result)
      return invalid(expected("where to write the mark", "NULL"));
    auto mark = std::make_unique<zpp_rt_mark>();
    mark->isOfStream = isOfStream;
    if (Status status = function(mark->mark); !status.ok())
      return status;
    *result = mark.release();
    return {};
  });
}

/// Checks that `mark` is not null and of the right kind.
static Status checkMark(const zpp_rt_mark *mark, bool isOfStream) {
  auto describe = [](bool isOfStream) {
    return std::string("a mark of ") + (isOfStream ? "a stream" : "operations");
  };
  if (!mark)
    return invalid(expected(describe(isOfStream), "NULL"));
  if (mark->isOfStream != isOfStream)
    return invalid(expected(describe(isOfStream), describe(mark->isOfStream)));
  return {};
}

zpp_rt_status zpp_rt_mark_stream(zpp_rt_rank *rank, void *stream,
                                 zpp_rt_mark **mark) {
  return createMark(
      rank, "mark_stream", /*isOfStream=*/true, mark,
      [&](auto &result) { return rank->backend->markStream(stream, result); });
}

zpp_rt_status zpp_rt_enter_mark(zpp_rt_rank *rank, const zpp_rt_mark *mark) {
  return call(rank, "enter_mark", [&] {
    Status status = checkMark(mark, /*isOfStream=*/true);
    return status.ok() ? rank->backend->enter(*mark->mark) : status;
  });
}

zpp_rt_status zpp_rt_mark_operations(zpp_rt_rank *rank,
                                     const zpp_rt_buffer *buffers,
                                     int64_t numBuffers, zpp_rt_mark **mark) {
  return createMark(rank, "mark_operations", /*isOfStream=*/false, mark,
                    [&](auto &result) {
                      return markOperations(rank, buffers, numBuffers, result);
                    });
}

zpp_rt_status zpp_rt_leave_mark(zpp_rt_rank *rank, void *stream,
                                const zpp_rt_mark *mark) {
  return call(rank, "leave_mark", [&] {
    Status status = checkMark(mark, /*isOfStream=*/false);
    return status.ok() ? rank->backend->leave(stream, *mark->mark) : status;
  });
}

void zpp_rt_mark_destroy(zpp_rt_mark *mark) { delete mark; }

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

template <typename OperationT, typename Desc, typename Parse>
Status zpp_rt_rank::read(const char *entrypoint, const Desc &desc,
                         const Parse &parse, const OperationT *&operation) {
  key = entrypoint;
  key.push_back('\0');
  bool hasKey = appendKey(desc, key);
  if (hasKey)
    if (auto found = operations.find(key); found != operations.end()) {
      operation = static_cast<const OperationT *>(found->second.get());
      return {};
    }
  auto fresh = std::make_shared<OperationT>();
  if (Status status = parse(desc, *fresh); !status.ok())
    return status;
  OperationName name(entrypoint, desc.name);
  if constexpr (std::is_base_of_v<ExchangeOperation, OperationT>) {
    name.title += " along";
    for (const AxisRef &axis : fresh->axes)
      name.title += (&axis == &fresh->axes.front() ? " " : ", ") + axis.name;
  }
  fresh->name = std::make_shared<const OperationName>(std::move(name));
  operation = fresh.get();
  current = fresh;
  if (operations.size() == kMaxOperations)
    operations.clear();
  if (hasKey)
    operations.emplace(key, std::move(fresh));
  return {};
}

/// Reads and runs one operation on memory `input` and `output`, and `held` if
/// it has such an input. `parse(desc, operation)` reads the descriptor,
/// `run(backend, operation)` runs the operation.
template <typename OperationT, typename Desc, typename Parse, typename Run>
static zpp_rt_status execute(zpp_rt_rank *rank, const char *entrypoint,
                             const Desc *desc, const void *input,
                             const void *held, const void *output,
                             const Parse &parse, const Run &run) {
  zpp_rt_status code;
  if (!isWell(rank, code))
    return code;
  Desc read{};
  const OperationT *operation = nullptr;
  Status status = guarded([&]() -> Status {
    if (Status status = readDescriptor(desc, read); !status.ok())
      return status;
    if (Status status = rank->read(entrypoint, read, parse, operation);
        !status.ok())
      return status;
    const Footprint &footprint = operation->footprint;
    if ((!input && footprint.input.span() > 0) ||
        (!output && footprint.output.span() > 0))
      return invalid(expected(input ? "an output" : "an input", "NULL"));
    if (!held && footprint.held.span() > 0)
      return invalid(expected("a tensor that is held", "NULL"));
    return run(*rank->backend, *operation);
  });
  if (status.ok())
    return rank->settle(status);
  return settleAs(rank,
                  operation ? operation->name->title
                            : OperationName(entrypoint, read.name).title,
                  std::move(status));
}

/// The same for operations with one input.
template <typename OperationT, typename Desc, typename Parse>
static zpp_rt_status
execute(zpp_rt_rank *rank, const char *entrypoint, const Desc *desc,
        const void *input, void *output, const Parse &parse,
        Status (RankBackend::*run)(const OperationT &, const void *, void *)) {
  return execute<OperationT>(
      rank, entrypoint, desc, input, /*held=*/nullptr, output, parse,
      [&](RankBackend &backend, const OperationT &operation) {
        return (backend.*run)(operation, input, output);
      });
}

/// The four ends of a hop that quantizes.
static zpp_rt_status quantize(zpp_rt_rank *rank, const char *entrypoint,
                              const zpp_rt_quantize_desc *desc,
                              const void *input, const void *held, void *output,
                              bool isDequantize, bool isDifference) {
  return execute<QuantizeOperation>(
      rank, entrypoint, desc, input, held, output,
      [&](auto &desc, auto &operation) {
        return parse(desc, isDequantize, isDifference, operation);
      },
      [&](RankBackend &backend, const QuantizeOperation &operation) {
        return isDequantize ? backend.dequantize(operation, input, held, output)
                            : backend.quantize(operation, input, held, output);
      });
}

zpp_rt_status zpp_rt_copy(zpp_rt_rank *rank, void *dest, const void *source,
                          int64_t bytes) {
  return call(rank, "copy", [&]() -> Status {
    static const auto name =
        std::make_shared<const OperationName>("copy", nullptr);
    zpp_rt_copy_desc desc{};
    desc.rows = 1;
    desc.row_bytes = bytes;
    Operation operation{name, {}};
    if (Status status = parse(desc, operation); !status.ok())
      return status;
    if (bytes > 0 && (!dest || !source))
      return invalid(expected(dest ? "a source" : "a destination", "NULL"));
    return rank->backend->copy(operation, source, dest);
  });
}

zpp_rt_status zpp_rt_copy_rows(zpp_rt_rank *rank, const zpp_rt_copy_desc *desc,
                               const void *source, void *dest) {
  return execute<Operation>(
      rank, "copy_rows", desc, source, dest,
      [](auto &desc, auto &operation) { return parse(desc, operation); },
      &RankBackend::copy);
}

zpp_rt_status zpp_rt_pack_slices(zpp_rt_rank *rank,
                                 const zpp_rt_pack_desc *desc,
                                 const void *input, void *output) {
  return execute<PackOperation>(
      rank, "pack_slices", desc, input, output,
      [](auto &desc, auto &operation) {
        return parse(desc, /*isUnpack=*/false, operation);
      },
      &RankBackend::packSlices);
}

zpp_rt_status zpp_rt_unpack_slices(zpp_rt_rank *rank,
                                   const zpp_rt_pack_desc *desc,
                                   const void *input, void *output) {
  return execute<PackOperation>(
      rank, "unpack_slices", desc, input, output,
      [](auto &desc, auto &operation) {
        return parse(desc, /*isUnpack=*/true, operation);
      },
      &RankBackend::unpackSlices);
}

zpp_rt_status zpp_rt_quantize(zpp_rt_rank *rank,
                              const zpp_rt_quantize_desc *desc,
                              const void *input, void *output) {
  return quantize(rank, "quantize", desc, input, /*held=*/nullptr, output,
                  /*isDequantize=*/false, /*isDifference=*/false);
}

zpp_rt_status zpp_rt_dequantize(zpp_rt_rank *rank,
                                const zpp_rt_quantize_desc *desc,
                                const void *input, void *output) {
  return quantize(rank, "dequantize", desc, input, /*held=*/nullptr, output,
                  /*isDequantize=*/true, /*isDifference=*/false);
}

zpp_rt_status zpp_rt_quantize_difference(zpp_rt_rank *rank,
                                         const zpp_rt_quantize_desc *desc,
                                         const void *input, const void *held,
                                         void *output) {
  return quantize(rank, "quantize_difference", desc, input, held, output,
                  /*isDequantize=*/false, /*isDifference=*/true);
}

zpp_rt_status zpp_rt_dequantize_add(zpp_rt_rank *rank,
                                    const zpp_rt_quantize_desc *desc,
                                    const void *input, const void *held,
                                    void *output) {
  return quantize(rank, "dequantize_add", desc, input, held, output,
                  /*isDequantize=*/true, /*isDifference=*/true);
}

zpp_rt_status zpp_rt_reduce(zpp_rt_rank *rank, const zpp_rt_reduce_desc *desc,
                            const void *input, void *output) {
  return execute<ReduceOperation>(
      rank, "reduce", desc, input, output,
      [](auto &desc, auto &operation) {
        return parse(desc, /*isQuantized=*/false, operation);
      },
      &RankBackend::reduce);
}

zpp_rt_status zpp_rt_dequantize_reduce(zpp_rt_rank *rank,
                                       const zpp_rt_reduce_desc *desc,
                                       const void *input, void *output) {
  return execute<ReduceOperation>(
      rank, "dequantize_reduce", desc, input, output,
      [](auto &desc, auto &operation) {
        return parse(desc, /*isQuantized=*/true, operation);
      },
      &RankBackend::reduce);
}

zpp_rt_status
zpp_rt_dequantize_reduce_quantize(zpp_rt_rank *rank,
                                  const zpp_rt_reduce_quantize_desc *desc,
                                  const void *input, void *output) {
  return execute<ReduceQuantizeOperation>(
      rank, "dequantize_reduce_quantize", desc, input, output,
      [](auto &desc, auto &operation) { return parse(desc, operation); },
      &RankBackend::reduceQuantize);
}

static zpp_rt_status
exchange(zpp_rt_rank *rank, const char *entrypoint,
         const zpp_rt_exchange_desc *desc, const void *input, void *output,
         bool isGather,
         Status (RankBackend::*run)(const ExchangeOperation &, const void *,
                                    void *)) {
  return execute<ExchangeOperation>(
      rank, entrypoint, desc, input, output,
      [&](auto &desc, auto &operation) {
        return parse(desc, rank->state->world.mesh, isGather, operation);
      },
      run);
}

zpp_rt_status zpp_rt_all_to_all(zpp_rt_rank *rank,
                                const zpp_rt_exchange_desc *desc,
                                const void *input, void *output) {
  return exchange(rank, "all_to_all", desc, input, output, /*isGather=*/false,
                  &RankBackend::allToAll);
}

zpp_rt_status zpp_rt_all_gather_chunks(zpp_rt_rank *rank,
                                       const zpp_rt_exchange_desc *desc,
                                       const void *input, void *output) {
  return exchange(rank, "all_gather_chunks", desc, input, output,
                  /*isGather=*/true, &RankBackend::allGatherChunks);
}

static zpp_rt_status plain(zpp_rt_rank *rank, const char *entrypoint,
                           const zpp_rt_plain_desc *desc, const void *input,
                           void *output, PlainKind kind,
                           Status (RankBackend::*run)(const PlainOperation &,
                                                      const void *, void *)) {
  return execute<PlainOperation>(
      rank, entrypoint, desc, input, output,
      [&](auto &desc, auto &operation) {
        return parse(desc, rank->state->world.mesh, kind, operation);
      },
      run);
}

zpp_rt_status zpp_rt_plain_reduce_scatter(zpp_rt_rank *rank,
                                          const zpp_rt_plain_desc *desc,
                                          const void *input, void *output) {
  return plain(rank, "plain_reduce_scatter", desc, input, output,
               PlainKind::ReduceScatter, &RankBackend::plainReduceScatter);
}

zpp_rt_status zpp_rt_plain_all_gather(zpp_rt_rank *rank,
                                      const zpp_rt_plain_desc *desc,
                                      const void *input, void *output) {
  return plain(rank, "plain_all_gather", desc, input, output,
               PlainKind::AllGather, &RankBackend::plainAllGather);
}

zpp_rt_status zpp_rt_plain_all_reduce(zpp_rt_rank *rank,
                                      const zpp_rt_plain_desc *desc,
                                      const void *input, void *output) {
  return plain(rank, "plain_all_reduce", desc, input, output,
               PlainKind::AllReduce, &RankBackend::plainAllReduce);
}
