//===- Plain.h - Collectives of the communication library -------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reference that the runtime's collectives are compared with. It is not in
// libzpp_rt: zpp-perf and the tests have it, and the runtime, linked in.
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_LIB_RUNTIME_PLAIN_PLAIN_H
#define ZPP_LIB_RUNTIME_PLAIN_PLAIN_H

#include "zpp/Runtime/zpp_rt.h"
#include "zpp/Support/BlockQuant.h"
#include "zpp/Support/Mesh.h"

#include <cstdint>
#include <vector>

namespace zpp::rt {

/// A collective of whole tensors, done by NCCL in one call where the rank is on
/// a GPU that NCCL connects, and otherwise by exchanges and a sum. The members
/// of the group differ along `axes`, which are in the order of the mesh.
struct PlainCollective {
  enum Kind { ReduceScatter, AllGather, AllReduce };

  Kind kind;
  std::vector<AxisRef> axes;
  ElementType type;
  /// Elements of the whole tensor, a multiple of the group's size: of the input
  /// of a reduce-scatter, of the output of an all-gather, of both of an
  /// all-reduce.
  int64_t elements;
};

/// Runs `collective` like the operations of zpp_rt.h. In which order elements
/// are added is not said.
zpp_rt_status runPlain(zpp_rt_rank *rank, const PlainCollective &collective,
                       const void *input, void *output);

} // namespace zpp::rt

#endif // ZPP_LIB_RUNTIME_PLAIN_PLAIN_H
