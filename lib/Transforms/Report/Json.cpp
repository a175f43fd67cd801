//===- Json.cpp - The report as JSON --------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace zpp;
using namespace zpp::report;

static llvm::json::Object toJSON(const Mesh &mesh, const Bytes &bytes) {
  llvm::json::Object object;
  for (auto [axis, count] : llvm::zip_equal(mesh.getAxes(), bytes))
    object[axis.name] = count;
  return object;
}

static llvm::json::Object getUnits(const Report &report, const Bytes &bytes) {
  llvm::json::Object object;
  for (auto [axis, count, unit] :
       llvm::zip_equal(report.mesh.getAxes(), bytes, report.unit))
    if (unit > 0)
      object[axis.name] = static_cast<double>(count) / unit;
  return object;
}

static llvm::json::Object getTimeJSON(const Report &report) {
  const StepTime &time = *report.time;
  llvm::json::Object busy;
  for (auto [axis, usec] :
       llvm::zip_equal(report.mesh.getAxes(), time.busyUsec))
    busy[axis.name] = usec;
  llvm::json::Object object{
      {"usec", time.usec},
      {"compute_usec", time.computeUsec},
      {"exposed_usec", time.exposedUsec},
      {"busy_usec", std::move(busy)},
      {"flops", time.flops},
      {"state_bytes", time.stateBytes},
      {"peak_bytes", time.peakBytes},
      {"unknown_loops", time.numUnknownLoops},
  };
  if (!report.listsTasks)
    return object;
  // Tasks of one stream and label that follow each other are one.
  std::vector<Timeline::Task> merged;
  llvm::DenseMap<size_t, size_t> latest;
  for (const Timeline::Task &task : time.timeline.getTasks()) {
    auto [it, isFirst] = latest.try_emplace(task.stream, merged.size());
    if (!isFirst) {
      Timeline::Task &last = merged[it->second];
      if (last.label == task.label && last.end == task.begin) {
        last.end = task.end;
        continue;
      }
      it->second = merged.size();
    }
    merged.push_back(task);
  }
  llvm::json::Array tasks;
  for (const Timeline::Task &task : merged)
    tasks.push_back(llvm::json::Array{time.timeline.getName(task.stream),
                                      task.begin, task.end, task.label});
  object["tasks"] = std::move(tasks);
  return object;
}

static llvm::json::Array getCollectivesJSON(const Report &report) {
  llvm::json::Array collectives;
  collectives.reserve(report.entries.size());
  for (const Entry &entry : report.entries)
    collectives.push_back(llvm::json::Object{
        {"location", entry.location},
        {"kind", getKindName(entry.origin.kind)},
        {"role", getRoleName(entry.origin.role)},
        {"rule", entry.origin.rule},
        {"phase", getPhaseName(entry.origin.phase)},
        {"group", entry.origin.group},
        {"rewritten", entry.isRewritten},
        {"reason", entry.reason},
        {"before", toJSON(report.mesh, entry.origin.before)},
        {"after", toJSON(report.mesh, entry.after)},
        {"weight", entry.origin.weight < 0
                       ? llvm::json::Value(nullptr)
                       : llvm::json::Value(entry.origin.weight)},
        {"weight_bytes", entry.origin.modelBytes},
        {"gets", llvm::json::Array(entry.gets)},
        {"id", entry.origin.id},
        {"floor", getFloorName(entry.origin.floor)},
    });
  return collectives;
}

static llvm::json::Array getScheduleJSON(const Report &report) {
  llvm::json::Array schedule;
  schedule.reserve(report.schedule.size());
  for (const ScheduleEvent &event : report.schedule) {
    llvm::json::Object object{
        {"event", event.isStart ? "start" : "wait"},
        {"transfer", event.transfer},
        {"function", event.function},
        {"role", getRoleName(event.role)},
        {"phase", getPhaseName(event.phase)},
        {"collectives", event.numCollectives},
        {"location", event.location},
        {"before", event.before},
        {"trips", event.trips},
        {"flag", event.flag},
    };
    if (event.isStart)
      object["bytes_in_flight"] = event.bytesInFlight;
    else
      object["heavy_ops"] = event.heavyOps;
    schedule.push_back(std::move(object));
  }
  return schedule;
}

static llvm::json::Object getTotalJSON(const Report &report) {
  return llvm::json::Object{
      {"before", toJSON(report.mesh, report.before)},
      {"after", toJSON(report.mesh, report.after)},
      {"before_in_M", getUnits(report, report.before)},
      {"after_in_M", getUnits(report, report.after)},
      {"model_bytes", report.modelBytes},
      {"secondary_bytes", report.secondaryBytes},
      {"accumulated_bytes", report.accumulatedBytes},
      {"micro_batches", report.microBatches},
      {"state_bytes", report.stateBytes},
  };
}

void zpp::report::printJSON(const Report &report, raw_ostream &os) {
  llvm::json::Object mesh;
  // An object of JSON has no order.
  llvm::json::Array tiers;
  for (const MeshAxis &axis : report.mesh.getAxes()) {
    mesh[axis.name] = axis.size;
    tiers.push_back(axis.name);
  }
  llvm::json::Object root{
      {"mesh", std::move(mesh)},
      {"tiers", std::move(tiers)},
      {"collectives", getCollectivesJSON(report)},
      {"schedule", getScheduleJSON(report)},
      {"total", getTotalJSON(report)},
  };
  if (report.prefetchBytes)
    root["prefetch_bytes"] = *report.prefetchBytes;
  if (report.time)
    root["time"] = getTimeJSON(report);
  os << llvm::formatv("{0:2}\n", llvm::json::Value(std::move(root)));
}
