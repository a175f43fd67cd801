//===- DeviceQueue.cpp - Operations on their way to the device ------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceQueue.h"

#include "NvtxRange.h"

#include <cstring>

using namespace zpp::rt;

Status DeviceQueue::addToBatch(const Operation &operation,
                               const Accesses &accesses) {
  Hazards::Conflicts conflicts = streams.find(accesses);
  size_t stream = chooseStream(conflicts);
  if (batch.count > 0 &&
      (std::strcmp(batch.name->kind, operation.name->kind) != 0 ||
       stream != batch.stream || streams.includeLast(conflicts, stream) ||
       batch.count == kMaxBatched))
    ZPP_RT_TRY(flush());
  if (batch.count > 0) {
    ZPP_RT_TRY(streams.extend(stream, accesses, conflicts));
    batch.footprint = {
        batch.footprint.bytesRead() + operation.footprint.bytesRead(),
        batch.footprint.output.span() + operation.footprint.output.span()};
  } else {
    ZPP_RT_TRY(streams.begin(stream, accesses, conflicts));
    batch.launches.setStream(streams.getHandle(stream));
    batch.stream = stream;
    batch.name = operation.name;
    batch.footprint = operation.footprint;
  }
  ++batch.count;
  return {};
}

Status DeviceQueue::flush() {
  if (batch.count == 0)
    return {};
  int64_t others = std::exchange(batch.count, 0) - 1;
  NvtxRange range(batch.name->label, batch.footprint.bytesRead());
  Status status = getStatus(batch.launches.flush(), "launch of a kernel");
  if (status.ok())
    status =
        streams.end(batch.stream, {*batch.name, batch.footprint, "", others});
  if (!status.ok())
    status.message = batch.name->title + ": " + status.message;
  return status;
}

size_t DeviceQueue::chooseStream(const Hazards::Conflicts &conflicts) const {
  StreamPlan::Situation situation;
  situation.conflicts = conflicts;
  situation.last = streams.getLast();
  situation.lastBeforeEntry = streams.getLastBeforeEntry();
  if (batch.count > 0)
    situation.batch = batch.stream;
  return plan.chooseForKernel(situation, isFast);
}
