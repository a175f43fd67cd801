//===- LinkModel.h - How long communication takes ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model of the time that exchanges and the kernels around them take, good
// enough to choose between ways to do the same thing. The user gives the speeds
// of links. What is similar on all machines is in one table.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_LINKMODEL_H
#define ZPP_SUPPORT_LINKMODEL_H

#include "zpp/Support/CollectiveCost.h"
#include "zpp/Support/Mesh.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zpp {

class LinkModel {
public:
  /// The latency of an exchange, from its start to its first byte, and of a
  /// kernel.
  static constexpr double kExchangeUsec = 15;
  static constexpr double kKernelUsec = 4;
  /// The rate at which kernels read and write: somewhat less than that of HBM.
  static constexpr double kMemoryBytesPerUsec = 2.5e6;
  /// The microseconds of exchange that a kernel must save per microsecond of
  /// its own time. An exchange may hide under compute, but a kernel takes time
  /// away from it.
  static constexpr double kKernelWeight = 2;

  /// The default: the fastest tier is like NVLink, and each slower tier has a
  /// tenth of the speed of the next faster one.
  explicit LinkModel(const Mesh &mesh);

  /// Parses "node=50gbit,gpu=400gbyte": what a device sends per second over the
  /// links of each tier. "node=50gbit/60gbit" has another speed for rings,
  /// which keep a link busier than sends to single peers; "node=50gbit+270us"
  /// has a longer latency than kExchangeUsec. Every tier of `mesh` must occur
  /// once. On failure returns nullopt and sets `error`.
  static std::optional<LinkModel> parse(const std::string &spec,
                                        const Mesh &mesh, std::string &error);

  /// Returns the time of an exchange in which a device sends sent[i] bytes over
  /// tier i of the mesh. All tiers work at the same time.
  double getExchangeUsec(const std::vector<int64_t> &sent) const;
  /// True if sending takes less than the latency of such an exchange.
  bool isMostlyLatency(const std::vector<int64_t> &sent) const;
  /// Returns the time of each byte of one over a tier, without the latency.
  double getUsecPerByte(int64_t tier) const { return 1 / rates[tier].exchange; }
  /// The same for a collective that NCCL runs as a ring over a group of
  /// sizes[i] devices along axis i, in which each device passes `bytes` bytes
  /// on to the next one in every step. As NCCL does, it takes the protocol with
  /// which this is the fastest. With `isTree`, that of half an all-reduce:
  /// between two nodes NCCL takes a tree, in which all that is summed crosses
  /// once in each direction.
  double getRingUsec(const std::vector<int64_t> &sizes, int64_t bytes,
                     bool isTree = false) const;
  /// Returns the time of a collective of NCCL over the groups of `refs`,
  /// whoever starts it: of gathers, scatters and all-reduces as rings, of
  /// all-reduces of two nodes as trees between them. `bytes` is as in
  /// `getSentBytes`.
  double getCollectiveUsec(const Mesh &mesh, CollectiveKind kind,
                           const std::vector<AxisRef> &refs,
                           int64_t bytes) const;
  /// Returns the time of a gather that takes a hop over each tier, from the
  /// slowest on. While one is in its slowest hop, others are in theirs: of
  /// these only the latency counts.
  double getHopsUsec(const Mesh &mesh, const std::vector<AxisRef> &refs,
                     int64_t bytes) const;

  /// A protocol of NCCL's rings: the microseconds of a step between devices of
  /// a node and between nodes, and the part of what it sends that is data. With
  /// few bytes, short steps are worth more than full messages.
  struct Protocol {
    double stepUsec, hopUsec, data;
  };
  /// LL, LL128 and Simple on NVLink and a network (NCCL, graph/tuning.cc).
  static constexpr Protocol kProtocols[] = {
      {0.6, 2.7, 0.5}, {1.9, 4.0, 0.92}, {3.4, 14, 1}};

  /// Returns the time of a kernel that reads and writes `bytes` bytes in total.
  static double getKernelUsec(int64_t bytes);

private:
  /// In bytes per microsecond.
  struct Rates {
    double exchange, ring;
  };
  /// Indexed by the axes of the mesh.
  std::vector<Rates> rates;
  std::vector<double> latencyUsec;
};

/// Returns the best number of stages for a collective, at most `most`, given
/// the time that each of its hops takes in one piece. The hops of one stage run
/// under those of others, but each stage has the latency of every hop.
int64_t chooseStages(const std::vector<double> &hopUsec, int64_t most);

} // namespace zpp

#endif // ZPP_SUPPORT_LINKMODEL_H
