//===- NcclCommunicators.h - One communicator per group ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_NCCLCOMMUNICATORS_H
#define ZPP_LIB_RUNTIME_NCCLCOMMUNICATORS_H

#include "Control/Control.h"
#include "ExchangePlan.h"
#include "NcclLibrary.h"
#include "Operations.h"
#include "zpp/Support/Mesh.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zpp::rt {

/// The ranks of a collective, and how NCCL reaches them.
struct Communicator {
  std::vector<AxisRef> axes;
  /// Ranks of the world in the order of the group, and where this one is.
  std::vector<int64_t> members;
  int64_t self;
  /// For collectives of NCCL; null for a group of one.
  ncclComm_t handle;
  /// For sends, and its rank of each member. The same as `handle` where each
  /// group along the axes is on one host.
  ncclComm_t sends;
  std::vector<int> peers;
  /// Which of the groups along its axes.
  int color;
  /// For ControlClient::announce.
  int64_t controlGroup;

  int64_t size() const { return members.size(); }
  GroupShape shape() const { return {size(), self}; }
  /// Whether the members are all of `handle`, in its order: what collectives of
  /// NCCL need, and sends do not.
  bool isOrdered;
  /// Whether each group along the axes is on one host; known when one of the
  /// two below is true.
  bool isLocal;
  /// Whether `handle` is there, and whether `sends` is there and connected.
  bool isMade;
  bool isConnected;
  /// Exchanges that all members were found to agree on: kind, a literal, and
  /// size.
  std::set<std::pair<std::string_view, int64_t>> known;

  bool isReady(bool forSends) const { return forSends ? isConnected : isMade; }
  /// Whether NCCL is to copy what a rank sends to itself: beside NVLink it does
  /// so while the others travel, but it delays what crosses a network.
  bool sendsOwn() const { return isLocal && size() > 1; }
};

/// The communicators of a rank: one for the world, one split from it for each
/// axis of the mesh, and one for each other group when it is first used. Those
/// of the axes are connected for sends from the beginning, others when they
/// first send: connections between all ranks of a large world would be many.
/// Groups that cross hosts have one for sends, which need more channels than
/// NCCL makes, and one for NCCL's own collectives, which are slower with them.
class NcclCommunicators {
public:
  /// Waits until all ranks have come so far, or the time limit is over. On the
  /// device of the calling thread.
  static Status create(const NcclLibrary &nccl, const Mesh &mesh, int64_t rank,
                       ControlClient &control,
                       std::chrono::microseconds timeLimit,
                       std::unique_ptr<NcclCommunicators> &communicators);
  /// Waits for nobody after abort().
  ~NcclCommunicators();

  /// The group of this rank along `axes`, which may not be ready yet.
  Status find(const std::vector<AxisRef> &axes, Communicator *&communicator);
  /// Waits until all ranks of the world are about to prepare() the same groups
  /// in the same way, where that splits the world: NCCL would mix up groups
  /// that differ, or wait forever. `title` says in errors what the group is
  /// for.
  Status agree(Communicator &communicator, bool forSends,
               const std::string &title);
  /// Makes what is missing of a group, when all ranks of the world do.
  Status prepare(Communicator &communicator, bool forSends);

  /// Queues what `function` calls of NCCL, as one group where it calls more
  /// than one function. It returns the first failure.
  Status queue(const std::function<ncclResult_t()> &function);

  const NcclLibrary &library() const { return nccl; }

  /// What has gone wrong behind the scenes. Any thread.
  Status getAsyncError();
  /// Ends what is under way, whatever the peers do. Any thread.
  void abort();

private:
  NcclCommunicators(const NcclLibrary &nccl, const Mesh &mesh, int64_t rank,
                    ControlClient &control, std::chrono::microseconds timeLimit)
      : nccl(nccl), mesh(mesh), rank(rank), control(control),
        timeLimit(timeLimit), hosts(mesh.numDevices()) {}
  Status getStatus(ncclResult_t result) const;
  Status createAll();
  /// Creates the world's communicator and learns of the hosts.
  Status makeWorld();
  /// Finds out whether each of the groups along these axes is on one host.
  void findLocality(Communicator &communicator) const;
  /// Splits the group off the world.
  Status split(const Communicator &communicator, bool forSends,
               ncclComm_t &result);
  /// Makes `handle`.
  Status makeForCollectives(Communicator &communicator);
  /// Makes `sends`.
  Status makeForSends(Communicator &communicator);
  /// Ends `handle` with the others; null is allowed.
  void keep(ncclComm_t handle);
  /// What wait() runs in a thread of its own. It has the lock of Shared,
  /// because it calls NCCL, and may give it up when it does not any more.
  using Task =
      std::function<ncclResult_t(std::unique_lock<std::timed_mutex> &lock)>;
  /// Runs `task`, which waits for other ranks, and gives up when the world
  /// fails or the time limit is over. A task that is late does not run after
  /// abort().
  Status wait(const char *what, Task task);
  /// Learns on which hosts the ranks are.
  Status findHosts();
  bool areOnOneHost(const std::vector<int64_t> &members) const;
  /// Opens the connections to all peers, so that no later exchange waits for
  /// that on the host.
  Status connect(const Communicator &communicator);

  const NcclLibrary &nccl;
  const Mesh mesh;
  const int64_t rank;
  ControlClient &control;
  const std::chrono::microseconds timeLimit;
  ncclComm_t worldHandle = nullptr;
  /// All ranks, for ControlClient::announce.
  int64_t worldGroup = 0;
  /// A number for the host of each rank.
  std::vector<uint64_t> hosts;
  std::map<std::vector<AxisRef>, Communicator, ByAxes> communicators;
  /// What a thread that is given up may still use.
  struct Shared {
    /// Guards the others; held while functions of NCCL are called.
    std::timed_mutex mutex;
    std::vector<ncclComm_t> handles;
    std::atomic<bool> isAborted{false};
  };
  const std::shared_ptr<Shared> shared = std::make_shared<Shared>();
};

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_NCCLCOMMUNICATORS_H
