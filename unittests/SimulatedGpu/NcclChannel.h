//===- NcclChannel.h - Memory that ranks share ------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_UNITTESTS_SIMULATEDGPU_NCCLCHANNEL_H
#define ZPP_UNITTESTS_SIMULATEDGPU_NCCLCHANNEL_H

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zpp::simulated {

/// The ranks of a communicator, in any number of processes. Each pair has rings
/// of bytes in shared memory. Ranks that wait call `giveUp` from time to time.
class Channel {
public:
  using GiveUp = std::function<bool()>;

  static constexpr int kMaxRanks = 64;

  /// Joins as `rank`. Returns when all ranks have joined, or null with the
  /// reason, which is empty if it gave up.
  static std::shared_ptr<Channel> open(const std::string &name, int ranks,
                                       int rank, int device,
                                       const GiveUp &giveUp,
                                       std::string &error);
  ~Channel();
  Channel(const Channel &) = delete;
  Channel &operator=(const Channel &) = delete;

  /// Passes what each rank contributes to all. False if it gave up.
  using Value = std::array<int64_t, 2>;
  bool gather(const Value &value, std::vector<Value> &values,
              const GiveUp &giveUp);

  struct Transfer {
    int peer;
    bool isSend;
    uint8_t *data;
    int64_t bytes;
    /// A name; both ends must have the same.
    const char *kind;
  };
  /// Does all transfers, those with one peer in order. Sends end when their
  /// data are in a ring, receives when all data have arrived. False if it gave
  /// up. Ends that contradict each other wait as if the other end was missing.
  /// If that lasts, `mismatch` says what is wrong.
  bool exchange(const std::vector<Transfer> &transfers, const GiveUp &giveUp,
                std::string &mismatch);

  /// Ranks of this process look again whether to give up.
  void wake();

private:
  struct Shared;
  class Lock;
  explicit Channel(Shared *shared, int rank) : shared(shared), rank(rank) {}

  Shared *const shared;
  const int rank;
  uint64_t gathered = 0;
};

} // namespace zpp::simulated

#endif // ZPP_UNITTESTS_SIMULATEDGPU_NCCLCHANNEL_H
