//===- RuntimeOperations.cpp - Operations of the C interface --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Descriptor.h"
#include "Handles.h"

#include <type_traits>

using namespace zpp;
using namespace zpp::rt;

template <typename OperationT, typename Desc, typename Parse>
Status zpp_rt_rank::read(const char *entrypoint, const Desc &desc,
                         const Parse &parse, const OperationT *&operation) {
  key = entrypoint;
  key.push_back('\0');
  bool hasKey = appendKey(desc, key);
  if (hasKey)
    if (auto found = operations.find(key); found != operations.end()) {
      operation = static_cast<const OperationT *>(found->second.get());
      return {};
    }
  auto fresh = std::make_shared<OperationT>();
  ZPP_RT_TRY(parse(desc, *fresh));
  if constexpr (std::is_base_of_v<ExchangeOperation, OperationT>)
    fresh->name = std::make_shared<const OperationName>(entrypoint, desc.name,
                                                        fresh->axes);
  else
    fresh->name = std::make_shared<const OperationName>(entrypoint, desc.name);
  operation = fresh.get();
  current = fresh;
  if (operations.size() == kMaxOperations)
    operations.clear();
  if (hasKey)
    operations.emplace(key, std::move(fresh));
  return {};
}

/// Reads and runs one operation on memory `input` and `output`, and `held` if
/// it has such an input. `parse(desc, operation)` reads the descriptor,
/// `run(backend, operation)` runs the operation.
template <typename OperationT, typename Desc, typename Parse, typename Run>
static zpp_rt_status execute(zpp_rt_rank *rank, const char *entrypoint,
                             const Desc *desc, const void *input,
                             const void *held, const void *output,
                             const Parse &parse, const Run &run) {
  zpp_rt_status code;
  if (!isWell(rank, code))
    return code;
  Desc read{};
  const OperationT *operation = nullptr;
  Status status = guarded([&]() -> Status {
    ZPP_RT_TRY(readDescriptor(desc, read));
    ZPP_RT_TRY(rank->read(entrypoint, read, parse, operation));
    const Footprint &footprint = operation->footprint;
    if ((!input && footprint.input.span() > 0) ||
        (!output && footprint.output.span() > 0))
      return invalid(expected(input ? "an output" : "an input", "NULL"));
    if (!held && footprint.held.span() > 0)
      return invalid(expected("a tensor that is held", "NULL"));
    return run(*rank->backend, *operation);
  });
  if (status.ok())
    return rank->settle(status);
  return settleAs(rank,
                  operation ? operation->name->title
                            : OperationName(entrypoint, read.name).title,
                  std::move(status));
}

/// The same for operations with one input.
template <typename OperationT, typename Desc, typename Parse>
static zpp_rt_status
execute(zpp_rt_rank *rank, const char *entrypoint, const Desc *desc,
        const void *input, void *output, const Parse &parse,
        Status (RankBackend::*run)(const OperationT &, const void *, void *)) {
  return execute<OperationT>(
      rank, entrypoint, desc, input, /*held=*/nullptr, output, parse,
      [&](RankBackend &backend, const OperationT &operation) {
        return (backend.*run)(operation, input, output);
      });
}

/// The four ends of a hop that quantizes.
static zpp_rt_status quantize(zpp_rt_rank *rank, const char *entrypoint,
                              const zpp_rt_quantize_desc *desc,
                              const void *input, const void *held, void *output,
                              bool isDequantize, bool isDifference) {
  return execute<QuantizeOperation>(
      rank, entrypoint, desc, input, held, output,
      [&](auto &desc, auto &operation) {
        return parse(desc, isDequantize, isDifference, operation);
      },
      [&](RankBackend &backend, const QuantizeOperation &operation) -> Status {
        if (isDequantize)
          return backend.dequantize(operation, input, held, output);
        ZPP_RT_TRY(backend.quantize(operation, input, held, output));
        return rank->sampler.take(rank->state->world.measures, backend,
                                  rank->index, operation, input, held, output);
      });
}

zpp_rt_status zpp_rt_copy(zpp_rt_rank *rank, void *dest, const void *source,
                          int64_t bytes) {
  return call(rank, "copy", [&]() -> Status {
    static const auto name =
        std::make_shared<const OperationName>("copy", nullptr);
    zpp_rt_copy_desc desc{};
    desc.rows = 1;
    desc.row_bytes = bytes;
    Operation operation{name, {}};
    ZPP_RT_TRY(parse(desc, operation));
    if (bytes > 0 && (!dest || !source))
      return invalid(expected(dest ? "a source" : "a destination", "NULL"));
    return rank->backend->copy(operation, source, dest);
  });
}

zpp_rt_status zpp_rt_copy_rows(zpp_rt_rank *rank, const zpp_rt_copy_desc *desc,
                               const void *source, void *dest) {
  return execute<Operation>(
      rank, "copy_rows", desc, source, dest,
      [](auto &desc, auto &operation) { return parse(desc, operation); },
      &RankBackend::copy);
}

