//===- Table.cpp - The report as a table ----------------------------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Report.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <tuple>
#include <utility>

using namespace mlir;
using namespace zpp;
using namespace zpp::report;

std::string zpp::report::formatBytes(int64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return llvm::formatv(unit == 0 ? "{0:F0} {1}" : "{0:F1} {1}", value,
                       units[unit]);
}

std::string zpp::report::formatUsec(double usec) {
  return llvm::formatv("{0:F1} ms", usec / 1e3);
}

static std::string formatUnits(int64_t bytes, int64_t unit) {
  if (unit == 0)
    return "-";
  return llvm::formatv("{0:F2} M", static_cast<double>(bytes) / unit);
}

/// Resources that are the reason for a smaller part of the bound are not
/// listed.
static constexpr double kLeastShown = 0.01;

static void printTime(const Report &report, raw_ostream &os) {
  if (!report.time)
    return;
  const StepTime &time = *report.time;
  os << "\npredicted step: " << formatUsec(time.usec) << ", of which compute "
     << formatUsec(time.computeUsec) << " and exposed communication "
     << formatUsec(time.exposedUsec) << "; links busy";
  for (auto [index, axis] : llvm::enumerate(report.mesh.getAxes()))
    os << (index == 0 ? " " : ", ") << axis.name << " "
       << formatUsec(time.busyUsec[index]);
  if (ScheduleBound bound = time.problem.getBound(); bound.usec > 0) {
    os << "\n"
       << llvm::formatv("{0:F1} %",
                        std::max(0.0, 100 * (time.usec / bound.usec - 1)))
       << " above the bound of any schedule, " << formatUsec(bound.usec);
    StringRef separator = ": ";
    for (auto [stream, usec] : llvm::enumerate(bound.byResource))
      if (usec > kLeastShown * bound.usec) {
        os << separator << time.timeline.getName(stream) << " "
           << formatUsec(usec);
        separator = ", ";
      }
  }
  os << "\na device holds " << formatBytes(time.stateBytes)
     << " of arguments, and about " << formatBytes(time.peakBytes)
     << " at the peak\n";
  if (time.numUnknownLoops > 0)
    os << "loops of an unknown number of iterations, which count once: "
       << time.numUnknownLoops << "\n";
}

