//===- Contents.cpp - What a rewrite made of each collective --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Report.h"

#include "zpp/Analysis/Location.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/Stablehlo.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/Limits.h"
#include "zpp/Transforms/Attributes.h"
#include "llvm/ADT/DenseSet.h"

#include <map>

using namespace mlir;
using namespace zpp;
using namespace zpp::report;

void zpp::report::add(Bytes &sum, const Bytes &part, int64_t times) {
  for (size_t i = 0; i < sum.size() && i < part.size(); ++i)
    sum[i] = addSaturating(sum[i], multiplySaturating(part[i], times));
}

/// "file.py:12:3", or what else describes the location, such as a name.
static std::string getLocationText(Location loc) {
  std::string text = getFileLocation(loc);
  if (text.empty())
    text = describeLocation(loc);
  return text.empty() ? toText(loc) : text;
}

/// Returns the bytes of the result of `op`: a tensor, or its last operand, a
/// buffer.
static int64_t getResultBytes(Operation *op) {
  return getBytes(op->getNumResults() > 0 ? op->getResult(0).getType()
                                          : op->getOperands().back().getType());
}

/// Adds what `origin` tells of options.
static void addOptions(Entry &entry, const Origin &origin) {
  entry.gets.insert(origin.gets.begin(), origin.gets.end());
  for (NamedAttribute lack :
       origin.lacks ? origin.lacks.getValue() : ArrayRef<NamedAttribute>())
    if (auto why = dyn_cast<StringAttr>(lack.getValue()))
      entry.lacks.emplace(lack.getName().str(), why.str());
}

