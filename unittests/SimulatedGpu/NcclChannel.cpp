//===- NcclChannel.cpp - Memory that ranks share --------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NcclChannel.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <fcntl.h>
#include <linux/futex.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <set>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

using namespace zpp::simulated;

static constexpr uint64_t kRingBytes = 32 << 10;
/// How often a waiting rank asks whether to give up.
static constexpr int64_t kPeriodNsec = 20'000'000;
/// How long contradicting ends may wait for an abort.
static constexpr std::chrono::seconds kMismatchLimit{3};

namespace {
struct Ring {
  /// Bytes ever written and read.
  uint64_t written, read;
  uint8_t data[kRingBytes];
};

/// The header of a transfer.
struct Header {
  int64_t bytes;
  char kind[24];
};
} // namespace

/// Zero before the first rank.
struct Channel::Shared {
  int ranks;
  pthread_mutex_t mutex;
  /// Counts what may end somebody's wait.
  std::atomic<uint32_t> changes;
  struct Member {
    bool isHere;
    int process;
    int device;
    uint64_t gathered;
    /// The values of the last two rounds.
    Value values[2];
  };
  Member members[kMaxRanks];
  Ring rings[];

  static size_t bytes(int ranks) {
    return sizeof(Shared) + sizeof(Ring) * ranks * ranks;
  }
  Ring &ring(int from, int to) { return rings[from * ranks + to]; }
};

/// A condition that survives processes that die while they use it. With a
/// condition of pthreads, a process that is killed while it waits may leave the
/// others waiting forever.
class Channel::Lock {
public:
  explicit Lock(Shared &shared) : shared(shared) { lock(); }
  ~Lock() { pthread_mutex_unlock(&shared.mutex); }
  void notify() {
    ++shared.changes;
    syscall(SYS_futex, &shared.changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
  }
  void wait() {
    uint32_t seen = shared.changes;
    pthread_mutex_unlock(&shared.mutex);
    timespec period = {0, kPeriodNsec};
    syscall(SYS_futex, &shared.changes, FUTEX_WAIT, seen, &period, nullptr, 0);
    lock();
  }

private:
  void lock() {
    if (pthread_mutex_lock(&shared.mutex) == EOWNERDEAD)
      pthread_mutex_consistent(&shared.mutex);
  }
  Shared &shared;
};

/// Shared memory of this process that ranks still have to find. Threads may
/// wait for them until the end.
static void setPending(const std::string &name, bool isPending) {
  static std::mutex mutex;
  static auto *names = new std::set<std::string>;
  std::lock_guard<std::mutex> lock(mutex);
  static bool isRegistered = false;
  if (!std::exchange(isRegistered, true))
    std::atexit([] {
      std::lock_guard<std::mutex> lock(mutex);
      for (const std::string &name : *names)
        shm_unlink(name.c_str());
    });
  if (isPending) {
    names->insert(name);
  } else if (names->erase(name)) {
    shm_unlink(name.c_str());
  }
}

std::shared_ptr<Channel> Channel::open(const std::string &name, int ranks,
                                       int rank, int device,
                                       const GiveUp &giveUp,
                                       std::string &error) {
  if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks) {
    error = "rank " + std::to_string(rank) + " of " + std::to_string(ranks);
    return nullptr;
  }
  setPending(name, true);
  int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) {
    error = "cannot open '" + name + "': " + std::strerror(errno);
    return nullptr;
  }
  // The first one makes it.
  flock(file, LOCK_EX);
  size_t bytes = Shared::bytes(ranks);
  bool isFirst = lseek(file, 0, SEEK_END) == 0;
  void *memory = MAP_FAILED;
  if (!isFirst || ftruncate(file, bytes) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    error = "cannot map '" + name + "': " + std::strerror(errno);
    close(file);
    return nullptr;
  }
  auto *shared = static_cast<Shared *>(memory);
  if (isFirst) {
    shared->ranks = ranks;
    pthread_mutexattr_t mutexKind;
    pthread_mutexattr_init(&mutexKind);
    pthread_mutexattr_setpshared(&mutexKind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&mutexKind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->mutex, &mutexKind);
  }
  // Not by closing: the mapping keeps the file open.
  flock(file, LOCK_UN);
  close(file);

  std::shared_ptr<Channel> channel(new Channel(shared, rank));
  Lock lock(*shared);
  if (shared->ranks != ranks)
    error = "expected " + std::to_string(shared->ranks) + " ranks, but got " +
            std::to_string(ranks);
  else if (shared->members[rank].isHere)
    error = "rank " + std::to_string(rank) + " is there already";
  for (int other = 0; other < ranks && error.empty(); ++other)
    if (shared->members[other].isHere &&
        shared->members[other].process == getpid() &&
        shared->members[other].device == device)
      error = "duplicate GPU " + std::to_string(device) + ": rank " +
              std::to_string(other) + " and rank " + std::to_string(rank);
  if (!error.empty())
    return nullptr;
  shared->members[rank].isHere = true;
  shared->members[rank].process = getpid();
  shared->members[rank].device = device;
  lock.notify();
  auto isComplete = [&] {
    return std::all_of(shared->members, shared->members + ranks,
                       [](const Shared::Member &m) { return m.isHere; });
  };
  while (!isComplete()) {
    if (giveUp()) {
      setPending(name, false);
      return nullptr;
    }
    lock.wait();
  }
  // Everybody has it.
  setPending(name, false);
  return channel;
}

