//===- Handlers.cpp - The custom calls zpp.start and zpp.wait -------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// zpp.start: inputs, ties, token -> outputs, [workspace,] ties, token
// zpp.wait: inputs, outputs, [workspace,] ties -> outputs, ties
//
// Ties, and the outputs of a wait, ought to have the same memory as operand and
// as result, and so do the pairs of an input and an output that a start names
// in `in_place`. Where XLA has given a result memory of its own, as it does
// when it makes the operand a view of a larger array, the handlers copy.
// Neither handler may be part of a command buffer: a capture would fail if
// start and wait were in different ones.
//
//===----------------------------------------------------------------------===//

#include "HostTimes.h"
#include "World.h"
#include "zpp/Xla/zpp_xla.h"

#include "xla/ffi/api/ffi.h"

#include <cstdio>
#include <tuple>
#include <vector>

namespace ffi = ::xla::ffi;

namespace zpp::xla {
namespace {

ffi::Error toError(const char *call, std::string_view function,
                   const Status &status) {
  if (status.ok())
    return ffi::Error::Success();
  ffi::ErrorCode code = [&] {
    switch (status.code) {
    case ZPP_RT_INVALID_ARGUMENT:
    case ZPP_RT_MISMATCH:
      return ffi::ErrorCode::kInvalidArgument;
    case ZPP_RT_UNSUPPORTED:
      return ffi::ErrorCode::kUnimplemented;
    case ZPP_RT_OUT_OF_MEMORY:
      return ffi::ErrorCode::kResourceExhausted;
    case ZPP_RT_TIMEOUT:
      return ffi::ErrorCode::kDeadlineExceeded;
    case ZPP_RT_RANK_LOST:
      return ffi::ErrorCode::kUnavailable;
    case ZPP_RT_ABORTED:
      return ffi::ErrorCode::kAborted;
    default:
      return ffi::ErrorCode::kInternal;
    }
  }();
  return ffi::Error(code, std::string(call) + " " + std::string(function) +
                              ": " + status.message);
}

/// Reads an attribute of a call.
template <typename Value>
Status read(const ffi::Dictionary &given, const char *name, Value &value) {
  auto found = given.get<Value>(name);
  if (!found.has_value())
    return rt::invalid(rt::expected("an attribute '" + std::string(name) + "'",
                                    found.error().message()));
  value = *found;
  return {};
}

/// A result with memory of its own in place of that of its operand.
struct Copy {
  zpp_rt_buffer from;
  void *to;
};

/// A custom call, looked up and checked.
struct Call {
  // Attributes.
  std::string_view function;
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t workspace = 0;

