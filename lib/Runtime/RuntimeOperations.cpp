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
      rank, "copy_rows", desc, source, /*held=*/nullptr, dest,
      [](auto &desc, auto &operation) { return parse(desc, operation); },
      [&](RankBackend &backend, const Operation &operation) {
        return backend.copy(operation, source, dest);
      });
}

namespace zpp::rt {
// The operation that each descriptor describes.
PackOperation getOperation(const zpp_rt_pack_desc &);
QuantizeOperation getOperation(const zpp_rt_quantize_desc &);
ReduceOperation getOperation(const zpp_rt_reduce_desc &);
ReduceQuantizeOperation getOperation(const zpp_rt_reduce_quantize_desc &);
ExchangeOperation getOperation(const zpp_rt_exchange_desc &);
} // namespace zpp::rt

template <typename Desc>
static zpp_rt_status
execute(zpp_rt_rank *rank, const char *name, Entrypoint entrypoint,
        const Desc *desc, const void *input, const void *held, void *output) {
  using OperationT = decltype(getOperation(*desc));
  return execute<OperationT>(
      rank, name, desc, input, held, output,
      [&](const Desc &desc, OperationT &operation) {
        return parse(desc, entrypoint, rank->state->world.mesh, operation);
      },
      [&](RankBackend &backend, const OperationT &operation) -> Status {
        if constexpr (std::is_same_v<OperationT, ExchangeOperation>)
          return backend.exchange(operation, input, output);
        else {
          ZPP_RT_TRY(backend.compute(&operation, input, held, output));
          return rank->sampler.take(rank->state->world.measures, backend,
                                    rank->index, &operation, input, held,
                                    output);
        }
      });
}

#define ZPP_RT_ENTRYPOINT(NAME, DESC, OP)                                      \
  zpp_rt_status zpp_rt_##NAME(zpp_rt_rank *rank, const zpp_rt_##DESC *desc,    \
                              const void *input, void *output) {               \
    return execute(rank, #NAME, Entrypoint::NAME, desc, input,                 \
                   /*held=*/nullptr, output);                                  \
  }
#define ZPP_RT_HELD_ENTRYPOINT(NAME, DESC, OP)                                 \
  zpp_rt_status zpp_rt_##NAME(zpp_rt_rank *rank, const zpp_rt_##DESC *desc,    \
                              const void *input, const void *held,             \
                              void *output) {                                  \
    return execute(rank, #NAME, Entrypoint::NAME, desc, input, held, output);  \
  }
#include "zpp/Runtime/Entrypoints.def"
