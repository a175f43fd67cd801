//===- NcclCommunicators.h - One communicator per group ---------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_NCCLCOMMUNICATORS_H
#define ZPP_LIB_RUNTIME_NCCLCOMMUNICATORS_H

#include "Control/ControlClient.h"
#include "Control/ControlServer.h"
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
  /// The ranks of the group in its order, and the position of this rank.
  std::vector<int64_t> members;
  int64_t self;
  /// The communicator for NCCL's collectives; null for a group of one.
  ncclComm_t handle;
  /// The communicator for sends, and the rank of each member in it. The same as
  /// `handle` if each group along the axes is on one host.
  ncclComm_t sends;
  std::vector<int> peers;
  /// The number of this group among those along the same axes.
  int color;
  /// The group's number for ControlClient::announce().
  int64_t controlGroup;

  int64_t size() const { return members.size(); }
  GroupShape shape() const { return {size(), self}; }
  /// Whether the members are those of `handle` in the same order. NCCL's
  /// collectives need that, sends do not.
  bool isOrdered;
  /// Whether each group along the axes is on one host. Known once one of the
  /// two below is true.
  bool isLocal;
  /// Whether `handle` exists, and whether `sends` exists and is connected.
  bool isMade;
  bool isConnected;
  /// The kind (a literal) and size of the exchanges that all members are known
  /// to agree on.
  std::set<std::pair<std::string_view, int64_t>> known;

  bool isReady(bool forSends) const { return forSends ? isConnected : isMade; }
  /// Whether NCCL should copy what a rank sends to itself. With NVLink it does
  /// so while the other chunks travel, but across a network it delays them.
  bool sendsOwn() const { return isLocal && size() > 1; }
  /// Whether gathers are NCCL's own: on one host it knows best.
  bool gathersAtOnce() const {
    return isMade && isLocal && isOrdered && size() > 1;
  }
};

/// The communicators of a rank: one for the world, one split from it for each
/// axis of the mesh, and one for each other group when it is first used. Those
/// of the axes are connected for sends from the beginning. Others are connected
/// when they first send, because all ranks of a large world would need too many
/// connections. Groups that cross hosts have two: one for sends, which need
/// more channels than NCCL makes by default, and one for NCCL's own
/// collectives, which are slower with more channels.
class NcclCommunicators {
public:
  /// Creates the communicators on the calling thread's device. Waits until all
  /// ranks do so, or the time limit has passed.
  static Status create(const NcclLibrary &nccl, const Mesh &mesh, int64_t rank,
                       ControlClient &control,
                       std::chrono::microseconds timeLimit,
                       std::unique_ptr<NcclCommunicators> &communicators);
  /// Does not wait for other ranks after abort().
  ~NcclCommunicators();

  /// Returns the group of this rank along `axes`, which may not be ready yet.
  Status getOrCreate(const std::vector<AxisRef> &axes,
                     Communicator *&communicator);
  /// If prepare() has to split the world, waits until all ranks of the world
  /// are about to do so for the same groups. Otherwise NCCL would mix up groups
  /// that differ, or wait forever. Errors say what the group is for: `title`.
  Status agree(Communicator &communicator, bool forSends,
               const std::string &title);
  /// Creates the missing communicators of a group. All ranks of the world must
  /// do so together.
  Status prepare(Communicator &communicator, bool forSends);

  /// Queues the NCCL calls of `function` as one group of NCCL. `function`
  /// returns the first failure.
  Status queue(const std::function<ncclResult_t()> &function);

  /// Returns the asynchronous error of any communicator. From any thread.
  Status getAsyncError();
  /// Ends what is under way, whatever the peers do. From any thread.
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
  /// Registers `handle`, which may be null, to be destroyed with the others.
  void keep(ncclComm_t handle);
  /// A task that wait() runs in its own thread. It holds the lock of Shared,
  /// because it calls NCCL, and may release it when it no longer does.
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
  /// The group of all ranks for ControlClient::announce().
  int64_t worldGroup = 0;
  /// A number for the host of each rank.
  std::vector<uint64_t> hosts;
  std::map<std::vector<AxisRef>, Communicator, ByAxes> communicators;
  /// The state that a thread may still use when nobody waits for it any more.
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
