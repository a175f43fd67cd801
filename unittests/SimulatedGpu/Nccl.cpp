//===- Nccl.cpp - NCCL's functions, simulated -----------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Programs that use the simulated CUDA runtime load this through
// ZPP_NCCL_LIBRARY. Like the real library it waits forever for a rank that does
// not take part, and after an abort it fills outputs with garbage and tells no
// other rank. Unlike the real library it reports ranks that expect different
// things of each other.
//
//===----------------------------------------------------------------------===//

#include "NcclChannel.h"
#include "Simulator.h"
#include "zpp/Support/Float16.h"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace zpp;
using namespace zpp::simulated;

/// The bytes that an aborted operation leaves in its output.
static constexpr int kGarbage = 0xee;
/// How long ncclCommDestroy waits for operations before that is reported.
static constexpr std::chrono::seconds kDestroyLimit{10};

//===----------------------------------------------------------------------===//
// Communicators
//===----------------------------------------------------------------------===//

namespace {
struct Comm {
  std::string name;
  int ranks = 0;
  int rank = 0;
  int device = 0;
  bool isBlocking = true;
  std::atomic<bool> isAborted{false};
  /// Set before the state leaves ncclInProgress.
  std::shared_ptr<Channel> channel;
  /// Calls that go on in the background.
  std::atomic<int> jobs{0};
  std::atomic<ncclResult_t> state{ncclSuccess};
  int64_t splits = 0;
  /// Operations keep it alive, including those of graphs.
  std::shared_ptr<int> use = std::make_shared<int>(0);
  /// Operations run one at a time, and those that are in no graph in the order
  /// of their calls, also on several streams.
  std::mutex submitting, running;
  int64_t submitted = 0;
  std::atomic<int64_t> ran{0};
  /// Nothing fits together any more.
  std::atomic<bool> isBroken{false};

  bool isGivenUp() const { return isAborted || isBroken || hasFailed(device); }
};

/// Runs on a device that may not be the caller's.
class OnDevice {
public:
  explicit OnDevice(int device) {
    cudaGetDevice(&previous);
    if (previous != device)
      cudaSetDevice(device);
  }
  ~OnDevice() { cudaSetDevice(previous); }

private:
  int previous = 0;
};
} // namespace

static std::mutex mutex;
/// One per process, as in the real library.
static char lastError[256];

/// Handles are never used twice.
static std::map<uintptr_t, std::shared_ptr<Comm>> &getComms() {
  static auto *comms = new std::map<uintptr_t, std::shared_ptr<Comm>>;
  return *comms;
}

static ncclResult_t fail(ncclResult_t result, const std::string &message) {
  std::lock_guard<std::mutex> lock(mutex);
  std::snprintf(lastError, sizeof(lastError), "%s", message.c_str());
  return result;
}

static ncclComm_t addComm(std::shared_ptr<Comm> comm) {
  static uintptr_t next = 1;
  std::lock_guard<std::mutex> lock(mutex);
  uintptr_t handle = next++ << 8;
  getComms()[handle] = std::move(comm);
  return reinterpret_cast<ncclComm_t>(handle);
}

static std::shared_ptr<Comm> findComm(ncclComm_t handle) {
  std::lock_guard<std::mutex> lock(mutex);
  auto it = getComms().find(reinterpret_cast<uintptr_t>(handle));
  if (it != getComms().end())
    return it->second;
  reportError("use of a communicator that is destroyed or never was");
  return nullptr;
}

static std::shared_ptr<Comm> removeComm(ncclComm_t handle) {
  std::shared_ptr<Comm> comm = findComm(handle);
  std::lock_guard<std::mutex> lock(mutex);
  getComms().erase(reinterpret_cast<uintptr_t>(handle));
  return comm;
}

/// Runs `job` now, or in the background if the communicator does not block.
template <typename Job>
static ncclResult_t start(const std::vector<std::shared_ptr<Comm>> &comms,
                          bool isBlocking, Job job) {
  if (isBlocking)
    return job();
  for (const std::shared_ptr<Comm> &comm : comms) {
    ++comm->jobs;
    comm->state = ncclInProgress;
  }
  int device = 0;
  cudaGetDevice(&device);
  std::thread([=] {
    cudaSetDevice(device);
    delay();
    ncclResult_t result = job();
    for (const std::shared_ptr<Comm> &comm : comms)
      if (--comm->jobs == 0 || result != ncclSuccess)
        comm->state = result;
  }).detach();
  return ncclInProgress;
}

