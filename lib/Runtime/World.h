//===- World.h - Which ranks there are and whether they are well *- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_WORLD_H
#define ZPP_LIB_RUNTIME_WORLD_H

#include "FirstFailure.h"
#include "Measures.h"
#include "Status.h"
#include "Trace.h"
#include "zpp/Support/Mesh.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace zpp::rt {

/// The state that the ranks of this process share. The first failure of any
/// rank is the failure of the world. Ranks that wait for others watch for it.
class World {
public:
  using OnFailure = std::function<void(const std::string &message)>;

  World(Mesh mesh, std::chrono::microseconds timeLimit, bool isTraced,
        std::string rendezvous, std::string token, OnFailure onFailure,
        std::optional<zpp_rt_exchanges> exchanges)
      : mesh(std::move(mesh)), timeLimit(timeLimit),
        rendezvous(std::move(rendezvous)), token(std::move(token)),
        exchanges(exchanges), members(this->mesh.numDevices(), Member::Absent),
        onFailure(std::move(onFailure)) {
    if (isTraced)
      trace = std::make_unique<Trace>();
  }

  const Mesh mesh;
  const std::chrono::microseconds timeLimit;
  /// The endpoint at which processes find each other. Empty for a world in one
  /// process.
  const std::string rendezvous;
  /// A secret of the processes of the job. Empty for a world in one process.
  const std::string token;
  /// The exchanges of the caller, or none if the back end has its own.
  const std::optional<zpp_rt_exchanges> exchanges;
  /// Null if nothing is recorded.
  std::unique_ptr<Trace> trace;
  Measures measures;

  Status join(int64_t rank);
  void leave(int64_t rank);
  /// Records why `rank` failed, unless another rank failed first.
  void fail(int64_t rank, const Status &cause);
  /// Tells the caller that the world has failed, once.
  void announceFailure(const std::string &message);

  /// The first failure, as other ranks report it. `changed` is notified of it.
  FirstFailure<> failure;

  /// Guards all members below, and the state of back ends about ranks that wait
  /// for each other. `changed` is notified of any change.
  std::mutex mutex;
  std::condition_variable changed;

  enum class Member { Absent, Present, Gone };
  std::vector<Member> members;

private:
  const OnFailure onFailure;
  std::atomic<bool> isAnnounced{false};
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_WORLD_H
