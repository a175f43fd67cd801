//===- Handles.h - What the handles of the C interface are ------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_HANDLES_H
#define ZPP_LIB_RUNTIME_HANDLES_H

#include "Backend.h"
#include "FirstFailure.h"
#include "Sampler.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace zpp::rt {

/// A back end that worlds can be created with.
struct BackendEntry {
  using Create = Status (*)(World &world, WorldBackend &backend);
  const char *name;
  Create create;
  /// Creates the back end that uses the exchanges of the caller.
  Create createExternal;
};

/// Finds the back end `name`, or returns an error that names all of them.
Status findBackend(const char *name, const BackendEntry *&backend);

/// The state of a world, which ranks keep alive.
struct WorldState {
  explicit WorldState(WorldFacts facts) : world(std::move(facts)) {}
  World world;
  WorldBackend backend;
};

} // namespace zpp::rt

struct zpp_rt_world {
  std::shared_ptr<zpp::rt::WorldState> state;
};

struct zpp_rt_rank {
  std::shared_ptr<zpp::rt::WorldState> state;
  int64_t index;
  std::unique_ptr<zpp::rt::RankBackend> backend;
  zpp::rt::Sampler sampler;
  /// The memory that host functions share, and its bytes.
  void *workspace = nullptr;
  int64_t workspaceBytes = 0;

  /// Records a failure, which fails the world, unless the rank had failed
  /// before. Returns the rank's status.
  zpp_rt_status settle(const zpp::rt::Status &result) {
    if (!result.ok() && failure.set(result)) {
      state->world.fail(index, result);
      backend->fail(result);
    }
    return failure.get().code;
  }
  /// Returns the message of the status. Valid as long as the rank.
  const char *getMessage() const { return failure.get().message.c_str(); }

  /// Reads a descriptor with `parse(desc, operation)`, or finds the operation
  /// of an equal descriptor: programs repeat theirs. The operation lives until
  /// the next call.
  template <typename OperationT, typename Desc, typename Parse>
  zpp::rt::Status read(const char *entrypoint, const Desc &desc,
                       const Parse &parse, const OperationT *&operation);

private:
  zpp::rt::FirstFailure<> failure;

  /// Programs have fewer different operations, unless they generate
  /// descriptors.
  static constexpr size_t kMaxOperations = 4096;
  /// Operations by their keys, which include the entry point and so the type.
  std::unordered_map<std::string, std::shared_ptr<const zpp::rt::Operation>>
      operations;
  std::string key;
  /// The last operation that was read, which may not be in `operations`.
  std::shared_ptr<const zpp::rt::Operation> current;
};

namespace zpp::rt {

/// Whether the rank has not failed. `status` is its status.
inline bool isWell(zpp_rt_rank *rank, zpp_rt_status &status) {
  if (!rank) {
    status = ZPP_RT_INVALID_ARGUMENT;
    return false;
  }
  status = rank->settle(rank->backend->getFailure());
  return status == ZPP_RT_OK;
}

/// Settles the result of the operation that errors call `title`.
inline zpp_rt_status settleAs(zpp_rt_rank *rank, std::string_view title,
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
zpp_rt_status call(zpp_rt_rank *rank, const char *title,
                   const Function &function) {
  zpp_rt_status status;
  if (!isWell(rank, status))
    return status;
  return settleAs(rank, title, guarded(function));
}

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_HANDLES_H
