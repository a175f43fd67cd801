//===- Report.cpp - Bytes per tier, before and after (3.4) ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatOptions.h"
#include "Import/StepInliner.h"
#include "zpp/Analysis/Schedule.h"
#include "zpp/Analysis/StepTime.h"
#include "zpp/Support/Limits.h"
#include "zpp/Support/OutputFile.h"
#include "zpp/Transforms/Passes.h"
#include "zpp/Transforms/State.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace zpp {
#define GEN_PASS_DEF_REPORTPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;

namespace {

using Bytes = std::vector<int64_t>;

/// One collective of the input, and what the rewrite made of it.
struct Entry {
  Origin origin;
  std::string location;
  std::string reason;
  bool isRewritten = false;
  Bytes after;
};

struct Report {
  Mesh mesh;
  std::vector<Entry> entries;
  Bytes before, after;
  /// The bytes of one plain gather of all weights: 1 M on each tier.
  Bytes unit;
  int64_t modelBytes = 0;
  int64_t secondaryBytes = 0;
  /// What a device keeps from step to step, and what of it are errors of
  /// gradients.
  int64_t stateBytes = 0, errorBytes = 0;
  /// With target xla-ffi, the starts and waits in order.
  SmallVector<ScheduleEvent> schedule;
  /// The prediction, if it is wanted.
  std::optional<StepTime> time;
  bool listsTasks = false;
};

void add(Bytes &sum, const Bytes &part, int64_t times = 1) {
  for (size_t i = 0; i < sum.size() && i < part.size(); ++i)
    sum[i] = addSaturating(sum[i], multiplySaturating(part[i], times));
}

/// "file.py:12:3", or another text that describes the location.
std::string getLocationText(Location loc) {
  if (std::string file = getFileLocation(loc); !file.empty())
    return file;
  std::string text;
  llvm::raw_string_ostream(text) << loc;
  return text;
}

/// The bytes of the result of `op`: a tensor, or its last operand, a buffer.
int64_t getResultBytes(Operation *op) {
  return getBytes(op->getNumResults() > 0 ? op->getResult(0).getType()
                                          : op->getOperands().back().getType());
}

/// The axes that Origin::group names.
std::vector<AxisRef> parseGroup(StringRef group, const Mesh &mesh) {
  std::vector<AxisRef> refs;
  SmallVector<StringRef> names;
  group.split(names, ',', -1, /*KeepEmpty=*/false);
  for (StringRef text : names) {
    auto [name, part] = text.split(":(");
    int64_t index = mesh.findAxis(name.str());
    if (index < 0)
      continue;
    AxisRef ref = mesh.getAxis(index);
    auto [preSize, size] = part.split(")");
    if (!part.empty() && (preSize.getAsInteger(10, ref.preSize) ||
                          size.getAsInteger(10, ref.size)))
      continue;
    refs.push_back(ref);
    if (!mesh.verify(refs).empty())
      refs.pop_back();
  }
  return refs;
}

Report buildReport(ModuleOp module, const Mesh &mesh,
                   ArrayRef<StepCollective> collectives) {
  Report report;
  report.mesh = mesh;
  size_t numAxes = mesh.getAxes().size();
  report.before = report.after = report.unit = Bytes(numAxes, 0);

  if (auto state = module->getAttrOfType<ArrayAttr>(kStateAttr))
    for (auto entry : state.getAsRange<DictionaryAttr>())
      if (auto type = entry.getAs<TypeAttr>("type")) {
        int64_t bytes = getBytes(type.getValue()) / mesh.numDevices();
        report.stateBytes = addSaturating(report.stateBytes, bytes);
        auto kind = entry.getAs<StringAttr>("kind");
        if (kind && kind.getValue() == kErrorKind)
          report.errorBytes = addSaturating(report.errorBytes, bytes);
      }

  // The collectives in their order in the input, which rewritten ones record.
  std::map<int64_t, Entry> entries;
  llvm::DenseMap<int64_t, int64_t> numOps;
  int64_t nextId = 0;
  for (const StepCollective &collective : collectives)
    for (const Origin &origin : getOrigins(collective))
      nextId = std::max(nextId, addSaturating(origin.id, 1));
  // Those that nothing is left of.
  SmallVector<Origin> removed = getOrigins(module);
  for (const Origin &origin : removed)
    nextId = std::max(nextId, addSaturating(origin.id, 1));
  for (const StepCollective &collective : collectives) {
    SmallVector<Origin> origins = getOrigins(collective);
    bool isNew = origins.empty();
    if (isNew)
      origins.push_back(getOrigin(collective, mesh, nextId++));
    if (Attribute keep = collective.op->getAttr(kKeepAttr)) {
      auto times = dyn_cast<IntegerAttr>(keep);
      report.secondaryBytes =
          addSaturating(report.secondaryBytes,
                        multiplySaturating(getResultBytes(collective.op),
                                           times ? times.getInt() : 1));
    }
    Operation *site = collective.start ? collective.start : collective.op;
    Bytes sent = collective.getSentBytes(mesh);
    int64_t chunkBytes = 0;
    for (const Origin &origin : origins)
      chunkBytes = addSaturating(chunkBytes, origin.share);
    for (Origin &origin : origins) {
      Entry &entry = entries[origin.id];
      if (numOps[origin.id]++ == 0) {
        entry.location = getLocationText(site->getLoc());
        entry.after.assign(numAxes, 0);
        if (isNew)
          entry.reason = collective.reason;
      }
      if (!origin.reason.empty())
        entry.reason = origin.reason;
      Bytes share = sent;
      if (origins.size() > 1 && chunkBytes > 0)
        for (int64_t &bytes : share)
          bytes = multiplySaturating(bytes / chunkBytes, origin.share);
      add(entry.after, share, collective.trips.value_or(1));
      entry.isRewritten |= getKindName(collective.kind) != origin.kind;
      entry.origin = std::move(origin);
    }
  }

  if (auto attrs = module->getAttrOfType<ArrayAttr>(kOriginAttr))
    for (auto [origin, attr] :
         llvm::zip(removed, attrs.getAsRange<DictionaryAttr>())) {
      auto [entry, isNew] = entries.try_emplace(origin.id);
      if (!isNew)
        continue;
      if (auto location = attr.getAs<StringAttr>("location"))
        entry->second.location = location.str();
      entry->second.after.assign(numAxes, 0);
      entry->second.origin = std::move(origin);
    }

  report.schedule = getSchedule(module);

  llvm::DenseMap<int64_t, const Origin *> weights;
  for (auto &[id, entry] : entries) {
    entry.origin.before.resize(numAxes, 0);
    entry.isRewritten |= numOps[id] > 1 || entry.after != entry.origin.before;
    if (entry.isRewritten)
      entry.reason.clear();
    add(report.before, entry.origin.before);
    add(report.after, entry.after);
    report.entries.push_back(entry);
  }
  for (const Entry &entry : report.entries) {
    const Origin &origin = entry.origin;
    if (origin.weight < 0 ||
        !weights.try_emplace(origin.weight, &origin).second)
      continue;
    report.modelBytes = addSaturating(report.modelBytes, origin.modelBytes);
    std::vector<AxisRef> axes = parseGroup(origin.group, mesh);
    if (!axes.empty())
      add(report.unit, getSentBytes(mesh, CollectiveKind::AllGather, axes,
                                    origin.modelBytes / zpp::numDevices(axes)));
  }
  return report;
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

llvm::json::Object toJSON(const Mesh &mesh, const Bytes &bytes) {
  llvm::json::Object object;
  for (auto [axis, count] : llvm::zip_equal(mesh.getAxes(), bytes))
    object[axis.name] = count;
  return object;
}

llvm::json::Object getUnits(const Report &report, const Bytes &bytes) {
  llvm::json::Object object;
  for (auto [axis, count, unit] :
       llvm::zip_equal(report.mesh.getAxes(), bytes, report.unit))
    if (unit > 0)
      object[axis.name] = static_cast<double>(count) / unit;
  return object;
}

llvm::json::Object getTimeJSON(const Report &report) {
  const StepTime &time = *report.time;
  llvm::json::Object busy;
  for (auto [axis, usec] :
       llvm::zip_equal(report.mesh.getAxes(), time.busyUsec))
    busy[axis.name] = usec;
  llvm::json::Array tiers;
  for (const MeshAxis &axis : report.mesh.getAxes())
    tiers.push_back(axis.name);
  llvm::json::Object object{
      {"tiers", std::move(tiers)},
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

void printJSON(const Report &report, raw_ostream &os) {
  llvm::json::Object mesh;
  for (const MeshAxis &axis : report.mesh.getAxes())
    mesh[axis.name] = axis.size;
  llvm::json::Array collectives;
  collectives.reserve(report.entries.size());
  for (const Entry &entry : report.entries)
    collectives.push_back(llvm::json::Object{
        {"location", entry.location},
        {"kind", entry.origin.kind},
        {"role", entry.origin.role},
        {"phase", entry.origin.phase},
        {"group", entry.origin.group},
        {"rewritten", entry.isRewritten},
        {"reason", entry.reason},
        {"before", toJSON(report.mesh, entry.origin.before)},
        {"after", toJSON(report.mesh, entry.after)},
    });
  llvm::json::Array schedule;
  schedule.reserve(report.schedule.size());
  for (const ScheduleEvent &event : report.schedule) {
    llvm::json::Object object{
        {"event", event.isStart ? "start" : "wait"},
        {"transfer", event.transfer},
        {"function", event.function},
        {"role", event.role},
        {"phase", event.phase},
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
  llvm::json::Object root{
      {"mesh", std::move(mesh)},
      {"collectives", std::move(collectives)},
      {"schedule", std::move(schedule)},
      {"total",
       llvm::json::Object{
           {"before", toJSON(report.mesh, report.before)},
           {"after", toJSON(report.mesh, report.after)},
           {"before_in_M", getUnits(report, report.before)},
           {"after_in_M", getUnits(report, report.after)},
           {"model_bytes", report.modelBytes},
           {"secondary_bytes", report.secondaryBytes},
           {"state_bytes", report.stateBytes},
       }},
  };
  if (report.time)
    root["time"] = getTimeJSON(report);
  os << llvm::formatv("{0:2}\n", llvm::json::Value(std::move(root)));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

/// 1536 -> "1.5 KiB"
std::string formatBytes(int64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::format(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string formatUnits(int64_t bytes, int64_t unit) {
  if (unit == 0)
    return "-";
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::format("%.2f M", static_cast<double>(bytes) / unit);
  return text;
}

void printTime(const Report &report, raw_ostream &os) {
  if (!report.time)
    return;
  const StepTime &time = *report.time;
  auto milliseconds = [](double usec) {
    return llvm::format("%.1f ms", usec / 1e3);
  };
  os << "\npredicted step: " << milliseconds(time.usec) << ", of which compute "
     << milliseconds(time.computeUsec) << " and exposed communication "
     << milliseconds(time.exposedUsec) << "; links busy";
  for (auto [index, axis] : llvm::enumerate(report.mesh.getAxes()))
    os << (index == 0 ? " " : ", ") << axis.name << " "
       << milliseconds(time.busyUsec[index]);
  os << "\na device holds " << formatBytes(time.stateBytes)
     << " of arguments, and about " << formatBytes(time.peakBytes)
     << " at the peak\n";
  if (time.numUnknownLoops > 0)
    os << "loops of an unknown number of iterations, which count once: "
       << time.numUnknownLoops << "\n";
}

/// One line per start and wait, in their order.
void printSchedule(ArrayRef<ScheduleEvent> schedule, raw_ostream &os) {
  if (schedule.empty())
    return;
  os << "\nschedule, in the order of every rank:\n";
  for (const ScheduleEvent &event : schedule) {
    os << "  " << (event.isStart ? "start" : "wait ") << " " << event.transfer
       << ": " << event.phase << (event.phase.empty() ? "" : " ") << event.role
       << ", " << event.numCollectives << " in " << event.function;
    if (!event.location.empty())
      os << " (" << event.location << ")";
    os << ", before " << event.before;
    if (event.isStart)
      os << ", " << formatBytes(event.bytesInFlight) << " in flight";
    else
      os << ", under " << event.heavyOps << " heavy ops";
    if (event.trips != 1)
      os << ", " << event.trips << " times";
    if (!event.flag.empty())
      os << " [" << event.flag << "]";
    os << "\n";
  }
}

void printTable(const Report &report, raw_ostream &os) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> header{"collective", "role", "phase", "group"};
  for (const MeshAxis &axis : report.mesh.getAxes()) {
    header.push_back(axis.name + " before");
    header.push_back("after");
  }
  header.push_back("location");
  rows.push_back(header);
  auto addRow = [&](std::vector<std::string> row, const Bytes &before,
                    const Bytes &after, std::string last) {
    for (auto [b, a] : llvm::zip_equal(before, after)) {
      row.push_back(formatBytes(b));
      row.push_back(formatBytes(a));
    }
    row.push_back(std::move(last));
    rows.push_back(std::move(row));
  };
  // Collectives that are the same in every layer share one row with their total
  // bytes.
  auto getKey = [](const Entry &entry) {
    return std::tie(entry.origin.kind, entry.origin.role, entry.origin.phase,
                    entry.origin.group, entry.origin.before, entry.after,
                    entry.location);
  };
  std::map<decltype(getKey(report.entries.front())), int64_t> counts;
  for (const Entry &entry : report.entries)
    ++counts[getKey(entry)];
  for (const Entry &entry : report.entries) {
    int64_t count = std::exchange(counts[getKey(entry)], 0);
    if (count == 0)
      continue;
    std::string kind = entry.origin.kind;
    if (count > 1)
      kind = std::to_string(count) + " x " + kind;
    Bytes before(entry.after.size()), after(entry.after.size());
    add(before, entry.origin.before, count);
    add(after, entry.after, count);
    addRow({kind, entry.origin.role, entry.origin.phase, entry.origin.group},
           before, after, entry.location);
  }
  addRow({"total", "", "", ""}, report.before, report.after, "");
  std::vector<std::string> units{"in units of M", "", "", ""};
  for (auto [b, a, unit] :
       llvm::zip_equal(report.before, report.after, report.unit)) {
    units.push_back(formatUnits(b, unit));
    units.push_back(formatUnits(a, unit));
  }
  units.push_back("");
  rows.push_back(units);

  std::vector<size_t> widths(header.size(), 0);
  for (const std::vector<std::string> &row : rows)
    for (auto [width, cell] : llvm::zip_equal(widths, row))
      width = std::max(width, cell.size());
  os << "bytes that a device sends per step over each tier of "
     << report.mesh.str() << "\n\n";
  for (auto [index, row] : llvm::enumerate(rows)) {
    std::string line;
    llvm::raw_string_ostream text(line);
    for (auto [column, cell] : llvm::enumerate(row)) {
      bool isNumber = column >= 4 && column + 1 < row.size();
      text << (isNumber ? llvm::right_justify(cell, widths[column])
                        : llvm::left_justify(cell, widths[column]))
           << "  ";
    }
    os << StringRef(line).rtrim() << "\n";
    if (index == 0 || index + 3 == rows.size()) {
      size_t width = 0;
      for (size_t column : widths)
        width += column + 2;
      os << std::string(width - 2, '-') << "\n";
    }
  }
  os << "\nM = " << formatBytes(report.modelBytes)
     << " of weights, as they are gathered; secondary partitions keep "
     << formatBytes(report.secondaryBytes) << " per device\n";
  if (int64_t weights = report.stateBytes - report.errorBytes; weights > 0)
    os << "from step to step, a device keeps " << formatBytes(weights)
       << " of weights\n";
  if (report.errorBytes > 0)
    os << "from step to step, a device keeps " << formatBytes(report.errorBytes)
       << " of what gradients lost in rounding\n";

  // One line per reason, not one per collective.
  std::map<std::string, std::vector<const Entry *>> reasons;
  for (const Entry &entry : report.entries)
    if (!entry.reason.empty())
      reasons[entry.origin.role + " " + entry.origin.kind + ": " + entry.reason]
          .push_back(&entry);
  if (!reasons.empty())
    os << "\nleft alone:\n";
  for (const auto &[reason, left] : reasons)
    os << "  " << left.size() << " x " << reason << " (first at "
       << left.front()->location << ")\n";
  printTime(report, os);
  printSchedule(report.schedule, os);
}

class ReportPass : public zpp::impl::ReportPassBase<ReportPass> {
public:
  using ReportPassBase::ReportPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (format != "table" && format != "json") {
      emitError(module.getLoc(),
                "expected a report format table or json, but got '")
          << format << "'";
      return signalPassFailure();
    }
    FailureOr<Mesh> stepMesh = getStepMesh(module, mesh);
    if (failed(stepMesh))
      return signalPassFailure();
    FailureOr<NamedWeights> named = NamedWeights::parse(module, weightsOf);
    if (failed(named))
      return signalPassFailure();
    std::optional<DeviceModel> model;
    if (!device.empty()) {
      std::string error;
      model = DeviceModel::parse(device, error);
      if (!model) {
        emitError(module.getLoc(), error);
        return signalPassFailure();
      }
    }
    if (!(computeScale > 0) || std::isinf(computeScale.getValue())) {
      emitError(module.getLoc(),
                "expected a positive scale of compute, but got ")
          << computeScale.getValue();
      return signalPassFailure();
    }
    LinksOption linksOption(module, links);
    FailureOr<std::optional<LinkModel>> speeds =
        linksOption.getModel(*stepMesh);
    if (failed(speeds))
      return signalPassFailure();
    auto build = [&](ModuleOp module) {
      SmallVector<StepCollective> collectives =
          readStepCollectives(module, *stepMesh);
      // Rewritten collectives carry their roles.
      if (llvm::any_of(collectives, [](const StepCollective &collective) {
            return getOrigins(collective).empty();
          }))
        findRoles(module, *stepMesh, *named, collectives);
      Report report = buildReport(module, *stepMesh, collectives);
      if (model)
        report.time = predictStepTime(module, *stepMesh, collectives,
                                      speeds->value_or(LinkModel(*stepMesh)),
                                      *model, computeScale);
      report.listsTasks = timeline;
      return report;
    };
    std::string text;
    llvm::raw_string_ostream os(text);
    Report report;
    if (needsInlining(module)) {
      // A function's collectives count once per call.
      OwningOpRef<ModuleOp> inlined = module.clone();
      if (failed(inlineStep(*inlined)))
        return signalPassFailure();
      report = build(*inlined);
    } else {
      report = build(module);
    }
    // A rewrite has said so already.
    if (report.entries.empty() && !module->hasAttr(kMeshAttr))
      remarkNoCollectives(module, getArgument());
    if (format == "json")
      printJSON(report, os);
    else
      printTable(report, os);
    if (failed(write(text)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  LogicalResult write(StringRef text) {
    if (output.empty()) {
      llvm::errs() << text;
      return success();
    }
    if (output == "-") {
      llvm::outs() << text;
      return success();
    }
    std::string cause = writeFile(output, {text});
    if (!cause.empty())
      return emitError(getOperation().getLoc(), "cannot write the report to '")
             << output << "': " << cause;
    return success();
  }
};
} // namespace
