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

/// The facts with which a world is created.
struct WorldFacts {
  Mesh mesh;
  std::chrono::microseconds timeLimit;
  bool isTraced;
  /// The endpoint at which processes find each other. Empty for a world in one
  /// process.
  std::string rendezvous;
  /// A secret of the processes of the job. Empty for a world in one process.
  std::string token;
  /// Called once the world has failed. May be empty.
  std::function<void(const std::string &message)> onFailure;
  /// The exchanges of the caller, or none if the back end has its own.
  std::optional<zpp_rt_exchanges> exchanges;
};

/// The state that the ranks of this process share. The first failure of any
/// rank is the failure of the world. Ranks that wait for others watch for it.
class World : public WorldFacts {
public:
  explicit World(WorldFacts facts)
      : WorldFacts(std::move(facts)),
        trace(isTraced ? std::make_unique<Trace>() : nullptr),
        members(mesh.numDevices(), Member::Absent) {}

  /// Null if nothing is recorded.
  const std::unique_ptr<Trace> trace;
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
  std::atomic<bool> isAnnounced{false};
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_WORLD_H
