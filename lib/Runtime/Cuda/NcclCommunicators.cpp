//===- NcclCommunicators.cpp - One communicator per group -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NcclCommunicators.h"

#include "CudaStatus.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <thread>
#include <unistd.h>

using namespace zpp;
using namespace zpp::rt;

using Clock = std::chrono::steady_clock;

/// Channels of a communicator whose sends cross a network: in total, and for a
/// rank's peers on other hosts. By default NCCL makes two to four for a link
/// like TCP, whose connections do not fill it. Each channel has several
/// connections to each peer. With hundreds of connections a link drops packets.
static constexpr int kNetChannels = 8;
static constexpr int kChannelsToOtherHosts = 4;
/// The limit of older versions of NCCL, which refuses a minimum without a
/// maximum.
static constexpr int kMaxChannels = 32;

/// Returns the configuration for ranks with at most `numPeers` peers on other
/// hosts.
static ncclConfig_t makeConfigForNetSends(int64_t numPeers) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = kNetChannels;
  config.maxCTAs = kMaxChannels;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  config.nChannelsPerNetPeer =
      static_cast<int>(std::max<int64_t>(kChannelsToOtherHosts / numPeers, 1));
#endif
  return config;
}

Status NcclCommunicators::getStatus(ncclResult_t result) const {
  if (result == ncclSuccess || result == ncclInProgress)
    return {};
  std::string message = std::string("NCCL: ") + nccl.ncclGetErrorString(result);
  const char *details = nccl.ncclGetLastError(nullptr);
  if (details && *details)
    message += std::string(" (") + details + ")";
  return {ZPP_RT_SYSTEM_ERROR, std::move(message)};
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

Status NcclCommunicators::create(const NcclLibrary &nccl, const Mesh &mesh,
                                 int64_t rank, ControlClient &control,
                                 std::chrono::microseconds timeLimit,
                                 std::unique_ptr<NcclCommunicators> &result) {
  std::unique_ptr<NcclCommunicators> self(
      new NcclCommunicators(nccl, mesh, rank, control, timeLimit));
  Status status = self->createAll();
  if (!status.ok()) {
    self->abort();
    return status;
  }
  result = std::move(self);
  return {};
}

Status NcclCommunicators::createAll() {
  std::vector<AxisRef> all;
  for (size_t i = 0; i < mesh.getAxes().size(); ++i)
    all.push_back(mesh.getAxis(i));
  // All ranks have the same mesh, so they need not agree.
  Communicator *communicator;
  ZPP_RT_TRY(getOrCreate(all, communicator));
  worldGroup = communicator->controlGroup;
  ZPP_RT_TRY(prepare(*communicator, /*forSends=*/false));
  for (const AxisRef &axis : all) {
    ZPP_RT_TRY(getOrCreate({axis}, communicator));
    ZPP_RT_TRY(prepare(*communicator, /*forSends=*/true));
  }
  return {};
}

Status NcclCommunicators::wait(const char *what, Task task) {
  int device;
  ZPP_RT_CUDA(cudaGetDevice, &device);
  std::promise<ncclResult_t> promise;
  std::future<ncclResult_t> result = promise.get_future();
  // The task may outlive this call.
  std::thread([device, shared = shared, promise = std::move(promise),
               task = std::move(task)]() mutable {
    cudaSetDevice(device);
    std::unique_lock<std::timed_mutex> lock(shared->mutex);
    ncclResult_t done = shared->isAborted ? ncclInvalidUsage : task(lock);
    if (lock)
      lock.unlock();
    promise.set_value(done);
  }).detach();

  Clock::time_point deadline = Clock::now() + timeLimit;
  while (result.wait_for(std::chrono::milliseconds(10)) !=
         std::future_status::ready) {
    if (Failure failure = control.getFailure(); !failure.ok())
      return failure.getStatus();
    if (Clock::now() > deadline)
      return {ZPP_RT_TIMEOUT, std::string(what) + ": expected an end within " +
                                  std::to_string(timeLimit.count()) +
                                  " usec, but got none"};
  }
  Status status = getStatus(result.get());
  if (!status.ok())
    status.message = std::string(what) + ": " + status.message;
  return status;
}

Status NcclCommunicators::getOrCreate(const std::vector<AxisRef> &axes,
                                      Communicator *&result) {
  auto [it, isNew] = communicators.try_emplace(axes);
  Communicator &communicator = it->second;
  result = &communicator;
  if (!isNew)
    return {};
  communicator.axes = axes;
  // All ranks of the world split it together. The color is the group, the key
  // is the position in it.
  std::vector<std::vector<int64_t>> groups = mesh.getGroups(axes);
  for (size_t i = 0; i < groups.size(); ++i) {
    auto self = std::find(groups[i].begin(), groups[i].end(), rank);
    if (self == groups[i].end())
      continue;
    communicator.color = static_cast<int>(i);
    communicator.members = groups[i];
    communicator.self = self - groups[i].begin();
  }
  return control.addGroup(communicator.members, communicator.controlGroup);
}

void NcclCommunicators::findLocality(Communicator &communicator) const {
  if (communicator.isMade || communicator.isConnected)
    return;
  // Consider all groups, so that all ranks split the world equally often.
  std::vector<std::vector<int64_t>> groups = mesh.getGroups(communicator.axes);
  communicator.isLocal =
      std::all_of(groups.begin(), groups.end(),
                  [&](const auto &group) { return areOnOneHost(group); });
}

Status NcclCommunicators::agree(Communicator &communicator, bool forSends,
                                const std::string &title) {
  findLocality(communicator);
  bool isWorld = communicator.size() == mesh.numDevices();
  bool splitsForCollectives =
      !communicator.isMade && !isWorld && (!forSends || communicator.isLocal);
  bool splitsForSends = forSends && !communicator.isLocal;
  if (communicator.size() == 1 || communicator.isReady(forSends) ||
      !(splitsForCollectives || splitsForSends))
    return {};
  std::string what = "first use of the groups along ";
  for (const AxisRef &axis : communicator.axes)
    what += (&axis == &communicator.axes.front() ? "" : ", ") + axis.name;
  control.announce(worldGroup, what + (forSends ? " for sends" : ""),
                   /*chunkBytes=*/0, title);
  return control.confirm();
}

Status NcclCommunicators::prepare(Communicator &communicator, bool forSends) {
  if (!worldHandle && mesh.numDevices() > 1)
    ZPP_RT_TRY(makeWorld());
  findLocality(communicator);
  if (!communicator.isMade && (!forSends || communicator.isLocal)) {
    ZPP_RT_TRY(makeForCollectives(communicator));
    communicator.isMade = true;
  }
  if (forSends && !communicator.isConnected) {
    ZPP_RT_TRY(makeForSends(communicator));
    if (communicator.sends)
      ZPP_RT_TRY(connect(communicator));
    communicator.isConnected = true;
  }
  return {};
}

Status NcclCommunicators::makeWorld() {
  std::string bytes(sizeof(ncclUniqueId), '\0');
  ncclUniqueId id{};
  if (rank == 0)
    ZPP_RT_TRY(getStatus(nccl.ncclGetUniqueId(&id)));
  std::memcpy(bytes.data(), &id, sizeof(id));
  ZPP_RT_TRY(control.broadcast(bytes));
  std::memcpy(&id, bytes.data(), sizeof(id));
  // Shared, because a thread that nobody waits for any more may still write to
  // it.
  auto created = std::make_shared<ncclComm_t>(nullptr);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ZPP_RT_TRY(wait("ncclCommInitRankConfig", [=, &nccl = nccl,
                                             size = mesh.numDevices(),
                                             rank = rank](auto &) mutable {
    return nccl.ncclCommInitRankConfig(created.get(), static_cast<int>(size),
                                       id, static_cast<int>(rank), &config);
  }));
  worldHandle = *created;
  keep(worldHandle);
  return findHosts();
}

Status NcclCommunicators::split(const Communicator &communicator, bool forSends,
                                ncclComm_t &result) {
  if (communicator.size() == 1)
    return {};
  // The largest number of peers on other hosts: NCCL needs the same
  // configuration on all members.
  std::map<uint64_t, int64_t> membersOfHosts;
  for (int64_t member : communicator.members)
    ++membersOfHosts[hosts[member]];
  int64_t numRemote = 0;
  for (const auto &[host, count] : membersOfHosts)
    numRemote = std::max(numRemote, communicator.size() - count);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (forSends && numRemote > 0)
    config = makeConfigForNetSends(numRemote);
  // Shared, because a thread that nobody waits for any more may still write to
  // it.
  auto created = std::make_shared<ncclComm_t>(nullptr);
  ZPP_RT_TRY(wait("ncclCommSplit", [=, &nccl = nccl, world = worldHandle,
                                    color = communicator.color,
                                    self = communicator.self](auto &) mutable {
    return nccl.ncclCommSplit(world, color, static_cast<int>(self),
                              created.get(), &config);
  }));
  result = *created;
  keep(result);
  return {};
}

Status NcclCommunicators::makeForCollectives(Communicator &communicator) {
  communicator.isOrdered = true;
  if (communicator.size() != mesh.numDevices())
    return split(communicator, /*forSends=*/false, communicator.handle);
  // The whole world, possibly in another order.
  communicator.handle = worldHandle;
  communicator.isOrdered =
      std::is_sorted(communicator.members.begin(), communicator.members.end());
  return {};
}

Status NcclCommunicators::makeForSends(Communicator &communicator) {
  bool isWorld =
      communicator.isLocal && communicator.size() == mesh.numDevices();
  for (int64_t i = 0; i < communicator.size(); ++i)
    communicator.peers.push_back(
        static_cast<int>(isWorld ? communicator.members[i] : i));
  if (!communicator.isLocal)
    return split(communicator, /*forSends=*/true, communicator.sends);
  communicator.sends = communicator.handle;
  return {};
}

void NcclCommunicators::keep(ncclComm_t handle) {
  if (!handle)
    return;
  std::lock_guard<std::timed_mutex> lock(shared->mutex);
  shared->handles.push_back(handle);
}

bool NcclCommunicators::areOnOneHost(
    const std::vector<int64_t> &members) const {
  return std::all_of(members.begin(), members.end(), [&](int64_t member) {
    return hosts[member] == hosts[members.front()];
  });
}

namespace {
/// Device memory and a stream, which live as long as a thread uses them.
struct Scratch {
  static Status create(int64_t bytes, std::shared_ptr<Scratch> &scratch) {
    scratch = std::make_shared<Scratch>();
    ZPP_RT_CUDA(cudaMalloc, &scratch->data, static_cast<size_t>(bytes));
    ZPP_RT_CUDA(cudaStreamCreateWithFlags, &scratch->stream,
                cudaStreamNonBlocking);
    return {};
  }
  ~Scratch() {
    if (stream)
      cudaStreamDestroy(stream);
    cudaFree(data);
  }
  void *data = nullptr;
  cudaStream_t stream = nullptr;
};
} // namespace

/// A number that is the same on all ranks of a host, as NCCL defines a host.
static uint64_t getHost() {
  std::string name;
  if (const char *given = std::getenv("NCCL_HOSTID")) {
    name = given;
  } else {
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    name = host;
    std::ifstream boot("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(boot, id);
    name += id;
  }
  // FNV-1a, because std::hash may differ between processes.
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name)
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

Status NcclCommunicators::findHosts() {
  size_t size = mesh.numDevices();
  std::shared_ptr<Scratch> scratch;
  ZPP_RT_TRY(Scratch::create((size + 1) * sizeof(uint64_t), scratch));
  auto found = std::make_shared<std::vector<uint64_t>>(size);
  ZPP_RT_TRY(wait("exchange of host names", [=, &nccl = nccl,
                                             handle = worldHandle](auto &lock) {
    uint64_t own = getHost();
    auto *sent = static_cast<uint64_t *>(scratch->data);
    cudaError_t error = cudaMemcpyAsync(sent, &own, sizeof(own),
                                        cudaMemcpyDefault, scratch->stream);
    ncclResult_t result =
        error == cudaSuccess ? nccl.ncclAllGather(sent, sent + 1, 1, ncclUint64,
                                                  handle, scratch->stream)
                             : ncclUnhandledCudaError;
    if (result != ncclSuccess)
      return result;
    // Unlock, so that an abort can end what this waits for.
    lock.unlock();
    error = cudaMemcpyAsync(found->data(), sent + 1, size * sizeof(uint64_t),
                            cudaMemcpyDefault, scratch->stream);
    if (error == cudaSuccess)
      error = cudaStreamSynchronize(scratch->stream);
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  }));
  hosts = *found;
  return {};
}

Status NcclCommunicators::connect(const Communicator &communicator) {
  int64_t size = communicator.size();
  std::shared_ptr<Scratch> scratch;
  ZPP_RT_TRY(Scratch::create(2 * size, scratch));
  return wait("connecting with NCCL",
              [=, &nccl = nccl, peers = communicator.peers,
               handle = communicator.sends](auto &lock) {
                auto *sent = static_cast<uint8_t *>(scratch->data);
                ncclResult_t result = nccl.ncclGroupStart();
                for (int64_t i = 0; i < size && result == ncclSuccess; ++i) {
                  result = nccl.ncclSend(sent + i, 1, ncclUint8, peers[i],
                                         handle, scratch->stream);
                  if (result == ncclSuccess)
                    result = nccl.ncclRecv(sent + size + i, 1, ncclUint8,
                                           peers[i], handle, scratch->stream);
                }
                ncclResult_t ended = nccl.ncclGroupEnd();
                if (result == ncclSuccess)
                  result = ended;
                // Unlock, so that an abort can end what this waits for.
                lock.unlock();
                if (result == ncclSuccess &&
                    cudaStreamSynchronize(scratch->stream) != cudaSuccess)
                  result = ncclUnhandledCudaError;
                return result;
              });
}

//===----------------------------------------------------------------------===//
// Use
//===----------------------------------------------------------------------===//

Status NcclCommunicators::queue(const std::function<ncclResult_t()> &function) {
  std::lock_guard<std::timed_mutex> lock(shared->mutex);
  if (shared->isAborted)
    return {ZPP_RT_ABORTED, "the communicators are gone"};
  ncclResult_t result = nccl.ncclGroupStart();
  if (result == ncclSuccess) {
    result = function();
    ncclResult_t ended = nccl.ncclGroupEnd();
    if (result == ncclSuccess)
      result = ended;
  }
  return getStatus(result);
}

Status NcclCommunicators::getAsyncError() {
  std::unique_lock<std::timed_mutex> lock(shared->mutex, std::try_to_lock);
  if (!lock || shared->isAborted)
    return {};
  for (ncclComm_t handle : shared->handles) {
    ncclResult_t error = ncclSuccess;
    ncclResult_t result = nccl.ncclCommGetAsyncError(handle, &error);
    ZPP_RT_TRY(getStatus(result));
    ZPP_RT_TRY(getStatus(error));
  }
  return {};
}

void NcclCommunicators::abort() {
  // A thread that is inside NCCL returns soon, unless it waits for something
  // that only the abort can end.
  std::unique_lock<std::timed_mutex> lock(shared->mutex,
                                          std::chrono::seconds(1));
  if (shared->isAborted.exchange(true))
    return;
  for (ncclComm_t handle : shared->handles)
    nccl.ncclCommAbort(handle);
}

NcclCommunicators::~NcclCommunicators() {
  if (shared->isAborted)
    return;
  for (auto it = shared->handles.rbegin(); it != shared->handles.rend(); ++it)
    nccl.ncclCommDestroy(*it);
}