/// One line per start and wait, in their order.
static void printSchedule(ArrayRef<ScheduleEvent> schedule, raw_ostream &os) {
  if (schedule.empty())
    return;
  os << "\nschedule, in the order of every rank:\n";
  for (const ScheduleEvent &event : schedule) {
    os << "  " << (event.isStart ? "start" : "wait ") << " " << event.transfer
       << ": " << getPhaseName(event.phase) << (event.phase ? " " : "")
       << getRoleName(event.role) << ", " << event.numCollectives << " in "
       << event.function;
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

using Row = std::vector<std::string>;

/// Cells of text before the numbers of a row.
static constexpr size_t kNumTexts = 4;
static constexpr const char *kTotal = "total";

static void addNumbers(Row &row, const Bytes &before, const Bytes &after) {
  for (auto [b, a] : llvm::zip_equal(before, after)) {
    row.push_back(formatBytes(b));
    row.push_back(formatBytes(a));
  }
}

/// Returns the header, a row for each kind of collective, the total, its
/// multiples of the weights and, of several micro-batches, those of one; beside
/// the total, what branches send.
static std::vector<Row> makeRows(const Report &report) {
  Row header{"collective", "role", "phase", "group"};
  for (const MeshAxis &axis : report.mesh.getAxes()) {
    header.push_back(axis.name + " before");
    header.push_back("after");
  }
  header.push_back("location");
  std::vector<Row> rows{header};
  // Collectives that are the same in every layer share one row with their total
  // bytes.
  auto getKey = [](const Entry &entry) {
    return std::tie(entry.origin.kind, entry.origin.role, entry.origin.phase,
                    entry.origin.group, entry.origin.isConditional,
                    entry.origin.before, entry.after, entry.location);
  };
  std::map<decltype(getKey(report.entries.front())), int64_t> counts;
  for (const Entry &entry : report.entries)
    ++counts[getKey(entry)];
  for (const Entry &entry : report.entries) {
    int64_t count = std::exchange(counts[getKey(entry)], 0);
    if (count == 0)
      continue;
    std::string kind = getKindName(entry.origin.kind).str();
    if (count > 1)
      kind = std::to_string(count) + " x " + kind;
    if (entry.origin.isConditional)
      kind += " in a branch";
    Bytes before(entry.after.size()), after(entry.after.size());
    add(before, entry.origin.before, count);
    add(after, entry.after, count);
    Row &row = rows.emplace_back(Row{kind, getRoleName(entry.origin.role).str(),
                                     getPhaseName(entry.origin.phase).str(),
                                     entry.origin.group});
    addNumbers(row, before, after);
    row.push_back(entry.location);
  }
  Row &total = rows.emplace_back(Row{kTotal, "", "", ""});
  addNumbers(total, report.before, report.after);
  total.push_back("");
  auto addUnits = [&](std::string title, int64_t parts) {
    Row &units = rows.emplace_back(Row{std::move(title), "", "", ""});
    for (auto [b, a, unit] :
         llvm::zip_equal(report.before, report.after, report.unit)) {
      units.push_back(formatUnits(b / parts, unit));
      units.push_back(formatUnits(a / parts, unit));
    }
    units.push_back("");
  };
  bool isOneBatch = report.microBatches == 1;
  addUnits(isOneBatch ? "in units of M" : "in units of M, per update", 1);
  if (!isOneBatch)
    addUnits("per micro-batch, 1 of " + std::to_string(report.microBatches),
             report.microBatches);
  if (llvm::any_of(report.entries, [](const Entry &entry) {
        return entry.origin.isConditional;
      })) {
    Row &branches =
        rows.emplace_back(Row{"in branches, if they run", "", "", ""});
    addNumbers(branches, report.branchesBefore, report.branchesAfter);
    branches.push_back("");
  }
  return rows;
}

/// Columns of equal width, with lines below the header and above the total.
static void printRows(ArrayRef<Row> rows, raw_ostream &os) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row &row : rows)
    for (auto [width, cell] : llvm::zip_equal(widths, row))
      width = std::max(width, cell.size());
  for (auto [index, row] : llvm::enumerate(rows)) {
    std::string line;
    llvm::raw_string_ostream text(line);
    for (auto [column, cell] : llvm::enumerate(row)) {
      bool isNumber = column >= kNumTexts && column + 1 < row.size();
      text << (isNumber ? llvm::right_justify(cell, widths[column])
                        : llvm::left_justify(cell, widths[column]))
           << "  ";
    }
    os << StringRef(line).rtrim() << "\n";
    bool isBeforeTotal =
        index + 1 < rows.size() && rows[index + 1].front() == kTotal;
    if (index == 0 || isBeforeTotal) {
      size_t width = 0;
      for (size_t column : widths)
        width += column + 2;
      os << std::string(width - 2, '-') << "\n";
    }
  }
}

static void printMemory(const Report &report, raw_ostream &os) {
  os << "\nM = " << formatBytes(report.modelBytes)
     << " of weights, as they are gathered; secondary partitions keep "
     << formatBytes(report.secondaryBytes) << " per device\n";
  if (report.accumulatedBytes > 0)
    os << "partial sums of gradients take "
       << formatBytes(report.accumulatedBytes)
       << " per device beyond the gradients\n";
  if (report.stateBytes > 0)
    os << "from step to step, a device keeps " << formatBytes(report.stateBytes)
       << " of weights\n";
}

/// One line per reason, not one per collective.
static void printLeftAlone(ArrayRef<Entry> entries, raw_ostream &os) {
  std::map<std::string, std::vector<const Entry *>> reasons;
  for (const Entry &entry : entries)
    if (!entry.reason.empty())
      reasons[(getRoleName(entry.origin.role) + " " +
               getKindName(entry.origin.kind) + ": " + entry.reason)
                  .str()]
          .push_back(&entry);
  if (!reasons.empty())
    os << "\nleft alone:\n";
  for (const auto &[reason, left] : reasons)
    os << "  " << left.size() << " x " << reason << " (first at "
       << left.front()->location << ")\n";
}

void zpp::report::printTable(const Report &report, raw_ostream &os) {
  os << "bytes that a device sends per step over each tier of "
     << report.mesh.str() << "\n\n";
  printRows(makeRows(report), os);
  printMemory(report, os);
  for (DictionaryAttr choice : report.choices)
    os << "\nchosen: " << choice.getAs<StringAttr>("why").getValue() << "\n";
  printLeftAlone(report.entries, os);
  printTime(report, os);
  printSchedule(report.schedule, os);
}