/// A call, with everything that comes before its own work.
#define ZPP_COUNT(NAME)                                                        \
  if (int error_ = countCall(#NAME))                                           \
  return fail(static_cast<ncclResult_t>(error_), #NAME " was told to fail")

static ncclResult_t join(const std::shared_ptr<Comm> &comm) {
  while (ncclInitHangs()) {
    if (comm->isAborted)
      return fail(ncclInternalError, "aborted");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (!ncclInitHangs())
      return fail(ncclSystemError, "the initialization hung");
  }
  std::string error;
  comm->channel = Channel::open(
      comm->name, comm->ranks, comm->rank, comm->device,
      [comm] { return comm->isGivenUp(); }, error);
  if (comm->channel)
    return ncclSuccess;
  return error.empty() ? fail(ncclInternalError, "aborted")
                       : fail(ncclInvalidUsage, error);
}

static bool isBlocking(const ncclConfig_t *config, bool otherwise) {
  return config && config->blocking != NCCL_CONFIG_UNDEF_INT
             ? config->blocking != 0
             : otherwise;
}

extern "C" {

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  ZPP_COUNT(ncclGetUniqueId);
  static std::atomic<int64_t> count{0};
  std::memset(id->internal, 0, sizeof(id->internal));
  std::snprintf(
      id->internal, sizeof(id->internal), "/zpp-nccl-%d-%lld-%lld",
      static_cast<int>(getpid()), static_cast<long long>(++count),
      static_cast<long long>(
          std::chrono::steady_clock::now().time_since_epoch().count()));
  return ncclSuccess;
}

/// Checks a config as NCCL does. It refuses a minimum without a maximum,
/// because an unset field is less than any number.
static ncclResult_t check(const ncclConfig_t *config) {
  if (!config)
    return ncclSuccess;
  if (config->magic != 0xcafebeef || config->size == 0)
    return fail(ncclInvalidArgument, "the config is not initialized");
  auto isBad = [](int value) {
    return value != NCCL_CONFIG_UNDEF_INT && value <= 0;
  };
  if (isBad(config->minCTAs) || isBad(config->maxCTAs) ||
      config->minCTAs > config->maxCTAs)
    return fail(ncclInvalidArgument, "bad numbers of channels");
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *handle, int ranks,
                                    ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  ZPP_COUNT(ncclCommInitRankConfig);
  if (ncclResult_t result = check(config); result != ncclSuccess)
    return result;
  auto comm = std::make_shared<Comm>();
  comm->name =
      std::string(id.internal, strnlen(id.internal, sizeof(id.internal)));
  comm->ranks = ranks;
  comm->rank = rank;
  cudaGetDevice(&comm->device);
  comm->isBlocking = isBlocking(config, true);
  *handle = addComm(comm);
  ncclResult_t result =
      start({comm}, comm->isBlocking, [comm] { return join(comm); });
  if (result != ncclSuccess && result != ncclInProgress) {
    removeComm(*handle);
    *handle = nullptr;
  }
  return result;
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key,
                           ncclComm_t *result, ncclConfig_t *config) {
  ZPP_COUNT(ncclCommSplit);
  std::shared_ptr<Comm> parent = findComm(handle);
  if (!parent)
    return fail(ncclInvalidArgument, "no such communicator");
  if (parent->jobs > 0)
    return fail(ncclInvalidArgument, "the communicator is in progress");
  if (ncclResult_t status = check(config); status != ncclSuccess)
    return status;
  *result = nullptr;
  std::shared_ptr<Comm> child;
  if (color != NCCL_SPLIT_NOCOLOR) {
    child = std::make_shared<Comm>();
    child->device = parent->device;
    child->isBlocking = isBlocking(config, parent->isBlocking);
    *result = addComm(child);
  }
  std::string name = parent->name + "." + std::to_string(parent->splits++) +
                     "." + std::to_string(color);
  std::vector<std::shared_ptr<Comm>> comms = {parent};
  if (child)
    comms.push_back(child);
  ncclResult_t status = start(comms, parent->isBlocking, [=]() -> ncclResult_t {
    std::vector<Channel::Value> all;
    if (!parent->channel->gather({color, key}, all,
                                 [&] { return parent->isGivenUp(); }))
      return fail(ncclInternalError, "aborted");
    if (!child)
      return ncclSuccess;
    child->name = name;
    for (int rank = 0; rank < parent->ranks; ++rank) {
      if (all[rank][0] != color)
        continue;
      ++child->ranks;
      if (all[rank][1] < key || (all[rank][1] == key && rank < parent->rank))
        ++child->rank;
    }
    std::string error;
    child->channel = Channel::open(
        name, child->ranks, child->rank, child->device,
        [&] { return parent->isGivenUp() || child->isAborted; }, error);
    if (child->channel)
      return ncclSuccess;
    return error.empty() ? fail(ncclInternalError, "aborted")
                         : fail(ncclInvalidUsage, error);
  });
  if (status != ncclSuccess && status != ncclInProgress && child) {
    removeComm(*result);
    *result = nullptr;
  }
  return status;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t *error) {
  ZPP_COUNT(ncclCommGetAsyncError);
  std::shared_ptr<Comm> comm = findComm(handle);
  if (!comm)
    return fail(ncclInvalidArgument, "no such communicator");
  int injected = getNcclError(comm->device);
  *error = injected ? static_cast<ncclResult_t>(injected) : comm->state.load();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  ZPP_COUNT(ncclCommAbort);
  std::shared_ptr<Comm> comm = removeComm(handle);
  if (!comm)
    return fail(ncclInvalidArgument, "no such communicator");
  comm->isAborted = true;
  if (comm->jobs == 0 && comm->channel)
    comm->channel->wake();
  return ncclSuccess;
}

/// Waits for the operations of this rank, including those in graphs.
static ncclResult_t finalize(const std::shared_ptr<Comm> &comm) {
  auto limit = std::chrono::steady_clock::now() + kDestroyLimit;
  while (comm->use.use_count() > 1 && !hasFailed(comm->device)) {
    if (std::chrono::steady_clock::now() > limit) {
      reportError("ncclCommDestroy waits for operations that do not end, or "
                  "for graphs that hold them");
      comm->isAborted = true;
      return ncclInternalError;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  ZPP_COUNT(ncclCommDestroy);
  std::shared_ptr<Comm> comm = removeComm(handle);
  if (!comm)
    return fail(ncclInvalidArgument, "no such communicator");
  return finalize(comm);
}

const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
  case ncclSystemError:
    return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
  case ncclInternalError:
    return "internal error - please report this issue to the NCCL developers";
  case ncclInvalidArgument:
    return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  case ncclInvalidUsage:
    return "invalid usage (run with NCCL_DEBUG=WARN for details)";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  default:
    return "unknown result code";
  }
}

const char *ncclGetLastError(ncclComm_t) { return lastError; }

} // extern "C"

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

namespace {
struct Op {
  enum Kind { Send, Recv, AllGather, ReduceScatter, AllReduce } kind;
  bool isSum() const { return kind == ReduceScatter || kind == AllReduce; }
  std::shared_ptr<Comm> comm;
  cudaStream_t stream;
  const void *source;
  void *dest;
  /// The bytes of one transfer.
  int64_t bytes;
  ncclDataType_t type;
  int peer;
};

/// The group calls of a thread.
struct Group {
  int depth = 0;
  ncclResult_t result = ncclSuccess;
  std::vector<Op> ops;
};
} // namespace

static thread_local Group group;

static int64_t elementBytes(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
  case ncclFloat8e4m3:
  case ncclFloat8e5m2:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  default:
    return 8;
  }
}

/// Returns the type of elements that are added.
static ElementType getType(ncclDataType_t type) {
  return type == ncclFloat32    ? ElementType::F32
         : type == ncclBfloat16 ? ElementType::BF16
                                : ElementType::F16;
}

/// Executes operations of one communicator as one kernel, after `before`
/// others.
static void run(Comm &comm, const std::vector<Op> &ops, int64_t before) {
  while (comm.ran < before && !comm.isGivenUp())
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  std::lock_guard<std::mutex> lock(comm.running);
  std::vector<Channel::Transfer> transfers;
  /// The contributions of the ranks to sums.
  std::vector<std::vector<uint8_t>> parts;
  for (const Op &op : ops)
    if (op.isSum())
      for (int rank = 0; rank < comm.ranks; ++rank)
        parts.emplace_back(op.bytes);
  size_t part = 0;
  for (const Op &op : ops) {
    auto *source = const_cast<uint8_t *>(at(op.source));
    switch (op.kind) {
    case Op::Send:
      transfers.push_back({op.peer, true, source, op.bytes, "send/recv"});
      break;
    case Op::Recv:
      transfers.push_back({op.peer, false, at(op.dest), op.bytes, "send/recv"});
      break;
    case Op::AllGather:
    case Op::ReduceScatter:
    case Op::AllReduce:
      for (int rank = 0; rank < comm.ranks; ++rank) {
        bool isGather = op.kind == Op::AllGather;
        bool isScatter = op.kind == Op::ReduceScatter;
        const char *kind = isGather    ? "all-gather"
                           : isScatter ? "reduce-scatter"
                                       : "all-reduce";
        transfers.push_back({rank, true,
                             source + (isScatter ? rank * op.bytes : 0),
                             op.bytes, kind});
        transfers.push_back(
            {rank, false,
             isGather ? at(op.dest) + rank * op.bytes : parts[part++].data(),
             op.bytes, kind});
      }
      break;
    }
  }
  std::string mismatch;
  bool isDone = comm.channel->exchange(
      transfers, [&] { return comm.isGivenUp(); }, mismatch);
  if (!mismatch.empty()) {
    comm.isBroken = true;
    reportError("NCCL: " + mismatch);
  }
  part = 0;
  for (const Op &op : ops) {
    if (!isDone) {
      int64_t size = op.kind == Op::AllGather ? comm.ranks : 1;
      if (op.kind != Op::Send)
        std::memset(at(op.dest), kGarbage, op.bytes * size);
      continue;
    }
    if (!op.isSum())
      continue;
    // Adds in the order of a ring, rounding at each step; all ranks have the
    // same sum.
    int first = op.kind == Op::ReduceScatter ? comm.rank : 0;
    ElementType type = getType(op.type);
    for (int64_t i = 0; i < op.bytes / elementBytes(op.type); ++i)
      for (int step = 1; step <= comm.ranks; ++step) {
        const uint8_t *data = parts[part + (first + step) % comm.ranks].data();
        float value = readElement(type, data, i);
        if (step > 1)
          value += readElement(type, at(op.dest), i);
        writeElement(type, value, at(op.dest), i);
      }
    part += comm.ranks;
  }
}

/// Queues operations of one communicator.
static ncclResult_t submitOps(const std::shared_ptr<Comm> &comm,
                              const std::vector<Op> &ops) {
  Task task;
  static const char *names[] = {"ncclSend", "ncclRecv", "ncclAllGather",
                                "ncclReduceScatter", "ncclAllReduce"};
  task.name = std::string(names[ops.front().kind]) +
              (ops.size() > 1 ? " and others" : "") + " as rank " +
              std::to_string(comm->rank) + " of " + std::to_string(comm->ranks);
  for (const Op &op : ops) {
    if (op.stream != ops.front().stream)
      return fail(ncclInvalidUsage,
                  "several streams in a group are not simulated");
    int64_t inputs = op.kind == Op::ReduceScatter ? comm->ranks : 1;
    int64_t outputs = op.kind == Op::AllGather ? comm->ranks : 1;
    if (op.kind != Op::Recv)
      task.accesses.push_back({op.source, op.bytes * inputs, false});
    if (op.kind != Op::Send)
      task.accesses.push_back({op.dest, op.bytes * outputs, true});
  }
  OnDevice device(comm->device);
  std::lock_guard<std::mutex> lock(comm->submitting);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(ops.front().stream, &status) != cudaSuccess)
    return fail(ncclUnhandledCudaError, "cudaStreamIsCapturing failed");
  bool isInGraph = status != cudaStreamCaptureStatusNone;
  int64_t before = isInGraph ? 0 : comm->submitted++;
  task.run = [=, use = comm->use] {
    run(*comm, ops, before);
    if (!isInGraph)
      ++comm->ran;
  };
  return submit(ops.front().stream, std::move(task)) == cudaSuccess
             ? ncclSuccess
             : fail(ncclUnhandledCudaError, "the launch failed");
}

