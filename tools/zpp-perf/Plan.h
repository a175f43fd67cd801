//===- Plan.h - What is measured: operations in their order -----*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TOOLS_ZPP_PERF_PLAN_H
#define ZPP_TOOLS_ZPP_PERF_PLAN_H

#include "zpp/Runtime/zpp_rt.h"
#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Mesh.h"
#include "zpp/Support/SliceMap.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zpp::perf {

/// Operations of a rank, each reading what the one before wrote. Made once for
/// all ranks; `Run` is a rank's.
class Plan {
public:
  /// `inputBytes` bytes go into the first operation.
  explicit Plan(int64_t inputBytes) : bytes{inputBytes} {}

  void pack(ElementType type, const SliceMap &map);
  void quantize(ElementType type, WireFormat format, int64_t block,
                const SliceMap &map);
  void dequantize(ElementType type, WireFormat format, int64_t block,
                  const SliceMap &map);
  /// Of `sourceType` where the format is None.
  void reduce(int64_t sources, int64_t elements, ElementType sourceType,
              WireFormat format, int64_t block, ElementType type);
  void reduceQuantize(int64_t sources, WireFormat format, int64_t block,
                      WireFormat toFormat, int64_t toBlock,
                      const SliceMap &map);
  void allToAll(const std::vector<AxisRef> &axes, int64_t chunkBytes);
  void allGather(const std::vector<AxisRef> &axes, int64_t chunkBytes);
  /// A copy, the measure of all kernels.
  void copy();

  int64_t inputBytes() const { return bytes.front(); }
  int64_t outputBytes() const { return bytes.back(); }

  /// The plan in the memory of a rank.
  class Run {
  public:
    Run(const Plan &plan, zpp_rt_rank *rank, const void *input);
    ~Run();
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;

    /// Queues all operations.
    void operator()() const;
    /// What the last one wrote.
    std::vector<uint8_t> read() const;

  private:
    const Plan &plan;
    zpp_rt_rank *rank;
    std::vector<void *> buffers;
  };

private:
  using Operation =
      std::function<void(zpp_rt_rank *rank, const void *input, void *output)>;
  void add(int64_t outputBytes, Operation operation);
  void exchange(const std::vector<AxisRef> &axes, int64_t chunkBytes,
                bool isGather);

  /// Of the input and of what each operation writes.
  std::vector<int64_t> bytes;
  std::vector<Operation> operations;
};

/// The reduce-scatter of `elements` over hops along the axes of `mesh`, from
/// the innermost outwards, one per format; the last hop covers all axes that
/// remain. Elements are a multiple of the devices.
Plan makeReduceScatter(const Mesh &mesh, ElementType type, int64_t elements,
                       const std::vector<WireFormat> &formats, int64_t block);

/// The all-gather of `elements` over the whole mesh in one hop.
Plan makeAllGather(const Mesh &mesh, ElementType type, int64_t elements,
                   WireFormat format, int64_t block);

} // namespace zpp::perf

#endif // ZPP_TOOLS_ZPP_PERF_PLAN_H
