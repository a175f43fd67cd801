//===- Backend.h - The interface of back ends -------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The layer above this interface is common to all back ends: it checks
// descriptors, keeps the first failure of a rank, and reports it to the world.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_BACKEND_H
#define ZPP_LIB_RUNTIME_BACKEND_H

#include "Operations.h"
#include "World.h"

#include <functional>
#include <memory>

namespace zpp::rt {

/// The contents of a zpp_rt_mark. It may outlive the rank.
class Mark {
public:
  virtual ~Mark() = default;
};

/// Executes the operations of one rank as if in the order of the calls, and
/// adds them to the world's trace if there is one. Used by one thread at a
/// time. Functions may throw std::bad_alloc.
class RankBackend {
public:
  virtual ~RankBackend() = default;

  /// Allocates memory that is aligned to 256 bytes, as workspaces are. It is
  /// freed with the rank at the latest.
  virtual Status allocate(int64_t bytes, void *&data) = 0;
  /// Returns an error if `data` is not from allocate().
  virtual Status free(void *data) = 0;
  virtual Status copy(const Operation &operation, const void *input,
                      void *output) = 0;

  /// markStream() and leave() may come from any thread.
  virtual Status markStream(void *stream, std::unique_ptr<Mark> &mark) = 0;
  virtual Status enter(const Mark &mark) = 0;
  virtual Status markOperations(const std::vector<zpp_rt_buffer> &buffers,
                                std::unique_ptr<Mark> &mark) = 0;
  virtual Status leave(void *stream, const Mark &mark) = 0;
  /// Copies `bytes`, at least one, on a stream of the caller. From any thread.
  virtual Status copyOnStream(void *stream, const void *input, void *output,
                              int64_t bytes) = 0;

  /// `held` is null if the operation has no such tensor. It may be the output
  /// of a dequantization.
  virtual Status compute(LocalOperation operation, const void *input,
                         const void *held, void *output) = 0;
  /// Ends in an error when the world fails, when a rank of the group leaves,
  /// when the ranks disagree, and when the time limit is over.
  virtual Status exchange(const ExchangeOperation &operation, const void *input,
                          void *output) = 0;

  /// Waits for all operations.
  virtual Status synchronize() = 0;
  /// Whether what operations do may be copied to look at it: not into a graph
  /// that is being captured.
  virtual bool canMeasure() { return true; }
  /// Returns the failure of earlier operations, if it is known by now.
  virtual Status getFailure() { return {}; }
  /// Tells the ranks of other processes that this rank has failed with `cause`,
  /// if nobody else does. Any thread may call it, more than once.
  virtual void fail(const Status &cause) {}
};

/// The functions of a back end for a world. They hold what its ranks share.
struct WorldBackend {
  /// Creates the back end of a rank that has joined the world.
  std::function<Status(int64_t rank, int64_t device,
                       std::unique_ptr<RankBackend> &backend)>
      createRank;
  /// Listens at the rendezvous of a world of several processes, and writes the
  /// endpoint to `endpoint`. Any thread may call it, more than once. Only for
  /// worlds that have a rendezvous.
  std::function<Status(std::string &endpoint)> listen;
};

/// The back end whose ranks are threads of this process. `world` outlives it.
Status createCpuBackend(World &world, WorldBackend &backend);

/// The back end whose ranks have a GPU each, in any number of processes.
/// `world` outlives it. It exists only if ZPP_RT_HAS_CUDA is defined.
Status createCudaBackend(World &world, WorldBackend &backend);

/// The same with the exchanges of the caller: `world.exchanges` is set.
Status createExternalCpuBackend(World &world, WorldBackend &backend);
Status createExternalCudaBackend(World &world, WorldBackend &backend);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_BACKEND_H