static ncclResult_t flush() {
  std::vector<Op> ops = std::exchange(group.ops, {});
  std::vector<std::shared_ptr<Comm>> comms;
  bool isBlocking = true;
  for (const Op &op : ops) {
    if (std::find(comms.begin(), comms.end(), op.comm) == comms.end())
      comms.push_back(op.comm);
    isBlocking &= op.comm->isBlocking;
  }
  if (comms.empty())
    return ncclSuccess;
  return start(comms, isBlocking, [=]() -> ncclResult_t {
    for (const std::shared_ptr<Comm> &comm : comms) {
      std::vector<Op> own;
      for (const Op &op : ops)
        if (op.comm == comm)
          own.push_back(op);
      if (ncclResult_t result = submitOps(comm, own))
        return result;
    }
    return ncclSuccess;
  });
}

static ncclResult_t add(Op op, ncclComm_t handle, size_t count) {
  auto bad = [](ncclResult_t result, const char *message) {
    if (group.depth > 0 && group.result == ncclSuccess)
      group.result = result;
    return fail(result, message);
  };
  op.comm = findComm(handle);
  if (!op.comm)
    return bad(ncclInvalidArgument, "no such communicator");
  if (op.comm->jobs > 0)
    return bad(ncclInvalidArgument, "the communicator is in progress");
  if (op.comm->state != ncclSuccess || !op.comm->channel)
    return bad(ncclInvalidUsage, "the communicator has failed");
  bool isCollective = op.kind == Op::AllGather || op.isSum();
  if (!isCollective && (op.peer < 0 || op.peer >= op.comm->ranks))
    return bad(ncclInvalidArgument, "no such peer");
  if (op.isSum() && op.type != ncclFloat32 && op.type != ncclBfloat16 &&
      op.type != ncclFloat16)
    return bad(ncclInvalidUsage, "sums of this type are not simulated");
  op.bytes = static_cast<int64_t>(count) * elementBytes(op.type);
  if (!isCollective || count > 0)
    group.ops.push_back(std::move(op));
  return group.depth > 0 ? ncclSuccess : flush();
}

