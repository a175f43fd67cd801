//===- Plan.h - The operations that are measured ----------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_PERF_PLAN_H
#define ZPP_TOOLS_ZPP_PERF_PLAN_H

#include "Plain/Plain.h"
#include "zpp/Runtime/zpp_rt.h"
#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Mesh.h"
#include "zpp/Support/SliceMap.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zpp::perf {

/// Operations of a rank on their own buffers. A plan is made once for all
/// ranks; each rank has a `Run` of it.
class Plan {
public:
  /// A place in one of the buffers.
  struct Place {
    size_t buffer;
    int64_t offset = 0;
  };

  /// The input has `inputBytes` bytes, the output `outputBytes`.
  Plan(int64_t inputBytes, int64_t outputBytes)
      : bytes{inputBytes, outputBytes} {}

  static constexpr Place input() { return {0}; }
  static constexpr Place output() { return {1}; }
  Place addBuffer(int64_t count);

  /// Each function adds an operation that reads one place and writes another,
  /// by a `call` of the runtime.
  void reorder(decltype(zpp_rt_pack_slices) *call, ElementType type,
               const SliceMap &map, Place from, Place to);
  void convert(decltype(zpp_rt_quantize) *call, ElementType type,
               WireFormat format, int64_t block, const SliceMap &map,
               Place from, Place to);
  /// The sources have `sourceType` if the format is None.
  void reduce(int64_t sources, int64_t elements, ElementType sourceType,
              WireFormat format, int64_t block, ElementType type, Place from,
              Place to);
  void reduceQuantize(int64_t sources, WireFormat format, int64_t block,
                      WireFormat toFormat, int64_t toBlock, const SliceMap &map,
                      Place from, Place to);
  void exchange(decltype(zpp_rt_all_to_all) *call,
                const std::vector<AxisRef> &axes, int64_t chunkBytes,
                Place from, Place to);
  /// The communication library's own collective.
  void plain(const rt::PlainCollective &collective, Place from, Place to);

  int64_t inputBytes() const { return bytes[0]; }
  int64_t outputBytes() const { return bytes[1]; }

  /// The plan in the memory of a rank.
  class Run {
  public:
    Run(const Plan &plan, zpp_rt_rank *rank);
    ~Run();
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    /// Copy the input from `data`, and the output back.
    void write(const void *data) const;
    std::vector<uint8_t> read() const;

    /// Queues all operations after those of earlier calls.
    void operator()() const;

  private:
    void *at(Place place) const {
      return static_cast<uint8_t *>(buffers[place.buffer]) + place.offset;
    }

    const Plan &plan;
    zpp_rt_rank *rank;
    std::vector<void *> buffers;
  };

private:
  struct Operation {
    std::function<void(zpp_rt_rank *rank, const void *from, void *to)> call;
    Place from, to;
  };
  std::vector<int64_t> bytes;
  std::vector<Operation> operations;
};

/// A reduce-scatter of `elements`, a multiple of the number of devices, over
/// the hops and formats that getTierHops gives. The tensor is cut into `stages`
/// parts, so that one hop works on a part while the next hop works on the part
/// before (paper section 4.1.2).
Plan makeReduceScatter(const Mesh &mesh, ElementType type, int64_t elements,
                       const std::vector<WireFormat> &formats, int64_t block,
                       int64_t stages);

/// An all-gather of `elements` over the whole mesh.
Plan makeAllGather(const Mesh &mesh, ElementType type, int64_t elements,
                   WireFormat format, int64_t block);

/// An all-reduce of `elements`, a multiple of the number of devices, in as many
/// `stages`: a scatter as above, and a gather of the sums in the format
/// `reduced`, over slower tiers first.
Plan makeAllReduce(const Mesh &mesh, ElementType type, int64_t elements,
                   const std::vector<WireFormat> &formats, WireFormat reduced,
                   int64_t block, int64_t stages);

/// One of these collectives, done by the communication library.
Plan makePlain(const Mesh &mesh, ElementType type, int64_t elements,
               rt::PlainCollective::Kind kind);

} // namespace zpp::perf

#endif // ZPP_TOOLS_ZPP_PERF_PLAN_H
