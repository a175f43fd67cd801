//===- Json.cpp - The report as JSON --------------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Report.h"

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
  ScheduleBound bound = time.problem.getBound();
  llvm::json::Object boundBy;
  for (auto [stream, usec] : llvm::enumerate(bound.byResource))
    if (usec > 0)
      boundBy[time.timeline.getName(stream)] = usec;
  llvm::json::Object object{
      {"usec", time.usec},
      {"bound_usec", bound.usec},
      {"bound_by", std::move(boundBy)},
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

static void writeCollective(llvm::json::OStream &json, const Mesh &mesh,
                            const Entry &entry) {
  const Origin &origin = entry.origin;
  json.attribute("after", toJSON(mesh, entry.after));
  json.attribute("before", toJSON(mesh, origin.before));
  json.attribute("conditional", origin.isConditional);
  json.attribute("floor", getFloorName(origin.floor));
  json.attributeArray("gets", [&] {
    for (StringRef word : entry.gets)
      json.value(word);
  });
  json.attribute("group", origin.group);
  json.attribute("id", origin.id);
  json.attribute("kind", getKindName(origin.kind));
  json.attributeObject("lacks", [&] {
    for (const auto &[word, why] : entry.lacks)
      json.attribute(word, why);
  });
  json.attribute("location", entry.location);
  json.attribute("phase", getPhaseName(origin.phase));
  json.attribute("reason", entry.reason);
  json.attribute("rewritten", entry.isRewritten);
  json.attribute("role", getRoleName(origin.role));
  json.attribute("rule", origin.rule);
  json.attribute("slower", !entry.isRewritten && origin.isSlower);
  json.attribute("weight", origin.weight < 0
                               ? llvm::json::Value(nullptr)
                               : llvm::json::Value(origin.weight));
  json.attribute("weight_bytes", origin.modelBytes);
}

static void writeEvent(llvm::json::OStream &json, const ScheduleEvent &event) {
  json.attribute("before", event.before);
  if (event.isStart)
    json.attribute("bytes_in_flight", event.bytesInFlight);
  json.attribute("collectives", event.numCollectives);
  json.attribute("event", event.isStart ? "start" : "wait");
  json.attribute("flag", event.flag);
  json.attribute("function", event.function);
  if (!event.isStart)
    json.attribute("heavy_ops", event.heavyOps);
  json.attribute("location", event.location);
  json.attribute("phase", getPhaseName(event.phase));
  json.attribute("role", getRoleName(event.role));
  json.attribute("transfer", event.transfer);
  json.attribute("trips", event.trips);
}

static llvm::json::Object getTotalJSON(const Report &report) {
  return llvm::json::Object{
      {"before", toJSON(report.mesh, report.before)},
      {"after", toJSON(report.mesh, report.after)},
      {"before_in_M", getUnits(report, report.before)},
      {"after_in_M", getUnits(report, report.after)},
      {"branches_before", toJSON(report.mesh, report.branchesBefore)},
      {"branches_after", toJSON(report.mesh, report.branchesAfter)},
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
  // What grows with the step is written as it is read, with its keys in the
  // order in which an Object has them.
  llvm::json::OStream json(os, /*IndentSize=*/2);
  json.object([&] {
    json.attributeArray("choices", [&] {
      for (DictionaryAttr choice : report.choices)
        json.object([&] {
          for (StringRef key : {"options", "why"})
            json.attribute(key, choice.getAs<StringAttr>(key).getValue());
        });
    });
    json.attributeArray("collectives", [&] {
      for (const Entry &entry : report.entries)
        json.object([&] { writeCollective(json, report.mesh, entry); });
    });
    json.attribute("mesh", std::move(mesh));
    if (report.entries.empty())
      json.attribute("no_collectives", report.whyEmpty);
    if (report.prefetchBytes)
      json.attribute("prefetch_bytes", *report.prefetchBytes);
    json.attributeArray("schedule", [&] {
      for (const ScheduleEvent &event : report.schedule)
        json.object([&] { writeEvent(json, event); });
    });
    json.attribute("tiers", std::move(tiers));
    if (report.time)
      json.attribute("time", getTimeJSON(report));
    json.attribute("total", getTotalJSON(report));
  });
  os << "\n";
}