extern "C" {

ncclResult_t ncclGroupStart() {
  ZPP_COUNT(ncclGroupStart);
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  int error = countCall("ncclGroupEnd");
  if (group.depth == 0)
    return fail(ncclInvalidUsage, "no group to end");
  if (--group.depth > 0)
    return ncclSuccess;
  ncclResult_t result = std::exchange(group.result, ncclSuccess);
  if (error)
    result =
        fail(static_cast<ncclResult_t>(error), "ncclGroupEnd was told to fail");
  if (result != ncclSuccess) {
    group.ops.clear();
    return result;
  }
  return flush();
}

ncclResult_t ncclSend(const void *source, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream) {
  ZPP_COUNT(ncclSend);
  return add({Op::Send, nullptr, stream, source, nullptr, 0, type, peer}, comm,
             count);
}

ncclResult_t ncclRecv(void *dest, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  ZPP_COUNT(ncclRecv);
  return add({Op::Recv, nullptr, stream, nullptr, dest, 0, type, peer}, comm,
             count);
}

ncclResult_t ncclAllGather(const void *source, void *dest, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  ZPP_COUNT(ncclAllGather);
  return add({Op::AllGather, nullptr, stream, source, dest, 0, type, 0}, comm,
             count);
}

ncclResult_t ncclReduceScatter(const void *source, void *dest, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  ZPP_COUNT(ncclReduceScatter);
  if (op != ncclSum)
    return fail(ncclInvalidUsage, "reductions but sums are not simulated");
  return add({Op::ReduceScatter, nullptr, stream, source, dest, 0, type, 0},
             comm, count);
}

ncclResult_t ncclAllReduce(const void *source, void *dest, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  ZPP_COUNT(ncclAllReduce);
  if (op != ncclSum)
    return fail(ncclInvalidUsage, "reductions but sums are not simulated");
  return add({Op::AllReduce, nullptr, stream, source, dest, 0, type, 0}, comm,
             count);
}

} // extern "C"
