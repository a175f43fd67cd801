//===- LinkModel.h - How long communication takes ---------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model of exchanges and of the kernels around them, good enough to choose
// between ways to do the same. Speeds of links come from the user; what is
// alike on all machines stands in one table.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_SUPPORT_LINKMODEL_H
#define ZPP_SUPPORT_LINKMODEL_H

#include "zpp/Support/Mesh.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zpp {

class LinkModel {
public:
  /// From the start of an exchange to its first byte, and of a kernel.
  static constexpr double kExchangeUsec = 15;
  static constexpr double kKernelUsec = 4;
  /// What kernels read and write: HBM, less what they do not reach.
  static constexpr double kMemoryBytesPerUsec = 2.5e6;
  /// A kernel takes its time from the compute, under which an exchange may
  /// hide: what it must save for each microsecond of its own.
  static constexpr double kKernelWeight = 2;

  /// Where nothing is said: the fastest tier as NVLink, each slower one a tenth
  /// of the one before.
  explicit LinkModel(const Mesh &mesh);

  /// "node=50gbit,gpu=400gbyte": what a device sends per second over the links
  /// of each tier, every tier of `mesh` once. nullopt and `error` otherwise.
  static std::optional<LinkModel> parse(const std::string &spec,
                                        const Mesh &mesh, std::string &error);

  /// An exchange in which a device sends `sent` bytes over each tier; tiers
  /// work at the same time.
  double getExchangeUsec(const std::vector<int64_t> &sent) const;
  /// A kernel that reads and writes so many bytes.
  static double getKernelUsec(int64_t bytes);

private:
  /// By the axes of the mesh.
  std::vector<double> bytesPerUsec;
};

/// Stages that a collective is best cut into, given what each of its hops takes
/// in one piece: the hops of one stage run under those of others, but each
/// stage has the latency of every hop. At most `most`.
int64_t chooseStages(const std::vector<double> &hopUsec, int64_t most);

} // namespace zpp

#endif // ZPP_SUPPORT_LINKMODEL_H