/// The axes that Origin::group names.
static std::vector<AxisRef> parseGroup(StringRef group, const Mesh &mesh) {
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

static int64_t getShare(const Origin &origin) {
  return std::max<int64_t>(origin.share, 1);
}

/// Why nothing was rewritten of `entry`.
static std::string getReason(const Entry &entry) {
  std::string why = getFloorReason(entry.origin);
  bool isOfFloor =
      entry.origin.floor == Floor::None &&
      (entry.reason.empty() ||
       (entry.origin.exact && !StringRef(entry.reason).contains(why)));
  if (!isOfFloor)
    return entry.reason;
  return why + (entry.reason.empty() ? "" : "; " + entry.reason);
}

namespace {
class ReportBuilder {
public:
  ReportBuilder(ModuleOp module, const Mesh &mesh)
      : module(module), mesh(mesh), nothing(mesh.getAxes().size(), 0) {}

  Report build(ArrayRef<StepCollective> collectives) {
    report.mesh = mesh;
    report.before = report.after = report.unit = nothing;
    report.branchesBefore = report.branchesAfter = nothing;
    addAttributes();
    int64_t nextId = 0;
    std::vector<SmallVector<Origin>> origins;
    origins.reserve(collectives.size());
    auto note = [&](ArrayRef<Origin> all) {
      for (const Origin &origin : all)
        nextId = std::max(nextId, addSaturating(origin.id, 1));
    };
    for (const StepCollective &collective : collectives)
      note(origins.emplace_back(getOrigins(collective)));
    note(getOrigins(module));
    for (auto [collective, ofOne] : llvm::zip_equal(collectives, origins)) {
      bool isNew = ofOne.empty();
      if (isNew)
        ofOne.push_back(getOrigin(collective, mesh, nextId++));
      addCollective(collective, ofOne, isNew);
    }
    addRemoved();
    for (auto &[id, entry] : entries)
      addEntry(std::move(entry));
    addWeights();
    if (report.entries.empty())
      report.whyEmpty = getWhyNoCollectives(module);
    return std::move(report);
  }

private:
  /// Adds what attributes of the module say.
  void addAttributes() {
    auto getNumber = [&](StringRef name) -> std::optional<int64_t> {
      auto number = module->getAttrOfType<IntegerAttr>(name);
      return number ? std::optional(number.getInt()) : std::nullopt;
    };
    if (auto state = module->getAttrOfType<ArrayAttr>(kStateAttr))
      for (auto entry : state.getAsRange<DictionaryAttr>())
        if (auto type = entry.getAs<TypeAttr>("type"))
          report.stateBytes = addSaturating(
              report.stateBytes, getBytes(type.getValue()) / mesh.numDevices());
    if (auto bytes = getNumber(kAccumulatedAttr))
      report.accumulatedBytes = *bytes;
    if (auto count = getNumber(kMicroBatchesAttr))
      report.microBatches = std::max<int64_t>(*count, 1);
    if (auto choices = module->getAttrOfType<ArrayAttr>(kChoicesAttr))
      llvm::append_range(report.choices, choices.getAsRange<DictionaryAttr>());
    report.schedule = getSchedule(module);
    if (auto bytes = getNumber(kPrefetchAttr))
      report.prefetchBytes = *bytes;
  }

  void addCollective(const StepCollective &collective,
                     MutableArrayRef<Origin> origins, bool isNew) {
    Operation *site = collective.start ? collective.start : collective.op;
    Attribute keep = collective.op->getAttr(kKeepAttr);
    auto times = dyn_cast_if_present<IntegerAttr>(keep);
    // What is gathered ahead of a loop is kept by its first iteration.
    if (keep && (!times || isInLoop(site)))
      report.secondaryBytes =
          addSaturating(report.secondaryBytes,
                        multiplySaturating(getResultBytes(collective.op),
                                           times ? times.getInt() : 1));
    Bytes sent = collective.getSentBytes(mesh);
    int64_t shares = 0;
    for (const Origin &origin : origins)
      shares = addSaturating(shares, getShare(origin));
    for (Origin &origin : origins) {
      Entry &entry = entries[origin.id];
      if (numOps[origin.id]++ == 0) {
        entry.location = getLocationText(site->getLoc());
        entry.after = nothing;
        if (isNew)
          entry.reason = collective.reason.empty() ? "" : collective.explain();
      }
      if (!origin.reason.empty())
        entry.reason = origin.reason;
      Bytes share = sent;
      if (origins.size() > 1)
        for (int64_t &bytes : share)
          bytes = multiplySaturating(bytes / shares, getShare(origin));
      add(entry.after, share, collective.trips.value_or(1));
      // Copies of an iteration send as much each time; hops do not.
      Bytes all = nothing;
      add(all, share, origin.trips);
      origin.before.resize(nothing.size(), 0);
      if (all != origin.before)
        inParts.insert(origin.id);
      entry.isRewritten |= origin.kind != collective.kind;
      addOptions(entry, origin);
      entry.origin = std::move(origin);
    }
  }

  /// The collectives that nothing is left of.
  void addRemoved() {
    auto attrs = module->getAttrOfType<ArrayAttr>(kOriginAttr);
    if (!attrs)
      return;
    for (auto [origin, attr] :
         llvm::zip(getOrigins(module), attrs.getAsRange<DictionaryAttr>())) {
      auto [entry, isNew] = entries.try_emplace(origin.id);
      addOptions(entry->second, origin);
      if (!isNew)
        continue;
      if (auto location = attr.getAs<StringAttr>("location"))
        entry->second.location = location.str();
      entry->second.after = nothing;
      entry->second.origin = std::move(origin);
    }
  }

  void addEntry(Entry entry) {
    const Origin &origin = entry.origin;
    entry.origin.before.resize(nothing.size(), 0);
    entry.isRewritten |=
        (numOps[origin.id] > 1 && inParts.contains(origin.id)) ||
        entry.after != origin.before;
    entry.reason = entry.isRewritten ? "" : getReason(entry);
    bool isInBranch = origin.isConditional;
    add(isInBranch ? report.branchesBefore : report.before, origin.before);
    add(isInBranch ? report.branchesAfter : report.after, entry.after);
    report.entries.push_back(std::move(entry));
  }

  void addWeights() {
    llvm::DenseSet<int64_t> weights;
    for (const Entry &entry : report.entries) {
      const Origin &origin = entry.origin;
      if (origin.weight < 0 || !weights.insert(origin.weight).second)
        continue;
      report.modelBytes = addSaturating(report.modelBytes, origin.modelBytes);
      std::vector<AxisRef> axes = parseGroup(origin.group, mesh);
      if (!axes.empty())
        add(report.unit,
            getSentBytes(mesh, CollectiveKind::AllGather, axes,
                         origin.modelBytes / zpp::numDevices(axes)));
    }
  }

  ModuleOp module;
  const Mesh &mesh;
  /// No bytes over any tier.
  const Bytes nothing;
  Report report;
  /// In their order in the input, which rewritten collectives record.
  std::map<int64_t, Entry> entries;
  llvm::DenseMap<int64_t, int64_t> numOps;
  llvm::DenseSet<int64_t> inParts;
};
} // namespace

Report zpp::report::buildReport(ModuleOp module, const Mesh &mesh,
                                ArrayRef<StepCollective> collectives) {
  return ReportBuilder(module, mesh).build(collectives);
}
