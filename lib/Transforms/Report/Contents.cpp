//===- Contents.cpp - What a rewrite made of each collective --------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Report.h"

#include "zpp/Analysis/Location.h"
#include "zpp/Analysis/TypeBytes.h"
#include "zpp/Dialect/Guest/While.h"
#include "zpp/Support/Limits.h"
#include "zpp/Transforms/Accumulated.h"
#include "zpp/Transforms/State.h"
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
  if (!text.empty())
    return text;
  llvm::raw_string_ostream(text) << loc;
  return text;
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

Report zpp::report::buildReport(ModuleOp module, const Mesh &mesh,
                                ArrayRef<StepCollective> collectives) {
  Report report;
  report.mesh = mesh;
  size_t numAxes = mesh.getAxes().size();
  report.before = report.after = report.unit = Bytes(numAxes, 0);
  report.branchesBefore = report.branchesAfter = report.unit;

  if (auto state = module->getAttrOfType<ArrayAttr>(kStateAttr))
    for (auto entry : state.getAsRange<DictionaryAttr>())
      if (auto type = entry.getAs<TypeAttr>("type")) {
        int64_t bytes = getBytes(type.getValue()) / mesh.numDevices();
        report.stateBytes = addSaturating(report.stateBytes, bytes);
      }

  if (auto bytes = module->getAttrOfType<IntegerAttr>(kAccumulatedAttr))
    report.accumulatedBytes = bytes.getInt();
  if (auto count = module->getAttrOfType<IntegerAttr>(kMicroBatchesAttr))
    report.microBatches = std::max<int64_t>(count.getInt(), 1);

  // The collectives in their order in the input, which rewritten ones record.
  std::map<int64_t, Entry> entries;
  llvm::DenseMap<int64_t, int64_t> numOps;
  llvm::DenseSet<int64_t> inParts;
  int64_t nextId = 0;
  std::vector<SmallVector<Origin>> allOrigins;
  allOrigins.reserve(collectives.size());
  for (const StepCollective &collective : collectives)
    for (const Origin &origin : allOrigins.emplace_back(getOrigins(collective)))
      nextId = std::max(nextId, addSaturating(origin.id, 1));
  // Those that nothing is left of.
  SmallVector<Origin> removed = getOrigins(module);
  for (const Origin &origin : removed)
    nextId = std::max(nextId, addSaturating(origin.id, 1));
  for (auto [collective, origins] : llvm::zip_equal(collectives, allOrigins)) {
    bool isNew = origins.empty();
    if (isNew)
      origins.push_back(getOrigin(collective, mesh, nextId++));
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
    int64_t chunkBytes = 0;
    auto getShare = [](const Origin &origin) {
      return std::max<int64_t>(origin.share, 1);
    };
    for (const Origin &origin : origins)
      chunkBytes = addSaturating(chunkBytes, getShare(origin));
    for (Origin &origin : origins) {
      Entry &entry = entries[origin.id];
      if (numOps[origin.id]++ == 0) {
        entry.location = getLocationText(site->getLoc());
        entry.after.assign(numAxes, 0);
        if (isNew)
          entry.reason = collective.reason.empty() ? "" : collective.explain();
      }
      if (!origin.reason.empty())
        entry.reason = origin.reason;
      Bytes share = sent;
      if (origins.size() > 1)
        for (int64_t &bytes : share)
          bytes = multiplySaturating(bytes / chunkBytes, getShare(origin));
      add(entry.after, share, collective.trips.value_or(1));
      // Copies of an iteration send as much each time; hops do not.
      Bytes all(numAxes, 0);
      add(all, share, origin.trips);
      origin.before.resize(numAxes, 0);
      if (all != origin.before)
        inParts.insert(origin.id);
      entry.isRewritten |= origin.kind != collective.kind;
      addOptions(entry, origin);
      entry.origin = std::move(origin);
    }
  }

  if (auto attrs = module->getAttrOfType<ArrayAttr>(kOriginAttr))
    for (auto [origin, attr] :
         llvm::zip(removed, attrs.getAsRange<DictionaryAttr>())) {
      auto [entry, isNew] = entries.try_emplace(origin.id);
      addOptions(entry->second, origin);
      if (!isNew)
        continue;
      if (auto location = attr.getAs<StringAttr>("location"))
        entry->second.location = location.str();
      entry->second.after.assign(numAxes, 0);
      entry->second.origin = std::move(origin);
    }

  if (auto choices = module->getAttrOfType<ArrayAttr>(kChoicesAttr))
    llvm::append_range(report.choices, choices.getAsRange<DictionaryAttr>());
  report.schedule = getSchedule(module);
  if (auto bytes = module->getAttrOfType<IntegerAttr>(kPrefetchAttr))
    report.prefetchBytes = bytes.getInt();

  llvm::DenseMap<int64_t, const Origin *> weights;
  for (auto &[id, entry] : entries) {
    entry.origin.before.resize(numAxes, 0);
    entry.isRewritten |= (numOps[id] > 1 && inParts.contains(id)) ||
                         entry.after != entry.origin.before;
    if (entry.isRewritten)
      entry.reason.clear();
    else if (std::string why = getFloorReason(entry.origin);
             entry.origin.floor == Floor::None &&
             (entry.reason.empty() ||
              (entry.origin.exact && !StringRef(entry.reason).contains(why))))
      entry.reason = why + (entry.reason.empty() ? "" : "; " + entry.reason);
    bool isInBranch = entry.origin.isConditional;
    add(isInBranch ? report.branchesBefore : report.before,
        entry.origin.before);
    add(isInBranch ? report.branchesAfter : report.after, entry.after);
    report.entries.push_back(std::move(entry));
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
  if (report.entries.empty())
    report.whyEmpty = getWhyNoCollectives(module);
  return report;
}