Channel::~Channel() { munmap(shared, Shared::bytes(shared->ranks)); }

bool Channel::gather(const Value &value, std::vector<Value> &values,
                     const GiveUp &giveUp) {
  Lock lock(*shared);
  uint64_t round = gathered++;
  Shared::Member &self = shared->members[rank];
  self.values[round % 2] = value;
  self.gathered = gathered;
  lock.notify();
  values.clear();
  for (int other = 0; other < shared->ranks; ++other) {
    while (shared->members[other].gathered <= round) {
      if (giveUp())
        return false;
      lock.wait();
    }
    values.push_back(shared->members[other].values[round % 2]);
  }
  return true;
}

static uint64_t space(const Ring &ring) {
  return kRingBytes - (ring.written - ring.read);
}

static void write(Ring &ring, const void *data, uint64_t bytes) {
  uint64_t at = ring.written % kRingBytes;
  uint64_t first = std::min(bytes, kRingBytes - at);
  std::memcpy(ring.data + at, data, first);
  std::memcpy(ring.data, static_cast<const uint8_t *>(data) + first,
              bytes - first);
  ring.written += bytes;
}

static void read(Ring &ring, void *data, uint64_t bytes) {
  uint64_t at = ring.read % kRingBytes;
  uint64_t first = std::min(bytes, kRingBytes - at);
  std::memcpy(data, ring.data + at, first);
  std::memcpy(static_cast<uint8_t *>(data) + first, ring.data, bytes - first);
  ring.read += bytes;
}

bool Channel::exchange(const std::vector<Transfer> &transfers,
                       const GiveUp &giveUp, std::string &mismatch) {
  struct Progress {
    const Transfer *transfer;
    bool hasHeader = false;
    /// Contradicts the other end.
    bool isStuck = false;
    int64_t moved = 0;
  };
  std::map<std::pair<bool, int>, std::deque<Progress>> queues;
  for (const Transfer &transfer : transfers)
    queues[{transfer.isSend, transfer.peer}].push_back({&transfer});

  std::string problem;
  std::chrono::steady_clock::time_point problemTime;
  Lock lock(*shared);
  /// Moves as much of one transfer as possible. Returns whether anything moved.
  auto advance = [&](Progress &progress) {
    const Transfer &transfer = *progress.transfer;
    Ring &ring = transfer.isSend ? shared->ring(rank, transfer.peer)
                                 : shared->ring(transfer.peer, rank);
    bool hasMoved = false;
    if (!progress.hasHeader) {
      Header header{};
      if (transfer.isSend) {
        if (space(ring) < sizeof(header))
          return false;
        header.bytes = transfer.bytes;
        std::strncpy(header.kind, transfer.kind, sizeof(header.kind) - 1);
        write(ring, &header, sizeof(header));
      } else {
        if (ring.written - ring.read < sizeof(header))
          return false;
        read(ring, &header, sizeof(header));
        if (header.bytes != transfer.bytes ||
            std::strcmp(header.kind, transfer.kind) != 0) {
          progress.isStuck = true;
          problem = "rank " + std::to_string(rank) + " expects " +
                    std::to_string(transfer.bytes) + " bytes of " +
                    transfer.kind + " from rank " +
                    std::to_string(transfer.peer) + ", which sends " +
                    std::to_string(header.bytes) + " of " + header.kind;
          problemTime = std::chrono::steady_clock::now();
          return false;
        }
      }
      progress.hasHeader = hasMoved = true;
    }
    uint64_t bytes = std::min<uint64_t>(
        transfer.bytes - progress.moved,
        transfer.isSend ? space(ring) : ring.written - ring.read);
    if (bytes > 0) {
      if (transfer.isSend)
        write(ring, transfer.data + progress.moved, bytes);
      else
        read(ring, transfer.data + progress.moved, bytes);
      progress.moved += bytes;
      hasMoved = true;
    }
    return hasMoved;
  };

  while (true) {
    bool hasMoved = false, isDone = true;
    for (auto &[key, queue] : queues) {
      while (!queue.empty() && !queue.front().isStuck) {
        Progress &progress = queue.front();
        if (!advance(progress))
          break;
        hasMoved = true;
        if (!progress.hasHeader || progress.moved < progress.transfer->bytes)
          break;
        queue.pop_front();
      }
      isDone &= queue.empty();
    }
    if (hasMoved)
      lock.notify();
    if (isDone)
      return true;
    if (giveUp())
      return false;
    if (!problem.empty() &&
        std::chrono::steady_clock::now() - problemTime > kMismatchLimit) {
      mismatch = problem;
      return false;
    }
    if (!hasMoved)
      lock.wait();
  }
}

void Channel::wake() {
  Lock lock(*shared);
  lock.notify();
}