zpp_rt_status zpp_rt_pack_slices(zpp_rt_rank *rank,
                                 const zpp_rt_pack_desc *desc,
                                 const void *input, void *output) {
  return execute<PackOperation>(
      rank, "pack_slices", desc, input, output,
      [](auto &desc, auto &operation) {
        return parse(desc, /*isUnpack=*/false, operation);
      },
      &RankBackend::packSlices);
}

zpp_rt_status zpp_rt_unpack_slices(zpp_rt_rank *rank,
                                   const zpp_rt_pack_desc *desc,
                                   const void *input, void *output) {
  return execute<PackOperation>(
      rank, "unpack_slices", desc, input, output,
      [](auto &desc, auto &operation) {
        return parse(desc, /*isUnpack=*/true, operation);
      },
      &RankBackend::unpackSlices);
}

zpp_rt_status zpp_rt_quantize(zpp_rt_rank *rank,
                              const zpp_rt_quantize_desc *desc,
                              const void *input, void *output) {
  return quantize(rank, "quantize", desc, input, /*held=*/nullptr, output,
                  /*isDequantize=*/false, /*isDifference=*/false);
}

zpp_rt_status zpp_rt_dequantize(zpp_rt_rank *rank,
                                const zpp_rt_quantize_desc *desc,
                                const void *input, void *output) {
  return quantize(rank, "dequantize", desc, input, /*held=*/nullptr, output,
                  /*isDequantize=*/true, /*isDifference=*/false);
}

zpp_rt_status zpp_rt_quantize_difference(zpp_rt_rank *rank,
                                         const zpp_rt_quantize_desc *desc,
                                         const void *input, const void *held,
                                         void *output) {
  return quantize(rank, "quantize_difference", desc, input, held, output,
                  /*isDequantize=*/false, /*isDifference=*/true);
}

zpp_rt_status zpp_rt_dequantize_add(zpp_rt_rank *rank,
                                    const zpp_rt_quantize_desc *desc,
                                    const void *input, const void *held,
                                    void *output) {
  return quantize(rank, "dequantize_add", desc, input, held, output,
                  /*isDequantize=*/true, /*isDifference=*/true);
}

zpp_rt_status zpp_rt_reduce(zpp_rt_rank *rank, const zpp_rt_reduce_desc *desc,
                            const void *input, void *output) {
  return execute<ReduceOperation>(
      rank, "reduce", desc, input, output,
      [](auto &desc, auto &operation) {
        return parse(desc, /*isQuantized=*/false, operation);
      },
      &RankBackend::reduce);
}

zpp_rt_status zpp_rt_dequantize_reduce(zpp_rt_rank *rank,
                                       const zpp_rt_reduce_desc *desc,
                                       const void *input, void *output) {
  return execute<ReduceOperation>(
      rank, "dequantize_reduce", desc, input, output,
      [](auto &desc, auto &operation) {
        return parse(desc, /*isQuantized=*/true, operation);
      },
      &RankBackend::reduce);
}

zpp_rt_status
zpp_rt_dequantize_reduce_quantize(zpp_rt_rank *rank,
                                  const zpp_rt_reduce_quantize_desc *desc,
                                  const void *input, void *output) {
  return execute<ReduceQuantizeOperation>(
      rank, "dequantize_reduce_quantize", desc, input, /*held=*/nullptr, output,
      [](auto &desc, auto &operation) { return parse(desc, operation); },
      [&](RankBackend &backend,
          const ReduceQuantizeOperation &operation) -> Status {
        ZPP_RT_TRY(backend.reduceQuantize(operation, input, output));
        return rank->sampler.take(rank->state->world.measures, backend,
                                  rank->index, operation, input, output);
      });
}

static zpp_rt_status
exchange(zpp_rt_rank *rank, const char *entrypoint,
         const zpp_rt_exchange_desc *desc, const void *input, void *output,
         bool isGather,
         Status (RankBackend::*run)(const ExchangeOperation &, const void *,
                                    void *)) {
  return execute<ExchangeOperation>(
      rank, entrypoint, desc, input, output,
      [&](auto &desc, auto &operation) {
        return parse(desc, rank->state->world.mesh, isGather, operation);
      },
      run);
}

zpp_rt_status zpp_rt_all_to_all(zpp_rt_rank *rank,
                                const zpp_rt_exchange_desc *desc,
                                const void *input, void *output) {
  return exchange(rank, "all_to_all", desc, input, output, /*isGather=*/false,
                  &RankBackend::allToAll);
}

zpp_rt_status zpp_rt_all_gather_chunks(zpp_rt_rank *rank,
                                       const zpp_rt_exchange_desc *desc,
                                       const void *input, void *output) {
  return exchange(rank, "all_gather_chunks", desc, input, output,
                  /*isGather=*/true, &RankBackend::allGatherChunks);
}
