//===- Report.cpp - Bytes per tier, before and after (3.4) ----------------===//
//
// Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "zpp/Transforms/Report.h"

#include "Import/StepInliner.h"
#include "zpp/Analysis/Machine.h"
#include "zpp/Dialect/Guest/ReplicaGroups.h"
#include "zpp/Support/OutputFile.h"
#include "zpp/Transforms/Passes.h"

#include <cmath>

namespace zpp {
#define GEN_PASS_DEF_REPORTPASS
#include "zpp/Transforms/Passes.h.inc"
} // namespace zpp

using namespace mlir;
using namespace zpp;
using namespace zpp::report;

namespace {
class ReportPass : public zpp::impl::ReportPassBase<ReportPass> {
public:
  using ReportPassBase::ReportPassBase;
  explicit ReportPass(llvm::raw_ostream &stream) : stream(&stream) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Settings> settings = readSettings();
    if (failed(settings))
      return signalPassFailure();
    Report report;
    if (needsInlining(module)) {
      // A function's collectives count once per call.
      OwningOpRef<ModuleOp> inlined = module.clone();
      if (failed(inlineStep(*inlined)))
        return signalPassFailure();
      report = build(*inlined, *settings);
    } else {
      report = build(module, *settings);
    }
    // A rewrite has said so already.
    if (report.entries.empty() && !module->hasAttr(kMachineAttr)) {
      if (hasUnappliedShardings(module)) {
        emitError(module.getLoc(),
                  "expected a module with collectives, but got one with "
                  "shardings, of which XLA makes some when it compiles the "
                  "step; the command `zpp report` lets XLA make them first");
        return signalPassFailure();
      }
      remarkNoCollectives(module, getArgument());
    }
    std::string text;
    llvm::raw_string_ostream os(text);
    if (format == ReportFormat::Json)
      printJSON(report, os);
    else
      printTable(report, os);
    if (failed(write(text)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  /// The options that are more than words.
  struct Settings {
    Mesh mesh;
    Declarations declared;
    Machine machine;
  };

  /// Reads the options. Emits an error if one of them is malformed.
  FailureOr<Settings> readSettings() {
    ModuleOp module = getOperation();
    FailureOr<Mesh> stepMesh = getStepMesh(module, mesh);
    if (failed(stepMesh))
      return failure();
    FailureOr<Declarations> declared =
        Declarations::parse(module, weightsOf, gradientsOf);
    if (failed(declared))
      return failure();
    if (!(computeScale > 0) || std::isinf(computeScale.getValue()))
      return emitError(module.getLoc(),
                       "expected a positive scale of compute, but got ")
             << computeScale.getValue();
    FailureOr<Machine> machine =
        Machine::read(module, *stepMesh, links, device);
    if (failed(machine))
      return failure();
    return Settings{*stepMesh, *declared, *machine};
  }

  Report build(ModuleOp module, const Settings &settings) const {
    const Mesh &mesh = settings.mesh;
    SmallVector<StepCollective> collectives = readStepCollectives(module, mesh);
    // Rewritten collectives carry their roles.
    if (llvm::any_of(collectives, [](const StepCollective &collective) {
          return !hasOrigin(collective);
        }))
      findRoles(module, mesh, settings.declared, collectives);
    Report report = buildReport(module, mesh, collectives);
    const Machine &machine = settings.machine;
    if (machine.findDevice())
      report.time =
          predictStepTime(module, mesh, collectives, machine.getLinks(mesh),
                          machine.getDevice(), computeScale);
    report.listsTasks = timeline;
    return report;
  }

  LogicalResult write(StringRef text) {
    if (stream) {
      *stream << text;
      return success();
    }
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

  /// The stream that the report goes to, rather than to `output`.
  llvm::raw_ostream *stream = nullptr;
};
} // namespace

FailureOr<Report> zpp::report::predictReport(ModuleOp module, double scale) {
  FailureOr<Machine> machine = Machine::get(module);
  FailureOr<Mesh> mesh = getStepMesh(module, "");
  if (failed(machine) || failed(mesh))
    return failure();
  SmallVector<StepCollective> collectives = readStepCollectives(module, *mesh);
  Report report = buildReport(module, *mesh, collectives);
  report.time =
      predictStepTime(module, *mesh, collectives, machine->getLinks(*mesh),
                      machine->getDevice(), scale);
  return report;
}

std::unique_ptr<Pass> zpp::createReportPass(llvm::raw_ostream &os) {
  return std::make_unique<ReportPass>(os);
}
