//===- CudaExchanges.cpp - Exchanges of a rank on a GPU -----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CopyOnDevice.h"
#include "CudaRank.h"

using namespace zpp;
using namespace zpp::rt;

Status CudaRank::meet(const ExchangeOperation &operation, bool forSends,
                      Communicator &group) {
  const char *kind = operation.name->kind;
  const std::string &title = operation.name->title;
  bool isReady = group.isReady(forSends);
  if (!isReady) {
    if (streams->isCapturing())
      return {ZPP_RT_UNSUPPORTED,
              "expected a first use of this group of ranks outside of a graph, "
              "but got it in one"};
    ZPP_RT_TRY(communicators->agree(group, forSends, title));
  }
  control->announce(group.controlGroup, kind, operation.chunkBytes, title);
  // A new kind or size is queued only when all members are known to agree on
  // it: NCCL would mix up what they send each other. A known one is checked
  // while it runs.
  if (isReady && group.known.count({kind, operation.chunkBytes}))
    return {};
  ZPP_RT_TRY(control->confirm());
  ZPP_RT_TRY(communicators->prepare(group, forSends));
  group.known.emplace(kind, operation.chunkBytes);
  return {};
}

Status
CudaRank::communicate(const ExchangeOperation &operation,
                      const Footprint &footprint, size_t stream,
                      const Accesses &accesses,
                      const std::function<ncclResult_t(cudaStream_t)> &calls) {
  ZPP_RT_TRY(queue->addExchange(
      stream, {*operation.name, footprint}, accesses, [&](cudaStream_t handle) {
        return communicators->queue([&] { return calls(handle); });
      }));
  // A captured exchange waits for nobody yet.
  if (!streams->isCapturing())
    exchanges->add(streams->getPosition(stream), operation.name);
  return {};
}

//===----------------------------------------------------------------------===//
// Chunks
//===----------------------------------------------------------------------===//

Status CudaRank::runStep(const ExchangeOperation &operation,
                         const ExchangeStep &step, const Communicator &group,
                         const void *input, void *output) {
  auto at = [&](const Span &span) -> const void * {
    return bytesAt(span.side == Span::Input ? input : output, span.offset);
  };
  Accesses accesses;
  int64_t bytesRead = 0, bytesWritten = 0;
  for (const auto &[span, isWrite] : rt::getAccesses(step)) {
    accesses.push_back({at(span), span.bytes, isWrite});
    if (isWrite)
      bytesWritten += span.bytes;
    else if (span.side == Span::Input)
      bytesRead += span.bytes;
  }
  Footprint footprint = {bytesRead, bytesWritten};
  auto copyOwn = [&](cudaStream_t stream) {
    return copyOnDevice(bytesAt(input, step.copyFrom),
                        bytesAt(output, step.copyTo), step.copyBytes, stream);
  };
  if (step.transfers.empty())
    return queue->addCopy({*operation.name, footprint, " (own chunk)"},
                          accesses, [&](cudaStream_t stream) {
                            return getStatus(copyOwn(stream),
                                             "copy of the own chunk");
                          });

  // In a plan for several tiers each group has one axis; in a plan for one
  // group it has all axes.
  size_t stream = getStream(group.axes);
  return communicate(
      operation, footprint, stream, accesses,
      [&](cudaStream_t handle) -> ncclResult_t {
        if (step.copyBytes > 0 && copyOwn(handle) != cudaSuccess)
          return ncclUnhandledCudaError;
        for (const auto &[member, isSend, span] : step.transfers) {
          int peer = group.peers[member];
          ncclResult_t result =
              isSend ? nccl->ncclSend(at(span), span.bytes, ncclUint8, peer,
                                      group.sends, handle)
                     : nccl->ncclRecv(bytesAt(output, span.offset), span.bytes,
                                      ncclUint8, peer, group.sends, handle);
          if (result != ncclSuccess)
            return result;
        }
        return ncclSuccess;
      });
}

Status CudaRank::run(const ExchangeOperation &operation,
                     const ExchangePlan &plan,
                     const std::vector<const Communicator *> &groups,
                     const void *input, void *output) {
  for (const ExchangeStep &step : plan)
    ZPP_RT_TRY(runStep(operation, step, *groups[step.tier], input, output));
  return {};
}

Status CudaRank::allToAll(const ExchangeOperation &operation, const void *input,
                          void *output) {
  DeviceGuard guard(device);
  Communicator *group;
  ZPP_RT_TRY(communicators->getOrCreate(operation.axes, group));
  ZPP_RT_TRY(meet(operation, /*forSends=*/true, *group));
  // If NCCL would delay the other chunks to copy the rank's own one, it is
  // copied apart while they travel.
  return run(operation,
             planAllToAll(operation.chunkBytes, group->shape(),
                          /*copiesOwn=*/!group->sendsOwn()),
             {group}, input, output);
}

bool CudaRank::areTiers(const std::vector<AxisRef> &axes) const {
  int64_t last = -1;
  for (const AxisRef &axis : axes) {
    int64_t tier = world.mesh.findAxis(axis.name);
    if (tier <= last || axis.size != world.mesh.getAxes()[tier].size)
      return false;
    last = tier;
  }
  return true;
}

Status CudaRank::callLibrary(const ExchangeOperation &operation,
                             const void *input, void *output,
                             const LibraryCall &call) {
  DeviceGuard guard(device);
  Communicator *group;
  ZPP_RT_TRY(communicators->getOrCreate(operation.axes, group));
  ZPP_RT_TRY(meet(operation, /*forSends=*/false, *group));
  if (operation.chunkBytes == 0)
    return {};
  return communicate(
      operation, operation.footprint, getStream(operation.axes),
      getAccesses(operation, input, output),
      [&](cudaStream_t stream) { return call(group->handle, stream); });
}

Status CudaRank::exchange(const ExchangeOperation &operation, const void *input,
                          void *output) {
  return operation.isGather ? allGather(operation, input, output)
                            : allToAll(operation, input, output);
}

Status CudaRank::allGather(const ExchangeOperation &operation,
                           const void *input, void *output) {
  DeviceGuard guard(device);
  Communicator *group;
  ZPP_RT_TRY(communicators->getOrCreate(operation.axes, group));
  if (group->gathersAtOnce())
    return callLibrary(
        operation, input, output, [&](ncclComm_t group, cudaStream_t stream) {
          return nccl->ncclAllGather(input, output, operation.chunkBytes,
                                     ncclUint8, group, stream);
        });
  // Groups of the tiers, which are connected already, or the group itself.
  bool hasTiers = areTiers(operation.axes);
  ZPP_RT_TRY(meet(operation, /*forSends=*/!hasTiers, *group));
  if (operation.chunkBytes == 0)
    return {};
  std::vector<const Communicator *> tiers = {group};
  if (hasTiers) {
    tiers.clear();
    for (const AxisRef &axis : operation.axes) {
      Communicator *tier;
      ZPP_RT_TRY(communicators->getOrCreate({axis}, tier));
      tiers.push_back(tier);
    }
  }
  std::vector<GroupShape> shapes;
  for (const Communicator *tier : tiers)
    shapes.push_back(tier->shape());
  return run(operation, planGather(operation.chunkBytes, shapes), tiers, input,
             output);
}
