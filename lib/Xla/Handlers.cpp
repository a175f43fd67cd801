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
// Ties, and the outputs of a wait, have the same memory as operand and as
// result. The handlers only check that. Neither handler may be part of a
// command buffer: a capture would fail if start and wait were in different
// ones.
//
//===----------------------------------------------------------------------===//

#include "HostTimes.h"
#include "World.h"
#include "zpp/Xla/zpp_xla.h"

#include "xla/ffi/api/ffi.h"

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

/// The attributes that both calls have.
struct Attributes {
  std::string_view bundle;
  std::string_view function;
  int64_t inputs;
  int64_t outputs;
  int64_t workspace;
};

/// A custom call, looked up and checked.
struct Call {
  std::shared_ptr<Bundle> bundle;
  Rank *rank = nullptr;
  Collective collective;
};

Status lookUp(const Attributes &attributes, int64_t device, Call &call) {
  call.bundle = Registry::get().find(attributes.bundle);
  if (!call.bundle)
    return rt::invalid(rt::expected("a bundle that is loaded",
                                    rt::quote(std::string(attributes.bundle))));
  auto &ranks = call.bundle->world->ranks;
  auto rank = ranks.find(device);
  if (rank == ranks.end())
    return rt::invalid(rt::expected("a device of the step's mesh",
                                    "device " + std::to_string(device)));
  call.rank = rank->second.get();
  call.collective.name = attributes.function;
  call.collective.firstOutput = attributes.inputs;
  return call.bundle->find(attributes.function, call.collective.function);
}

zpp_rt_buffer getBuffer(const ffi::RemainingArgs &args, size_t index) {
  ffi::AnyBuffer buffer = args.get<ffi::AnyBuffer>(index).value();
  return {buffer.untyped_data(), static_cast<int64_t>(buffer.size_bytes())};
}
zpp_rt_buffer getBuffer(const ffi::RemainingRets &rets, size_t index) {
  ffi::AnyBuffer buffer = *rets.get<ffi::AnyBuffer>(index).value();
  return {buffer.untyped_data(), static_cast<int64_t>(buffer.size_bytes())};
}

