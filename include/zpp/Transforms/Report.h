//===- Report.h - What zero-report says -------------------------*- C++ -*-===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef ZPP_TRANSFORMS_REPORT_H
#define ZPP_TRANSFORMS_REPORT_H

#include "mlir/Pass/Pass.h"
#include "zpp/Analysis/Cost/StepTime.h"
#include "zpp/Analysis/Origin.h"
#include "zpp/Analysis/Schedule.h"

#include <map>
#include <set>

namespace zpp {

/// zero-report that writes to `os`, whatever its option `output` says.
std::unique_ptr<mlir::Pass> createReportPass(llvm::raw_ostream &os);

namespace report {

/// An attribute of a module with what `zeropp` has chosen on its own: for each
/// choice the `options` in place of the given ones, and `why`.
inline constexpr llvm::StringLiteral kChoicesAttr = "zpp.choices";

/// Bytes by axis of the mesh.
using Bytes = std::vector<int64_t>;

/// One collective of the input, and what the rewrite made of it.
struct Entry {
  Origin origin;
  std::string location;
  std::string reason;
  bool isRewritten = false;
  Bytes after;
  /// Words for what options did for it (`kGetsSecondary` ...).
  std::set<std::string> gets;
  /// By such words, why options did nothing for it.
  std::map<std::string, std::string> lacks;
};

struct Report {
  Mesh mesh;
  std::vector<Entry> entries;
  /// Why there are none; otherwise empty.
  std::string whyEmpty;
  Bytes before, after;
  /// The same of collectives in branches, which not each step runs; the others
  /// have none of these.
  Bytes branchesBefore, branchesAfter;
  /// The bytes of one plain gather of all weights: 1 M on each tier.
  Bytes unit;
  int64_t modelBytes = 0;
  int64_t secondaryBytes = 0;
  /// The bytes of partial sums of gradients beyond the gradients.
  int64_t accumulatedBytes = 0;
  /// The micro-batches of an update, of which gradients are added up before
  /// they are sent; 1 if none are.
  int64_t microBatches = 1;
  /// The bytes that a device keeps from step to step.
  int64_t stateBytes = 0;
  /// The in-flight limit in bytes; nullopt where the step has no
  /// schedule.
  std::optional<int64_t> prefetchBytes;
  /// With target cuda, the starts and waits in order.
  llvm::SmallVector<ScheduleEvent> schedule;
  /// The prediction, if it is wanted.
  std::optional<StepTime> time;
  bool listsTasks = false;
  /// As `kChoicesAttr` has them.
  llvm::SmallVector<mlir::DictionaryAttr> choices;
};

/// Adds `part`, `times` times, to `sum`.
void add(Bytes &sum, const Bytes &part, int64_t times = 1);

/// The collectives of `module` before and after the rewrite, without a
/// prediction.
Report buildReport(mlir::ModuleOp module, const Mesh &mesh,
                   llvm::ArrayRef<StepCollective> collectives);

/// The same of a step that `zeropp` has rewritten, with a prediction for its
/// machine. `scale` multiplies the time of compute.
mlir::FailureOr<Report> predictReport(mlir::ModuleOp module, double scale);

void printJSON(const Report &report, llvm::raw_ostream &os);
void printTable(const Report &report, llvm::raw_ostream &os);

/// 1536 -> "1.5 KiB"
std::string formatBytes(int64_t bytes);
/// 1536 -> "1.5 ms"
std::string formatUsec(double usec);

} // namespace report
} // namespace zpp

#endif // ZPP_TRANSFORMS_REPORT_H