  std::shared_ptr<Bundle> bundle;
  Rank *rank = nullptr;
  Collective collective;
  std::vector<Copy> copies;
};

Status lookUp(const ffi::Dictionary &given, int64_t device, Call &call) {
  std::string_view bundle;
  ZPP_RT_TRY(read(given, "function", call.function));
  ZPP_RT_TRY(read(given, "bundle", bundle));
  ZPP_RT_TRY(read(given, "inputs", call.inputs));
  ZPP_RT_TRY(read(given, "outputs", call.outputs));
  ZPP_RT_TRY(read(given, "workspace", call.workspace));
  call.bundle = Registry::get().find(bundle);
  if (!call.bundle)
    return rt::invalid(rt::expected("a bundle that is loaded",
                                    rt::quote(std::string(bundle))));
  auto &ranks = call.bundle->world->ranks;
  auto rank = ranks.find(device);
  if (rank == ranks.end())
    return rt::invalid(rt::expected("a device of the step's mesh",
                                    "device " + std::to_string(device)));
  call.rank = rank->second.get();
  call.collective.name = call.function;
  call.collective.firstOutput = call.inputs;
  return call.bundle->find(call.function, call.collective.function);
}

zpp_rt_buffer getBuffer(const ffi::RemainingArgs &args, size_t index) {
  ffi::AnyBuffer buffer = args.get<ffi::AnyBuffer>(index).value();
  return {buffer.untyped_data(), static_cast<int64_t>(buffer.size_bytes())};
}
zpp_rt_buffer getBuffer(const ffi::RemainingRets &rets, size_t index) {
  ffi::AnyBuffer buffer = *rets.get<ffi::AnyBuffer>(index).value();
  return {buffer.untyped_data(), static_cast<int64_t>(buffer.size_bytes())};
}

/// Notes in `copies` which of the operands [firstArg, + count) have other
/// memory than the results [firstRet, + count).
Status findCopies(const ffi::RemainingArgs &args, size_t firstArg,
                  const ffi::RemainingRets &rets, size_t firstRet, size_t count,
                  std::vector<Copy> &copies) {
  for (size_t i = 0; i < count; ++i) {
    zpp_rt_buffer arg = getBuffer(args, firstArg + i);
    zpp_rt_buffer ret = getBuffer(rets, firstRet + i);
    if (arg.bytes != ret.bytes)
      return rt::invalid(rt::expected("result " + std::to_string(firstRet + i) +
                                          " of " + std::to_string(arg.bytes) +
                                          " bytes, as operand " +
                                          std::to_string(firstArg + i),
                                      std::to_string(ret.bytes)));
    if (arg.bytes > 0 && arg.data != ret.data)
      copies.push_back({arg, const_cast<void *>(ret.data)});
  }
  return {};
}

/// Says once for each call of a collective that it copies, if it does.
void sayOnce(const std::string &call, const Call &made) {
  if (made.copies.empty())
    return;
  const std::string text = call + " " + made.collective.name;
  if (!made.bundle->isFirst(text))
    return;
  int64_t bytes = 0;
  for (const Copy &copy : made.copies)
    bytes += copy.from.bytes;
  std::fprintf(stderr,
               "zpp: %s: copies %lld bytes in every step, because XLA has not "
               "left %zu of its results in the memory of their operands\n",
               text.c_str(), static_cast<long long>(bytes), made.copies.size());
}

Status copyAll(Rank &rank, void *stream, const std::vector<Copy> &copies) {
  for (const Copy &copy : copies)
    ZPP_RT_TRY(rank.copy(stream, copy.from.data, copy.to, copy.from.bytes));
  return {};
}

Status checkCounts(const ffi::RemainingArgs &args,
                   const ffi::RemainingRets &rets, int64_t fixedArgs,
                   int64_t fixedRets) {
  int64_t ties = static_cast<int64_t>(args.size()) - fixedArgs;
  if (ties >= 0 && static_cast<int64_t>(rets.size()) == fixedRets + ties)
    return {};
  return rt::invalid(rt::expected(
      std::to_string(fixedArgs) + " operands and " + std::to_string(fixedRets) +
          " results and equally many tied ones",
      std::to_string(args.size()) + " and " + std::to_string(rets.size())));
}

Status prepareStart(const ffi::Dictionary &given, int64_t device,
                    const ffi::RemainingArgs &args,
                    const ffi::RemainingRets &rets, bool &isDeferrable,
                    Call &call) {
  ffi::Span<const int64_t> inPlace;
  ZPP_RT_TRY(read(given, "deferrable", isDeferrable));
  if (given.contains("in_place"))
    ZPP_RT_TRY(read(given, "in_place", inPlace));
  ZPP_RT_TRY(lookUp(given, device, call));
  int64_t inputs = call.inputs;
  int64_t written = call.outputs + call.workspace;
  // The token is a tie.
  ZPP_RT_TRY(checkCounts(args, rets, inputs, written));
  for (int64_t i = 0; i < inputs; ++i)
    call.collective.buffers.push_back(getBuffer(args, i));
  for (int64_t i = 0; i < written; ++i)
    call.collective.buffers.push_back(getBuffer(rets, i));
  // The wait does not keep an input alive that is to be overwritten. If it is
  // not, the function takes a copy in its place.
  for (size_t i = 0; i + 1 < inPlace.size(); i += 2) {
    int64_t input = inPlace[i], output = inPlace[i + 1];
    if (input < 0 || input >= inputs || output < 0 || output >= call.outputs)
      return rt::invalid(rt::expected(
          "an input and an output that it overwrites",
          std::to_string(input) + " and " + std::to_string(output)));
    ZPP_RT_TRY(findCopies(args, input, rets, output, 1, call.copies));
    call.collective.buffers[input] = call.collective.buffers[inputs + output];
  }
  ZPP_RT_TRY(findCopies(args, inputs, rets, written, args.size() - inputs,
                        call.copies));
  sayOnce("zpp.start", call);
  return {};
}

Status prepareWait(const ffi::Dictionary &given, int64_t device,
                   const ffi::RemainingArgs &args,
                   const ffi::RemainingRets &rets, Call &call) {
  ZPP_RT_TRY(lookUp(given, device, call));
  int64_t inputs = call.inputs, outputs = call.outputs;
  int64_t fixed = inputs + outputs + call.workspace;
  ZPP_RT_TRY(checkCounts(args, rets, fixed, outputs));
  for (int64_t i = 0; i < fixed; ++i)
    call.collective.buffers.push_back(getBuffer(args, i));
  ZPP_RT_TRY(findCopies(args, inputs, rets, 0, outputs, call.copies));
  ZPP_RT_TRY(
      findCopies(args, fixed, rets, outputs, args.size() - fixed, call.copies));
  sayOnce("zpp.wait", call);
  return {};
}

ffi::Error start(int32_t device, void *stream, ffi::RemainingArgs args,
                 ffi::RemainingRets rets, ffi::Dictionary given) {
  HostTimes::Timer timer(startTimes);
  bool isDeferrable = false;
  Call call;
  Status status = prepareStart(given, device, args, rets, isDeferrable, call);
  if (status.ok())
    status = copyAll(*call.rank, stream, call.copies);
  if (status.ok())
    status = call.rank->start(std::move(call.collective), stream, isDeferrable);
  return toError("zpp.start", call.function, status);
}

ffi::Error startOnHost(int32_t device, ffi::RemainingArgs args,
                       ffi::RemainingRets rets, ffi::Dictionary given) {
  return start(device, /*stream=*/nullptr, args, rets, given);
}

ffi::Future waitOnHost(int32_t device, ffi::RemainingArgs args,
                       ffi::RemainingRets rets, ffi::Dictionary given) {
  HostTimes::Timer timer(waitTimes);
  ffi::Promise promise;
  ffi::Future future(promise);
  Call call;
  Status status = prepareWait(given, device, args, rets, call);
  auto done = [promise, rank = call.rank, name = std::string(call.function),
               copies = call.copies](Status status) mutable {
    if (status.ok())
      status = copyAll(*rank, /*stream=*/nullptr, copies);
    if (status.ok())
      promise.SetAvailable();
    else
      promise.SetError(toError("zpp.wait", name, status));
  };
  if (status.ok())
    call.rank->wait(call.collective, nullptr, std::move(done));
  else
    done(std::move(status));
  return future;
}

ffi::Error waitOnCuda(int32_t device, void *stream, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, ffi::Dictionary given) {
  HostTimes::Timer timer(waitTimes);
  Call call;
  Status status = prepareWait(given, device, args, rets, call);
  if (status.ok())
    call.rank->wait(call.collective, stream,
                    [&](Status result) { status = std::move(result); });
  // After the collective.
  if (status.ok())
    status = copyAll(*call.rank, stream, call.copies);
  return toError("zpp.wait", call.function, status);
}

auto bindHost() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::DeviceOrdinal>()
      .RemainingArgs()
      .RemainingRets()
      .Attrs();
}
auto bindCuda() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::DeviceOrdinal>()
      .Ctx<ffi::PlatformStream<void *>>()
      .RemainingArgs()
      .RemainingRets()
      .Attrs();
}

} // namespace
} // namespace zpp::xla

using namespace zpp::xla;

zpp_rt_status zpp_xla_take_host_times(zpp_xla_host_times *times) {
  if (!times)
    return ZPP_RT_INVALID_ARGUMENT;
  std::tie(times->start_usec, times->num_starts) = startTimes.take();
  std::tie(times->wait_usec, times->num_waits) = waitTimes.take();
  std::tie(times->queue_usec, times->num_queued) = queueTimes.take();
  return ZPP_RT_OK;
}

XLA_FFI_Error *zpp_xla_start_host(XLA_FFI_CallFrame *frame) {
  static auto *handler = bindHost().To(startOnHost).release();
  return handler->Call(frame);
}
XLA_FFI_Error *zpp_xla_wait_host(XLA_FFI_CallFrame *frame) {
  static auto *handler = bindHost().To(waitOnHost).release();
  return handler->Call(frame);
}
XLA_FFI_Error *zpp_xla_start_cuda(XLA_FFI_CallFrame *frame) {
  static auto *handler = bindCuda().To(start).release();
  return handler->Call(frame);
}
XLA_FFI_Error *zpp_xla_wait_cuda(XLA_FFI_CallFrame *frame) {
  static auto *handler = bindCuda().To(waitOnCuda).release();
  return handler->Call(frame);
}