/// Operands [firstArg, + count) and results [firstRet, + count) must be the
/// same memory.
Status checkAliases(const ffi::RemainingArgs &args, size_t firstArg,
                    const ffi::RemainingRets &rets, size_t firstRet,
                    size_t count) {
  for (size_t i = 0; i < count; ++i) {
    zpp_rt_buffer arg = getBuffer(args, firstArg + i);
    zpp_rt_buffer ret = getBuffer(rets, firstRet + i);
    if (arg.bytes != ret.bytes || (arg.bytes > 0 && arg.data != ret.data))
      return rt::invalid(rt::expected("result " + std::to_string(firstRet + i) +
                                          " in the memory of "
                                          "operand " +
                                          std::to_string(firstArg + i),
                                      "other memory"));
  }
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

Status prepareStart(const Attributes &attributes, int64_t device,
                    const ffi::RemainingArgs &args,
                    const ffi::RemainingRets &rets, Call &call) {
  if (Status status = lookUp(attributes, device, call); !status.ok())
    return status;
  int64_t inputs = attributes.inputs;
  int64_t written = attributes.outputs + attributes.workspace;
  // The token is a tie.
  if (Status status = checkCounts(args, rets, inputs, written); !status.ok())
    return status;
  for (int64_t i = 0; i < inputs; ++i)
    call.collective.buffers.push_back(getBuffer(args, i));
  for (int64_t i = 0; i < written; ++i)
    call.collective.buffers.push_back(getBuffer(rets, i));
  return checkAliases(args, inputs, rets, written, args.size() - inputs);
}

Status prepareWait(const Attributes &attributes, int64_t device,
                   const ffi::RemainingArgs &args,
                   const ffi::RemainingRets &rets, Call &call) {
  if (Status status = lookUp(attributes, device, call); !status.ok())
    return status;
  int64_t inputs = attributes.inputs, outputs = attributes.outputs;
  int64_t fixed = inputs + outputs + attributes.workspace;
  if (Status status = checkCounts(args, rets, fixed, outputs); !status.ok())
    return status;
  for (int64_t i = 0; i < fixed; ++i)
    call.collective.buffers.push_back(getBuffer(args, i));
  if (Status status = checkAliases(args, inputs, rets, 0, outputs);
      !status.ok())
    return status;
  return checkAliases(args, fixed, rets, outputs, args.size() - fixed);
}

ffi::Error start(int32_t device, void *stream, ffi::RemainingArgs args,
                 ffi::RemainingRets rets, const Attributes &attributes,
                 bool isDeferrable) {
  HostTimes::Timer timer(startTimes);
  Call call;
  Status status = prepareStart(attributes, device, args, rets, call);
  if (status.ok())
    status = call.rank->start(std::move(call.collective), stream, isDeferrable);
  return toError("zpp.start", attributes.function, status);
}

ffi::Error startOnHost(int32_t device, ffi::RemainingArgs args,
                       ffi::RemainingRets rets, std::string_view bundle,
                       std::string_view function, int64_t inputs,
                       int64_t outputs, int64_t workspace, bool isDeferrable) {
  return start(device, nullptr, args, rets,
               {bundle, function, inputs, outputs, workspace}, isDeferrable);
}

ffi::Error startOnCuda(int32_t device, void *stream, ffi::RemainingArgs args,
                       ffi::RemainingRets rets, std::string_view bundle,
                       std::string_view function, int64_t inputs,
                       int64_t outputs, int64_t workspace, bool isDeferrable) {
  return start(device, stream, args, rets,
               {bundle, function, inputs, outputs, workspace}, isDeferrable);
}

ffi::Future waitOnHost(int32_t device, ffi::RemainingArgs args,
                       ffi::RemainingRets rets, std::string_view bundle,
                       std::string_view function, int64_t inputs,
                       int64_t outputs, int64_t workspace) {
  HostTimes::Timer timer(waitTimes);
  ffi::Promise promise;
  ffi::Future future(promise);
  auto done = [promise, name = std::string(function)](Status status) mutable {
    if (status.ok())
      promise.SetAvailable();
    else
      promise.SetError(toError("zpp.wait", name, status));
  };
  Call call;
  Status status = prepareWait({bundle, function, inputs, outputs, workspace},
                              device, args, rets, call);
  if (status.ok())
    call.rank->wait(call.collective, nullptr, std::move(done));
  else
    done(std::move(status));
  return future;
}

ffi::Error waitOnCuda(int32_t device, void *stream, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, std::string_view bundle,
                      std::string_view function, int64_t inputs,
                      int64_t outputs, int64_t workspace) {
  HostTimes::Timer timer(waitTimes);
  Call call;
  Status status = prepareWait({bundle, function, inputs, outputs, workspace},
                              device, args, rets, call);
  if (status.ok())
    call.rank->wait(call.collective, stream,
                    [&](Status result) { status = std::move(result); });
  return toError("zpp.wait", function, status);
}

template <typename Binding> auto bindAttributes(Binding &&binding) {
  return std::move(binding)
      .RemainingArgs()
      .RemainingRets()
      .template Attr<std::string_view>("bundle")
      .template Attr<std::string_view>("function")
      .template Attr<int64_t>("inputs")
      .template Attr<int64_t>("outputs")
      .template Attr<int64_t>("workspace");
}

template <typename Binding> auto bindStart(Binding &&binding) {
  return bindAttributes(std::move(binding)).template Attr<bool>("deferrable");
}

auto bindHost() { return ffi::Ffi::Bind().Ctx<ffi::DeviceOrdinal>(); }
auto bindCuda() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::DeviceOrdinal>()
      .Ctx<ffi::PlatformStream<void *>>();
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
  static auto *handler = bindStart(bindHost()).To(startOnHost).release();
  return handler->Call(frame);
}
XLA_FFI_Error *zpp_xla_wait_host(XLA_FFI_CallFrame *frame) {
  static auto *handler = bindAttributes(bindHost()).To(waitOnHost).release();
  return handler->Call(frame);
}
XLA_FFI_Error *zpp_xla_start_cuda(XLA_FFI_CallFrame *frame) {
  static auto *handler = bindStart(bindCuda()).To(startOnCuda).release();
  return handler->Call(frame);
}
XLA_FFI_Error *zpp_xla_wait_cuda(XLA_FFI_CallFrame *frame) {
  static auto *handler = bindAttributes(bindCuda()).To(waitOnCuda).release();
  return handler->Call(frame);
}
