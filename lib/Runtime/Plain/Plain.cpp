//===- Plain.cpp - Collectives of the communication library ---------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Plain.h"

#include "Handles.h"

#ifdef ZPP_RT_HAS_CUDA
#include "Cuda/CudaRank.h"
#endif

#include <cassert>

using namespace zpp;
using namespace zpp::rt;

namespace {
/// A collective on the buffers of a rank.
class PlainRun {
public:
  PlainRun(RankBackend &backend, const PlainCollective &collective,
           const void *input, void *output)
      : backend(backend), collective(collective), input(input), output(output),
        bytes(collective.elements * elementBytes(collective.type)) {
    assert(collective.elements % numDevices(collective.axes) == 0);
    exchange.axes = collective.axes;
    exchange.chunkBytes = bytes / numDevices(collective.axes);
    exchange.name = std::make_shared<const OperationName>(
        getName(collective.kind), nullptr, collective.axes);
  }

  /// Returns the name in errors and traces, by which ranks also agree on the
  /// operation.
  static const char *getName(PlainCollective::Kind kind) {
    static constexpr const char *kNames[] = {
        "plain_reduce_scatter", "plain_all_gather", "plain_all_reduce"};
    return kNames[kind];
  }

  Status operator()() {
#ifdef ZPP_RT_HAS_CUDA
    if (auto *cuda = dynamic_cast<CudaRank *>(&backend))
      return runOnNccl(*cuda);
#endif
    switch (collective.kind) {
    case PlainCollective::ReduceScatter:
      return reduceScatter(output);
    case PlainCollective::AllGather:
      return allGather(input);
    case PlainCollective::AllReduce:
      return withTemporary(exchange.chunkBytes, [&](void *part) -> Status {
        ZPP_RT_TRY(reduceScatter(part));
        return allGather(part);
      });
    }
    return {};
  }

private:
  /// Calls `function` with memory of the rank.
  template <typename Function>
  Status withTemporary(int64_t bytes, const Function &function) {
    void *data = nullptr;
    ZPP_RT_TRY(backend.allocate(bytes, data));
    Status status = function(data);
    Status freed = backend.free(data);
    return status.ok() ? freed : status;
  }

  Status reduceScatter(void *sum) {
    exchange.isGather = false;
    exchange.footprint = {bytes, bytes};
    return withTemporary(bytes, [&](void *parts) -> Status {
      ZPP_RT_TRY(backend.exchange(exchange, input, parts));
      if (bytes == 0)
        return {};
      ReduceOperation reduce{};
      reduce.name = exchange.name;
      reduce.sources = bytes / exchange.chunkBytes;
      reduce.elements = exchange.chunkBytes / elementBytes(collective.type);
      reduce.sourceType = reduce.type = collective.type;
      reduce.wire.format = WireFormat::None;
      reduce.footprint = {
          Pieces(reduce.sources, exchange.chunkBytes, exchange.chunkBytes),
          exchange.chunkBytes};
      return backend.compute(&reduce, parts, /*held=*/nullptr, sum);
    });
  }

  Status allGather(const void *part) {
    exchange.isGather = true;
    exchange.footprint = {exchange.chunkBytes, bytes};
    return backend.exchange(exchange, part, output);
  }

#ifdef ZPP_RT_HAS_CUDA
  Status runOnNccl(CudaRank &rank);
#endif

  RankBackend &backend;
  const PlainCollective &collective;
  const void *input;
  void *output;
  /// The size of the whole tensor.
  const int64_t bytes;
  ExchangeOperation exchange;
};
} // namespace

#ifdef ZPP_RT_HAS_CUDA
/// NCCL's name of a type.
static ncclDataType_t getType(ElementType type) {
  switch (type) {
  case ElementType::F32:
    return ncclFloat32;
  case ElementType::BF16:
    return ncclBfloat16;
  case ElementType::F16:
    return ncclFloat16;
  }
  return ncclFloat32;
}

Status PlainRun::runOnNccl(CudaRank &rank) {
  const NcclLibrary &nccl = rank.getLibrary();
  const bool isGather = collective.kind == PlainCollective::AllGather;
  const bool isScatter = collective.kind == PlainCollective::ReduceScatter;
  exchange.footprint = {isGather ? exchange.chunkBytes : bytes,
                        isScatter ? exchange.chunkBytes : bytes};
  const ncclDataType_t type = getType(collective.type);
  const size_t part = exchange.chunkBytes / elementBytes(collective.type);
  return rank.callLibrary(
      exchange, input, output,
      [&](ncclComm_t group, cudaStream_t stream) -> ncclResult_t {
        if (!group)
          return cudaMemcpyAsync(output, input, bytes, cudaMemcpyDefault,
                                 stream) == cudaSuccess
                     ? ncclSuccess
                     : ncclUnhandledCudaError;
        if (isGather)
          return nccl.ncclAllGather(input, output, part, type, group, stream);
        if (isScatter)
          return nccl.ncclReduceScatter(input, output, part, type, ncclSum,
                                        group, stream);
        return nccl.ncclAllReduce(input, output, collective.elements, type,
                                  ncclSum, group, stream);
      });
}
#endif

zpp_rt_status rt::runPlain(zpp_rt_rank *rank, const PlainCollective &collective,
                           const void *input, void *output) {
  return call(rank, PlainRun::getName(collective.kind), [&] {
    return PlainRun(*rank->backend, collective, input, output)();
  });
}
